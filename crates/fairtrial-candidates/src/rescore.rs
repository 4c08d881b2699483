//! An evaluation judged again from its record, perhaps on other terms (CA-81). Starts nothing and writes nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use crate::cases::{Failure, FailureKind};
use crate::evaluate::{EvaluateError, State};
use crate::evaluation::{BenchFacts, Evaluation, EvaluationReport, Measurement, Tiebreak};
use crate::measure::{
    self, Bench, Counts, Entrant, Metric, Placing, Purpose, Race, Recorded, Report, Run, Settings,
    Side,
};
use crate::spec::{self, Invalid, Spec};

/// What is to be judged by; where nothing is said, as before.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rescoring {
    /// The chance of a wrong verdict.
    pub alpha: Option<f64>,
    /// The least difference that counts, as a share.
    pub min_effect: Option<f64>,
    /// By what sides are compared.
    pub metric: Option<Metric>,
}

impl EvaluationReport {
    /// The report as it would be on other terms. `runs` are the lines of `runs.jsonl`. Looks, races, verdicts and ranks are
    /// made again; blocks that were never run are not invented, so a candidate that left early may now be uncertain.
    ///
    /// # Errors
    /// Nothing was measured, or not by that metric; or the terms make no sense.
    pub fn rescore(&self, runs: &[Run], terms: &Rescoring) -> Result<Self, EvaluateError> {
        let Some(measurement) = &self.measurement else {
            let problem = "nothing was measured: there is nothing to judge again";
            return Err(EvaluateError::Invalid(problem.to_owned()));
        };
        let asked = terms.applied_to(self.spec.clone());
        // Read as a file would be: the same terms are refused.
        let spec = Spec::from_json(asked.clone(), Path::new("/"));
        let spec = spec.map_err(|invalid| terms.refused(&invalid))?;
        let metric = terms.metric.unwrap_or(measurement.metric);
        let settings = spec.measure.settings(metric);
        let mut again = self.clone();
        again.spec = asked;
        if let Some(measurement) = &mut again.measurement {
            measurement.metric = metric;
        }
        let rounds = Rounds {
            is_other_metric: terms.metric.is_some(),
            settings,
            counts: counts(&spec, &self.evaluations),
            benches: looping(benches(&spec), measurement),
            changed_lines: changed_lines(&self.evaluations),
        };
        again.take(rounds.judge(that_count(runs))?);
        Ok(again)
    }

    /// Takes what races say.
    fn take(&mut self, judged: Judged) {
        let stands_for: HashMap<String, String> = self
            .evaluations
            .iter()
            .filter_map(|one| Some((one.id.clone()?, one.duplicate_of.clone()?)))
            .collect();
        let representative = |id: &str| stands_for.get(id).map_or(id, |of| of).to_owned();
        let mut places: HashMap<String, (usize, &Placing)> = HashMap::new();
        for (place, placing) in judged.ranking.iter().enumerate() {
            let id = representative(&placing.candidate.id);
            places.entry(id).or_insert((place, placing));
        }
        for one in self
            .evaluations
            .iter_mut()
            .filter(|one| one.duplicate_of.is_none())
        {
            let placed = one.id.as_ref().and_then(|id| places.get(id));
            if let Some((_, placing)) = placed {
                one.judge(placing);
            }
        }
        let stands = |one: &Evaluation| one.duplicate_of.is_none() && one.is_correct();
        self.evaluations.sort_by_key(|one| {
            let place = one.id.as_ref().and_then(|id| places.get(id));
            let place = place.filter(|_| stands(one)).map(|(place, _)| *place);
            (
                place.unwrap_or(usize::MAX),
                !stands(one),
                one.duplicate_of.is_some(),
            )
        });
        let mut rank = 0;
        for one in &mut self.evaluations {
            rank += u32::from(stands(one));
            one.rank = stands(one).then_some(rank);
        }
        self.winner = judged.last.winner.as_deref().map(representative);
        self.noise_floor = judged.last.noise_floor;
        self.aa_failed = judged.last.aa_failed;
    }
}

impl Evaluation {
    fn judge(&mut self, placing: &Placing) {
        self.judgement.clone_from(&placing.judgement);
        self.confirmation.clone_from(&placing.confirmation);
        if let Some(tiebreak) = &mut self.tiebreak {
            tiebreak.used = placing.instructions.is_some();
        }
        let raced_badly = self.failure.as_ref().is_some_and(|failure| {
            matches!(failure.kind, FailureKind::BenchFailed | FailureKind::Infra)
        });
        match &placing.failure {
            Some(why) if self.failure.is_none() => {
                self.state = State::Failed;
                self.failure = Some(Failure::new(FailureKind::BenchFailed, why.clone()));
            }
            None if raced_badly => {
                self.state = State::Done;
                self.failure = None;
            }
            _ => {}
        }
    }
}

impl Rescoring {
    fn applied_to(&self, mut spec: serde_json::Value) -> serde_json::Value {
        let measure = &mut spec["measure"];
        if let Some(alpha) = self.alpha {
            measure["alpha"] = alpha.into();
        }
        if let Some(min_effect) = self.min_effect {
            measure["min_effect"] = min_effect.into();
        }
        if let Some(metric) = self.metric {
            measure["metric"] = vec![metric.to_string()].into();
        }
        spec
    }
}

impl Rescoring {
    /// What is wrong, by the name that it was given by: the spec on record was fine without. Only the share of wrong
    /// verdicts has to agree with what stays as it is.
    fn refused(&self, invalid: &Invalid) -> EvaluateError {
        let Some(fault) = invalid.faults.first() else {
            return EvaluateError::Invalid(invalid.to_string());
        };
        let terms = [
            ("min_effect", self.min_effect.is_some()),
            ("metric", self.metric.is_some()),
            ("alpha", self.alpha.is_some()),
        ];
        let given = |(term, is_given): &&(&str, bool)| {
            let is_its_own = fault.place.file.ends_with(&format!("measure.{term}"));
            *is_given && (is_its_own || *term == "alpha")
        };
        match terms.iter().find(given) {
            None => EvaluateError::Invalid(invalid.to_string()),
            Some(&(term, _)) => {
                let own = fault.message.strip_prefix(&format!("`{term}` "));
                let problem = own.map_or_else(
                    || format!("is too small: {}", fault.message),
                    ToOwned::to_owned,
                );
                EvaluateError::Term { term, problem }
            }
        }
    }
}

/// What all races of an evaluation share.
struct Rounds {
    settings: Settings,
    /// Whether somebody asked for the metric.
    is_other_metric: bool,
    benches: Vec<Bench>,
    changed_lines: HashMap<String, u64>,
    /// What was counted; none at all where ties are left as they are.
    counts: Option<Counts>,
}

/// What they say together.
struct Judged {
    /// Everybody who was measured, best first: by the last race that each took part in.
    ranking: Vec<Placing>,
    last: Report,
}

impl Rounds {
    fn judge(&self, runs: Vec<Run>) -> Result<Judged, EvaluateError> {
        let mut rounds: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
        for run in &runs {
            let entrants = rounds.entry(run.order.series.round).or_default();
            if let (Purpose::Race, Side::Candidate(id)) =
                (&run.order.series.purpose, &run.order.side)
            {
                entrants.insert(id.clone());
            }
        }
        let recorded: Recorded = runs.into_iter().collect();
        let mut placings: BTreeMap<String, Placing> = BTreeMap::new();
        let mut last = None;
        for (round, entrants) in rounds {
            let report = self.race(round, entrants, &recorded)?;
            // Equal to the leader of another race says nothing about this one's.
            placings.values_mut().for_each(Placing::leave_the_tie);
            for placing in &report.ranking {
                placings.insert(placing.candidate.id.clone(), placing.clone());
            }
            last = Some(report);
        }
        let mut ranking: Vec<Placing> = placings.into_values().collect();
        measure::rank(&mut ranking);
        let none = || EvaluateError::Invalid("no run is on record".to_owned());
        Ok(Judged {
            ranking,
            last: last.ok_or_else(none)?,
        })
    }

    fn race(
        &self,
        round: u32,
        entrants: BTreeSet<String>,
        recorded: &Recorded,
    ) -> Result<Report, EvaluateError> {
        let entrant = |id: String| Entrant {
            changed_lines: self.changed_lines.get(&id).copied().unwrap_or(0),
            id,
        };
        let entrants = entrants.into_iter().map(entrant).collect();
        let invalid = |problem: String| EvaluateError::Invalid(problem);
        let race = Race::new(self.settings.clone(), round, self.benches.clone(), entrants);
        let mut race = race.map_err(|error| invalid(error.to_string()))?;
        if let Some(counts) = &self.counts {
            race = race.breaking_ties(counts.clone());
        }
        measure::rescore(race, recorded).map_err(|failed| match self.is_other_metric {
            true => EvaluateError::Term {
                term: "metric",
                problem: format!("cannot be `{}`: {}", self.settings.metric, failed.why),
            },
            false => invalid(failed.to_string()),
        })
    }
}

/// A race that was begun anew, after the machine was started again, begins with its calibration: what was recorded of the
/// same round before does not count.
fn that_count(runs: &[Run]) -> Vec<Run> {
    let mut begun = BTreeSet::new();
    let mut kept: Vec<Run> = Vec::new();
    for run in runs {
        let order = &run.order;
        let is_calibration = order.series.purpose == Purpose::Calibration;
        let place = (
            order.series.clone(),
            order.bench.clone(),
            (order.block, order.loops),
        );
        if is_calibration && !begun.insert(place.clone()) {
            kept.retain(|other| other.order.series.round != order.series.round);
            begun.retain(|(series, ..)| series.round != order.series.round);
            begun.insert(place);
        }
        kept.push(run.clone());
    }
    kept
}

fn benches(spec: &Spec) -> Vec<Bench> {
    let bench = |name: &String, weight| Bench {
        name: name.clone(),
        weight,
        ..Bench::default()
    };
    match &spec.bench {
        spec::Bench::None => Vec::new(),
        spec::Bench::Commands(commands) => commands
            .iter()
            .map(|one| bench(&one.name, one.weight))
            .collect(),
        spec::Bench::ReuseTests => spec
            .tests
            .iter()
            .map(|test| bench(&test.name, 1.0))
            .collect(),
    }
}

/// With the loop counts that the runs were made with. Reports of older versions have none: their runs are whole.
fn looping(mut benches: Vec<Bench>, measurement: &Measurement) -> Vec<Bench> {
    for bench in &mut benches {
        let facts = measurement.benches.get(&bench.name);
        bench.slopes = facts.map(BenchFacts::slopes).unwrap_or_default();
    }
    benches
}

/// Of a candidate that stands for one that was counted, the count is that one's.
fn counts(spec: &Spec, evaluations: &[Evaluation]) -> Option<Counts> {
    if spec.measure.tiebreak != spec::Tiebreak::Callgrind {
        return None;
    }
    let benches = benches(spec);
    let of = |one: &Evaluation| {
        one.tiebreak
            .as_ref()
            .map(|tie: &Tiebreak| tie.count.mean(&benches))
    };
    let stands_for = |one: &Evaluation| {
        evaluations
            .iter()
            .find(|other| other.id.is_some() && other.id == one.duplicate_of)
    };
    let counted = evaluations.iter().filter_map(|one| {
        let count = of(one).or_else(|| of(stands_for(one)?))?;
        Some((one.id.clone()?, count))
    });
    Some(counted.collect())
}

fn changed_lines(evaluations: &[Evaluation]) -> HashMap<String, u64> {
    let changed = evaluations.iter().filter_map(|one| {
        let lines = one.size?.changed_lines() as u64;
        Some((one.id.clone()?, lines))
    });
    changed.collect()
}

#[cfg(test)]
mod tests;
