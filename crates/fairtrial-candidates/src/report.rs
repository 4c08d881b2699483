//! An evaluation's report: one HTML file that needs nothing else (CA-82). The same results give the same bytes.

mod blocks;
mod chart;
mod facts;
mod failures;
mod figures;
mod lineage;
mod measured;
mod page;
mod profile;
mod proposals;
mod ranking;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use crate::evaluation::EvaluationReport;
use crate::measure::{Metric, Run};
use blocks::Blocks;
use chart::Band;

/// All that a page is made of.
struct Source<'r> {
    report: &'r EvaluationReport,
    blocks: Blocks,
    /// What is too small to count.
    band: Band,
}

impl EvaluationReport {
    /// The report as a page. `runs` are the lines of `runs.jsonl`: without them no block is drawn.
    #[must_use]
    pub fn html(&self, runs: &[Run]) -> String {
        let measure = &self.spec["measure"];
        let min_effect = measure["min_effect"].as_f64().unwrap_or(0.0);
        let metric = self.measurement.as_ref().map(|measured| measured.metric);
        let source = Source {
            report: self,
            blocks: Blocks::of(runs, &self.weights(), metric.unwrap_or(Metric::Wall)),
            band: (1.0 / (1.0 + min_effect), 1.0 + min_effect),
        };
        page::page(&source)
    }

    /// How much each bench command counts.
    fn weights(&self) -> BTreeMap<String, f64> {
        let benches = self.spec["bench"].as_array().into_iter().flatten();
        let weight = |bench: &serde_json::Value| {
            let weight = bench["weight"].as_f64().unwrap_or(1.0);
            Some((bench["name"].as_str()?.to_owned(), weight))
        };
        benches.filter_map(weight).collect()
    }
}
