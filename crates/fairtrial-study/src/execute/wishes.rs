//! What the user wants, beside what is there: named things must exist, and nothing finished is thrown away unasked.

use std::collections::BTreeSet;

use super::{ExecuteError, Request};
use crate::fault::nearest;
use crate::identity::Aspect;
use crate::plan::{Action, Reason, Survey};
use crate::recorded::Changed;

/// What is named must be there: a slip of the pen would otherwise do nothing, and say so.
pub(super) fn check_named(request: &Request<'_>) -> Result<(), ExecuteError> {
    let (plan, wishes) = (request.plan, &request.wishes);
    let rescored = wishes.rescore.iter().flat_map(|rescore| &rescore.problem);
    let named = [
        ("run", wishes.retry_runs.iter().collect::<Vec<_>>()),
        ("condition", wishes.retry_conditions.iter().collect()),
        ("change", wishes.accepted.iter().collect()),
        ("problem", rescored.collect()),
    ];
    for (what, names) in named.into_iter().filter(|(_, names)| !names.is_empty()) {
        let mut known: BTreeSet<String> = match what {
            "change" => [Aspect::Seed, Aspect::Terms, Aspect::Version]
                .map(|aspect| aspect.name().to_owned())
                .into_iter()
                .chain(["changed".to_owned()])
                .collect(),
            _ => BTreeSet::new(),
        };
        for run in plan.runs() {
            let (agent, problem) = (run.agent_id().to_str(), run.problem_id().to_str());
            match what {
                "run" => _ = known.insert(run.run_id.to_string()),
                "condition" => _ = known.insert(run.condition.id().to_string()),
                "problem" => _ = known.insert(problem),
                _ => known.extend([format!("agent:{agent}"), format!("problem:{problem}")]),
            }
        }
        if let Some(name) = names.into_iter().find(|name| !known.contains(*name)) {
            let hint = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => String::new(),
            };
            let name = name.clone();
            return Err(ExecuteError::Unknown { what, name, hint });
        }
    }
    Ok(())
}

/// ST-67: what would be thrown away is asked about first.
pub(super) fn check_changes(request: &Request<'_>, survey: &Survey) -> Result<(), ExecuteError> {
    if request.wishes.changed != Changed::Refuse {
        return Ok(());
    }
    let retry = Reason::Retry.kind();
    let changed = survey.reasons.iter();
    let changed: Vec<_> = changed
        .filter(|((action, reason), _)| *action == Action::Rerun && *reason != retry)
        .map(|((_, reason), count)| (reason, count))
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    let listed = changed.iter();
    let listed: Vec<_> = listed
        .map(|(reason, count)| format!("{reason} ({count})"))
        .collect();
    Err(ExecuteError::Changed {
        count: changed.iter().map(|(_, count)| **count).sum(),
        reasons: listed.join(", "),
    })
}
