//! The `fairtrial` command: parse, run, show the error, exit. The only crate that prints; holds no engine logic.

mod advice;
mod any_backend;
mod args;
mod call_json;
mod cluster;
mod commands;
mod engine;
mod exit_code;
mod failure;
mod input;
mod interrupt;
mod json;
mod log_lines;
mod output;
mod progress;
mod provenance;
mod record;
mod reorder;
mod show;
mod spool;
mod study_progress;
mod terminal;

fn main() -> std::process::ExitCode {
    let ended = engine::become_undumpable()
        .and_then(|()| engine::become_heir())
        .and_then(|()| args::parse())
        .and_then(|args| {
            let _below = engine::go_below();
            commands::run(args)
        });
    match ended {
        Ok(code) => code,
        Err(failure) => show::failure(&failure),
    }
    .into()
}
