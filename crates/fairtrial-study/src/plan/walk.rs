//! The runs of a plan one after the other, without their ids.

use crate::canonical::canonical_json;
use crate::design::{Condition, Design};
use crate::study::{AGENT_FACTORS, PROBLEM_FACTORS, Study};
use crate::value::Value;

/// An agent or a problem, in all the forms that hashing needs.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) id: Value,
    pub(crate) json: String,
    pub(crate) text: String,
}

impl Actor {
    fn new(id: Value) -> Self {
        Self {
            json: canonical_json(&id),
            text: id.to_str(),
            id,
        }
    }
}

/// Who acts in conditions that do not choose for themselves.
#[derive(Debug)]
pub(super) struct Cast {
    pub(super) agents: Vec<Actor>,
    pub(super) problems: Vec<Actor>,
    is_standalone: bool,
}

impl Cast {
    pub(super) fn of(study: &Study, is_standalone: bool) -> Self {
        let actors = |ids: &[Value], default: &str| -> Vec<Actor> {
            if is_standalone {
                return vec![Actor::new(Value::Null)];
            }
            match ids {
                [] => vec![Actor::new(default.into())],
                ids => ids.iter().cloned().map(Actor::new).collect(),
            }
        };
        Self {
            agents: actors(&study.agents, "default-agent"),
            problems: actors(&study.problems, "default-problem"),
            is_standalone,
        }
    }

    /// The one actor that a condition's factors choose.
    fn chosen(&self, condition: Condition<'_>, names: &[&str]) -> Option<Actor> {
        if self.is_standalone {
            return None;
        }
        let value = names.iter().find_map(|name| condition.factor(name))?;
        Some(Actor::new(Value::text(value.to_str())))
    }
}

/// Of each admissible condition, how many runs it has.
pub(super) fn sizes(design: &Design, cast: &Cast, replicates: u32) -> Vec<(usize, u64)> {
    let chooses = |condition: Condition<'_>, names: &[&str]| {
        !cast.is_standalone && names.iter().any(|name| condition.factor(name).is_some())
    };
    let size = |condition: Condition<'_>| {
        let agents = if chooses(condition, &AGENT_FACTORS) {
            1
        } else {
            cast.agents.len()
        };
        let problems = if chooses(condition, &PROBLEM_FACTORS) {
            1
        } else {
            cast.problems.len()
        };
        let width = (agents as u64).saturating_mul(problems as u64);
        (condition.index(), width.saturating_mul(replicates.into()))
    };
    let admissible = design
        .conditions()
        .filter(|condition| condition.is_admissible());
    admissible.map(size).collect()
}

/// One run to be.
#[derive(Debug)]
pub(super) struct Step<'p> {
    pub(super) condition: Condition<'p>,
    pub(super) replicate: u32,
    pub(super) agent: Chosen<'p>,
    pub(super) problem: Chosen<'p>,
}

/// An actor of the study's list, or one that the condition chose.
#[derive(Clone, Debug)]
pub(super) enum Chosen<'p> {
    Listed(usize, &'p Actor),
    Own(std::rc::Rc<Actor>),
}

impl Chosen<'_> {
    pub(super) fn actor(&self) -> &Actor {
        match self {
            Self::Listed(_, actor) => actor,
            Self::Own(actor) => actor,
        }
    }
}

/// Conditions outermost, then replicates, agents, problems.
pub(super) struct Walk<'p> {
    design: &'p Design,
    cast: &'p Cast,
    replicates: u32,
    condition: usize,
    own: (Option<std::rc::Rc<Actor>>, Option<std::rc::Rc<Actor>>),
    at: (u32, usize, usize),
    entered: bool,
}

impl<'p> Walk<'p> {
    pub(super) fn new(design: &'p Design, cast: &'p Cast, replicates: u32) -> Self {
        Self {
            design,
            cast,
            replicates,
            condition: 0,
            own: (None, None),
            at: (1, 0, 0),
            entered: false,
        }
    }

    fn enter(&mut self) -> bool {
        while self.condition < self.design.len() {
            let condition = self.design.condition(self.condition);
            if condition.is_admissible() {
                let chosen = |names: &[&str]| self.cast.chosen(condition, names).map(Into::into);
                self.own = (chosen(&AGENT_FACTORS), chosen(&PROBLEM_FACTORS));
                self.at = (1, 0, 0);
                self.entered = true;
                return true;
            }
            self.condition += 1;
        }
        false
    }
}

impl<'p> Iterator for Walk<'p> {
    type Item = Step<'p>;

    fn next(&mut self) -> Option<Step<'p>> {
        if !self.entered && !self.enter() {
            return None;
        }
        let (replicate, agent, problem) = self.at;
        let pick = |own: &Option<std::rc::Rc<Actor>>, listed: &'p [Actor], at: usize| match own {
            Some(actor) => Chosen::Own(actor.clone()),
            None => Chosen::Listed(at, &listed[at]),
        };
        let step = Step {
            condition: self.design.condition(self.condition),
            replicate,
            agent: pick(&self.own.0, &self.cast.agents, agent),
            problem: pick(&self.own.1, &self.cast.problems, problem),
        };
        let agents = if self.own.0.is_some() {
            1
        } else {
            self.cast.agents.len()
        };
        let problems = if self.own.1.is_some() {
            1
        } else {
            self.cast.problems.len()
        };
        if problem + 1 < problems {
            self.at = (replicate, agent, problem + 1);
        } else if agent + 1 < agents {
            self.at = (replicate, agent + 1, 0);
        } else if replicate < self.replicates {
            self.at = (replicate + 1, 0, 0);
        } else {
            self.condition += 1;
            self.entered = false;
        }
        Some(step)
    }
}

/// The `nth` run of a condition, as [`Walk`] has it.
pub(super) fn step_at<'p>(
    design: &'p Design,
    cast: &'p Cast,
    condition: usize,
    nth: u64,
) -> Step<'p> {
    let condition = design.condition(condition);
    let pick = |names: &[&str], listed: &'p [Actor], at: u64| match cast.chosen(condition, names) {
        Some(actor) => (Chosen::Own(actor.into()), at),
        None => {
            let count = listed.len() as u64;
            let place = (at % count) as usize;
            (Chosen::Listed(place, &listed[place]), at / count)
        }
    };
    let (problem, rest) = pick(&PROBLEM_FACTORS, &cast.problems, nth);
    let (agent, rest) = pick(&AGENT_FACTORS, &cast.agents, rest);
    Step {
        condition,
        replicate: rest as u32 + 1,
        agent,
        problem,
    }
}
