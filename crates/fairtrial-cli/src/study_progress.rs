//! Live progress of a study: a bar on a terminal, else a line now and then.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use fairtrial_study::Status;
use fairtrial_study::Tally;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::terminal::Shown;

/// Between two lines where there is no terminal.
const QUIET: Duration = Duration::from_secs(30);

/// Before the first end there is nothing to tell, and nothing to estimate by.
const BEGUN: &str = "{spinner} [{elapsed}] {bar:30} {pos}/{len} {msg}";
const ESTIMATED: &str = "{spinner} [{elapsed}] {bar:30} {pos}/{len} {msg}, {eta} left";

/// Shows how far a study is.
pub(crate) struct StudyProgress {
    bar: ProgressBar,
    /// When the next line is due; none where nobody wants one.
    next_line: Option<Instant>,
    begun: Instant,
    total: u64,
    /// Whether a run ended, so that it can be said when the last one will.
    estimates: bool,
}

impl StudyProgress {
    pub(crate) fn new(total: u64, quiet: bool) -> Self {
        let watched = io::stderr().is_terminal();
        let bar = match quiet || !watched {
            true => ProgressBar::hidden(),
            false => visible(total),
        };
        let begun = Instant::now();
        Self {
            bar,
            next_line: (!quiet && !watched).then(|| begun + QUIET),
            begun,
            total,
            estimates: false,
        }
    }

    /// One more ended.
    pub(crate) fn ended(&mut self, tally: &Tally) {
        let line_is_due = self.next_line.is_some_and(|at| at <= Instant::now());
        if self.bar.is_hidden() && !line_is_due {
            return;
        }
        let done = tally.reused + tally.all_ended();
        let rate = tally.all_ended() as f64 / self.begun.elapsed().as_secs_f64().max(1e-3);
        let said = format!(
            "{} ok, {} failed, {} running, {rate:.1} runs/s",
            tally.of(Status::Success),
            tally.failures(),
            tally.running
        );
        if line_is_due {
            self.next_line = Some(Instant::now() + QUIET);
            let line = format!("{done}/{} runs: {said}", self.total);
            // Nobody is left to tell if standard error itself is gone.
            writeln!(Shown::on(io::stderr()), "{line}").unwrap_or_default();
        }
        // Of what was taken from the record, nothing follows for what is left.
        if !self.estimates && tally.all_ended() > 0 {
            self.estimates = true;
            self.bar.set_style(style(ESTIMATED));
            self.bar.reset_eta();
        }
        self.bar.set_position(done);
        self.bar.set_message(said);
    }
}

impl Drop for StudyProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn visible(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    bar.set_style(style(BEGUN));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("a template of ours")
}
