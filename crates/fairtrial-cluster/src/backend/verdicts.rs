//! The results that dispatch records by itself, as envelopes.

use fairtrial_exec::{Captured, ErrorReport, InForce, Metrics, Outcome, Verdict};
use serde_json::{Value as Json, json};

use crate::envelope::{ErrorCode, ResultEnvelope, TaskError};
use crate::terms::Verdicts;

/// Where dispatch puts the reason, without its quotes.
const REASON: &str = "%REASON%";

/// All of them.
pub(super) fn verdicts() -> Verdicts {
    Verdicts {
        queue_timeout: outcome(
            Verdict::Cancelled,
            "QueueTimeout",
            "it waited too long for an agent",
        ),
        cancelled: unsigned(ResultEnvelope::unsigned(cancelled())),
        lost: error(ErrorCode::Lost),
        setup_failed: outcome(Verdict::SetupFailed, "NoAgent", REASON),
        invalid: error(ErrorCode::Invalid),
    }
}

fn outcome(verdict: Verdict, kind: &str, message: &str) -> String {
    unsigned(ResultEnvelope::unsigned(unrun(verdict, kind, message)))
}

/// The outcome of a call that nobody began.
#[must_use]
pub fn unrun(verdict: Verdict, kind: &str, message: &str) -> Outcome {
    Outcome {
        verdict,
        value: None,
        error: Some(ErrorReport::new(kind, message)),
        exit: None,
        killed_by: None,
        stdout: Captured::default(),
        stderr: Captured::default(),
        metrics: Metrics::default(),
        in_force: InForce {
            mode: "queued",
            ..InForce::default()
        },
        tried_alone: None,
        upper: None,
    }
}

/// The same of one that its caller called off.
pub(crate) fn cancelled() -> Outcome {
    unrun(Verdict::Cancelled, "Cancelled", "the call was cancelled")
}

fn error(code: ErrorCode) -> String {
    let message = REASON.to_owned();
    unsigned(ResultEnvelope::unsigned_error(TaskError { code, message }))
}

fn unsigned(bytes: Vec<u8>) -> String {
    let envelope: Json = serde_json::from_slice(&bytes).unwrap_or(json!(null));
    envelope.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CL-22, CL-29: what is recorded with any reason can be read.
    #[test]
    fn each_can_be_read_with_any_reason_in_it() {
        let all = verdicts();
        for text in [
            all.queue_timeout,
            all.cancelled,
            all.lost,
            all.setup_failed,
            all.invalid,
        ] {
            let reason = json!("a \"quoted\"\nreason").to_string();
            let recorded = text.replace(Verdicts::REASON, &reason);
            let read = ResultEnvelope::read(recorded.as_bytes()).expect(&recorded);
            assert_eq!(read.token, None);
            assert!(!recorded.contains("REASON"), "{recorded}");
            drop(read.to_outcome(|_| None));
        }
    }
}
