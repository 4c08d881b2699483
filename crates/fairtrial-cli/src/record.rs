//! One line of JSON for each call: its outcome, or why there was no trial. Large values are streamed.

use std::error::Error;
use std::io::{self, Write};

use fairtrial_exec::{EncodedValue, Outcome, ResultFormat, value};
use serde_json::{Value as Json, json};

/// Why a record could not be written: the stream failed, or the value is no value.
pub(crate) type RecordError = Box<dyn Error + Send + Sync>;

/// The outcome as the contract's JSON object and a newline.
pub(crate) fn write_outcome(
    outcome: &Outcome,
    id: &Json,
    out: &mut impl Write,
) -> Result<(), RecordError> {
    let mut separator = '{';
    for (key, field) in outcome.to_json_without_value(id) {
        write!(out, "{separator}\"{key}\":")?;
        match (&*key, &outcome.value) {
            ("value", Some(value)) => write_value(value, out)?,
            _ => serde_json::to_writer(&mut *out, &field)?,
        }
        separator = ',';
    }
    Ok(out.write_all(b"}\n")?)
}

/// The value in JSON form, without a newline.
pub(crate) fn write_value(value: &EncodedValue, out: &mut impl Write) -> Result<(), RecordError> {
    let bytes = value.body.bytes();
    match value.format {
        ResultFormat::Data => value::write_json(bytes, out)?,
        ResultFormat::Pickle => value::write_pickle_json(bytes, out)?,
    }
    Ok(())
}

/// The record of a call that was not tried, and a newline. `kind` is `InvalidCall` or `EngineError`.
pub(crate) fn no_trial(id: &Json, line: u64, kind: &str, message: &str) -> Vec<u8> {
    let record = json!({
        "id": id,
        "line": line,
        "verdict": null,
        "error": {"type": kind, "message": message},
    });
    format!("{record}\n").into_bytes()
}

/// Whether an error means that whoever read our output went away.
pub(crate) fn is_broken_pipe(error: &RecordError) -> bool {
    let is = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if let Some(error) = error.downcast_ref::<serde_json::Error>() {
        return error.io_error_kind() == Some(io::ErrorKind::BrokenPipe);
    }
    error.downcast_ref::<io::Error>().is_some_and(is)
        || error
            .source()
            .and_then(|cause| cause.downcast_ref())
            .is_some_and(is)
}
