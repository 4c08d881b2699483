//! Live progress of an evaluation (CA-94): a bar on a terminal, warnings in any case. Drawn when something happened, and so
//! never while a measured process runs.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use fairtrial_candidates::measure::Purpose;
use fairtrial_candidates::{Event, State};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use crate::terminal::Shown;

/// Between two updates.
const PACE: Duration = Duration::from_millis(100);

/// Shows how far an evaluation is.
pub(super) struct EvaluationProgress {
    bar: ProgressBar,
    drawn: Option<Instant>,
    begun: Instant,
    phase: &'static str,
    states: HashMap<String, State>,
    ended: u64,
    best: Option<(f64, f64, f64)>,
    blocks: u32,
}

impl EvaluationProgress {
    pub(super) fn new(quiet: bool) -> Self {
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
            begun: Instant::now(),
            phase: "snapshot",
            states: HashMap::new(),
            ended: 0,
            best: None,
            blocks: 0,
        }
    }

    /// Shows what it is told until nobody tells any more.
    pub(super) async fn follow(mut self, mut told: mpsc::UnboundedReceiver<Event>) {
        while let Some(event) = told.recv().await {
            self.take(&event);
            let due = self.drawn.is_none_or(|at| at.elapsed() >= PACE);
            if due && !self.bar.is_hidden() {
                self.drawn = Some(Instant::now());
                self.bar.set_message(self.line());
                self.bar.tick();
            }
        }
        self.bar.finish_and_clear();
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Snapshot { .. } => self.phase = "baseline",
            Event::Candidate { id, name, state } => {
                let who = id.clone().unwrap_or_else(|| name.clone());
                let before = self.states.insert(who, *state);
                let is_end = |state: State| !matches!(state, State::Waiting | State::Checking);
                self.ended += u64::from(is_end(*state) && !before.is_some_and(is_end));
                if *state == State::Checking {
                    self.phase = "tests";
                }
            }
            Event::Block { series, block } => {
                self.phase = match series.purpose {
                    Purpose::Confirmation(_) => "confirming",
                    _ => "measuring",
                };
                self.blocks = *block;
            }
            Event::Look { judgements, .. } => {
                let ratios = judgements
                    .iter()
                    .map(|(_, said)| (said.ratio, said.low, said.high));
                let best = ratios.min_by(|one, other| one.0.total_cmp(&other.0));
                self.best = best.or(self.best);
            }
            Event::Warning { message } => self.say(message),
            Event::LockWait { holder } => self.say(&format!(
                "waiting for another evaluation on this machine: {holder}"
            )),
            Event::Baseline { .. }
            | Event::Eliminated { .. }
            | Event::Proposal { .. }
            | Event::Done { .. } => {}
        }
    }

    fn say(&self, message: &str) {
        self.bar.suspend(|| {
            writeln!(Shown::on(io::stderr()), "{message}").unwrap_or_default(); // nobody is there to be told
        });
    }

    fn line(&self) -> String {
        let total = self.states.len() as u64;
        let count =
            |wanted: fn(&State) -> bool| self.states.values().filter(|state| wanted(state)).count();
        let correct = count(|state| matches!(state, State::Correct | State::Racing | State::Done));
        let failed = count(|state| *state == State::Failed);
        let mut parts = vec![format!("{} {}/{total}", self.phase, self.ended)];
        parts.push(format!("{correct} correct, {failed} failed"));
        if self.blocks > 0 {
            parts.push(format!("block {}", self.blocks));
        }
        if let Some((ratio, low, high)) = self.best {
            parts.push(format!("best {ratio:.2} [{low:.2}, {high:.2}]"));
        }
        if let Some(left) = self.left(total).filter(|_| self.phase == "tests") {
            parts.push(format!("{} s left", left.as_secs()));
        }
        parts.join(" · ")
    }

    /// By what ended so far; unknown before the first end.
    fn left(&self, total: u64) -> Option<Duration> {
        let each = self
            .begun
            .elapsed()
            .checked_div(u32::try_from(self.ended).ok()?)?;
        Some(each * u32::try_from(total.saturating_sub(self.ended)).ok()?)
    }
}
