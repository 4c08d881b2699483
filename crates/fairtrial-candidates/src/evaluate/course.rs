//! The course of an evaluation: candidates tested as they come, proposers asked, races run when they are due.
//!
//! One loop owns all of it. What is to be done next is decided by [`Search`], which knows no process; here it is done, told
//! and written down. Tests never wait for a proposer (CA-91), and nothing is held while something else is waited for.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::asking::Asking;
use super::correctness::Checked;
use super::error::EvaluateError;
use super::event::{Event, State};
use super::field::{Field, Newcomer, Number};
use super::ground::Tree;
use super::prepare::Reception;
use super::racing::Races;
use super::record::Record;
use super::scene::Scene;
use crate::cases::{Baseline, Failure, FailureKind};
use crate::search::{self, Found, ProposalId, Search, Step};

/// An evaluation under way.
pub(crate) struct Course<'a> {
    pub(crate) reception: Reception<'a>,
    pub(crate) scene: &'a mut Scene,
    pub(crate) field: Field,
    pub(crate) races: Option<Races>,
    pub(crate) search: Search,
    pub(crate) asking: Asking,
    pub(crate) baseline: Arc<Baseline>,
    /// Protected paths that the base's own tests write to.
    pub(crate) allowed: Arc<BTreeSet<String>>,
    pub(crate) slots: usize,
    /// When the evaluation began, as far as budgets are concerned.
    pub(crate) begun: Instant,
    waiting: VecDeque<Number>,
    testing: JoinSet<(Number, Checked, Option<Tree>)>,
    /// Which candidates were proposed, and as which proposal.
    proposals: HashMap<Number, ProposalId>,
}

/// What a course is made of.
pub(crate) struct Start<'a> {
    pub(crate) reception: Reception<'a>,
    pub(crate) scene: &'a mut Scene,
    pub(crate) races: Option<Races>,
    pub(crate) search: Search,
    pub(crate) asking: Asking,
    pub(crate) baseline: Baseline,
    pub(crate) allowed: BTreeSet<String>,
    pub(crate) slots: usize,
}

impl<'a> Course<'a> {
    pub(crate) fn new(start: Start<'a>) -> Self {
        Self {
            reception: start.reception,
            scene: start.scene,
            field: Field::default(),
            races: start.races,
            search: start.search,
            asking: start.asking,
            baseline: Arc::new(start.baseline),
            allowed: Arc::new(start.allowed),
            slots: start.slots.max(1),
            begun: Instant::now(),
            waiting: VecDeque::new(),
            testing: JoinSet::new(),
            proposals: HashMap::new(),
        }
    }

    /// Takes in the candidates that are given.
    pub(crate) async fn welcome(&mut self, newcomers: Vec<Newcomer>) -> Result<(), EvaluateError> {
        let first = self.field.entries.len();
        let (todo, warning) = self.reception.take_in(&mut self.field, newcomers).await?;
        for warning in warning.into_iter().chain(self.field.doubts(first)) {
            self.scene.warn(Some(warning));
        }
        for number in first..self.field.entries.len() {
            self.tell(number);
        }
        self.waiting.extend(todo);
        Ok(())
    }

    /// What an earlier process knew: proposals in their order, and races (CA-97).
    pub(crate) async fn recall(&mut self) -> Result<(), EvaluateError> {
        self.settle_recorded();
        for proposal in self.search.settled() {
            let newcomer = Newcomer {
                given: Ok(proposal.given),
                origin: proposal.origin,
            };
            self.welcome(vec![newcomer]).await?;
            self.proposals
                .insert(self.field.entries.len() - 1, proposal.id);
            self.settle_recorded();
        }
        match &mut self.races {
            Some(races) => races.recall(self.scene, &mut self.field),
            None => Ok(()),
        }
    }

    /// Goes on until nothing more will come.
    pub(crate) async fn run(&mut self) -> Result<(), EvaluateError> {
        loop {
            self.search.now(self.begun.elapsed());
            self.ask();
            self.take_proposals().await?;
            // Of a proposal that was tested its end may not have been written down.
            self.settle_recorded();
            self.fill_slots();
            self.keep_records()?;
            let busy = !self.waiting.is_empty() || !self.testing.is_empty();
            match self.search.step(busy) {
                Step::Over => break,
                Step::Race(ids) => self.race(&ids).await?,
                Step::Evaluate | Step::Await => self.wait().await?,
            }
        }
        let costs = &mut self.scene.costs;
        costs.correctness_s = self.begun.elapsed().as_secs_f64() - costs.measurement_s;
        Ok(())
    }

    /// Until something happens.
    async fn wait(&mut self) -> Result<(), EvaluateError> {
        let time_is_up = self.asking.time_is_up(self.begun);
        tokio::select! {
            Some(joined) = self.testing.join_next() => {
                let (number, checked, tree) = joined.map_err(EvaluateError::attempting("testing candidates"))?;
                let id = self.field.entries[number].staged_id();
                self.scene.telling.keep(&Record::Checked { id, checked: checked.clone() })?;
                self.settle(number, checked, tree)
            }
            Some(heard) = self.asking.next() => {
                self.hear(heard);
                Ok(())
            }
            () = time_is_up => Ok(()),
        }
    }

    /// Tests as many as there are slots for; once the time is up none any more.
    fn fill_slots(&mut self) {
        if self.search.out_of_time() {
            for number in std::mem::take(&mut self.waiting) {
                self.drop_out(number, "budget spent: wall");
            }
        }
        while self.testing.len() < self.slots {
            let Some(number) = self.waiting.pop_front() else {
                return;
            };
            if self.field.entries[number].state != State::Waiting {
                continue; // a shorter equal took its place
            }
            self.field.begin(number);
            self.tell(number);
            let staged = self.field.entries[number].staged.clone();
            let staged = staged.expect("only staged candidates wait");
            let checking = Arc::clone(&self.scene.checking);
            let (baseline, allowed) = (Arc::clone(&self.baseline), Arc::clone(&self.allowed));
            self.testing.spawn(async move {
                let (checked, tree) = checking.check(&staged, &baseline, &allowed).await;
                (number, checked, tree)
            });
        }
    }

    /// Those who wait and are on record need not be tested again; what was the engine's own failure is tried again.
    fn settle_recorded(&mut self) {
        let is_infra = |checked: &Checked| {
            checked
                .failure
                .as_ref()
                .is_some_and(|failure| failure.kind == FailureKind::Infra)
        };
        for number in std::mem::take(&mut self.waiting) {
            let id = self.field.entries[number].staged_id();
            let recorded = self
                .scene
                .past
                .checked
                .get(&id)
                .filter(|checked| !is_infra(checked));
            match recorded.cloned() {
                Some(checked) => {
                    self.field.begin(number);
                    self.settle(number, checked, None)
                        .expect("nothing is read for what is on record");
                }
                None => self.waiting.push_back(number),
            }
        }
    }

    /// The tests of a candidate have ended.
    fn settle(
        &mut self,
        number: Number,
        checked: Checked,
        tree: Option<Tree>,
    ) -> Result<(), EvaluateError> {
        let entry = &mut self.field.entries[number];
        entry.state = match checked.failure {
            Some(_) => State::Failed,
            None => State::Correct,
        };
        entry.failure = checked.failure;
        entry.cases = checked.cases;
        let id = entry.staged_id();
        let is_correct = entry.is_correct();
        if let (true, Some(races), Some(tree)) = (is_correct, &mut self.races, tree) {
            races.keep_tree(&id, tree);
        }
        self.tell(number);
        if is_correct && self.takes_the_place_of_another(number)? {
            return Ok(());
        }
        self.report_to_search(number);
        Ok(())
    }

    /// A late, shorter equal has the result of the one it stands for from now on, and is not measured (CA-18).
    fn takes_the_place_of_another(&mut self, number: Number) -> Result<bool, EvaluateError> {
        let stood = self.field.deliver(number, self.reception.base);
        let stood = stood.map_err(|error| EvaluateError::Failed(error.to_string()))?;
        let Some(stood) = stood else {
            return Ok(false);
        };
        let before = self.field.entries[stood].staged_id();
        if let Some(proposal) = self.proposals.get(&number) {
            self.search.duplicate(*proposal, before);
        }
        self.tell(number);
        Ok(true)
    }

    fn report_to_search(&mut self, number: Number) {
        let entry = &self.field.entries[number];
        let found = match &entry.failure {
            None => Found::Correct,
            Some(failure) => Found::Failed {
                kind: failure.kind,
                differing: failure.diffs_total,
                cases: entry.cases.map_or(0, |cases| cases.total as usize),
            },
        };
        let id = entry.id();
        match (self.proposals.get(&number), id) {
            (Some(proposal), id) => self.search.evaluated(*proposal, id, found),
            (None, Some(id)) => {
                let lineage = self.field.lineages().swap_remove(number);
                self.search.checked(search::Checked {
                    id,
                    parent: lineage.parent,
                    generation: lineage.generation,
                    found,
                });
            }
            (None, None) => {}
        }
    }

    fn drop_out(&mut self, number: Number, why: &str) {
        let entry = &mut self.field.entries[number];
        entry.state = State::NotRun;
        entry.failure = Some(Failure::new(FailureKind::NotRun, why));
        if let Some(proposal) = self.proposals.get(&number) {
            self.search.not_run(*proposal, why);
        }
        self.tell(number);
    }

    async fn race(&mut self, ids: &[String]) -> Result<(), EvaluateError> {
        let races = self
            .races
            .as_mut()
            .expect("only where there are races is one due");
        self.search.race_began();
        let begun = Instant::now();
        let raced = races.run(ids, self.scene, &mut self.field).await;
        self.scene.costs.measurement_s += begun.elapsed().as_secs_f64();
        let round = races.rounds;
        match raced {
            Ok(report) => {
                self.search.raced(round, &report);
                self.scene.telling.keep(&Record::Raced { round })
            }
            Err(error) => {
                self.search.race_failed();
                Err(error)
            }
        }
    }

    async fn take_proposals(&mut self) -> Result<(), EvaluateError> {
        while let Some(proposal) = self.search.next_proposal() {
            let number = self.field.entries.len();
            self.proposals.insert(number, proposal.id);
            let newcomer = Newcomer {
                given: Ok(proposal.given),
                origin: proposal.origin,
            };
            self.welcome(vec![newcomer]).await?;
            let entry = &self.field.entries[number];
            match (entry.state, entry.duplicate_of) {
                (State::Duplicate, Some(of)) => {
                    let of = self.field.entries[of].staged_id();
                    self.search.duplicate(proposal.id, of);
                }
                (State::Failed, _) => self.report_to_search(number),
                _ => {}
            }
        }
        Ok(())
    }

    fn keep_records(&mut self) -> Result<(), EvaluateError> {
        for record in self.search.take_records() {
            self.scene.telling.keep(&Record::Search { record })?;
        }
        Ok(())
    }

    fn tell(&self, number: Number) {
        let entry = &self.field.entries[number];
        self.scene.telling.tell(Event::Candidate {
            id: entry.id(),
            name: entry.name.clone(),
            state: entry.state,
        });
    }
}
