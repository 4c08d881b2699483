//! What end-to-end tests are told with.

mod alone;
pub mod bare;
mod cli;
mod gate;
mod host;
mod launcher;
mod note;
mod processes;
mod redis_server;
mod shell;
mod stand_in;
mod story;

pub use alone::{anonymous_bytes, is_alone, is_alone_with, stress};
pub use cli::{Cli, Finished, OnTerminal, Running, binary};
pub use gate::Gate;
pub use host::{Census, running_with, wait_until};
pub use launcher::{Launcher, program};
pub use note::note;
pub use processes::Process;
pub use redis_server::{RedisServer, ServerTerms};
pub use shell::Shell;
pub use stand_in::StandIn;
pub use story::{PATIENCE, Story, arguments, json};
