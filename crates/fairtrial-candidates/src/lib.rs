//! Candidates against a repository: what each changes, whether that is right, and how fast it is.
//!
//! [`stage`], [`measure`] and the [`search::Search`] make no call to the operating system: they are handed what they read,
//! say what is to be run or asked, and are told what came of it.

pub mod measure;
pub mod search;
pub mod stage;
