//! What the journal says of one invocation: which study it was of, how it began and ended, and what it accepted.

use std::path::PathBuf;

use super::Request;
use crate::canonical::{canonical_json, sha256_hex};
use crate::clock::now_ns;
use crate::journal::{Decision, Invocation, JournalError, Reader, Record};
use crate::plan::Survey;
use crate::runner::End;
use crate::value::Value;

/// The number of the next one.
pub(super) fn next_id(reader: &Reader) -> Result<i64, JournalError> {
    Ok(reader
        .invocations()?
        .last()
        .map_or(1, |last| last.begun.id + 1))
}

/// It begins, and takes what it accepts for the same (ST-67).
pub(super) fn begin(request: &Request<'_>, id: i64, survey: &Survey) -> Vec<Record> {
    let plan = request.plan;
    let study_blob = sha256_hex(&request.input);
    let order = &plan.study.order;
    let run_order = Value::map([
        ("policy", Value::text(order.policy.name())),
        ("seed", order.seed.clone()),
    ]);
    let absolute = std::path::absolute(&*plan.study.file);
    let study_path = absolute.unwrap_or_else(|_| PathBuf::from(&*plan.study.file));
    let mut records = vec![
        Record::Blob {
            sha256: study_blob.clone(),
            bytes: request.input.clone(),
        },
        Record::Invocation(Invocation {
            id,
            started_at_ns: now_ns(),
            pid: std::process::id(),
            host: request.host.clone(),
            argv: canonical_json(&Value::texts(&request.argv)),
            study_path: study_path.display().to_string(),
            study_blob,
            study_sha256: plan.study_sha256.clone(),
            digest_runs: plan.digest_runs.clone(),
            workers: u32::try_from(request.workers).unwrap_or(u32::MAX),
            backend: request.backend.clone(),
            run_order: canonical_json(&run_order),
        }),
    ];
    let accepted = survey.accepted.iter();
    records.extend(accepted.map(|(run_id, decision)| {
        Record::Decision(Decision {
            invocation: id,
            run_id: run_id.to_string(),
            action: decision.action.name(),
            reason: decision.reason.to_string(),
        })
    }));
    records
}

/// It ended.
pub(super) fn end(id: i64, end: End) -> Record {
    Record::InvocationEnd {
        id,
        ended_at_ns: now_ns(),
        reason: end.name(),
    }
}

/// Whether the study is not the one that the tables are of: one of fewer runs has nothing to run, and other tables.
pub(super) fn is_another(request: &Request<'_>, reader: &Reader) -> Result<bool, JournalError> {
    let invocations = reader.invocations()?;
    Ok(invocations.last().is_some_and(|last| {
        last.begun.study_sha256 != request.plan.study_sha256
            || last.begun.digest_runs != request.plan.digest_runs
    }))
}
