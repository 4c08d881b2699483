//! The correct candidates measured against the base and each other, round after round.

mod counts;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fairtrial_exec::{Pin, Pinning, Surroundings, keep_off};

use super::baseline::BaseRuns;
use super::correctness::Checking;
use super::error::EvaluateError;
use super::event::{Event, State};
use super::field::Field;
use super::ground::Tree;
use super::means::Means;
use super::measuring::{BenchErrand, Track, benches};
use super::record::{Past, Record};
use super::scene::Scene;
use crate::cases::{Failure, FailureKind};
use crate::evaluation::{BenchFacts, InstructionCount};
use crate::measure::{
    self, Counts, Entrant, Metric, Placing, Race, Recorded, Report, Run, Settings, Side, Slopes,
    Tally,
};
use crate::spec::{self, Bench, Loops, Spec};

/// All races of an evaluation.
#[derive(Debug)]
pub(crate) struct Races {
    settings: Settings,
    means: Means,
    commands: Vec<BenchErrand>,
    calibrated: bool,
    /// By bench command.
    pub(crate) facts: BTreeMap<String, BenchFacts>,
    /// By id, of the last race that each took part in.
    pub(crate) placings: BTreeMap<String, Placing>,
    /// By id, of those that tied with a leader.
    pub(crate) counts: BTreeMap<String, InstructionCount>,
    /// Of the last race.
    pub(crate) last: Option<Report>,
    pub(crate) rounds: u32,
    pub(crate) tally: Tally,
    /// The trees of those who are measured, and of the base.
    trees: HashMap<Side, Tree>,
    /// Those whose tree could not be made again, by id.
    unmade: HashMap<String, Failure>,
    /// Bench commands that write to standard output in the base.
    reporting: BTreeSet<String>,
    pin: Pin,
    /// Where measured processes run.
    pub(crate) pinning: Option<Pinning>,
    surroundings: Surroundings,
}

impl Races {
    /// Races as the file says, none run yet.
    ///
    /// # Errors
    /// An earlier process measured what cannot be measured any more.
    pub(crate) fn new(
        spec: &Spec,
        means: Means,
        past: &Past,
        base: &BaseRuns,
    ) -> Result<Self, EvaluateError> {
        let metric = means.metric_after(past)?;
        Ok(Self {
            settings: spec.measure.settings(metric),
            means,
            commands: bench_commands(spec, base),
            calibrated: false,
            facts: BTreeMap::new(),
            placings: BTreeMap::new(),
            counts: past.counted.clone(),
            last: None,
            rounds: 0,
            tally: Tally::default(),
            trees: HashMap::from([(Side::Base, base.tree.clone())]),
            unmade: HashMap::new(),
            reporting: BTreeSet::new(),
            pin: match &spec.measure.pin {
                spec::Pin::Auto => Pin::Auto,
                spec::Pin::Off => Pin::Off,
                spec::Pin::Cpus(cpus) => Pin::Cpus(cpus.iter().map(|cpu| *cpu as usize).collect()),
            },
            pinning: None,
            surroundings: Surroundings::of(&[]),
        })
    }

    pub(crate) fn metric(&self) -> Metric {
        self.settings.metric
    }

    /// Keeps the tree of a correct candidate until it is measured.
    pub(crate) fn keep_tree(&mut self, id: &str, tree: Tree) {
        self.trees.insert(Side::Candidate(id.to_owned()), tree);
    }

    /// Has each bench command tried on the base before any candidate is tested. Where candidates are on record already, an
    /// earlier process did so.
    pub(crate) async fn rehearse(&mut self, scene: &mut Scene) -> Result<(), EvaluateError> {
        match scene.past.checked.is_empty() {
            true => self.calibrate(scene).await,
            false => Ok(()),
        }
    }

    /// The next race, of these candidates.
    pub(crate) async fn run(
        &mut self,
        ids: &[String],
        scene: &mut Scene,
        field: &mut Field,
    ) -> Result<Report, EvaluateError> {
        let round = self.rounds + 1;
        // Whoever was tested first is not to run first: the order comes of the seed alone (CA-63).
        let mut ids = ids.to_vec();
        ids.sort();
        let entrants: Vec<Entrant> = ids.iter().filter_map(|id| entrant(field, id)).collect();
        self.make_trees(&entrants, scene, field).await;
        self.calibrate(scene).await?;
        self.calibrate_entrants(&entrants, scene).await?;
        let mut race = self.race(round, entrants.clone())?;
        let runs_before = match same_race(scene, round, &entrants) {
            Some(before) => {
                let recorded: Recorded = runs_of(scene, round, before)?.into_iter().collect();
                race = measure::resume(race, &recorded).map_err(failed_base)?;
                before
            }
            None => {
                let (machine, runs_before) =
                    (scene.machine.clone(), scene.telling.runs()?.len() as u64);
                scene.telling.keep(&Record::Race {
                    round,
                    entrants: ids,
                    metric: self.metric(),
                    machine,
                    runs_before,
                })?;
                runs_before
            }
        };
        for entrant in &entrants {
            tell(scene, field, &entrant.id, State::Racing, None);
        }
        let checking = Arc::clone(&scene.checking);
        loop {
            let kept_off = self.pinning.as_ref().map(keep_off);
            let track = self.track(&checking);
            track.run(&mut race, &mut scene.telling).await?;
            drop(kept_off);
            let tied = race.tied();
            if tied.is_empty() {
                break;
            }
            self.count(&tied, scene).await?;
            race.take_counts(&self.known_counts());
        }
        let report = race.report();
        tell_ends(scene, field, &report, &runs_of(scene, round, runs_before)?);
        self.take(report.clone());
        Ok(report)
    }

    /// A race that an earlier process ran to its end, judged again from its records.
    pub(crate) fn recall(&mut self, scene: &Scene, field: &mut Field) -> Result<(), EvaluateError> {
        self.recall_loops(&scene.past);
        while let Some(raced) = scene
            .past
            .races
            .get(&(self.rounds + 1))
            .filter(|raced| raced.ended)
        {
            let entrants: Vec<Entrant> = raced
                .entrants
                .iter()
                .filter_map(|id| entrant(field, id))
                .collect();
            let runs = runs_of(scene, self.rounds + 1, raced.runs_before)?;
            let recorded: Recorded = runs.iter().cloned().collect();
            let race = self.race(self.rounds + 1, entrants)?;
            let report = measure::rescore(race, &recorded).map_err(failed_base)?;
            tell_ends(scene, field, &report, &runs);
            self.take(report);
        }
        Ok(())
    }

    /// Counts instructions of those that no time tells apart (CA-72). On record before it counts.
    async fn count(&mut self, ids: &[String], scene: &mut Scene) -> Result<(), EvaluateError> {
        let Some(callgrind) = &self.means.callgrind else {
            return Ok(());
        };
        for id in ids {
            let tree = &self.trees[&Side::Candidate(id.clone())];
            let count = callgrind.count(&scene.checking, tree, &self.commands).await;
            scene.telling.keep(&Record::Counted {
                id: id.clone(),
                count: count.clone(),
            })?;
            self.counts.insert(id.clone(), count);
        }
        Ok(())
    }

    fn known_counts(&self) -> Counts {
        let benches = benches(&self.commands);
        let counts = self.counts.iter();
        counts
            .map(|(id, count)| (id.clone(), count.mean(&benches)))
            .collect()
    }

    fn take(&mut self, report: Report) {
        self.rounds += 1;
        let Tally {
            runs,
            blocks,
            repeated,
            flagged,
        } = report.tally;
        self.tally.runs += runs;
        self.tally.blocks += blocks;
        self.tally.repeated += repeated;
        self.tally.flagged += flagged;
        // Equal to the leader of another race says nothing about this one's.
        self.placings.values_mut().for_each(Placing::leave_the_tie);
        for placing in &report.ranking {
            self.placings
                .insert(placing.candidate.id.clone(), placing.clone());
        }
        self.last = Some(report);
    }

    /// Everybody who was measured, best first.
    pub(crate) fn ranking(&self) -> Vec<Placing> {
        let mut placings: Vec<Placing> = self.placings.values().cloned().collect();
        measure::rank(&mut placings);
        placings
    }

    fn race(&self, round: u32, entrants: Vec<Entrant>) -> Result<Race, EvaluateError> {
        let race = Race::new(
            self.settings.clone(),
            round,
            benches(&self.commands),
            entrants,
        );
        let race = race.map_err(|error| EvaluateError::Invalid(error.to_string()))?;
        Ok(match self.means.callgrind {
            Some(_) => race.breaking_ties(self.known_counts()),
            None => race,
        })
    }

    /// Of those that an earlier process tested they are made again.
    async fn make_trees(&mut self, entrants: &[Entrant], scene: &Scene, field: &Field) {
        for entrant in entrants {
            if let Entry::Vacant(place) = self.trees.entry(Side::Candidate(entrant.id.clone())) {
                let staged = field
                    .find(&entrant.id)
                    .and_then(|number| field.entries[number].staged.clone());
                let staged = staged.expect("an entrant is staged");
                match scene.checking.tree(&staged).await {
                    Ok(tree) => drop(place.insert(tree)),
                    // Its build did well when it was tested, and fails now: that is its own affair.
                    Err(failure) => drop(self.unmade.insert(entrant.id.clone(), *failure)),
                }
            }
        }
    }

    fn track<'a>(&'a self, checking: &'a Checking) -> Track<'a> {
        Track {
            ground: &checking.ground,
            turns: &checking.turns,
            benches: &self.commands,
            trees: &self.trees,
            unmade: &self.unmade,
            reporting: &self.reporting,
            cpus: measured_on(self.pinning.as_ref()),
            counted: self.means.counted(),
            surroundings: &self.surroundings,
            processes: &checking.processes,
        }
    }

    /// Why instructions and cycles are not counted.
    pub(crate) fn no_counters(&self) -> Option<String> {
        self.means.no_counters()
    }

    /// The processors that measured processes have to themselves.
    pub(crate) fn cpus(&self) -> &[usize] {
        measured_on(self.pinning.as_ref())
    }
}

fn measured_on(pinning: Option<&Pinning>) -> &[usize] {
    match pinning {
        Some(Pinning::On { measuring, .. }) => measuring,
        _ => &[],
    }
}

/// Blocks of a race that was broken off count if it is the same race, on this machine, since it was started (CA-97): those
/// after so many runs.
fn same_race(scene: &Scene, round: u32, entrants: &[Entrant]) -> Option<u64> {
    let raced = scene.past.races.get(&round)?;
    let same_field = raced
        .entrants
        .iter()
        .eq(entrants.iter().map(|entrant| &entrant.id));
    let same_machine = (&raced.machine.boot_id, &raced.machine.cpu)
        == (&scene.machine.boot_id, &scene.machine.cpu);
    (same_field && same_machine).then_some(raced.runs_before)
}

/// The runs of a race: those of its name after so many others.
fn runs_of(scene: &Scene, round: u32, before: u64) -> Result<Vec<Run>, EvaluateError> {
    let runs = scene.telling.runs()?.into_iter().skip(before as usize);
    Ok(runs.filter(|run| run.order.series.round == round).collect())
}

fn failed_base(failed: measure::BaseFailed) -> EvaluateError {
    EvaluateError::Baseline(failed.to_string())
}

fn entrant(field: &Field, id: &str) -> Option<Entrant> {
    let staged = field.entries[field.find(id)?].staged.as_ref()?;
    Some(Entrant {
        id: id.to_owned(),
        changed_lines: staged.size.changed_lines() as u64,
    })
}

/// How a race ended for each who took part. What was not the candidate's fault is told from what was, by its run.
fn tell_ends(scene: &Scene, field: &mut Field, report: &Report, runs: &[Run]) {
    for placing in &report.ranking {
        let id = &placing.candidate.id;
        let failure = placing.failure.as_ref().map(|why| {
            let kind = match runs.iter().any(|run| run.is_misfortune_of(id)) {
                true => FailureKind::Infra,
                false => FailureKind::BenchFailed,
            };
            Failure::new(kind, why.clone())
        });
        let state = failure.as_ref().map_or(State::Done, |_| State::Failed);
        tell(scene, field, id, state, failure);
    }
}

fn tell(scene: &Scene, field: &mut Field, id: &str, state: State, failure: Option<Failure>) {
    let Some(number) = field.find(id) else { return };
    let entry = &mut field.entries[number];
    // Of who is measured again nothing new is told: states only advance (CA-93).
    if state <= entry.state {
        return;
    }
    entry.state = state;
    entry.failure = failure;
    scene.telling.tell(Event::Candidate {
        id: entry.id(),
        name: entry.name.clone(),
        state,
    });
}

/// What is measured, by name.
fn bench_commands(spec: &Spec, base: &BaseRuns) -> Vec<BenchErrand> {
    let place = |key: &str, number: usize| {
        let key = format!("{key}[{number}].command");
        spec.places.place(&key).clone()
    };
    match &spec.bench {
        Bench::None => Vec::new(),
        Bench::Commands(commands) => commands
            .iter()
            .enumerate()
            .map(|(number, bench)| BenchErrand {
                place: place("bench", number),
                name: bench.name.clone(),
                command: bench.command.clone(),
                weight: bench.weight,
                loops: match bench.loops {
                    Loops::Fixed(loops) => Some(loops),
                    Loops::Auto => None,
                },
                slopes: Slopes::default(),
                timeout: bench.timeout,
                cwd: bench.cwd.clone(),
                env: bench.env.clone(),
                codes: None,
            })
            .collect(),
        Bench::ReuseTests => spec
            .tests
            .iter()
            .enumerate()
            .map(|(number, test)| BenchErrand {
                place: place("tests", number),
                name: test.name.clone(),
                command: test.command.clone(),
                weight: 1.0,
                loops: Some(1),
                slopes: Slopes::default(),
                timeout: test.timeout,
                cwd: test.cwd.clone(),
                env: test.env.clone(),
                // The base ran it: without a code that it ended by, no end is a good one.
                codes: Some(base.codes.get(&test.name).cloned().unwrap_or_default()),
            })
            .collect(),
    }
}
