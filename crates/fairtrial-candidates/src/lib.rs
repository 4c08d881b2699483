//! Candidates against a repository: what each changes, whether that is right, and how fast it is.
//!
//! Makes no call to the operating system: it is handed what it reads, says what is to be run, and is told what came of it.

pub mod cases;
pub mod measure;
pub mod search;
pub mod stage;
