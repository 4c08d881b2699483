//! `conditions.csv`.

use std::io::{self, Write};

use super::Plan;
use crate::canonical::canonical_json;
use crate::csv::CsvWriter;
use crate::read::checks::CONDITION_COLUMNS;
use crate::value::Value;

impl Plan<'_> {
    /// Writes one row per condition: the required columns, factors, then blocks.
    pub fn write_conditions(&self, out: impl Write) -> io::Result<()> {
        let design = &self.design;
        let factors: Vec<&str> = design.factor_names().collect();
        let blocks: Vec<&str> = design.block_names().collect();
        let named: Vec<String> = blocks.iter().map(|name| format!("block_{name}")).collect();
        let columns = CONDITION_COLUMNS.into_iter().chain(factors.iter().copied());
        let columns = columns.chain(named.iter().map(String::as_str));
        let mut csv = CsvWriter::new(out, self.study.compat, columns)?;
        for condition in design.conditions() {
            let required = [
                Value::text(&self.study.study_id),
                Value::Text(condition.id().to_string()),
                condition.is_admissible().into(),
                Value::Text(canonical_json(&Value::texts(condition.messages()))),
                Value::Text(canonical_json(&condition.metadata())),
            ];
            let assigned: Vec<(&str, &Value)> = condition.factors().collect();
            let blocked: Vec<(&str, &Value)> = condition.blocks().collect();
            let cells = required
                .iter()
                .chain(factors.iter().map(|name| found(&assigned, name)))
                .chain(blocks.iter().map(|name| found(&blocked, name)));
            csv.row(cells)?;
        }
        csv.flush()
    }
}

fn found<'v>(entries: &[(&str, &'v Value)], name: &str) -> &'v Value {
    let entry = entries.iter().find(|(known, _)| *known == name);
    entry.map_or(&Value::Null, |(_, value)| value)
}
