//! When whom to ask: repairs at once (CA-88), variations after a race (CA-89), within budgets (CA-92).

use super::super::answer::{Answer, Failure, FailureKind};
use super::super::ask::{Ask, Kind, ProposalId, RequestId};
use super::super::ledger::{Fate, Found, Record};
use super::requested::{Held, Requested, Standing};
use super::{Checked, Search};
use crate::cases;
use crate::measure::{Placing, Report, Verdict};

/// A request that is to be made when there is room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    kind: Kind,
    parents: Vec<String>,
}

impl Wanted {
    fn of_one(kind: Kind, parent: &str) -> Self {
        let parents = vec![parent.to_owned()];
        Self { kind, parents }
    }
}

/// What of a race's report decides about requests.
pub(super) fn raced(round: u32, report: &Report) -> Record {
    let ids = |placings: &mut dyn Iterator<Item = &Placing>| {
        placings
            .map(|placing| placing.candidate.id.clone())
            .collect()
    };
    let floor = report.noise_floor.unwrap_or(0.0);
    let mut ranking = report.ranking.iter();
    Record::Raced {
        round,
        entrants: ids(&mut ranking.clone()),
        faster: ids(&mut ranking.clone().filter(|placing| is_faster(placing, floor))),
        best: ranking
            .find(|placing| placing.failure.is_none())
            .map(|placing| placing.candidate.id.clone()),
    }
}

/// A gain that vanished when it was measured again is none.
fn is_faster(placing: &Placing, floor: f64) -> bool {
    let vanished = placing
        .confirmation
        .as_ref()
        .is_some_and(|again| !again.confirmed);
    let beyond_noise = |judgement: &crate::measure::Judgement| {
        judgement.verdict == Verdict::Faster && judgement.ratio * (1.0 + floor) < 1.0
    };
    placing.failure.is_none() && !vanished && placing.judgement.as_ref().is_some_and(beyond_noise)
}

impl Search {
    /// The one place where what is recorded changes what is known, whether it happens now or is read from a journal.
    pub(super) fn apply(&mut self, record: Record) {
        match record {
            Record::Asked { ask, at_s } => self.note_asked(ask, at_s),
            Record::Answered {
                request,
                at_s,
                answer,
            } => self.note_answer(request, at_s, answer),
            Record::Failed {
                request,
                at_s,
                failure,
            } => self.note_failure(request, at_s, failure),
            Record::Stray(stray) => self.strays.push(stray),
            Record::Checked(checked) => self.note_checked(&checked),
            Record::Settled { proposal, fate } => self.note_settled(proposal, fate),
            Record::Raced {
                round,
                entrants,
                faster,
                best,
            } => {
                self.rounds = round;
                self.unraced.retain(|id| !entrants.contains(id));
                self.best = best;
                self.vary(&faster);
            }
        }
    }

    fn note_asked(&mut self, ask: Ask, at_s: f64) {
        // There may have been room for fewer candidates than were wanted.
        let same =
            |wanted: &Wanted| wanted.kind == ask.kind && wanted.parents.starts_with(&ask.parents);
        if let Some(at) = self.wanted.iter().position(same) {
            self.wanted.remove(at);
        }
        self.requests.push(Requested::new(ask, at_s));
    }

    fn note_answer(&mut self, request: RequestId, at_s: f64, answer: Answer) {
        let budget = self.settings.budget.candidates;
        let mut admitted: usize = self.requests.iter().map(Requested::admitted).sum();
        let Some(request) = self.requests.get_mut(request.index()) else {
            return;
        };
        let Ask { n, ref parents, .. } = request.ask;
        for (index, proposed) in answer.candidates.into_iter().enumerate() {
            let not_run = |why: &str| Fate::NotRun {
                why: why.to_owned(),
            };
            let fate = match () {
                () if index >= n => not_run("more than were asked for"),
                () if admitted >= budget => not_run("budget spent: candidates"),
                () => Fate::Waiting,
            };
            admitted += usize::from(fate == Fate::Waiting);
            // An answer that does not say is taken to answer parent by parent.
            let said = proposed
                .parent
                .as_ref()
                .filter(|said| parents.contains(said));
            let parent = said.unwrap_or(&parents[index % parents.len()]).clone();
            request.proposals.push(Held {
                proposed,
                parent,
                fate,
            });
        }
        request.standing = Standing::Answered {
            at_s,
            tokens: answer.tokens,
            malformed: answer.malformed,
        };
    }

    fn note_failure(&mut self, request: RequestId, at_s: f64, failure: Failure) {
        let Some(request) = self.requests.get_mut(request.index()) else {
            return;
        };
        let declined = failure.kind == FailureKind::Declined;
        request.standing = Standing::Failed { at_s, failure };
        let Ask {
            kind, ref parents, ..
        } = request.ask;
        if declined && parents.len() > 1 {
            let singly = parents.iter().map(|parent| Wanted::of_one(kind, parent));
            self.wanted.extend(singly);
        }
    }

    /// Also of one that a smaller budget would not have run: what was tried was tried.
    fn note_settled(&mut self, proposal: ProposalId, fate: Fate) {
        let request = self.requests.get_mut(proposal.request.index());
        let held = request.and_then(|request| request.proposals.get_mut(proposal.index));
        let Some(held) = held else {
            return;
        };
        held.fate = fate.clone();
        let parent = held.parent.clone();
        if let Fate::Evaluated {
            id: Some(id),
            found,
        } = fate
        {
            let generation = self.family.generation(&parent) + 1;
            let parent = Some(parent);
            self.note_checked(&Checked {
                id,
                parent,
                generation,
                found,
            });
        }
    }

    fn note_checked(&mut self, checked: &Checked) {
        let Checked {
            id,
            parent,
            generation,
            found,
        } = checked;
        if self.family.has(id) {
            return; // an equal that was told as another: the first stands
        }
        self.family.add(id, parent.as_deref(), *generation);
        match found {
            Found::Correct => {
                self.correct += 1;
                self.unraced.push(id.clone());
                if !self.still_repairs() {
                    // Those that had to wait have become needless.
                    self.wanted.retain(|wanted| wanted.kind != Kind::Repair);
                }
            }
            Found::Failed {
                kind,
                differing,
                cases,
            } => {
                let share = *differing as f64 / (*cases).max(1) as f64;
                let rule = &self.settings.repair;
                // What the engine itself failed at says nothing of the candidate (CA-56).
                let is_known = *kind != cases::FailureKind::Infra;
                let is_near = *differing > 0 && share <= rule.max_diff_share && is_known;
                let repairs = self.count(|kind, _| kind == Kind::Repair);
                if *generation == 1 && is_near && repairs < rule.max && self.still_repairs() {
                    self.want(Wanted::of_one(Kind::Repair, id));
                }
            }
        }
    }

    fn still_repairs(&self) -> bool {
        self.correct < self.settings.repair.stop_at_correct
    }

    /// After a race: candidates whose lineage is new to this are refined, descendants of refined ones adapted.
    fn vary(&mut self, faster: &[String]) {
        let mut refine = Vec::new();
        for id in faster {
            let ancestors = self.family.ancestors(id);
            let refined = |id: &String| self.is_parent(Kind::Refine, id);
            match (ancestors.iter().any(refined), refined(id)) {
                (false, false) if refine.len() < self.settings.refine.top => {
                    refine.push(id.clone())
                }
                (true, _) if self.may_adapt(id, &ancestors) => {
                    self.want(Wanted::of_one(Kind::Adaptive, id));
                }
                _ => {}
            }
        }
        if self.settings.refine.batch && !refine.is_empty() {
            self.want(Wanted {
                kind: Kind::Refine,
                parents: refine,
            });
        } else {
            for id in refine {
                self.want(Wanted::of_one(Kind::Refine, &id));
            }
        }
    }

    fn may_adapt(&self, id: &String, ancestors: &[String]) -> bool {
        let rule = &self.settings.adaptive;
        let adapted = |id: &String| self.is_parent(Kind::Adaptive, id);
        let in_lineage = ancestors.iter().filter(|id| adapted(id)).count();
        let in_all = self.count(|kind, _| kind == Kind::Adaptive);
        !adapted(id) && in_lineage < rule.per_lineage && in_all < rule.total
    }

    fn is_parent(&self, kind: Kind, id: &String) -> bool {
        self.count(|of, parents| of == kind && parents.contains(id)) > 0
    }

    /// Requests that were made or are to be made.
    fn count(&self, counts: impl Fn(Kind, &[String]) -> bool) -> usize {
        let made = self
            .requests
            .iter()
            .map(|request| (request.ask.kind, &request.ask.parents));
        let wanted = self
            .wanted
            .iter()
            .map(|wanted| (wanted.kind, &wanted.parents));
        made.chain(wanted)
            .filter(|(kind, parents)| counts(*kind, parents))
            .count()
    }

    fn want(&mut self, wanted: Wanted) {
        if self.dead.is_none() && self.stopped.is_none() {
            self.wanted.push_back(wanted);
        }
    }

    /// Whether anything wanted could be asked, now or when open requests have ended.
    pub(super) fn has_more_to_ask(&self) -> bool {
        let asks = self.dead.is_none() && self.stopped.is_none() && self.spent().is_none();
        asks && !self.wanted.is_empty()
    }

    /// The next request that there is room for.
    pub(super) fn next_wanted(&mut self) -> Option<Ask> {
        let open = self
            .requests
            .iter()
            .filter(|request| request.is_open())
            .count();
        if open >= self.settings.concurrency.max(1) || self.spent().is_some() {
            return None;
        }
        let room = self.candidates_left();
        let Wanted { kind, mut parents } = self.wanted.pop_front()?;
        parents.truncate(room);
        let ancestry = match kind {
            Kind::Adaptive => self.family.ancestors(&parents[0]),
            Kind::Repair | Kind::Refine => Vec::new(),
        };
        Some(Ask {
            id: RequestId::numbered(self.requests.len() + 1),
            kind,
            n: parents.len(),
            parents,
            ancestry,
        })
    }

    /// The budget that allows no further request.
    pub(super) fn spent(&self) -> Option<&'static str> {
        let budget = &self.settings.budget;
        let tokens: u64 = self.requests.iter().filter_map(Requested::tokens).sum();
        match () {
            () if self.requests.len() >= budget.requests => Some("budget spent: requests"),
            () if budget.tokens.is_some_and(|most| tokens >= most) => Some("budget spent: tokens"),
            () if self.candidates_left() == 0 => Some("budget spent: candidates"),
            () => None,
        }
    }

    /// What open requests may yet bring is not promised to others.
    fn candidates_left(&self) -> usize {
        let taken = self.requests.iter().map(|request| match request.is_open() {
            true => request.ask.n,
            false => request.admitted(),
        });
        self.settings.budget.candidates.saturating_sub(taken.sum())
    }
}
