//! What end-to-end tests are told with.

mod cli;
mod host;
mod shell;
mod story;

pub use cli::{Cli, Finished, Running};
pub use host::{Census, running_with, wait_until};
pub use shell::Shell;
pub use story::{Story, arguments, json};
