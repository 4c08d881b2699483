//! Staging as a whole: patches beside git's own, sources, refusals, and the keys that Python makes.

mod applying;
mod beside_git;
mod python_key;
mod refusals;
mod searching;
mod sources;
mod support;
