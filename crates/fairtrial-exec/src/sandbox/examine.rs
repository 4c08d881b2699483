//! The whole report on a level: what should hold here, and what did when it was tried.

use serde_json::{Map, Value as Json, json};

use super::remembered::{self, Place};
use super::report::{InForce, Mechanism};
use super::selftest::{self, Proof};
use super::{Level, Sandbox, mechanisms};
use crate::call::Call;
use crate::error::EngineError;
use crate::local::LocalBackend;
use crate::worker::Mode;

/// What a level brings on this machine to a call that has a process of its own, by default limits.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxReport {
    /// What holds; nothing is said to be enforced whose attempt was not refused.
    pub in_force: InForce,
    /// What was tried. Nothing at `none`, which forbids nothing.
    pub proof: Proof,
    /// What the level needs and does not have, what the kernel refused first.
    pub missing: Vec<Mechanism>,
    /// Which way to control groups there is.
    pub cgroups: &'static str,
}

impl SandboxReport {
    /// The contract's object.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut report = self.in_force.report_json();
        let tried = self.proof.attempts.iter().map(|(what, refused)| {
            let word = if *refused { "denied" } else { "allowed" };
            (what.clone(), json!(word))
        });
        let untried: Map<_, _> = self
            .proof
            .untried
            .iter()
            .map(|(route, problem)| (route.clone(), json!(problem)))
            .collect();
        report["selftest"] = Json::Object(tried.collect());
        report["untried"] = Json::Object(untried);
        report["cgroups"] = self.cgroups.into();
        report
    }
}

impl LocalBackend {
    /// The whole report on a level. What was tried before, since this machine was started, is not tried again.
    pub async fn sandbox_report(&self, level: Level) -> Result<SandboxReport, EngineError> {
        let (place, key) = (Place::of(self.config()), self.proof_key(level));
        match remembered::find(&place, &key) {
            Some(proof) => Ok(self.report_with(level, proof)),
            None => self.examine(level).await,
        }
    }

    /// The same, with everything tried anew.
    pub async fn examine(&self, level: Level) -> Result<SandboxReport, EngineError> {
        if level == Level::None {
            return Ok(self.report_with(level, Proof::default()));
        }
        let proof = selftest::prove(self, level).await?;
        if proof.untried.is_empty() {
            let place = Place::of(self.config());
            remembered::keep(&place, &self.proof_key(level), &proof);
        }
        Ok(self.report_with(level, proof))
    }

    fn report_with(&self, level: Level, proof: Proof) -> SandboxReport {
        let means = self.means();
        means.self_tested(level, &proof.disproved());
        let mut call = Call::command(["true"]);
        call.sandbox = Sandbox::new(level);
        if level != Level::None {
            (call.limits.memory_bytes, call.limits.processes) = (Some(1), Some(1));
            call.limits.cpu = Some(std::time::Duration::from_secs(1));
        }
        SandboxReport {
            in_force: mechanisms::in_force(&call, Mode::Command, means),
            missing: mechanisms::missing(&call, Mode::Command, means),
            proof,
            cgroups: means.cgroup_access(),
        }
    }

    /// On what the result depends, but for the machine.
    fn proof_key(&self, level: Level) -> String {
        format!("{level} {:?}", self.config().without)
    }
}
