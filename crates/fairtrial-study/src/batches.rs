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

/// When the next batch is due: pure, by instants that it is told.
#[derive(Debug)]
struct Schedule {
    pace: Pace,
    begun: Instant,
    /// When the last batch was written.
    last_end: Instant,
    /// How long that took: the next is expected to take as long.
    last_cost: Duration,
    spent: Duration,
    /// How many ends the tables know of.
    shown: u64,
}

impl Schedule {
    fn new(pace: Pace, now: Instant) -> Self {
        Self {
            pace,
            begun: now,
            last_end: now,
            last_cost: Duration::ZERO,
            spent: Duration::ZERO,
            shown: 0,
        }
    }

    /// When to write after so many ends; none if tables know of all.
    fn due(&self, ended: u64) -> Option<Instant> {
        let news = ended.checked_sub(self.shown).filter(|news| *news > 0)?;
        let by_batch = match news >= self.pace.runs {
            true => self.last_end,
            false => self.last_end + self.pace.every,
        };
        let by_share = self.begun + (self.spent + self.last_cost).div_f64(self.pace.share);
        Some(by_batch.max(by_share))
    }

    fn wrote(&mut self, from: Instant, to: Instant, shown: u64) {
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

    /// Writes whenever a batch is due; `ended` says how many runs have ended. Never returns, may be dropped.
    pub(crate) async fn keep_current(&mut self, mut ended: watch::Receiver<u64>) {
        loop {
            let count = *ended.borrow_and_update();
            match self.schedule.due(count) {
                Some(due) if due <= Instant::now() => self.write(count).await,
                Some(due) => {
                    // What ends meanwhile may make it due at once. An error is that nothing will end any more.
                    _ = tokio::time::timeout_at(due, ended.changed()).await;
                }
                None if ended.changed().await.is_err() => std::future::pending().await,
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

    async fn write(&mut self, count: u64) {
        let from = Instant::now();
        let (outputs, journal) = (self.outputs.clone(), Arc::clone(&self.journal));
        let given_up = Arc::clone(&self.given_up);
        self.writing = Some(tokio::task::spawn_blocking(move || {
            outputs.write_meanwhile(&journal, &given_up)
        }));
        self.written().await;
        self.schedule.wrote(from, Instant::now(), count);
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
        let mut schedule = Schedule::new(Pace::default(), start);
        assert_eq!(schedule.due(0), None);
        assert_eq!(schedule.due(1), Some(at(30)));
        assert_eq!(schedule.due(9_999), Some(at(30)));
        assert_eq!(schedule.due(10_000), Some(at(0)));
        schedule.wrote(at(30), at(31), 500);
        assert_eq!(schedule.due(500), None, "nothing is new");
        assert_eq!(schedule.due(501), Some(at(61)), "2 s are 5 % of 40 s");
        assert_eq!(schedule.due(10_500), Some(at(40)));
        schedule.wrote(at(61), at(66), 900);
        assert_eq!(schedule.due(901), Some(at(220)), "11 s are 5 % of 220 s");
        assert_eq!(schedule.due(99_999), Some(at(220)));
        let (mut now, mut spent) = (66, 6);
        for cost in [7, 1, 30, 12, 3] {
            let due = (schedule.due(u64::MAX).unwrap() - start).as_secs();
            now = due.max(now);
            assert!((spent as f64) < 0.05 * now as f64);
            schedule.wrote(at(now), at(now + cost), 1_000);
            (now, spent) = (now + cost, spent + cost);
        }
    }
}
