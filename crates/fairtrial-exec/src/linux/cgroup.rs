//! Leaves: cgroups that each hold the processes of one call, limit them, count for them and kill them at once.
//!
//! [`Access`] finds out which cgroups can be had, [`Leaves`] makes, lends and removes them, [`Leaf`] is one. A leaf is
//! one directory on v2, and one per controller's hierarchy on v1, with the v2 side beside them where there is one.
//! Nothing here moves a process: whoever is to be in a leaf is born in it or writes `0` to its [`Leaf::joins`].

mod access;
mod attempt;
mod below;
mod counters;
mod files;
mod group;
mod host;
mod leaf;
mod leaves;
mod memory;
mod owner;
mod reason;

#[cfg(test)]
mod tests;

pub use access::{Access, Kind, Part};
pub use below::Below;
pub use counters::{Counters, Peak, Version};
pub use leaf::{Leaf, LeafLimits};
pub use leaves::Leaves;
pub use owner::{EngineName, sweep_dead_owners};
pub use reason::Reason;
