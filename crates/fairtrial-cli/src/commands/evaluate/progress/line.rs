//! What a bar says of an evaluation: phase, done of all, who passed and who did not, the best so far, time left (CA-94).
//! Pure: events and moments in, text out.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fairtrial_candidates::measure::{Purpose, SeriesId};
use fairtrial_candidates::spec::Spec;
use fairtrial_candidates::{Event, State};

/// What is known beforehand.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Terms {
    /// Runs of test commands on the base.
    baseline_runs: u64,
    /// Blocks of a series, at most.
    max_blocks: u64,
}

impl Terms {
    pub(in super::super) fn of(spec: &Spec) -> Self {
        Self {
            baseline_runs: spec.tests.len() as u64 * u64::from(spec.baseline.runs),
            max_blocks: u64::from(spec.measure.max_blocks),
        }
    }
}

/// Where an evaluation stands.
pub(super) struct Line {
    terms: Terms,
    phase: Phase,
    /// When the phase began, and what was done by then.
    since: (Instant, u64),
    baseline_done: u64,
    /// By id and name: of those that are the same some have one id.
    states: HashMap<(Option<String>, String), State>,
    block: u64,
    best: Option<(f64, f64, f64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Snapshot,
    Baseline,
    Tests,
    /// None before its first block.
    Measuring(Option<SeriesId>),
}

impl Line {
    pub(super) fn new(terms: Terms, now: Instant) -> Self {
        Self {
            terms,
            phase: Phase::Snapshot,
            since: (now, 0),
            baseline_done: 0,
            states: HashMap::new(),
            block: 0,
            best: None,
        }
    }

    pub(super) fn take(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Snapshot { .. } => self.enter(Phase::Baseline, now),
            Event::Baseline { .. } => self.baseline_done += 1,
            Event::Candidate { id, name, state } => {
                self.states.insert((id.clone(), name.clone()), *state);
                match (*state, &self.phase) {
                    (State::Checking, _) => self.enter(Phase::Tests, now),
                    (State::Racing, Phase::Baseline | Phase::Tests) => {
                        self.block = 0;
                        self.enter(Phase::Measuring(None), now);
                    }
                    _ => {}
                }
            }
            Event::Block { series, block } => {
                self.block = u64::from(*block);
                self.enter(Phase::Measuring(Some(series.clone())), now);
            }
            Event::Look { judgements, .. } => {
                let ratios = judgements
                    .iter()
                    .map(|(_, said)| (said.ratio, said.low, said.high));
                let best = ratios.min_by(|one, other| one.0.total_cmp(&other.0));
                self.best = best.or(self.best);
            }
            Event::Eliminated { .. }
            | Event::LockWait { .. }
            | Event::Proposal { .. }
            | Event::Warning { .. }
            | Event::Done { .. } => {}
        }
    }

    /// What it counts changes with the phase, so an estimate begins anew.
    fn enter(&mut self, phase: Phase, now: Instant) {
        if self.phase != phase {
            self.phase = phase;
            self.since = (now, self.done_of_all().0);
        }
    }

    pub(super) fn text(&self, now: Instant) -> String {
        let (done, all) = self.done_of_all();
        let phase = match &self.phase {
            Phase::Snapshot => return "snapshot".to_owned(),
            Phase::Baseline => "baseline",
            Phase::Tests => "tests",
            Phase::Measuring(Some(series)) if series.purpose != Purpose::Race => "confirming",
            Phase::Measuring(_) => "measuring",
        };
        let mut parts = vec![format!("{phase} {done}/{all}")];
        if !self.states.is_empty() {
            let correct =
                self.count(|state| matches!(state, State::Correct | State::Racing | State::Done));
            let failed = self.count(|state| state == State::Failed);
            parts.push(format!("{correct} correct, {failed} failed"));
        }
        if let Some((ratio, low, high)) = self.best {
            parts.push(format!("best {ratio:.2} [{low:.2}, {high:.2}]"));
        }
        if let Some(left) = self.left(now) {
            // A race may be decided before its last block.
            let most = match self.phase {
                Phase::Measuring(_) => "at most ",
                _ => "",
            };
            parts.push(format!("{most}{} left", shown(left)));
        }
        parts.join(" · ")
    }

    fn done_of_all(&self) -> (u64, u64) {
        match &self.phase {
            Phase::Snapshot => (0, 0),
            Phase::Baseline => (self.baseline_done, self.terms.baseline_runs),
            Phase::Tests => {
                let waits = |state| matches!(state, State::Waiting | State::Checking);
                let all = self.states.len() as u64;
                (all - self.count(waits), all)
            }
            Phase::Measuring(_) => (self.block, self.terms.max_blocks),
        }
    }

    fn count(&self, wanted: impl Fn(State) -> bool) -> u64 {
        self.states.values().filter(|state| wanted(**state)).count() as u64
    }

    /// By what was done since the phase began; unknown before that is anything.
    fn left(&self, now: Instant) -> Option<Duration> {
        let (done, all) = self.done_of_all();
        let (begun, before) = self.since;
        let since = u32::try_from(done.checked_sub(before)?).ok()?;
        let each = now.checked_duration_since(begun)?.checked_div(since)?;
        each.checked_mul(u32::try_from(all.saturating_sub(done)).ok()?)
    }
}

/// To the second; longer than a minute, to the minute.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_candidates::measure::{Judgement, Verdict};

    struct Watching {
        line: Line,
        begun: Instant,
        now: Instant,
    }

    impl Watching {
        fn new() -> Self {
            let terms = Terms {
                baseline_runs: 6,
                max_blocks: 40,
            };
            let begun = Instant::now();
            Self {
                line: Line::new(terms, begun),
                begun,
                now: begun,
            }
        }

        /// So many seconds after the beginning.
        fn at(&mut self, seconds: u64, event: &Event) -> String {
            self.now = self.begun + Duration::from_secs(seconds);
            self.line.take(event, self.now);
            self.line.text(self.now)
        }
    }

    fn candidate(name: &str, state: State) -> Event {
        Event::Candidate {
            id: Some("c-1".to_owned()),
            name: name.to_owned(),
            state,
        }
    }

    fn block(series: &str, block: u32) -> Event {
        Event::Block {
            series: series.parse().unwrap(),
            block,
        }
    }

    fn snapshot() -> Event {
        Event::Snapshot {
            hash: String::new(),
            base: String::new(),
            files: 3,
            provider: String::new(),
        }
    }

    fn judged(ratio: f64) -> (String, Judgement) {
        let judgement = Judgement {
            verdict: Verdict::Faster,
            against_base: Verdict::Faster,
            leaning: None,
            doubt: None,
            ratio,
            low: ratio - 0.02,
            high: ratio + 0.02,
            hodges_lehmann: ratio,
            level: 0.99,
            blocks: 8,
        };
        ("c-1".to_owned(), judgement)
    }

    /// CA-94
    #[test]
    fn a_line_says_phase_counts_best_and_time_left() {
        let mut watching = Watching::new();
        assert_eq!(watching.line.text(watching.now), "snapshot");
        assert_eq!(watching.at(1, &snapshot()), "baseline 0/6");
        let ran = Event::Baseline {
            test: "t".to_owned(),
            run: 1,
            runs: 3,
            cases: 9,
        };
        assert_eq!(watching.at(3, &ran), "baseline 1/6 · 10 s left");
        for name in ["a", "b", "c", "d"] {
            watching.at(3, &candidate(name, State::Waiting));
        }
        watching.at(10, &candidate("a", State::Checking));
        watching.at(12, &candidate("d", State::Duplicate));
        let said = watching.at(14, &candidate("a", State::Correct));
        assert_eq!(said, "tests 2/4 · 1 correct, 0 failed · 4 s left");
        watching.at(15, &candidate("b", State::Failed));
        watching.at(15, &candidate("c", State::Correct));
        let said = watching.at(16, &candidate("a", State::Racing));
        assert_eq!(said, "measuring 0/40 · 2 correct, 1 failed");
        watching.at(20, &block("1/race/1", 1));
        let said = watching.at(25, &block("1/race/1", 2));
        assert_eq!(
            said,
            "measuring 2/40 · 2 correct, 1 failed · at most 4 min left"
        );
        let look = Event::Look {
            series: "1/race/1".parse().unwrap(),
            blocks: 8,
            judgements: vec![judged(0.98), judged(0.71)],
        };
        let said = watching.at(25, &look);
        assert!(said.contains("best 0.71 [0.69, 0.73]"), "{said}");
        let said = watching.at(60, &block("1/confirm/c-1/1", 1));
        assert!(said.starts_with("confirming 1/40"), "{said}");
        assert!(
            !said.contains("left"),
            "of a new series nothing is known: {said}"
        );
    }
}
