//! What end-to-end tests are told with.

mod cli;
mod host;
mod story;

pub use cli::{Cli, Finished};
pub use host::{Census, running_with, wait_until};
pub use story::{Story, arguments, json};
