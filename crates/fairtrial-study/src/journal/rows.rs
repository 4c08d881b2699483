//! Rows of a journal as records: for each table the columns that are asked for, and what is made of them in that order.

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::read::PastInvocation;
use super::record::{Evaluation, Finish, Invocation, Start, StartId, Status};

/// The columns of a start.
pub(super) const START: &str =
    "id, run_id, seq, attempt, invocation, plan_index, order_index, seed, identity, started_at_ns";

pub(super) fn start(row: &Row<'_>) -> rusqlite::Result<Start> {
    let unsigned = |column| row.get(column).map(i64::cast_unsigned);
    Ok(Start {
        id: StartId(row.get(0)?),
        run_id: row.get(1)?,
        seq: row.get(2)?,
        attempt: row.get(3)?,
        invocation: row.get(4)?,
        plan_index: unsigned(5)?,
        order_index: unsigned(6)?,
        seed: unsigned(7)?,
        identity: row.get(8)?,
        started_at_ns: row.get(9)?,
    })
}

/// The columns of an end.
pub(super) const FINISH: &str = "id, run_id, seq, status, verdict, stage, finished_at_ns, outcome, result, stdout, stderr, \
     warnings";

pub(super) fn finish(row: &Row<'_>) -> rusqlite::Result<Finish> {
    Ok(Finish {
        id: StartId(row.get(0)?),
        run_id: row.get(1)?,
        seq: row.get(2)?,
        status: parsed(row, 3, str::parse)?,
        verdict: row.get(4)?,
        stage: parsed(row, 5, str::parse)?,
        finished_at_ns: row.get(6)?,
        outcome: row.get(7)?,
        result: row.get(8)?,
        stdout: row.get(9)?,
        stderr: row.get(10)?,
        warnings: row.get(11)?,
    })
}

/// The columns of an evaluation.
pub(super) const EVALUATION: &str =
    "start, run_id, seq, number, evaluator_sha256, status, rows, outcome";

pub(super) fn evaluation(row: &Row<'_>) -> rusqlite::Result<Evaluation> {
    Ok(Evaluation {
        start: StartId(row.get(0)?),
        run_id: row.get(1)?,
        seq: row.get(2)?,
        number: row.get(3)?,
        evaluator_sha256: row.get(4)?,
        status: parsed(row, 5, Status::of_evaluation)?,
        rows: row.get(6)?,
        outcome: row.get(7)?,
    })
}

/// The columns of an invocation, and of its end if it has one.
pub(super) const INVOCATION: &str = "id, started_at_ns, pid, host, argv, study_path, study_blob, study_sha256, digest_runs, \
     workers, backend, run_order, ended_at_ns, reason";

pub(super) fn invocation(row: &Row<'_>) -> rusqlite::Result<PastInvocation> {
    let ended: Option<i64> = row.get(12)?;
    let reason: Option<String> = row.get(13)?;
    let begun = Invocation {
        id: row.get(0)?,
        started_at_ns: row.get(1)?,
        pid: row.get(2)?,
        host: row.get(3)?,
        argv: row.get(4)?,
        study_path: row.get(5)?,
        study_blob: row.get(6)?,
        study_sha256: row.get(7)?,
        digest_runs: row.get(8)?,
        workers: row.get(9)?,
        backend: row.get(10)?,
        run_order: row.get(11)?,
    };
    let end = ended.zip(reason);
    Ok(PastInvocation { begun, end })
}

/// A status column of what may not have ended.
pub(super) fn status(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Status>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => parsed(row, column, str::parse).map(Some),
    }
}

/// A column of words that are known; an unknown one is an error of the file.
pub(super) fn parsed<T>(
    row: &Row<'_>,
    column: usize,
    parse: fn(&str) -> Result<T, String>,
) -> rusqlite::Result<T> {
    parse(row.get_ref(column)?.as_str()?).map_err(|problem| {
        let kind = rusqlite::types::Type::Text;
        rusqlite::Error::FromSqlConversionFailure(column, kind, problem.into())
    })
}
