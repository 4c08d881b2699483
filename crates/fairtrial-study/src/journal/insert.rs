//! Records as rows.

use rusqlite::{Connection, Transaction};

use super::record::{Decision, Evaluation, Finish, Invocation, Record, Start};

/// All of them, or none.
pub(super) fn all(database: &mut Connection, records: &[Record]) -> rusqlite::Result<()> {
    let transaction =
        database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for record in records {
        one(&transaction, record)?;
    }
    transaction.commit()
}

fn one(to: &Transaction<'_>, record: &Record) -> rusqlite::Result<()> {
    match record {
        Record::Invocation(invocation) => insert_invocation(to, invocation),
        Record::InvocationEnd {
            id,
            ended_at_ns,
            reason,
        } => execute(
            to,
            "INSERT INTO invocation_ends VALUES (?1, ?2, ?3)",
            (id, ended_at_ns, reason),
        ),
        Record::Blob { sha256, bytes } => execute(
            to,
            "INSERT INTO blobs VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            (sha256, bytes),
        ),
        Record::Start(start) => insert_start(to, start),
        Record::Finish(finish) => insert_finish(to, finish),
        Record::Evaluation(evaluation) => insert_evaluation(to, evaluation),
        Record::Decision(decision) => insert_decision(to, decision),
    }
}

fn execute(to: &Transaction<'_>, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<()> {
    to.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn insert_invocation(to: &Transaction<'_>, row: &Invocation) -> rusqlite::Result<()> {
    execute(
        to,
        "INSERT INTO invocations VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        (
            row.id,
            row.started_at_ns,
            row.pid,
            &row.host,
            &row.argv,
            &row.study_path,
            &row.study_blob,
            &row.study_sha256,
            &row.digest_runs,
            row.workers,
            &row.backend,
            &row.run_order,
        ),
    )
}

fn insert_start(to: &Transaction<'_>, row: &Start) -> rusqlite::Result<()> {
    execute(
        to,
        "INSERT INTO starts VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        (
            row.id.0,
            &row.run_id,
            row.seq,
            row.attempt,
            row.invocation,
            row.plan_index.cast_signed(),
            row.order_index.cast_signed(),
            row.seed.cast_signed(),
            &row.identity,
            row.started_at_ns,
        ),
    )
}

fn insert_finish(to: &Transaction<'_>, row: &Finish) -> rusqlite::Result<()> {
    execute(
        to,
        "INSERT INTO finishes VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        (
            row.id.0,
            &row.run_id,
            row.seq,
            row.status.name(),
            &row.verdict,
            row.stage.name(),
            row.finished_at_ns,
            &row.outcome,
            &row.result,
            &row.stdout,
            &row.stderr,
            &row.warnings,
        ),
    )
}

fn insert_evaluation(to: &Transaction<'_>, row: &Evaluation) -> rusqlite::Result<()> {
    execute(
        to,
        "INSERT INTO evaluations (start, run_id, seq, number, evaluator_sha256, status, rows, outcome)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        (
            row.start.0,
            &row.run_id,
            row.seq,
            row.number,
            &row.evaluator_sha256,
            row.status.evaluation_name(),
            &row.rows,
            &row.outcome,
        ),
    )
}

fn insert_decision(to: &Transaction<'_>, row: &Decision) -> rusqlite::Result<()> {
    execute(
        to,
        "INSERT INTO decisions VALUES (?1, ?2, ?3, ?4)",
        (row.invocation, &row.run_id, row.action, &row.reason),
    )
}
