//! Tables while a study runs: after each batch of runs, on a thread of their own (ST-73).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::journal::Journal;
use crate::outputs::Outputs;
use crate::tables::ExportError;

/// How often tables are written while a study runs.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// So long after the last time.
    pub every: Duration,
    /// Or once so many more runs ended.
    pub runs: u64,
    /// Of the elapsed time, at most this part.
    pub share: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            runs: 10_000,
            share: 0.05,
        }
    }
}

/// What a row takes to write; each batch is measured, this is for those that come on top.
const PER_RUN: Duration = Duration::from_micros(30);

/// How far a study is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    /// Runs that ended in this invocation.
    pub(crate) ended: u64,
    /// Runs taken from the record.
    pub(crate) reused: u64,
}

impl Reached {
    fn rows(self) -> u64 {
        self.ended + self.reused
    }
}

/// When the next batch is due: pure, by instants that it is told.
#[derive(Debug)]
struct Schedule {
    pace: Pace,
    begun: Instant,
    /// When the last batch was written.
    last_end: Instant,
    /// How long that took.
    last_cost: Duration,
    spent: Duration,
    /// What the tables know of.
    shown: Reached,
}

impl Schedule {
    fn new(pace: Pace, now: Instant) -> Self {
        Self {
            pace,
            begun: now,
            last_end: now,
            last_cost: Duration::ZERO,
            spent: Duration::ZERO,
            shown: Reached::default(),
        }
    }

    /// When to write; none if tables know of all that ended.
    fn due(&self, reached: Reached) -> Option<Instant> {
        let news = reached.ended.checked_sub(self.shown.ended);
        let news = news.filter(|news| *news > 0)?;
        let by_batch = match news >= self.pace.runs {
            true => self.last_end,
            false => self.last_end + self.pace.every,
        };
        let more = reached.rows().saturating_sub(self.shown.rows());
        let cost = self.last_cost + PER_RUN.mul_f64(more as f64);
        let by_share = self.begun + (self.spent + cost).div_f64(self.pace.share);
        Some(by_batch.max(by_share))
    }

    fn wrote(&mut self, from: Instant, to: Instant, shown: Reached) {
        self.last_cost = to - from;
        self.spent += self.last_cost;
        self.last_end = to;
        self.shown = shown;
    }
}

/// Writes batches, one after another.
pub(crate) struct Batches {
    outputs: Outputs,
    journal: Arc<Journal>,
    schedule: Schedule,
    writing: Option<JoinHandle<Result<(), ExportError>>>,
    given_up: Arc<AtomicBool>,
    problem: Option<ExportError>,
}

impl Batches {
    pub(crate) fn new(outputs: Outputs, journal: Arc<Journal>, pace: Pace) -> Self {
        Self {
            outputs,
            journal,
            schedule: Schedule::new(pace, Instant::now()),
            writing: None,
            given_up: Arc::default(),
            problem: None,
        }
    }

    /// Writes whenever a batch is due. Never returns, may be dropped.
    pub(crate) async fn keep_current(&mut self, mut news: watch::Receiver<Reached>) {
        loop {
            let reached = *news.borrow_and_update();
            match self.schedule.due(reached) {
                Some(due) if due <= Instant::now() => self.write(reached).await,
                Some(due) => {
                    // What ends meanwhile may make it due at once.
                    let news = tokio::time::timeout_at(due, news.changed()).await;
                    if matches!(news, Ok(Err(_))) {
                        std::future::pending().await // nothing will end any more
                    }
                }
                None if news.changed().await.is_err() => std::future::pending().await,
                None => {}
            }
        }
    }

    /// No batch is under way any more. Says why one could not be written, if that happened.
    pub(crate) async fn end(mut self) -> Option<String> {
        self.given_up.store(true, Ordering::Relaxed);
        self.written().await;
        let problem = self.problem.take()?;
        Some(format!("tables could not be written meanwhile: {problem}"))
    }

    async fn write(&mut self, reached: Reached) {
        let from = Instant::now();
        let (outputs, journal) = (self.outputs.clone(), Arc::clone(&self.journal));
        let given_up = Arc::clone(&self.given_up);
        self.writing = Some(tokio::task::spawn_blocking(move || {
            outputs.write_meanwhile(&journal, &given_up)
        }));
        self.written().await;
        self.schedule.wrote(from, Instant::now(), reached);
    }

    /// Waits for the batch that is under way. The journal is the record: a study goes on without tables.
    async fn written(&mut self) {
        let Some(writing) = &mut self.writing else {
            return;
        };
        match writing.await {
            Ok(Err(problem)) if !matches!(problem, ExportError::GivenUp) => {
                self.problem.get_or_insert(problem);
            }
            // One that panicked is told of by the last export, which does the same.
            Ok(_) | Err(_) => {}
        }
        self.writing = None;
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-73: 30 s or 10,000 runs, at most 5 % of the elapsed time.
    #[test]
    fn a_batch_is_due_after_so_long_or_so_many_and_within_its_share() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let runs = |ended| Reached { ended, reused: 0 };
        let due = |schedule: &Schedule, reached| {
            let due = schedule.due(reached)? - start;
            Some(due.as_secs_f64().round() as u64)
        };
        let mut schedule = Schedule::new(Pace::default(), start);
        assert_eq!(due(&schedule, runs(0)), None);
        assert_eq!(due(&schedule, runs(1)), Some(30));
        assert_eq!(due(&schedule, runs(9_999)), Some(30));
        let expected = "0.3 s, which it should take, are 5 % of 6 s";
        assert_eq!(due(&schedule, runs(10_000)), Some(6), "{expected}");
        let many = Reached {
            ended: 1,
            reused: 1_000_000,
        };
        assert_eq!(due(&schedule, many), Some(600), "30 s are 5 % of 600 s");
        schedule.wrote(at(30), at(31), runs(500));
        assert_eq!(due(&schedule, runs(500)), None, "nothing is new");
        assert_eq!(due(&schedule, runs(501)), Some(61), "2 s are 5 % of 40 s");
        assert_eq!(due(&schedule, runs(10_500)), Some(46));
        schedule.wrote(at(61), at(66), runs(900));
        assert_eq!(due(&schedule, runs(901)), Some(220));
        assert_eq!(due(&schedule, runs(100_900)), Some(280));
        let (mut now, mut spent, mut ended) = (66, 6, 900);
        for cost in [7, 1, 30, 12, 3] {
            ended += 20_000;
            now = due(&schedule, runs(ended)).unwrap().max(now);
            assert!((spent as f64) < 0.05 * now as f64);
            schedule.wrote(at(now), at(now + cost), runs(ended));
            (now, spent) = (now + cost, spent + cost);
        }
    }
}
