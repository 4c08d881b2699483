//! What a test says besides passing.

use std::fmt::Display;

/// Says why a test, or a part of one, was skipped: never silently.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test says which mechanism was missing"
)]
pub(crate) fn skipped(why: impl Display) {
    eprintln!("skipped: {why}");
}
