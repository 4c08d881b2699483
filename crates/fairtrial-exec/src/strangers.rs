//! The doors that a stranger's bytes come in by, for tests that throw any bytes at them (`tests/strangers`).

use crate::outcome::ErrorReport;
use crate::protocol::{BadFrame, Kind};
use crate::verdict::Verdict;
use crate::worker::frames::Frames;
use crate::worker::judge;
use crate::worker::said::Said;
use crate::zygote::{Warm, read_refusal};

/// Cuts a worker's bytes into frames as they arrive, `step` at a time, and reads what each says. Gives the bytes that
/// say the same, of all frames up to the first bad one.
pub fn frames(bytes: &[u8], step: usize) -> (Vec<u8>, Option<BadFrame>) {
    let (mut frames, mut same) = (Frames::default(), Vec::new());
    for arrived in bytes.chunks(step.max(1)) {
        frames.push(arrived);
        loop {
            match frames.next() {
                Ok(Some(frame)) => {
                    same.extend(frame.header.encode());
                    same.extend(frame.payload);
                }
                Ok(None) => break,
                Err(bad) => return (same, Some(bad)),
            }
        }
    }
    (same, None)
}

/// Reads what a frame says and gives the kind and payload that say the same, if it says anything.
#[must_use]
pub fn said(kind: Kind, payload: &[u8]) -> Option<(Kind, Vec<u8>)> {
    Said::read(kind, payload.to_vec()).ok().map(Said::write)
}

/// Reads an error record.
#[must_use]
pub fn error_record(payload: &[u8]) -> Option<(Verdict, ErrorReport)> {
    judge::record_verdict(payload)?;
    judge::read_record(payload)
}

/// Reads what a zygote says when it is warm, or why it cannot be. Tells whether it says one of them.
#[must_use]
pub fn zygote_record(payload: &[u8]) -> bool {
    let (warm, refusal) = (Warm::read(payload), read_refusal(payload));
    warm.is_some() || refusal.is_some()
}
