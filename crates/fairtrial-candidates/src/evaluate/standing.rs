//! The report, from all that is known.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::event::State;
use super::field::{Field, Number};
use crate::cases::Baseline;
use crate::evaluation::{
    BaseFacts, BaselineFacts, BenchFacts, Costs, Evaluation, EvaluationReport, Machine,
    Measurement, MedianMetrics, ProviderFacts, QuarantinedCase, REPORT_VERSION,
};
use crate::measure::{Metric, Placing, Report, Run, Side};
use crate::spec::Spec;
use crate::stage::Lineage;

/// What races gave.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) metric: Metric,
    pub(crate) report: Report,
    pub(crate) facts: BTreeMap<String, BenchFacts>,
    pub(crate) cpu: Option<u32>,
    pub(crate) pinning: String,
    /// All runs, for medians.
    pub(crate) runs: Vec<Run>,
}

/// All that is known.
pub(crate) struct Known<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) base: BaseFacts,
    pub(crate) machine: Machine,
    pub(crate) provider: ProviderFacts,
    pub(crate) baseline: &'a Baseline,
    pub(crate) field: &'a Field,
    pub(crate) measured: Option<Measured>,
    pub(crate) costs: Costs,
    pub(crate) warnings: Vec<String>,
    pub(crate) proposals: Vec<Value>,
}

/// Puts the report together.
pub(crate) fn report(known: Known<'_>) -> EvaluationReport {
    let ranking = known
        .measured
        .as_ref()
        .map_or(&[][..], |measured| &measured.report.ranking);
    let medians = known
        .measured
        .as_ref()
        .map(|measured| medians(&measured.runs))
        .unwrap_or_default();
    let race = known.measured.as_ref().map(|measured| &measured.report);
    EvaluationReport {
        version: REPORT_VERSION,
        spec: known.spec.to_json(),
        base: known.base,
        machine: known.machine,
        provider: known.provider,
        baseline: baseline(known.baseline, known.spec.baseline.runs),
        noise_floor: race.and_then(|race| race.noise_floor),
        aa_failed: race.is_some_and(|race| race.aa_failed),
        evaluations: evaluations(known.field, ranking, &medians),
        winner: race.and_then(|race| race.winner.clone()),
        measurement: known.measured.map(|measured| measurement(measured)),
        profile: None,
        proposals: known.proposals,
        costs: known.costs,
        warnings: known.warnings,
    }
}

fn baseline(baseline: &Baseline, runs: u32) -> BaselineFacts {
    let passing = baseline.tests.iter().flat_map(|test| test.cases.values());
    let passing = passing
        .filter(|case| case.result.status.is_passing())
        .count();
    let quarantined = baseline.quarantined().map(|(case, why)| QuarantinedCase {
        test: case.test,
        case: case.case,
        why: why.clone(),
    });
    let quarantined: Vec<QuarantinedCase> = quarantined.collect();
    BaselineFacts {
        runs,
        cases: (baseline.judged() + quarantined.len()) as u64,
        judged: baseline.judged() as u64,
        passing: passing as u64,
        quarantined,
    }
}

fn measurement(measured: Measured) -> Measurement {
    let tally = measured.report.tally;
    Measurement {
        metric: measured.metric.to_string(),
        pinned_to: measured.cpu,
        pinning: measured.pinning,
        benches: measured.facts,
        runs: tally.runs,
        blocks: tally.blocks,
        repeated: tally.repeated,
        flagged: tally.flagged,
    }
}

/// Those that were measured in their order, then those that are correct, then the rest as they were given (CA-80).
fn evaluations(
    field: &Field,
    ranking: &[Placing],
    medians: &HashMap<Side, MedianMetrics>,
) -> Vec<Evaluation> {
    let lineages = field.lineages();
    let places: HashMap<&str, usize> = ranking
        .iter()
        .enumerate()
        .map(|(place, placing)| (placing.candidate.id.as_str(), place))
        .collect();
    let mut order: Vec<Number> = (0..field.entries.len()).collect();
    let group = |number: &Number| {
        let entry = &field.entries[*number];
        let stands = entry.duplicate_of.is_none() && entry.is_correct();
        let place = entry
            .id()
            .and_then(|id| places.get(id.as_str()).copied())
            .filter(|_| stands);
        (
            place.unwrap_or(usize::MAX),
            !stands,
            entry.duplicate_of.is_some(),
            *number,
        )
    };
    order.sort_by_key(group);
    let mut rank = 0;
    let one = |number: Number| {
        let entry = &field.entries[number];
        let stands = entry.duplicate_of.is_none() && entry.is_correct();
        rank += u32::from(stands);
        let id = entry.id();
        let placing = id
            .as_deref()
            .and_then(|id| places.get(id))
            .map(|place| &ranking[*place]);
        let placing = placing.filter(|_| entry.duplicate_of.is_none());
        let Lineage {
            parent,
            origin,
            generation,
            ..
        } = lineages[number].clone();
        Evaluation {
            rank: stands.then_some(rank),
            name: entry.name.clone(),
            parent,
            origin,
            generation,
            state: match entry.state {
                State::Correct => State::Done,
                state => state,
            },
            duplicate_of: entry.duplicate_of.and_then(|of| field.entries[of].id()),
            failure: entry.failure.clone(),
            cases: entry.cases,
            judgement: placing.and_then(|placing| placing.judgement.clone()),
            confirmation: placing.and_then(|placing| placing.confirmation.clone()),
            metrics: id
                .as_ref()
                .and_then(|id| medians.get(&Side::Candidate(id.clone())).copied()),
            size: entry.staged.as_ref().map(|staged| staged.size),
            meta: entry.meta.clone(),
            id,
        }
    };
    order.into_iter().map(one).collect()
}

/// Medians of what was measured of each side, calibration apart.
fn medians(runs: &[Run]) -> HashMap<Side, MedianMetrics> {
    let mut by_side: HashMap<Side, Vec<&Run>> = HashMap::new();
    for run in runs.iter().filter(|run| run.measured.failed.is_none()) {
        by_side.entry(run.order.side.clone()).or_default().push(run);
    }
    let of = |runs: &[&Run], metric: fn(&Run) -> Option<f64>| {
        median(runs.iter().filter_map(|run| metric(run)).collect())
    };
    let all = by_side.into_iter().map(|(side, runs)| {
        let medians = MedianMetrics {
            wall_s: of(&runs, |run| run.measured.wall_s),
            cpu_s: of(&runs, |run| run.measured.cpu_s()),
            peak_rss_bytes: of(&runs, |run| {
                run.measured.peak_rss_bytes.map(|bytes| bytes as f64)
            }),
        };
        (side, medians)
    });
    all.collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
