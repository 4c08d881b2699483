//! An evaluation's report: one HTML file that needs nothing else (CA-82). The same results give the same bytes.

mod blocks;
mod chart;
mod facts;
mod failures;
pub mod figures;
mod lineage;
mod measured;
mod page;
mod profile;
mod proposals;
mod ranking;
#[cfg(test)]
mod tests;
mod times;
mod words;

use crate::evaluation::{BenchFacts, EvaluationReport};
use crate::measure::{Bench, Metric, Run};
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
            blocks: Blocks::of(runs, &self.benches(), metric.unwrap_or(Metric::Wall)),
            band: (1.0 / (1.0 + min_effect), 1.0 + min_effect),
        };
        page::page(&source)
    }

    /// How much each bench command counts, and how often each side loops in it.
    fn benches(&self) -> Vec<Bench> {
        let benches = self.spec["bench"].as_array().into_iter().flatten();
        let measured = self.measurement.as_ref().map(|measured| &measured.benches);
        let bench = |bench: &serde_json::Value| {
            let name = bench["name"].as_str()?.to_owned();
            let facts = measured.and_then(|benches| benches.get(&name));
            Some(Bench {
                weight: bench["weight"].as_f64().unwrap_or(1.0),
                slopes: facts.map(BenchFacts::slopes).unwrap_or_default(),
                name,
            })
        };
        benches.filter_map(bench).collect()
    }
}
