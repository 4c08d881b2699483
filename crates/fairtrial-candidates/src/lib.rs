//! Candidates against a repository: what each changes, whether that is right, and how fast it is.
//!
//! Makes no call to the operating system: it is handed what it reads, says what is to be run, and is told what came of it.
//! The one file it reads by itself is the evaluation's own ([`spec::Spec::load`]).

pub mod measure;
pub mod spec;
pub mod stage;
