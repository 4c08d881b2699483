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
        let columns = self.condition_columns();
        let columns = columns.iter().map(String::as_str);
        let mut csv = CsvWriter::new(out, self.study.compat, columns)?;
        for row in self.condition_rows() {
            csv.row(&row)?;
        }
        csv.flush()
    }

    /// The required columns, factors, then blocks.
    pub(crate) fn condition_columns(&self) -> Vec<String> {
        let required = CONDITION_COLUMNS.into_iter().map(str::to_owned);
        let factors = self.design.factor_names().map(str::to_owned);
        let blocks = self
            .design
            .block_names()
            .map(|name| format!("block_{name}"));
        required.chain(factors).chain(blocks).collect()
    }

    /// A row per condition.
    pub(crate) fn condition_rows(&self) -> impl Iterator<Item = Vec<Value>> {
        let factors: Vec<&str> = self.design.factor_names().collect();
        let blocks: Vec<&str> = self.design.block_names().collect();
        self.design.conditions().map(move |condition| {
            let mut row = vec![
                Value::text(&self.study.study_id),
                Value::Text(condition.id().to_string()),
                condition.is_admissible().into(),
                Value::Text(canonical_json(&Value::texts(condition.messages()))),
                Value::Text(canonical_json(&condition.metadata())),
            ];
            let assigned: Vec<(&str, &Value)> = condition.factors().collect();
            row.extend(factors.iter().map(|name| found(&assigned, name)));
            let blocked: Vec<(&str, &Value)> = condition.blocks().collect();
            row.extend(blocks.iter().map(|name| found(&blocked, name)));
            row
        })
    }
}

fn found(entries: &[(&str, &Value)], name: &str) -> Value {
    let entry = entries.iter().find(|(known, _)| *known == name);
    entry.map_or(Value::Null, |(_, value)| (*value).clone())
}
