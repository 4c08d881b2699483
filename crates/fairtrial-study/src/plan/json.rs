//! A plan as one JSON object, runs streamed.

use std::io::{self, Write};

use super::{Action, Decide, Plan, Share};
use crate::canonical::write_text;
use crate::design::Condition;
use crate::fault::Fault;
use crate::journal::JournalError;
use crate::value::Value;

/// Why a plan could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// What is recorded could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Nobody takes it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Plan<'_> {
    /// Writes the whole plan as ST-28 has it; `warnings` may hold more than the plan's own.
    pub fn write_json(
        &self,
        decide: &dyn Decide,
        warnings: &[Fault],
        out: &mut dyn Write,
    ) -> Result<(), WriteError> {
        let survey = decide.survey(self)?;
        let order = &self.study.order;
        write!(
            out,
            "{{\"format\": 1, \"study_id\": {}",
            quoted(&self.study.study_id)
        )?;
        write!(out, ", \"compat\": {}", quoted(self.study.compat.name()))?;
        write!(out, ", \"standalone\": {}", self.is_standalone)?;
        write!(out, ", \"study_sha256\": {}", quoted(&self.study_sha256))?;
        write!(
            out,
            ",\n \"digest_conditions\": {}",
            quoted(&self.digest_conditions)
        )?;
        write!(out, ", \"digest_runs\": {}", quoted(&self.digest_runs))?;
        let (policy, seed) = (quoted(order.policy.name()), strict(&order.seed));
        write!(
            out,
            ",\n \"order\": {{\"policy\": {policy}, \"seed\": {seed}}}"
        )?;
        write!(
            out,
            ",\n \"counts\": {{\"conditions\": {}, \"admissible\": {}, \"runs\": {}",
            self.design.len(),
            self.admissible(),
            self.len()
        )?;
        for action in Action::ALL {
            write!(out, ", \"{}\": {}", action.name(), survey.count(action))?;
        }
        write!(out, ", \"orphans\": {}}}", survey.orphans)?;
        self.write_coverage(out)?;
        let warning = |fault: &Fault| {
            let place = &fault.place;
            format!(
                "{{\"file\": {}, \"line\": {}, \"column\": {}, \"code\": {}, \"message\": {}}}",
                quoted(&place.file),
                place.line,
                place.column,
                quoted(fault.code),
                quoted(&said(fault))
            )
        };
        list(out, "warnings", warnings.iter().map(warning))?;
        list(out, "conditions", self.design.conditions().map(condition))?;
        self.write_runs(decide, out)?;
        Ok(writeln!(out, "}}")?)
    }

    fn write_coverage(&self, out: &mut dyn Write) -> io::Result<()> {
        let share = |key: &str, id: String, share: &Share| {
            let Share { planned, possible } = share;
            format!("{{\"{key}\": {id}, \"planned\": {planned}, \"possible\": {possible}}}")
        };
        let coverage = &self.coverage;
        write!(out, ",\n \"coverage\": {{\"conditions\": [")?;
        let conditions = self.design.conditions().zip(&coverage.conditions);
        items(
            out,
            conditions.map(|(condition, s)| {
                share("condition_id", quoted(&condition.id().to_string()), s)
            }),
        )?;
        write!(out, "],\n  \"agents\": [")?;
        items(
            out,
            coverage
                .agents
                .iter()
                .map(|(id, s)| share("agent_id", strict(id), s)),
        )?;
        write!(out, "],\n  \"problems\": [")?;
        items(
            out,
            coverage
                .problems
                .iter()
                .map(|(id, s)| share("problem_id", strict(id), s)),
        )?;
        write!(out, "]}}")
    }

    fn write_runs(&self, decide: &dyn Decide, out: &mut dyn Write) -> Result<(), WriteError> {
        write!(out, ",\n \"runs\": [")?;
        for run in self.runs() {
            let decision = decide.decide(&run)?;
            let separator = if run.index == 0 { "\n  " } else { ",\n  " };
            let (agent, problem) = run.actors_json();
            write!(
                out,
                "{separator}{{\"run_id\": \"{}\", \"condition_id\": \"{}\", \"replicate\": {}, \"agent_id\": {agent}, \
                 \"problem_id\": {problem}, \"seed\": {}, \"seed64\": \"{:016x}\", \"index\": {}, \"order\": {}, \
                 \"action\": \"{}\", \"reason\": {}}}",
                run.run_id,
                run.condition.id(),
                run.replicate,
                run.seed,
                run.seed64,
                run.index,
                run.order(),
                decision.action.name(),
                quoted(&decision.reason.to_string())
            )?;
        }
        Ok(write!(out, "]")?)
    }
}

/// A fault's message and hint.
fn said(fault: &Fault) -> String {
    match fault.hint.as_str() {
        "" => fault.message.clone(),
        hint => format!("{}; {hint}", fault.message),
    }
}

fn condition(condition: Condition<'_>) -> String {
    let assignment = |entries: Vec<(&str, &Value)>| {
        let entry = |(name, value): &(&str, &Value)| format!("{}: {}", quoted(name), strict(value));
        let entries: Vec<_> = entries.iter().map(entry).collect();
        format!("{{{}}}", entries.join(", "))
    };
    format!(
        "{{\"condition_id\": \"{}\", \"factors\": {}, \"blocks\": {}, \"admissible\": {}, \
         \"constraint_messages\": {}, \"metadata\": {}}}",
        condition.id(),
        assignment(condition.factors().collect()),
        assignment(condition.blocks().collect()),
        condition.is_admissible(),
        strict(&Value::texts(condition.messages())),
        strict(&condition.metadata())
    )
}

fn list(out: &mut dyn Write, key: &str, all: impl Iterator<Item = String>) -> io::Result<()> {
    write!(out, ",\n \"{key}\": [")?;
    items(out, all)?;
    write!(out, "]")
}

fn items(out: &mut dyn Write, items: impl Iterator<Item = String>) -> io::Result<()> {
    for (index, item) in items.enumerate() {
        let separator = if index == 0 { "\n  " } else { ",\n  " };
        write!(out, "{separator}{item}")?;
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    let mut out = String::new();
    write_text(text, &mut out);
    out
}

/// JSON that any reader takes: numbers that are not finite are null.
fn strict(value: &Value) -> String {
    crate::canonical::canonical_json(&finite(value))
}

fn finite(value: &Value) -> Value {
    match value {
        Value::Float(float) if !float.is_finite() => Value::Null,
        Value::List(items) => Value::List(items.iter().map(finite).collect()),
        Value::Map(entries) => {
            let entry = |(key, value): &(Value, Value)| (key.clone(), finite(value));
            Value::Map(entries.iter().map(entry).collect())
        }
        other => other.clone(),
    }
}
