//! CA-90: whatever comes when, every request ends and every proposed candidate has a fate; and a search made again from
//! its records is the same search (CA-97).

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::super::super::ledger::{Entry, State};
use super::*;
use crate::measure::random::Random;

/// An engine and a proposer whose every choice is drawn: who is late, who fails, what is found.
struct World {
    search: Search,
    random: TestRandom,
    given: usize,
    /// Sent and not answered.
    open: Vec<Ask>,
    /// Taken and not settled.
    running: Vec<Proposal>,
    /// Given candidates in phase 1.
    checking: Vec<String>,
    next_id: usize,
    correct: Vec<String>,
    rounds: u32,
    racing: Option<Vec<String>>,
    seconds: u64,
    records: Vec<Record>,
    /// What a resumed engine tells again: it has its own journal.
    told: Vec<Told>,
}

#[derive(Clone)]
enum Told {
    Checked(Checked),
    Raced(u32, Report),
}

/// Draws from what proptest gives, so that failures shrink.
struct TestRandom {
    draws: Vec<u32>,
    at: usize,
}

impl TestRandom {
    fn below(&mut self, n: usize) -> usize {
        let draw = self.draws[self.at % self.draws.len()];
        // After one round of draws others are made of them, or some searches would never end.
        let round = (self.at / self.draws.len()) as u64;
        self.at += 1;
        Random::stream(u64::from(draw), "world", &[round]).below(n)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

impl World {
    fn new(settings: Settings, shares_cpus: bool, given: usize, draws: Vec<u32>) -> Self {
        let terms = Terms {
            races: true,
            shares_cpus,
        };
        Self {
            search: Search::new(settings, terms),
            random: TestRandom { draws, at: 0 },
            given,
            open: Vec::new(),
            running: Vec::new(),
            checking: (0..given).map(|number| format!("g-{number}")).collect(),
            next_id: 0,
            correct: Vec::new(),
            rounds: 0,
            racing: None,
            seconds: 0,
            records: Vec::new(),
            told: Vec::new(),
        }
    }

    fn found(&mut self) -> Found {
        match self.random.below(6) {
            0..=2 => Found::Correct,
            3 | 4 => mismatch(1 + self.random.below(4), 10),
            _ => Found::Failed {
                kind: cases::FailureKind::Infra,
                differing: 0,
                cases: 0,
            },
        }
    }

    /// One thing happens. `false` when the search is over.
    fn happen(&mut self) -> bool {
        self.seconds += self.random.below(3) as u64;
        self.search.now(Duration::from_secs(self.seconds));
        let search = &self.search;
        self.open.retain(|ask| search.is_open(ask.id));
        while !self.random.one_in(4)
            && let Some(ask) = self.search.next_ask()
        {
            self.open.push(ask);
        }
        match self.random.below(4) {
            0 => self.answer(),
            1 => self.finish_one(),
            2 => self.take_one(),
            _ => self.race(),
        }
        self.records.extend(self.search.take_records());
        if self.checking.is_empty() && self.running.is_empty() && self.racing.is_none() {
            return self.search.step(false) != Step::Over;
        }
        true
    }

    fn answer(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len());
        let ask = self.open.remove(at);
        match self.random.below(12) {
            0 => {
                let failure = Failure::new(FailureKind::Declined, "no");
                self.search.failed(ask.id, failure);
            }
            1 => self
                .search
                .failed(ask.id, Failure::new(FailureKind::Lost, "gone")),
            2 if self.random.one_in(4) => {
                self.search
                    .failed(ask.id, Failure::new(FailureKind::ProposerDead, "dead"));
            }
            3 => {
                let secrets = crate::search::secrets::Secrets::none();
                self.search
                    .stray(Malformed::new("is not JSON", b"x", &secrets));
                self.open.push(ask);
            }
            _ => {
                let tokens = Some(self.random.below(100) as u64);
                let count = self.random.below(ask.n + 2);
                self.search.answered(
                    ask.id,
                    Answer {
                        tokens,
                        ..answer(count)
                    },
                );
                // Late and second answers change nothing.
                self.search.answered(ask.id, answer(5));
            }
        }
    }

    fn take_one(&mut self) {
        self.running.extend(self.search.next_proposal());
    }

    fn finish_one(&mut self) {
        let total = self.running.len() + self.checking.len();
        if total == 0 {
            return;
        }
        let found = self.found();
        match self.random.below(total).checked_sub(self.checking.len()) {
            None => {
                let at = self.random.below(self.checking.len());
                let checked = given(&self.checking.remove(at), found);
                self.note_correct(&checked.id, &checked.found);
                self.told.push(Told::Checked(checked.clone()));
                self.search.checked(checked);
            }
            Some(at) => {
                let proposal = self.running.remove(at);
                match self.random.below(6) {
                    0 => self.search.duplicate(proposal.id, "g-0".to_owned()),
                    1 => self.search.evaluated(proposal.id, None, mismatch(0, 0)),
                    _ => {
                        self.next_id += 1;
                        let id = format!("c-{}", self.next_id);
                        self.note_correct(&id, &found);
                        self.search.evaluated(proposal.id, Some(id), found);
                    }
                }
            }
        }
    }

    fn note_correct(&mut self, id: &str, found: &Found) {
        if *found == Found::Correct {
            self.correct.push(id.to_owned());
        }
    }

    fn race(&mut self) {
        if let Some(entrants) = self.racing.take() {
            let placings = entrants.iter().map(|id| {
                let verdict = [
                    Verdict::Faster,
                    Verdict::Faster,
                    Verdict::Faster,
                    Verdict::Slower,
                ];
                placing(id, verdict[self.random.below(4)], 0.8)
            });
            let report = report(placings.collect());
            self.rounds += 1;
            self.told.push(Told::Raced(self.rounds, report.clone()));
            self.search.raced(self.rounds, &report);
            return;
        }
        let busy = !self.checking.is_empty() || !self.running.is_empty();
        if let Step::Race(entrants) = self.search.step(busy) {
            assert!(entrants.iter().all(|id| self.correct.contains(id)));
            self.search.race_began();
            self.racing = Some(entrants);
        }
    }

    fn check_limits(&self) {
        let settings = &self.search.settings;
        let ledger = self.search.ledger();
        let of = |kind| {
            ledger
                .entries
                .iter()
                .filter(|entry| entry.kind == kind)
                .count()
        };
        assert!(ledger.open <= settings.concurrency);
        assert!(ledger.requests <= settings.budget.requests);
        assert!(ledger.proposed - ledger.not_run <= settings.budget.candidates);
        assert!(of(Kind::Repair) <= settings.repair.max);
        assert!(of(Kind::Adaptive) <= settings.adaptive.total);
        assert_eq!(
            ledger.requests,
            ledger.open + ledger.answered + ledger.failed + ledger.cancelled
        );
    }

    /// The records of this search make one that knows the same, and is told nothing new by what is told again.
    fn check_replay(&self) {
        let again = Search::replay(
            self.search.settings.clone(),
            self.search.terms,
            self.records.clone(),
        );
        let mut told_again = again.clone();
        for told in &self.told {
            match told {
                Told::Checked(checked) => told_again.checked(checked.clone()),
                Told::Raced(round, report) => told_again.raced(*round, report),
            }
        }
        assert!(told_again.take_records().is_empty());
        assert_eq!(told_again.ledger(), again.ledger());
        let (was, is) = (self.search.ledger(), again.ledger());
        assert_eq!(was.requests, is.requests);
        for (was, is) in was.entries.iter().zip(&is.entries) {
            match was.state {
                State::Answered => assert_same_answer(was, is),
                State::Failed if is.state == State::Failed => assert_eq!(was, is),
                // Cancelled, or the proposer was dead: a resumed search asks again.
                _ => assert_eq!(is.state, State::Open),
            }
        }
        if self.search.stopped.is_none() && self.search.dead.is_none() {
            assert_eq!(self.search.wanted, again.wanted);
            assert_eq!(self.search.unraced, again.unraced);
            assert_eq!(self.search.best, again.best);
        }
    }
}

/// What was being tried is tried again; what was settled is settled.
fn assert_same_answer(was: &Entry, is: &Entry) {
    assert_eq!(
        (was.state, was.tokens, was.ended_s),
        (is.state, is.tokens, is.ended_s)
    );
    for (was, is) in was.candidates.iter().zip(&is.candidates) {
        match (&was.fate, &is.fate) {
            (Fate::Running | Fate::NotRun { .. }, Fate::Waiting) => {}
            (was, is) => assert_eq!(was, is),
        }
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let limits = (1_usize..4, 0_usize..5, 1_usize..5, 0_usize..4);
    let more = (any::<bool>(), 0_usize..4, 0_usize..6);
    let budget = (
        0_usize..30,
        0_usize..30,
        prop::option::weighted(0.3, 0_u64..300),
        prop::option::weighted(0.3, 0_u64..400),
    );
    (limits, more, budget).prop_map(|(limits, more, budget)| {
        let (concurrency, max, stop_at_correct, top) = limits;
        let (batch, per_lineage, total) = more;
        let (candidates, requests, wall, tokens) = budget;
        let mut settings = Settings {
            concurrency,
            ..Settings::default()
        };
        settings.repair.max = max;
        settings.repair.stop_at_correct = stop_at_correct;
        settings.refine.top = top;
        settings.refine.batch = batch;
        settings.adaptive.per_lineage = per_lineage;
        settings.adaptive.total = total;
        settings.budget.candidates = candidates;
        settings.budget.requests = requests;
        settings.budget.wall = wall.map(Duration::from_secs);
        settings.budget.tokens = tokens;
        settings
    })
}

/// More than any of these searches takes, unless it never ends.
const PATIENCE: usize = 20_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// CA-90, CA-92, CA-97
    #[test]
    fn every_answer_is_consumed_and_every_candidate_has_a_fate(
        settings in settings(),
        shares_cpus in any::<bool>(),
        given in 0_usize..8,
        draws in prop::collection::vec(any::<u32>(), 40..400),
    ) {
        let mut world = World::new(settings, shares_cpus, given, draws);
        let mut happened = 0;
        while world.happen() {
            happened += 1;
            prop_assert!(happened < PATIENCE, "it does not end: {:#?}", world.search);
            world.check_limits();
            if happened % 16 == 0 {
                world.check_replay();
            }
        }
        world.check_limits();
        world.check_replay();
        let ledger = world.search.ledger();
        prop_assert_eq!(ledger.open, 0);
        prop_assert_eq!(ledger.requests, ledger.answered + ledger.failed + ledger.cancelled);
        prop_assert_eq!(ledger.pending, 0);
        prop_assert_eq!(ledger.proposed, ledger.evaluated + ledger.duplicates + ledger.not_run);
        prop_assert!(world.checking.is_empty() && world.given < 8);
        prop_assert!(world.search.unraced.is_empty(), "all that are correct were raced");
    }

    /// CA-90: stopped at any moment, too.
    #[test]
    fn a_search_that_is_broken_off_leaves_nothing_open(
        settings in settings(),
        given in 0_usize..8,
        draws in prop::collection::vec(any::<u32>(), 40..200),
        steps in 0_usize..200,
    ) {
        let mut world = World::new(settings, false, given, draws);
        for _ in 0..steps {
            if !world.happen() {
                break;
            }
        }
        world.search.stop("interrupted");
        for proposal in std::mem::take(&mut world.running) {
            world.search.not_run(proposal.id, "interrupted");
        }
        prop_assert!(world.search.next_ask().is_none() && world.search.next_proposal().is_none());
        let ledger = world.search.ledger();
        prop_assert_eq!((ledger.open, ledger.pending), (0, 0));
        world.records.extend(world.search.take_records());
        world.check_replay();
    }
}

/// The property is worth something only if all of this happens in the worlds that are drawn.
#[test]
fn drawn_worlds_have_everything_in_them() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let worlds = (settings(), prop::collection::vec(any::<u32>(), 400));
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..2000 {
        let (settings, draws) = worlds.new_tree(&mut runner).expect("a world").current();
        let mut world = World::new(settings, true, 7, draws);
        let mut happened = 0;
        while world.happen() && happened < PATIENCE {
            happened += 1;
        }
        let ledger = world.search.ledger();
        let mut see = |what: String| *seen.entry(what).or_default() += 1;
        for entry in &ledger.entries {
            see(format!("{} {:?}", entry.kind, entry.state));
            for candidate in &entry.candidates {
                see(format!("{:?}", candidate.fate)
                    .chars()
                    .take_while(char::is_ascii_alphabetic)
                    .collect());
            }
        }
        see(ledger.stopped.unwrap_or_default());
        see(ledger.proposer_dead.unwrap_or_default());
    }
    for what in ["repair", "refine", "adaptive"] {
        for state in [State::Answered, State::Failed, State::Cancelled] {
            assert!(
                seen.contains_key(&format!("{what} {state:?}")),
                "{what} {state:?}: {seen:?}"
            );
        }
    }
    let ends =
        ["wall", "tokens", "requests", "candidates"].map(|what| format!("budget spent: {what}"));
    let fates = ["Evaluated", "Duplicate", "NotRun", "dead"].map(str::to_owned);
    for what in ends.iter().chain(&fates) {
        assert!(seen.contains_key(what), "{what}: {seen:?}");
    }
}
