//! From one line to its record: the call tried, what became of it, and where that is kept.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fairtrial_exec::{Backend, Call, EngineError, Outcome, Verdict, Work};
use serde_json::Value as Json;

use crate::advice::{self, Place};
use crate::input::Line;
use crate::record::{self, RecordError};
use crate::spool::{Record, Spool};

/// An outcome with more bytes than this is put into JSON off the event loop, and straight to disk.
const LARGE: usize = 1 << 20;

/// A line that has its record.
pub(super) struct Finished {
    pub(super) index: u64,
    /// Bytes the line took in the input.
    pub(super) length: u64,
    /// Bytes the call held while it waited.
    pub(super) weight: u64,
    pub(super) end: LineEnd,
    pub(super) record: Record,
}

/// What became of one line.
pub(super) enum LineEnd {
    Verdict(Verdict),
    /// No trial; what standard error shows after the input's name.
    BadLine(String),
    /// The same.
    EngineError(String),
    /// The same of an error that every other call would have.
    BackendError(String),
}

/// From a line to its record, wherever that is kept.
pub(super) async fn attempt<B: Backend>(
    backend: Arc<B>,
    spool: Spool,
    index: u64,
    line: Line,
    base: Option<Arc<Path>>,
) -> Finished {
    let (length, weight) = (line.length, line.weight());
    let (id, number) = (line.id, line.number);
    let (end, record) = match line.call {
        Err(bad) => {
            let message = format!("{number}:{}: {}", bad.column, bad.message);
            let record = record::no_trial(&id, number, "InvalidCall", &bad.message);
            (LineEnd::BadLine(message), spool.keep_anyway(record))
        }
        Ok(call) => match try_call(&*backend, &spool, call, &id, base.as_deref()).await {
            Ok((verdict, record)) => (LineEnd::Verdict(verdict), record),
            Err(error) => no_trial(&spool, &id, number, &error),
        },
    };
    Finished {
        index,
        length,
        weight,
        end,
        record,
    }
}

async fn try_call<B: Backend>(
    backend: &B,
    spool: &Spool,
    call: Call,
    id: &Json,
    base: Option<&Path>,
) -> Result<(Verdict, Record), RecordError> {
    let named = base.filter(|_| matches!(call.work, Work::Command(_)));
    let kept = named.map(|base| (call.clone(), Place::of_calls(base)));
    let mut outcome = backend.execute(call).await?;
    if let Some((call, place)) = kept {
        advice::add_to(&mut outcome, &call, place);
    }
    let verdict = outcome.verdict;
    let record = keep_outcome(spool, id, outcome).await?;
    Ok((verdict, record))
}

/// The record of a call that the engine refused, or could not see through.
fn no_trial(spool: &Spool, id: &Json, number: u64, error: &RecordError) -> (LineEnd, Record) {
    let (kind, end) = match error.downcast_ref() {
        Some(EngineError::InvalidCall(invalid)) => (
            "InvalidCall",
            LineEnd::BadLine(format!("{number}:1: {invalid}")),
        ),
        Some(error) if error.is_of_backend() => {
            ("EngineError", LineEnd::BackendError(error.to_string()))
        }
        _ => (
            "EngineError",
            LineEnd::EngineError(format!("{number}: error: {error}")),
        ),
    };
    let record = record::no_trial(id, number, kind, &error.to_string());
    (end, spool.keep_anyway(record))
}

/// Keeps an outcome: a large one straight on disk.
async fn keep_outcome(spool: &Spool, id: &Json, outcome: Outcome) -> Result<Record, RecordError> {
    if weight(&outcome) > LARGE {
        let id = id.clone();
        return store(spool, move |mut out| {
            record::write_outcome(&outcome, &id, &mut out)
        })
        .await;
    }
    let mut bytes = Vec::with_capacity(2048);
    record::write_outcome(&outcome, id, &mut bytes)?;
    bytes.shrink_to_fit();
    match spool.keep(bytes) {
        Ok(record) => Ok(record),
        Err(bytes) => store(spool, move |out| Ok(out.write_all(&bytes)?)).await,
    }
}

async fn store(
    spool: &Spool,
    write: impl FnOnce(&mut dyn io::Write) -> Result<(), RecordError> + Send + 'static,
) -> Result<Record, RecordError> {
    let spool = spool.clone();
    let stored = tokio::task::spawn_blocking(move || spool.store(write));
    stored.await?
}

/// About how many bytes an outcome holds.
fn weight(outcome: &Outcome) -> usize {
    let kept = |stream: &fairtrial_exec::Captured| stream.head.len() + stream.tail.len();
    let value = outcome.value.as_ref();
    value.map_or(0, |value| value.body.bytes().len())
        + kept(&outcome.stdout)
        + kept(&outcome.stderr)
}
