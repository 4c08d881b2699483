//! Staging as a whole: patches beside git's own, sources, refusals, and the keys that Python makes. And pytest with our
//! plug-in.

mod applying;
mod beside_git;
mod profiled;
mod pytest_cases;
mod python_key;
mod refusals;
mod searching;
mod sources;
mod support;
