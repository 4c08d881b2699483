//! Candidates against a repository: what each changes, whether that is right, and how fast it is.
//!
//! Makes no call to the operating system: it is handed what it reads, and says what is to be run.

pub mod stage;
