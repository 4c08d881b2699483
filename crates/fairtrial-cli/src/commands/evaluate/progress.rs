//! Live progress of an evaluation (CA-94): a bar on a terminal, warnings in any case. Drawn when something happened and
//! before the next block is begun, and so never while a measured process runs.

mod line;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use fairtrial_candidates::Event;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use crate::terminal::Shown;
use line::Line;
pub(super) use line::Terms;

/// Between two updates.
const PACE: Duration = Duration::from_millis(100);

/// Shows how far an evaluation is.
pub(super) struct EvaluationProgress {
    bar: ProgressBar,
    drawn: Option<Instant>,
    line: Line,
}

impl EvaluationProgress {
    pub(super) fn new(quiet: bool, terms: Terms) -> Self {
        let bar = match quiet || !io::stderr().is_terminal() {
            true => ProgressBar::hidden(),
            false => {
                let bar = ProgressBar::no_length();
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
                bar.set_style(ProgressStyle::with_template("{msg}").expect("a template of ours"));
                bar
            }
        };
        Self {
            bar,
            drawn: None,
            line: Line::new(terms, Instant::now()),
        }
    }

    /// Shows what it is told until nobody tells any more.
    pub(super) async fn follow(mut self, mut told: mpsc::UnboundedReceiver<Event>) {
        while let Some(event) = told.recv().await {
            match &event {
                Event::Warning { message } => self.say(message),
                Event::LockWait { holder } => self.say(&format!(
                    "waiting for another evaluation on this machine: {holder}"
                )),
                _ => {}
            }
            self.line.take(&event, Instant::now());
            let due = self.drawn.is_none_or(|at| at.elapsed() >= PACE);
            if due && !self.bar.is_hidden() {
                self.drawn = Some(Instant::now());
                self.bar.set_message(self.line.text(Instant::now()));
                self.bar.tick();
            }
        }
        self.bar.finish_and_clear();
    }

    fn say(&self, message: &str) {
        self.bar.suspend(|| {
            writeln!(Shown::on(io::stderr()), "{message}").unwrap_or_default(); // nobody is there to be told
        });
    }
}
