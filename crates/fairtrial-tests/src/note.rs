//! What a test says besides passing.

/// Says why a test, or a part of one, was skipped: never silently.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test says which mechanism was missing"
)]
pub fn note(text: impl std::fmt::Display) {
    eprintln!("{text}");
}
