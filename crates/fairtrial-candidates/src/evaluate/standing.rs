//! The report, from all that is known.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::course::Course;
use super::error::EvaluateError;
use super::event::State;
use super::field::{Field, Number};
use super::racing::Races;
use crate::cases::Baseline;
use crate::evaluation::{
    BaselineFacts, Costs, Evaluation, EvaluationReport, Measurement, MedianMetrics,
    QuarantinedCase, REPORT_VERSION, Tiebreak, fill, gross_startup,
};
use crate::measure::{Placing, Purpose, Run, RunOrder, Side};
use crate::spec::Spec;
use crate::stage::Lineage;

/// Puts the report together.
pub(crate) fn report(spec: &Spec, course: &Course<'_>) -> Result<EvaluationReport, EvaluateError> {
    let scene = &*course.scene;
    let races = course.races.as_ref().filter(|races| races.last.is_some());
    let ranking = races.map_or_else(Vec::new, Races::ranking);
    let runs = scene.telling.runs()?;
    let measurement = races.map(|races| measurement(races, &runs));
    let gross_startup = measurement
        .as_ref()
        .and_then(|measured| gross_startup(&measured.benches));
    let medians = medians(&runs);
    let last = races.and_then(|races| races.last.as_ref());
    let standings = Standings {
        gross_startup,
        ..Standings::new(&course.field, &ranking, races)
    };
    let winner = last.and_then(|last| last.winner.as_deref());
    let ledger = course.search.ledger();
    Ok(EvaluationReport {
        version: REPORT_VERSION,
        spec: spec.to_json(),
        base: scene.facts.clone(),
        machine: scene.machine.clone(),
        provider: scene.provided.facts.clone(),
        baseline: baseline(&course.baseline, spec.baseline.runs),
        noise_floor: last.and_then(|last| last.noise_floor),
        aa_failed: last.is_some_and(|last| last.aa_failed),
        winner: winner.and_then(|id| standings.representative(id)),
        evaluations: standings.evaluations(&medians),
        measurement,
        profile: None,
        proposals: spec.search.as_ref().map(|_| ledger),
        costs: Costs {
            processes: scene.checking.processes.load(Ordering::Relaxed),
            lock_wait_s: scene.checking.turns.waited().as_secs_f64(),
            ..scene.costs
        },
        warnings: scene.warnings.clone(),
    })
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

fn measurement(races: &Races, runs: &[Run]) -> Measurement {
    let mut benches = races.facts.clone();
    fill(&mut benches, runs);
    Measurement {
        metric: races.metric(),
        counters: races.no_counters(),
        pinned_to: races.cpus().to_vec(),
        pinning: races
            .pinning
            .as_ref()
            .map_or_else(String::new, ToString::to_string),
        benches,
        rounds: races.rounds,
        runs: races.tally.runs,
        blocks: races.tally.blocks,
        repeated: races.tally.repeated,
        flagged: races.tally.flagged,
    }
}

/// Who stands where.
struct Standings<'a> {
    field: &'a Field,
    ranking: &'a [Placing],
    races: Option<&'a Races>,
    /// By candidate: its place in the ranking, or that of an equal which it stands for.
    places: HashMap<Number, usize>,
    /// Start-up's share of whole runs, if ratios are to be marked for it.
    gross_startup: Option<f64>,
}

impl<'a> Standings<'a> {
    fn new(field: &'a Field, ranking: &'a [Placing], races: Option<&'a Races>) -> Self {
        let mut places = HashMap::new();
        for (place, placing) in ranking.iter().enumerate() {
            if let Some(number) = field.find(&placing.candidate.id) {
                let stands = field.entries[number].duplicate_of.unwrap_or(number);
                places.entry(stands).or_insert(place);
            }
        }
        Self {
            field,
            ranking,
            races,
            places,
            gross_startup: None,
        }
    }

    /// The id of the one that stands for a candidate (CA-18).
    fn representative(&self, id: &str) -> Option<String> {
        let number = self.field.find(id)?;
        let stands = self.field.entries[number].duplicate_of.unwrap_or(number);
        self.field.entries[stands].id()
    }

    /// It has a rank.
    fn stands(&self, number: Number) -> bool {
        let entry = &self.field.entries[number];
        entry.duplicate_of.is_none() && entry.is_correct()
    }

    /// Those that were measured in their order, then those that are correct, then the rest as they were given (CA-80).
    fn evaluations(&self, medians: &HashMap<Side, MedianMetrics>) -> Vec<Evaluation> {
        let lineages = self.field.lineages();
        let mut order: Vec<Number> = (0..self.field.entries.len()).collect();
        order.sort_by_key(|number| {
            let stands = self.stands(*number);
            let place = self.places.get(number).copied().filter(|_| stands);
            let is_copy = self.field.entries[*number].duplicate_of.is_some();
            (place.unwrap_or(usize::MAX), !stands, is_copy, *number)
        });
        let mut rank = 0;
        let ranked = order.into_iter().map(|number| {
            let stands = self.stands(number);
            rank += u32::from(stands);
            self.evaluation(number, stands.then_some(rank), &lineages[number], medians)
        });
        ranked.collect()
    }

    fn evaluation(
        &self,
        number: Number,
        rank: Option<u32>,
        lineage: &Lineage,
        medians: &HashMap<Side, MedianMetrics>,
    ) -> Evaluation {
        let entry = &self.field.entries[number];
        let placing = self.places.get(&number).map(|place| &self.ranking[*place]);
        let placing = placing.filter(|_| entry.duplicate_of.is_none());
        let side = placing.map(|placing| Side::Candidate(placing.candidate.id.clone()));
        Evaluation {
            rank,
            id: entry.id(),
            name: entry.name.clone(),
            parent: lineage.parent.clone(),
            origin: lineage.origin,
            generation: lineage.generation,
            state: match entry.state {
                State::Correct => State::Done,
                state => state,
            },
            duplicate_of: entry
                .duplicate_of
                .and_then(|of| self.field.entries[of].id()),
            failure: entry.failure.clone(),
            cases: entry.cases,
            judgement: placing.and_then(|placing| placing.judgement.clone()),
            confirmation: placing.and_then(|placing| placing.confirmation.clone()),
            tiebreak: placing.and_then(|placing| self.tiebreak(placing)),
            metrics: side.and_then(|side| medians.get(&side).copied()),
            gross_startup: placing
                .and_then(|placing| placing.judgement.as_ref())
                .and(self.gross_startup),
            size: entry.staged.as_ref().map(|staged| staged.size),
            meta: entry.meta.clone(),
        }
    }
}

impl Standings<'_> {
    fn tiebreak(&self, placing: &Placing) -> Option<Tiebreak> {
        let count = self.races?.counts.get(&placing.candidate.id)?;
        let used = placing.instructions.is_some();
        Some(Tiebreak::by_callgrind(count.clone(), used))
    }
}

/// Medians of what was measured of each side, calibration and runs of few loops apart.
fn medians(runs: &[Run]) -> HashMap<Side, MedianMetrics> {
    let mut most: HashMap<(&Side, &str), Option<u32>> = HashMap::new();
    for RunOrder {
        side, bench, loops, ..
    } in runs.iter().map(|run| &run.order)
    {
        let most = most.entry((side, bench)).or_default();
        *most = (*most).max(*loops);
    }
    let counts = |run: &&Run| {
        let RunOrder {
            side,
            bench,
            loops,
            series,
            ..
        } = &run.order;
        let is_race = series.purpose != Purpose::Calibration;
        is_race && run.measured.failed.is_none() && most[&(side, &**bench)] == *loops
    };
    let mut by_side: HashMap<Side, Vec<&Run>> = HashMap::new();
    for run in runs.iter().filter(counts) {
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
