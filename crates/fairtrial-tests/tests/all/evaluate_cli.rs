//! Evaluations as a user runs them: `fairtrial evaluate` on small repositories of their own.

mod attacked;
mod base;
mod checked;
mod correctness;
mod directory;
mod ends;
mod events;
mod providers;
mod racing;
mod resuming;
mod search;
mod slopes;
mod stopping;
mod ties;
mod trial;
mod untouched;
mod watched;
mod workspaces;
