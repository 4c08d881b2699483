//! Live progress of `batch` on a terminal, and lines of text that do not tear it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::Shown;

/// Counts finished calls; shows them if somebody watches.
pub(crate) struct Progress {
    bar: ProgressBar,
    ok: u64,
    failed: u64,
}

impl Progress {
    /// Shown unless `quiet`, or standard error is no terminal, or standard output shares the terminal with it.
    pub(crate) fn new(total_bytes: Option<u64>, quiet: bool, records_on_stdout: bool) -> Self {
        let watched =
            io::stderr().is_terminal() && !(records_on_stdout && io::stdout().is_terminal());
        let bar = if quiet || !watched {
            ProgressBar::hidden()
        } else {
            visible(total_bytes)
        };
        Self {
            bar,
            ok: 0,
            failed: 0,
        }
    }

    /// One more finished; `bytes` is its share of the input.
    pub(crate) fn finished(&mut self, ok: bool, bytes: u64) {
        if ok {
            self.ok += 1;
        } else {
            self.failed += 1;
        }
        if self.bar.is_hidden() {
            return;
        }
        self.bar.inc(bytes);
        let calls = self.ok + self.failed;
        let rate = calls as f64 / self.bar.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_message(format!(
            "{} ok, {} failed, {rate:.0} calls/s",
            self.ok, self.failed
        ));
    }

    /// A line on standard error, above the bar if there is one.
    pub(crate) fn say(&self, line: &str) {
        self.bar.suspend(|| {
            // Nobody is left to tell if standard error itself is gone.
            writeln!(Shown::on(io::stderr()), "{line}").unwrap_or_default();
        });
    }

    /// Takes the bar away.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn visible(total_bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match total_bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{spinner} [{elapsed}] {bar:30} {percent}% {msg}, {eta} left",
        ),
        None => (ProgressBar::no_length(), "{spinner} [{elapsed}] {msg}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(ProgressStyle::with_template(template).expect("a template of ours"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
