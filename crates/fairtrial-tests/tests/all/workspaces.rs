//! Workspaces: one suite over every way to mount them, at every level where that makes a difference (CA-28).

mod attacked;
mod counted;
mod ground;
mod layers;
mod mounted;
mod whole;
