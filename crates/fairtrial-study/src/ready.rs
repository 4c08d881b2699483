//! A study whose programs are loaded: who runs, on what, and what each run is.

use std::collections::HashMap;
use std::sync::Arc;

use num_bigint::BigInt;

use crate::binding::{Binding, Contract, EntryPoint, Packet};
use crate::canonical::{canonical_json, sha256_hex};
use crate::compat::Compat;
use crate::describe::{self, recorded_problem};
use crate::fault::{Fault, Findings, Invalid, Place};
use crate::identity::{Identity, Part};
use crate::plan::{Plan, RunSpec};
use crate::program::{Program, hashed_files};
use crate::study::{Bindings, Study};
use crate::value::Value;

/// A program with the hashes of what it is.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) program: Program,
    pub(crate) part: Part,
    pub(crate) terms: Part,
}

impl Actor {
    fn load(binding: &Binding, study: &Study) -> Result<Arc<Self>, Fault> {
        let program = Program::load(binding, &study.directory)?;
        Ok(Arc::new(Self {
            part: Part::of(&program.content),
            terms: Part::of(&program.terms),
            program,
        }))
    }

    pub(crate) fn is_command(&self) -> bool {
        matches!(self.program.binding.entry, EntryPoint::Command(_))
    }
}

/// A problem with its evaluator.
#[derive(Debug)]
pub(crate) struct Problem {
    /// As a run has it.
    pub(crate) packet: Value,
    pub(crate) part: Part,
    pub(crate) evaluator: Option<Evaluator>,
}

/// An evaluator and the hash by which a change of it is seen.
#[derive(Clone, Debug)]
pub(crate) struct Evaluator {
    pub(crate) actor: Arc<Actor>,
    pub(crate) sha256: String,
}

/// Everything that runs need.
#[derive(Debug)]
pub struct Ready {
    study_id: String,
    bindings: Bindings,
    agents: HashMap<String, Arc<Actor>>,
    problems: HashMap<String, Arc<Problem>>,
    runner: Option<Arc<Actor>>,
    nothing: Arc<Problem>,
}

impl Ready {
    /// Loads every program that the plan needs; says which cannot be.
    pub fn load(plan: &Plan<'_>) -> Result<Self, Invalid> {
        let study = &*plan.study;
        let mut findings = Findings::default();
        let mut ready = Self {
            bindings: study.bindings.clone(),
            study_id: study.study_id.clone(),
            agents: HashMap::new(),
            problems: HashMap::new(),
            runner: None,
            nothing: Arc::new(Problem {
                packet: Value::Null,
                part: Part::of(&Value::Null),
                evaluator: None,
            }),
        };
        if let Some(binding) = &study.bindings.runner {
            match Actor::load(binding, study) {
                Ok(actor) => ready.runner = Some(actor),
                Err(fault) => findings.faults.push(fault),
            }
        }
        for (id, binding) in study.bindings.agents.iter().flatten() {
            match Actor::load(binding, study) {
                Ok(actor) => _ = ready.agents.insert(id.clone(), actor),
                Err(fault) => findings.faults.push(fault),
            }
        }
        for (id, packet) in study.bindings.problems.iter().flatten() {
            match problem(id, packet, study) {
                Ok(problem) => _ = ready.problems.insert(id.clone(), Arc::new(problem)),
                Err(fault) => findings.faults.push(fault),
            }
        }
        if study.compat == Compat::Native && study.bindings.problems.is_none() {
            match default_problem(study) {
                Ok(problem) => {
                    _ = ready
                        .problems
                        .insert("default-problem".into(), Arc::new(problem));
                }
                Err(fault) => findings.faults.push(fault),
            }
        }
        ready.check(plan, &mut findings);
        findings.settle()?;
        Ok(ready)
    }

    /// SF-43, ST-2: what a plan may leave open and a run may not.
    fn check(&self, plan: &Plan<'_>, findings: &mut Findings) {
        let place = Place {
            file: plan.study.file.clone(),
            line: 1,
            column: 1,
        };
        let mut refuse = |message: String, hint: &str| {
            findings.fault(&place, "unbound", message, hint);
        };
        if plan.is_standalone && self.runner.is_none() {
            refuse(
                "there is nothing to run: no agents with problems, and no runner".into(),
                "add `runner`, or `agents` and `problems`",
            );
        } else if plan.admissible() == 0 {
            refuse("no condition is admissible".into(), "see `fairtrial plan`");
        } else if plan.is_empty() {
            refuse("the plan has no runs".into(), "see `fairtrial plan`");
        } else if !plan.is_standalone {
            for (id, _) in &plan.coverage.agents {
                if !self.agents.contains_key(&id.to_str()) {
                    refuse(
                        format!("the agent `{}` is not bound to a program", id.to_str()),
                        "bind it under `agents`",
                    );
                }
            }
            for (id, _) in &plan.coverage.problems {
                if !self.problems.contains_key(&id.to_str()) {
                    refuse(
                        format!("the problem `{}` is not bound to a packet", id.to_str()),
                        "bind it under `problems`",
                    );
                }
            }
        }
    }

    /// Who runs it.
    pub(crate) fn agent(&self, run: &RunSpec<'_>) -> Option<&Arc<Actor>> {
        match run.agent_id() {
            Value::Null => self.runner.as_ref(),
            id => self.agents.get(&id.to_str()),
        }
    }

    /// On what.
    pub(crate) fn problem(&self, run: &RunSpec<'_>) -> &Arc<Problem> {
        match run.problem_id() {
            Value::Null => &self.nothing,
            id => self.problems.get(&id.to_str()).unwrap_or(&self.nothing),
        }
    }

    /// What it is; none if nobody runs it.
    pub(crate) fn identity(&self, run: &RunSpec<'_>) -> Option<Identity> {
        let agent = self.agent(run)?;
        let run_id = run.run_id.to_string();
        let problem = &self.problem(run).part;
        let seed = run.seed.into();
        Some(Identity::of(
            &run_id,
            seed,
            &agent.part,
            &agent.terms,
            problem,
        ))
    }

    /// The run as a worker gets it (ST-9).
    pub(crate) fn run_value(&self, run: &RunSpec<'_>, attempt: u32) -> Value {
        let int = |n: u64| Value::Int(BigInt::from(n));
        let condition = &run.condition;
        let metadata = condition.metadata();
        let label = metadata
            .get("condition_label")
            .cloned()
            .unwrap_or(Value::Null);
        let owned = |(name, value): (&str, &Value)| (name.to_owned(), value.clone());
        let timeout = self
            .agent(run)
            .and_then(|agent| agent.program.binding.terms.timeout);
        Value::map([
            ("schema", int(1)),
            ("study_id", Value::text(&self.study_id)),
            ("run_id", Value::Text(run.run_id.to_string())),
            ("attempt", int(attempt.into())),
            ("replicate", int(run.replicate.into())),
            ("seed", int(run.seed.into())),
            ("seed64", Value::Text(format!("{:016x}", run.seed64))),
            ("agent_id", run.agent_id().clone()),
            (
                "timeout_s",
                timeout.map_or(Value::Null, |time| Value::Float(time.as_secs_f64())),
            ),
            (
                "condition",
                Value::map([
                    ("condition_id", Value::Text(condition.id().to_string())),
                    ("factors", Value::map(condition.factors().map(owned))),
                    ("blocks", Value::map(condition.blocks().map(owned))),
                    ("label", label),
                ]),
            ),
            ("problem", self.problem(run).packet.clone()),
        ])
    }

    /// What DRE's agents are given (SF-45): packet, condition, run.
    pub(crate) fn dre_parts(&self, run: &RunSpec<'_>) -> [Value; 3] {
        let condition = &run.condition;
        let owned = |(name, value): (&str, &Value)| (name.to_owned(), value.clone());
        let condition_id = Value::Text(condition.id().to_string());
        let agent_id = run.agent_id().clone();
        let problem = self.problem(run);
        let mut packet = problem.packet.clone();
        if let Value::Map(entries) = &mut packet {
            entries.push((Value::text("evaluator"), Value::Null));
        }
        let messages = condition.messages();
        let metadata = describe::execution_metadata(&self.bindings, run, &Value::Null);
        let described = Value::map([
            ("condition_id", condition_id.clone()),
            (
                "factor_assignments",
                Value::map(condition.factors().map(owned)),
            ),
            (
                "block_assignments",
                Value::map(condition.blocks().map(owned)),
            ),
            ("metadata", condition.metadata()),
            ("admissible", Value::Bool(condition.is_admissible())),
            ("constraint_messages", Value::texts(messages)),
        ]);
        let spec = Value::map([
            ("run_id", Value::Text(run.run_id.to_string())),
            ("study_id", Value::text(&self.study_id)),
            ("condition_id", condition_id),
            ("problem_id", recorded_problem(run)),
            ("replicate", Value::Int(BigInt::from(run.replicate))),
            ("seed", Value::Int(BigInt::from(run.seed))),
            ("agent_spec_ref", agent_id),
            ("problem_spec_ref", run.problem_id().clone()),
            ("execution_metadata", metadata),
        ]);
        [packet, described, spec]
    }

    /// The parts of identities, by agent and problem (ST-78).
    pub(crate) fn parts(&self) -> Value {
        let agents = self.agents.iter().map(|(id, actor)| {
            let parts = [
                ("agent", Value::Text(actor.part.to_string())),
                ("terms", Value::Text(actor.terms.to_string())),
            ];
            (id.clone(), Value::map(parts))
        });
        let problems = self.problems.iter().map(|(id, problem)| {
            let evaluator = problem.evaluator.as_ref();
            let parts = [
                ("problem", Value::Text(problem.part.to_string())),
                (
                    "evaluator",
                    evaluator.map_or(Value::Null, |evaluator| Value::text(&evaluator.sha256)),
                ),
            ];
            (id.clone(), Value::map(parts))
        });
        let runner = self.runner.as_ref().map_or(Value::Null, |actor| {
            Value::map([
                ("agent", Value::Text(actor.part.to_string())),
                ("terms", Value::Text(actor.terms.to_string())),
            ])
        });
        Value::map([
            ("agents", Value::map(agents)),
            ("problems", Value::map(problems)),
            ("runner", runner),
        ])
    }

    /// How an agent is called.
    pub(crate) fn contract(&self, run: &RunSpec<'_>) -> Contract {
        self.agent(run)
            .map_or(Contract::Run, |agent| agent.program.contract())
    }
}

fn problem(id: &str, packet: &Packet, study: &Study) -> Result<Problem, Fault> {
    let value = Value::map([
        ("problem_id", Value::text(id)),
        ("family", Value::text(&packet.family)),
        ("brief", Value::text(&packet.brief)),
        ("payload", packet.payload.clone()),
        ("metadata", packet.metadata.clone()),
    ]);
    let files = hashed_files(&packet.files, &study.directory).map_err(|(path, error)| {
        let message = format!("cannot read `{}`: {error}", path.display());
        crate::fault::fault(&packet.place, "file", message, "")
    })?;
    let whole = Value::map([("packet", value.clone()), ("files", files)]);
    let binding = packet
        .evaluator
        .as_ref()
        .or(study.bindings.evaluator.as_ref());
    Ok(Problem {
        packet: value,
        part: Part::of(&whole),
        evaluator: binding
            .map(|binding| evaluator(binding, study))
            .transpose()?,
    })
}

/// ST-6: agents of a study without problems run on this.
fn default_problem(study: &Study) -> Result<Problem, Fault> {
    let empty = || Value::Map(Vec::new());
    let packet = Value::map([
        ("problem_id", Value::text("default-problem")),
        ("family", Value::text("unknown")),
        ("brief", Value::text("")),
        ("payload", empty()),
        ("metadata", empty()),
    ]);
    let binding = study.bindings.evaluator.as_ref();
    Ok(Problem {
        part: Part::of(&packet),
        packet,
        evaluator: binding
            .map(|binding| evaluator(binding, study))
            .transpose()?,
    })
}

fn evaluator(binding: &Binding, study: &Study) -> Result<Evaluator, Fault> {
    let actor = Actor::load(binding, study)?;
    let sha256 = sha256_hex(canonical_json(&actor.program.content).as_bytes());
    Ok(Evaluator { actor, sha256 })
}
