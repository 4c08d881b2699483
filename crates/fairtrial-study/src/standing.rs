//! How a study stands: a fold over its journal for people (ST-79).

use std::collections::BTreeMap;

use crate::execute::count;
use crate::journal::{JournalError, Reader, StartId, Status};
use crate::json_text::parse_value;
use crate::plan::Plan;
use crate::value::Value;

/// How a study stands.
#[derive(Debug, Default)]
pub struct Standing {
    /// Of the plan's runs that began, how they ended.
    pub counts: BTreeMap<&'static str, u64>,
    /// The same by condition.
    pub conditions: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Evaluations that did not go well.
    pub evaluations_failed: u64,
    /// Successes after a retry.
    pub retried: u64,
    /// Recorded runs that are no longer planned.
    pub orphans: u64,
    /// All attempts.
    pub starts: u64,
    /// Attempts of which no end is recorded.
    pub lost: u64,
    /// Who runs it now.
    pub writer: Option<String>,
    /// Of the last invocation.
    pub rate: Option<f64>,
    /// The last failures: run, status, error.
    pub failures: Vec<(String, Status, String)>,
}

impl Standing {
    /// Reads it, with the last `most` failures.
    pub fn read(plan: &Plan<'_>, reader: &Reader, most: usize) -> Result<Self, JournalError> {
        let history = reader.history()?;
        let (counts, evaluations_failed, known) = count(plan, reader, &history)?;
        let mut standing = Self {
            counts,
            evaluations_failed,
            orphans: history.len() as u64 - known,
            starts: history.starts,
            lost: history.lost,
            writer: reader.writer().map(|holder| holder.to_string()),
            rate: reader.rate()?,
            ..Self::default()
        };
        let mut failed: Vec<(StartId, String, Status)> = Vec::new();
        for run in plan.runs() {
            let Some(past) = history.find(run.run_id.number()) else {
                continue;
            };
            let status = past.shown().map_or(past.last, |(_, status)| status);
            let condition = run.condition.id().to_string();
            let of_condition = standing.conditions.entry(condition).or_default();
            *of_condition.entry(status.name()).or_default() += 1;
            match past.shown() {
                Some((_, Status::Success)) => {
                    standing.retried += u64::from(past.attempts > 1);
                }
                Some((start, status)) => {
                    failed.push((start, run.run_id.to_string(), status));
                    if failed.len() > 2 * most {
                        failed.sort_unstable_by_key(|(start, _, _)| std::cmp::Reverse(*start));
                        failed.truncate(most);
                    }
                }
                None => {}
            }
        }
        failed.sort_unstable_by_key(|(start, _, _)| std::cmp::Reverse(*start));
        for (start, run_id, status) in failed.into_iter().take(most) {
            let error = reader
                .finish(start)?
                .map(|finish| error_of(&finish.outcome));
            standing
                .failures
                .push((run_id, status, error.unwrap_or_default()));
        }
        Ok(standing)
    }
}

/// The first line of what went wrong.
fn error_of(outcome: &str) -> String {
    let outcome = parse_value("outcome", outcome).unwrap_or(Value::Null);
    let part = |name: &str| {
        let error = outcome.get("error")?;
        error.get(name)?.as_text().map(str::to_owned)
    };
    let kind = part("type").unwrap_or_default();
    let message = part("message").unwrap_or_default();
    let line = message.lines().next().unwrap_or_default();
    format!("{kind}: {line}")
}
