//! Calls at the level `none`: what most tests are about is the engine, not what a level forbids besides.

use std::ffi::OsString;

use fairtrial_exec::{Call, Level, Sandbox};

/// As [`Call::command`].
pub fn command<S: Into<OsString>>(argv: impl IntoIterator<Item = S>) -> Call {
    at_none(Call::command(argv))
}

/// As [`Call::source`].
#[must_use]
pub fn source(source: &str, function: &str, arguments: Vec<u8>) -> Call {
    at_none(Call::source(source, function, arguments))
}

fn at_none(mut call: Call) -> Call {
    call.sandbox = Sandbox::new(Level::None);
    call
}
