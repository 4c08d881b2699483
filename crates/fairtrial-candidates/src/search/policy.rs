//! The search: told what happened, it says whom to ask, what to try, and when a race is due. Starts nothing, waits for
//! nothing, reads no clock.

mod requested;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::{Answer, Failure, FailureKind, Malformed};
use super::ask::{Ask, ProposalId, RequestId};
use super::family::Family;
use super::ledger::{Fate, Found, Ledger, Record, Stray};
use super::settings::Settings;
use crate::measure::Report;
use crate::stage::{Given, Origin, Place};
use requested::{Held, Requested, Standing};
use rules::Wanted;

/// What a search is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// There are races; else candidates are only checked.
    pub races: bool,
    /// The proposer works on this machine, so that a race waits for it (CA-91).
    pub shares_cpus: bool,
}

/// A candidate that phase 1 has judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Its id.
    pub id: String,
    /// Its parent's id, if that is known.
    pub parent: Option<String>,
    /// Its generation.
    pub generation: usize,
    /// What was found.
    pub found: Found,
}

/// A proposed candidate that is to be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Which it is; to be named when it is settled.
    pub id: ProposalId,
    /// The candidate, with its parent.
    pub given: Given,
    /// How it came to be.
    pub origin: Origin,
    /// One more than its parent's.
    pub generation: usize,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Candidates are to be tried, or are being tried.
    Evaluate,
    /// Nothing but to wait for an answer; there may be requests to send.
    Await,
    /// These are to be raced, the best so far among them.
    Race(Vec<String>),
    /// Nothing more will come.
    Over,
}

/// The state of a search.
///
/// Tell it what happens; after each time send what [`Search::next_ask`] gives, try what [`Search::next_proposal`] gives,
/// and write down what [`Search::take_records`] gives before it counts.
///
/// ```
/// use fairtrial_candidates::FailureKind;
/// use fairtrial_candidates::search::{Answer, Checked, Found, Search, Settings, Step, Terms};
///
/// let mut search = Search::new(Settings::default(), Terms { races: true, shares_cpus: false });
/// let found = Found::Failed { kind: FailureKind::Mismatch, differing: 1, cases: 10 };
/// search.checked(Checked { id: "c-91ab03".to_owned(), parent: None, generation: 1, found });
/// let ask = search.next_ask().expect("a repair");
/// assert_eq!(search.step(false), Step::Await);
/// search.answered(ask.id, Answer::default());
/// assert_eq!(search.step(false), Step::Over);
/// assert_eq!(search.ledger().answered, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Search {
    settings: Settings,
    terms: Terms,
    passed: Duration,
    family: Family,
    correct: usize,
    requests: Vec<Requested>,
    /// To be asked when there is room.
    wanted: VecDeque<Wanted>,
    strays: Vec<Stray>,
    /// Correct, and in no race yet.
    unraced: Vec<String>,
    best: Option<String>,
    rounds: u32,
    racing: bool,
    dead: Option<String>,
    stopped: Option<String>,
    records: Vec<Record>,
}

impl Search {
    /// A search that knows of nothing yet.
    #[must_use]
    pub fn new(settings: Settings, terms: Terms) -> Self {
        Self {
            settings,
            terms,
            passed: Duration::ZERO,
            family: Family::default(),
            correct: 0,
            requests: Vec::new(),
            wanted: VecDeque::new(),
            strays: Vec::new(),
            unraced: Vec::new(),
            best: None,
            rounds: 0,
            racing: false,
            dead: None,
            stopped: None,
            records: Vec::new(),
        }
    }

    /// The search that left these records. Recorded answers are used, not asked for again; requests that were open are
    /// sent again, and candidates that were being tried are tried again (CA-97). What is told a second time is passed
    /// over. Budgets may be others than before.
    #[must_use]
    pub fn replay(
        settings: Settings,
        terms: Terms,
        records: impl IntoIterator<Item = Record>,
    ) -> Self {
        let mut search = Self::new(settings, terms);
        for record in records {
            search.apply(record);
        }
        search
    }

    /// So much time has passed since the evaluation began.
    pub fn now(&mut self, passed: Duration) {
        self.passed = passed;
        if self.out_of_time() {
            self.stop("budget spent: wall");
        }
    }

    /// The `wall` budget is spent: what has not begun does not begin.
    #[must_use]
    pub fn out_of_time(&self) -> bool {
        let wall = self.settings.budget.wall;
        wall.is_some_and(|wall| self.passed >= wall)
    }

    /// Phase 1 has judged a given candidate. Duplicates, and candidates that could not be staged, are not told.
    pub fn checked(&mut self, checked: Checked) {
        if !self.family.has(&checked.id) {
            self.take(Record::Checked(checked));
        }
    }

    /// Phase 1 has judged a proposed candidate; `id` is none if it could not be staged.
    pub fn evaluated(&mut self, proposal: ProposalId, id: Option<String>, found: Found) {
        self.settle(proposal, Fate::Evaluated { id, found });
    }

    /// A proposed candidate is the same as another.
    pub fn duplicate(&mut self, proposal: ProposalId, of: String) {
        self.settle(proposal, Fate::Duplicate { of });
    }

    /// A proposed candidate that was taken is not tried after all. A resumed search takes it up again.
    pub fn not_run(&mut self, proposal: ProposalId, why: &str) {
        if let Some(fate) = self.pending(proposal) {
            *fate = Fate::NotRun {
                why: why.to_owned(),
            };
        }
    }

    /// A race begins. Until it ends, a proposer that shares the CPUs is asked nothing.
    pub fn race_began(&mut self) {
        self.racing = true;
    }

    /// A race has ended; `round` is its number, counted from 1.
    pub fn raced(&mut self, round: u32, report: &Report) {
        self.racing = false;
        if round > self.rounds {
            self.take(rules::raced(round, report));
        }
    }

    /// A race was broken off.
    pub fn race_failed(&mut self) {
        self.racing = false;
    }

    /// An answer came. One that nobody waits for any more changes nothing.
    pub fn answered(&mut self, request: RequestId, answer: Answer) {
        let at_s = self.at_s();
        if self.is_open(request) {
            self.take(Record::Answered {
                request,
                at_s,
                answer,
            });
        }
    }

    /// No answer came.
    pub fn failed(&mut self, request: RequestId, failure: Failure) {
        if !self.is_open(request) {
            return; // a proposer that is closed at the end did not die of it
        }
        if failure.kind == FailureKind::ProposerDead {
            return self.proposer_dead(&failure.message);
        }
        let at_s = self.at_s();
        self.take(Record::Failed {
            request,
            at_s,
            failure,
        });
    }

    /// The proposer said something that belongs to no request.
    pub fn stray(&mut self, malformed: Malformed) {
        let at_s = self.at_s();
        self.take(Record::Stray(Stray { at_s, malformed }));
    }

    /// There is no proposer any more. What is at hand is still tried (CA-87).
    pub fn proposer_dead(&mut self, why: &str) {
        if self.dead.is_some() {
            return;
        }
        self.dead = Some(why.to_owned());
        self.wanted.clear();
        let failure = Failure::new(FailureKind::ProposerDead, format!("proposer_dead: {why}"));
        self.end_open(|at_s| Standing::Failed {
            at_s,
            failure: failure.clone(),
        });
    }

    /// Nothing more is asked or begun: open requests are cancelled, and what waits is not run. What is being tried goes
    /// on, and is to be settled.
    pub fn stop(&mut self, why: &str) {
        if self.stopped.is_some() {
            return;
        }
        self.stopped = Some(why.to_owned());
        self.wanted.clear();
        self.end_open(|at_s| Standing::Cancelled {
            at_s,
            why: why.to_owned(),
        });
        for held in self
            .requests
            .iter_mut()
            .flat_map(|request| &mut request.proposals)
        {
            if held.fate == Fate::Waiting {
                held.fate = Fate::NotRun {
                    why: why.to_owned(),
                };
            }
        }
    }

    /// The request to send now, if there is one. It is open from now on.
    pub fn next_ask(&mut self) -> Option<Ask> {
        if self.racing && self.terms.shares_cpus || self.dead.is_some() || self.stopped.is_some() {
            return None;
        }
        if let Some(again) = self.requests.iter_mut().find(|request| request.is_unsent()) {
            again.sent = true;
            return Some(again.ask.clone());
        }
        let ask = self.next_wanted()?;
        let at_s = self.at_s();
        self.take(Record::Asked {
            ask: ask.clone(),
            at_s,
        });
        self.requests[ask.id.index()].sent = true;
        Some(ask)
    }

    /// Whether somebody still waits for the answer to a request.
    #[must_use]
    pub fn is_open(&self, request: RequestId) -> bool {
        let request = self.requests.get(request.index());
        request.is_some_and(Requested::is_open)
    }

    /// The proposed candidate to try next, if there is one. It is being tried from now on.
    pub fn next_proposal(&mut self) -> Option<Proposal> {
        let waits = |request: &Requested| {
            let mut proposals = request.proposals.iter();
            let index = proposals.position(|held| held.fate == Fate::Waiting)?;
            let request = request.ask.id;
            Some(ProposalId { request, index })
        };
        let id = self.requests.iter().find_map(waits)?;
        let request = &mut self.requests[id.request.index()];
        let origin = request.ask.kind.origin();
        let held = &mut request.proposals[id.index];
        held.fate = Fate::Running;
        let held = held.clone();
        Some(self.proposal(id, origin, &held))
    }

    /// Proposed candidates that an earlier process settled, in their order: for whoever keeps the candidates themselves.
    #[must_use]
    pub fn settled(&self) -> Vec<Proposal> {
        let all = self.requests.iter().flat_map(|request| {
            let numbered = request.proposals.iter().enumerate();
            numbered.map(move |(index, held)| (request, index, held))
        });
        let settled = all.filter(|(_, _, held)| {
            matches!(held.fate, Fate::Evaluated { .. } | Fate::Duplicate { .. })
        });
        settled
            .map(|(request, index, held)| {
                let request_id = request.ask.id;
                let id = ProposalId {
                    request: request_id,
                    index,
                };
                self.proposal(id, request.ask.kind.origin(), held)
            })
            .collect()
    }

    fn proposal(&self, id: ProposalId, origin: Origin, held: &Held) -> Proposal {
        let note = held.proposed.note.clone();
        let meta = note.map(|note| Map::from_iter([("note".to_owned(), Value::from(note))]));
        Proposal {
            id,
            origin,
            generation: self.family.generation(&held.parent) + 1,
            given: Given {
                name: id.to_string(),
                place: place(id),
                content: held.proposed.content.clone(),
                parent: Some(held.parent.clone()),
                meta,
            },
        }
    }

    /// What is to be done now. `busy` says whether given candidates wait for phase 1, or anybody is in it.
    #[must_use]
    pub fn step(&self, busy: bool) -> Step {
        let mut held = self.requests.iter().flat_map(|request| &request.proposals);
        if busy || held.any(|held| matches!(held.fate, Fate::Waiting | Fate::Running)) {
            return Step::Evaluate;
        }
        let awaits = self.requests.iter().any(Requested::is_open);
        let race_is_due = self.terms.races && !self.unraced.is_empty();
        match (race_is_due, awaits) {
            (true, true) if self.terms.shares_cpus => Step::Await,
            (true, _) => Step::Race(self.entrants()),
            (false, true) => Step::Await,
            (false, false) if self.has_more_to_ask() => Step::Await,
            (false, false) => Step::Over,
        }
    }

    /// What is to be written down, in this order, before it counts.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// All requests and what became of them.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger {
            proposer_dead: self.dead.clone(),
            stopped: self
                .stopped
                .clone()
                .or_else(|| self.short_of().map(str::to_owned)),
            strays: self.strays.clone(),
            ..Ledger::default()
        };
        for request in &self.requests {
            ledger.add(request.entry());
        }
        ledger
    }

    /// The budget for want of which something is not asked.
    fn short_of(&self) -> Option<&'static str> {
        self.spent().filter(|_| !self.wanted.is_empty())
    }

    /// The best so far, and all that were in no race yet.
    fn entrants(&self) -> Vec<String> {
        let best = self.best.iter().filter(|best| !self.unraced.contains(best));
        best.chain(&self.unraced).cloned().collect()
    }

    fn at_s(&self) -> f64 {
        self.passed.as_secs_f64()
    }

    fn settle(&mut self, proposal: ProposalId, fate: Fate) {
        if self.pending(proposal).is_some() {
            self.take(Record::Settled { proposal, fate });
        }
    }

    /// The fate of a proposal that is not settled.
    fn pending(&mut self, id: ProposalId) -> Option<&mut Fate> {
        let request = self.requests.get_mut(id.request.index())?;
        let fate = &mut request.proposals.get_mut(id.index)?.fate;
        matches!(fate, Fate::Waiting | Fate::Running).then_some(fate)
    }

    fn end_open(&mut self, end: impl Fn(f64) -> Standing) {
        let at_s = self.at_s();
        for request in self.requests.iter_mut().filter(|request| request.is_open()) {
            request.standing = end(at_s);
        }
    }

    /// Every change that a resumed search must know of passes here.
    fn take(&mut self, record: Record) {
        self.records.push(record.clone());
        self.apply(record);
    }
}

/// After all that were given, in the order of requests.
fn place(id: ProposalId) -> Place {
    Place {
        source: usize::MAX,
        name: format!("{:010}", id.request.index()).into_bytes(),
        line: id.index + 1,
    }
}
