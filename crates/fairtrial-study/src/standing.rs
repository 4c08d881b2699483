//! How a study stands: a fold over its journal for people (ST-79).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use crate::journal::{JournalError, Past, Reader, StartId, Status};
use crate::json_text::parse_value;
use crate::plan::{Plan, RunSpec};
use crate::run_record::error_parts;
use crate::value::Value;

/// How a study stands.
#[derive(Debug, Default)]
pub struct Standing {
    /// Of the plan's runs that began, how they ended; [`Standing::RUNNING`] are those that have not yet.
    pub counts: BTreeMap<&'static str, u64>,
    /// The same by condition.
    pub conditions: BTreeMap<String, BTreeMap<&'static str, u64>>,
    /// Evaluations that did not go well.
    pub evaluations_failed: u64,
    /// Successes after an attempt that failed.
    pub retried: u64,
    /// Recorded runs that are no longer planned.
    pub orphans: u64,
    /// All attempts.
    pub starts: u64,
    /// Attempts of which no end is recorded, and of which none will be.
    pub lost: u64,
    /// Of the plan's runs that count as lost, those that were under way when their command was ended: who goes on with the
    /// study finds what became of them, or runs them again.
    pub left: u64,
    /// Who runs it now.
    pub writer: Option<String>,
    /// Of the last invocation.
    pub rate: Option<f64>,
    /// Runs that failed.
    pub failed: u64,
    /// The last of them.
    pub failures: Vec<Failure>,
    /// The last evaluations that did not go well.
    pub evaluation_failures: Vec<Failure>,
}

/// A run or an evaluation that failed.
#[derive(Debug)]
pub struct Failure {
    /// The run.
    pub run_id: String,
    /// Its agent; none when standalone.
    pub agent_id: Option<String>,
    /// Its problem; none when standalone.
    pub problem_id: Option<String>,
    /// How it, or its evaluation, ended.
    pub status: &'static str,
    /// Where: as in tables, or `evaluation`.
    pub stage: &'static str,
    /// The type of its error.
    pub error_type: String,
    /// The first line of what the error says.
    pub message: String,
}

impl Standing {
    /// Under which runs are counted that are under way.
    pub const RUNNING: &'static str = "running";

    /// Reads it, with the last `most` failures.
    pub fn read(plan: &Plan<'_>, reader: &Reader, most: usize) -> Result<Self, JournalError> {
        // Asked first: of a writer that leaves after this, the record has all ends.
        let writer = reader.writer().map(|holder| holder.to_string());
        let under_way = UnderWay::of(reader, writer.is_some())?;
        let history = reader.history()?;
        let unwell = reader.failed_evaluations()?;
        let mut standing = Self {
            starts: history.starts,
            writer,
            rate: reader.rate()?,
            ..Self::default()
        };
        let (mut failed, mut unevaluated) = (Last::new(most), Last::new(most));
        let mut known = 0;
        for run in plan.runs() {
            let Some(past) = history.find(run.run_id.number()) else {
                continue;
            };
            known += 1;
            let name = match under_way.holds(reader, past)? {
                true => Self::RUNNING,
                false => past.shown().map_or(past.last, |(_, status)| status).name(),
            };
            // Lost by a word of the engine's, or without one.
            let is_lost = name == Status::Lost.name();
            let is_told = is_lost && reader.finish(past.last_start())?.is_some();
            standing.left += u64::from(is_lost && !is_told);
            *standing.counts.entry(name).or_default() += 1;
            let condition = run.condition.id().to_string();
            let of_condition = standing.conditions.entry(condition).or_default();
            *of_condition.entry(name).or_default() += 1;
            standing.retried += u64::from(past.is_retried_success());
            match past.shown() {
                Some((start, Status::Success)) if unwell.contains(&start) => {
                    unevaluated.add(start, run);
                }
                Some((start, status)) if status.is_failure() => failed.add(start, run),
                _ if is_told => failed.add(past.last_start(), run),
                _ => {}
            }
        }
        let running = standing.counts.get(Self::RUNNING).copied();
        standing.lost = history.lost.saturating_sub(running.unwrap_or(0));
        standing.orphans = history.len() as u64 - known;
        (standing.failed, standing.evaluations_failed) = (failed.seen, unevaluated.seen);
        for (start, run) in failed.finish() {
            standing.failures.extend(failure(reader, start, &run)?);
        }
        for (start, run) in unevaluated.finish() {
            let found = evaluation_failure(reader, start, &run)?;
            standing.evaluation_failures.extend(found);
        }
        Ok(standing)
    }
}

/// Failures whose errors are compared; of more, the first.
const MOST_COMPARED: usize = 10_000;

/// The error that most failures of a study have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonestError {
    /// `"<Type>: <message>"`.
    pub error: String,
    /// How many of the failures that were compared have it.
    pub count: u64,
    /// How many were compared: runs that failed, and successes whose evaluation did.
    pub compared: u64,
}

impl CommonestError {
    /// Reads the failures of a plan; none if there is none.
    pub fn read(plan: &Plan<'_>, reader: &Reader) -> Result<Option<Self>, JournalError> {
        let history = reader.history()?;
        let unwell = reader.failed_evaluations()?;
        let (mut counts, mut compared) = (HashMap::<String, u64>::new(), 0);
        for run in plan.runs() {
            let past = history.find(run.run_id.number());
            let found = match past.and_then(Past::shown) {
                Some((start, Status::Success)) if unwell.contains(&start) => {
                    evaluation_failure(reader, start, &run)?
                }
                Some((start, status)) if status.is_failure() => failure(reader, start, &run)?,
                _ => None,
            };
            let Some(found) = found else { continue };
            *counts.entry(found.error()).or_default() += 1;
            compared += 1;
            if compared == MOST_COMPARED as u64 {
                break;
            }
        }
        let most = counts.into_iter().max_by(|(one, n), (other, m)| {
            n.cmp(m).then_with(|| other.cmp(one)) // of equally many the first by its text
        });
        Ok(most.map(|(error, count)| Self {
            error,
            count,
            compared,
        }))
    }
}

/// The invocation whose starts without an end are not lost: the last one, while its writer lives.
struct UnderWay(Option<i64>);

impl UnderWay {
    fn of(reader: &Reader, is_written: bool) -> Result<Self, JournalError> {
        if !is_written {
            return Ok(Self(None));
        }
        let last = reader.invocations()?.pop();
        let current = last.filter(|last| last.end.is_none());
        Ok(Self(current.map(|current| current.begun.id)))
    }

    /// Whether a run's last start is one of these. Starts without an end are few: no more than were ever under way.
    fn holds(&self, reader: &Reader, past: &Past) -> Result<bool, JournalError> {
        if self.0.is_none() || past.last != Status::Lost {
            return Ok(false);
        }
        let start = past.last_start();
        let invocation = reader.start(start)?.map(|row| row.invocation);
        Ok(invocation == self.0 && reader.finish(start)?.is_none())
    }
}

/// The last of many, by their starts.
struct Last<'p> {
    most: usize,
    seen: u64,
    kept: Vec<(StartId, RunSpec<'p>)>,
}

impl<'p> Last<'p> {
    fn new(most: usize) -> Self {
        Self {
            most,
            seen: 0,
            kept: Vec::new(),
        }
    }

    fn add(&mut self, start: StartId, run: RunSpec<'p>) {
        self.seen += 1;
        self.kept.push((start, run));
        if self.kept.len() > 2 * self.most {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.kept.sort_unstable_by_key(|(start, _)| Reverse(*start));
        self.kept.truncate(self.most);
    }

    fn finish(mut self) -> Vec<(StartId, RunSpec<'p>)> {
        self.cut();
        self.kept
    }
}

fn failure(
    reader: &Reader,
    start: StartId,
    run: &RunSpec<'_>,
) -> Result<Option<Failure>, JournalError> {
    let finish = reader.finish(start)?;
    let failure = finish.map(|finish| {
        let (status, stage) = (finish.status.name(), finish.stage.name());
        Failure::new(reader, run, status, stage, &finish.outcome)
    });
    failure.transpose()
}

fn evaluation_failure(
    reader: &Reader,
    start: StartId,
    run: &RunSpec<'_>,
) -> Result<Option<Failure>, JournalError> {
    let evaluation = reader.evaluation(start)?;
    let failure = evaluation
        .map(|row| Failure::new(reader, run, row.status.name(), "evaluation", &row.outcome));
    failure.transpose()
}

impl Failure {
    fn new(
        reader: &Reader,
        run: &RunSpec<'_>,
        status: &'static str,
        stage: &'static str,
        outcome: &str,
    ) -> Result<Self, JournalError> {
        let outcome = parse_value("journal", outcome).map_err(|fault| {
            let run_id = &run.run_id;
            reader.damaged(format!("what it holds of {run_id} cannot be read: {fault}"))
        })?;
        let (error_type, message) = error_parts(&outcome);
        Ok(Self {
            run_id: run.run_id.to_string(),
            agent_id: named(run.agent_id()),
            problem_id: named(run.problem_id()),
            status,
            stage,
            error_type,
            message: message.lines().next().unwrap_or_default().to_owned(),
        })
    }

    /// `"<Type>: <message>"`, or what there is of it.
    #[must_use]
    pub fn error(&self) -> String {
        let parts = [&*self.error_type, &*self.message];
        let said: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        said.join(": ")
    }
}

/// An agent's or a problem's id, where there is one.
pub(crate) fn named(id: &Value) -> Option<String> {
    (*id != Value::Null).then(|| id.to_str())
}
