//! Times as JSON that reads back as the same time.

use std::time::Duration;

use serde_json::{Value as Json, json};

/// Seconds: whole ones as such.
pub(super) fn seconds(time: Duration) -> Json {
    match time.subsec_nanos() {
        0 => json!(time.as_secs()),
        _ => json!(time.as_secs_f64()),
    }
}

pub(super) const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}
