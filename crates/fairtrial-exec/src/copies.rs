//! Workspaces without mounts: copies of a frozen tree, put back after each command; and the files that candidates bring.
//!
//! A workspace's strangers are dead when it is put back, but what they left may be anything: links, modes, names.

mod changes;
mod left;
mod provider;
mod slot;

pub use changes::{Deletions, Written, write_changes};
pub use provider::{Provider, Unavailable, UnknownProvider, probe_copy};
pub use slot::{CopySlot, Reset};
