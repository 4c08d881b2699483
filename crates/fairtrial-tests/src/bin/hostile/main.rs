//! The hostile suite (SB-71 to SB-74): programs that mean harm, run in a cage at every isolation level.
//!
//! One program, run again in several parts: outside it makes the cage and waits; inside, the first process sets the
//! place up, a runner takes the table row by row, each trial has a process namespace of its own, and in it an engine
//! with secrets to lose. Every part but the outermost refuses to run where the cage is not.

mod args;
mod cage;
mod cell;
mod census;
mod company;
mod compile;
mod engine;
mod expect;
mod judge;
mod places;
mod report;
mod runner;
mod servers;
mod show;
mod stories;
mod table;

use std::process::ExitCode;

use args::Part;

fn main() -> ExitCode {
    let ended = match args::part() {
        Part::Outside(options) => cage::make_and_run(options),
        Part::Enter(plan) => cage::enter(&plan),
        Part::Init(plan) => cage::init(&plan),
        Part::Run => cage::verified().and_then(|plan| runner::run(&plan)),
        Part::Cell(job) => cage::verified().and_then(|plan| cell::run(&plan, &job)),
        Part::Engine(job) => cage::verified().and_then(|plan| engine::run(&plan, &job)),
    };
    ended.unwrap_or_else(|refusal| show::refusal(&refusal))
}
