//! Every `unsafe` and every raw system call, one module per mechanism.

pub mod cpu_clock;
#[cfg(feature = "engine")]
pub mod file_io;
#[cfg(feature = "engine")]
pub mod lease;
#[cfg(feature = "engine")]
pub mod mapping;
#[cfg(feature = "engine")]
pub mod memfd;
#[cfg(feature = "engine")]
pub mod nameless;
pub mod packet;
pub mod proc_files;
pub mod proc_status;
pub mod proc_tree;
pub mod process;
#[cfg(feature = "engine")]
pub(crate) mod readiness;
pub mod remove;
pub mod signals;
pub mod socket;
pub mod spawn;
#[cfg(feature = "engine")]
pub mod sweep;
pub mod tree_usage;
pub mod wait;
