//! The one integration binary: a file per subject.

mod ahead;
mod backend;
mod batch_cli;
mod command;
mod config;
mod deadline;
mod dispatch;
mod doctor_cli;
mod environment;
mod exec_cli;
mod faults;
mod host_terms;
mod hostile;
mod isolation;
mod issue;
mod lifecycle;
mod metrics;
mod process;
mod results;
mod verdicts;
