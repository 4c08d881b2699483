//! `manifest.json`: how many runs ended how, by which models, made when and where (SF-55).

use std::collections::{BTreeMap, BTreeSet};

use num_bigint::BigInt;

use super::Export;
use crate::clock::{Precision, time_text};
use crate::journal::Status;
use crate::run_record::RunRecord;
use crate::value::Value;

/// What a manifest counts.
#[derive(Debug, Default)]
pub(super) struct Counted {
    runs: u64,
    statuses: BTreeMap<&'static str, u64>,
    models: BTreeSet<String>,
}

impl Counted {
    pub(super) fn add(&mut self, record: &RunRecord) {
        let status = match record.status {
            Status::Success => "success",
            _ => "failed",
        };
        self.runs += 1;
        *self.statuses.entry(status).or_default() += 1;
        match record.metadata.get("model_name") {
            Some(Value::Text(model)) if !model.is_empty() => _ = self.models.insert(model.clone()),
            _ => {}
        }
    }
}

/// What it says.
pub(super) fn manifest(export: &Export<'_>, counted: &Counted) -> Value {
    let mask = export.options.mask_volatile;
    let generated = match mask {
        true => String::new(),
        false => time_text(export.options.generated_at_ns, Precision::Seconds),
    };
    let given = export.plan.study.normalised.get("provenance_metadata");
    let given = given.filter(|value| matches!(value, Value::Map(entries) if !entries.is_empty()));
    let provenance = match (given, &export.options.provenance) {
        (Some(given), _) => given.clone(),
        (None, Some(captured)) if !mask => captured.clone(),
        (None, _) => Value::Map(Vec::new()),
    };
    let statuses = counted.statuses.iter().map(|(status, count)| {
        let count = Value::Int(BigInt::from(*count));
        (status.to_string(), count)
    });
    Value::map([
        ("generated_at", Value::Text(generated)),
        ("model_ids", Value::texts(&counted.models)),
        ("provenance", provenance),
        ("run_count", Value::Int(BigInt::from(counted.runs))),
        ("schema_version", Value::text("0.2.0")),
        ("status_counts", Value::map(statuses)),
        ("study_id", Value::text(&export.plan.study.study_id)),
    ])
}
