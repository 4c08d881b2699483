//! What people see: the only file here that prints.

use std::io::Write;
use std::process::ExitCode;

/// Why the suite does not run.
#[derive(Debug)]
pub(crate) struct Refusal(pub(crate) String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// For `map_err`: says what was attempted.
pub(crate) fn attempting<E: std::fmt::Display>(
    what: impl Into<String>,
) -> impl FnOnce(E) -> Refusal {
    let what = what.into();
    move |error| Refusal(format!("{what}: {error}"))
}

/// Says it and ends with 2.
#[expect(clippy::print_stderr, reason = "the suite is a program for people")]
pub(crate) fn refusal(refusal: &Refusal) -> ExitCode {
    eprintln!("hostile: refuses to start: {}", refusal.0);
    ExitCode::from(2)
}

/// Says that it did not get to its end; exits with 1, for what was not tried did not pass.
#[expect(clippy::print_stderr, reason = "the suite is a program for people")]
pub(crate) fn stopped(why: &str) -> ExitCode {
    eprintln!("hostile: stopped {why}");
    ExitCode::FAILURE
}

/// A line, at once.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    // Whoever stopped reading wants no more of it.
    writeln!(out, "{text}").and_then(|()| out.flush()).ok();
}
