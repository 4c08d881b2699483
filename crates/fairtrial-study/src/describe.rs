//! What a study file says of a run's agent and problem, for tables and for DRE's agents.

use crate::plan::RunSpec;
use crate::study::Bindings;
use crate::value::Value;

/// What an agent's metadata may say of how it runs.
const DESCRIBED: [&str; 7] = [
    "model_name",
    "model_provider",
    "agent_kind",
    "pattern_name",
    "request_id",
    "trace_dir",
    "trace_path",
];

/// The family of a run's problem; none where the file does not say.
pub(crate) fn family<'b>(bindings: &'b Bindings, run: &RunSpec<'_>) -> Option<&'b str> {
    let id = run.problem_id().to_str();
    let mut packets = bindings.problems.iter().flatten();
    let (_, packet) = packets.find(|(known, _)| *known == id)?;
    Some(&packet.family)
}

/// What is said of a run's agent under a key: by itself, else by the file; empty words say nothing.
pub(crate) fn said<'v>(
    bindings: &'v Bindings,
    run: &RunSpec<'_>,
    own: &'v Value,
    key: &str,
) -> Option<&'v Value> {
    let id = run.agent_id();
    let binding = match id {
        Value::Null => bindings.runner.as_ref(),
        id => {
            let mut agents = bindings.agents.iter().flatten();
            let id = id.to_str();
            agents
                .find(|(known, _)| *known == id)
                .map(|(_, binding)| binding)
        }
    };
    let is_said = |value: &&Value| value.is_truthy();
    own.get(key).filter(is_said).or_else(|| {
        let metadata = &binding?.terms.metadata;
        metadata.get(key).filter(is_said)
    })
}

/// SF-45: ids, fingerprint, family, and what is said of the agent. `own` is its own metadata, once it has run.
pub(crate) fn execution_metadata(bindings: &Bindings, run: &RunSpec<'_>, own: &Value) -> Value {
    let mut entries = vec![
        ("agent_id", run.agent_id().clone()),
        ("problem_id", run.problem_id().clone()),
        (
            "condition_fingerprint",
            Value::Text(run.condition.fingerprint()),
        ),
    ];
    if let Some(family) = family(bindings, run) {
        entries.push(("problem_family", Value::text(family)));
    }
    for key in DESCRIBED {
        if let Some(value) = said(bindings, run, own, key) {
            entries.push((key, value.clone()));
        }
    }
    Value::map(entries)
}

/// Standalone runs have an empty one.
pub(crate) fn recorded_problem(run: &RunSpec<'_>) -> Value {
    match run.problem_id() {
        Value::Null => Value::text(""),
        id => id.clone(),
    }
}
