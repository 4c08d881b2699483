//! What end-to-end tests are told with.

mod alone;
mod cli;
mod host;
mod story;

pub use alone::{alone, anonymous_bytes, stress};
pub use cli::{Cli, Finished};
pub use host::{Census, running_with, wait_until};
pub use story::{Story, arguments, json};
