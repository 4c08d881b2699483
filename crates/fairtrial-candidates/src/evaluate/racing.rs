//! The correct candidates measured against the base and each other.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::baseline::unusable;
use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::event::{Event, State};
use super::field::Field;
use super::ground::Tree;
use super::measuring::{BenchErrand, Misfortunes, Track, benches};
use super::record::Record;
use super::scene::Scene;
use super::standing::Measured;
use crate::cases::{Failure, FailureKind};
use crate::evaluation::BenchFacts;
use crate::measure::{self, Entrant, Metric, Race, Recorded, Side};
use crate::spec::{Bench, Loops};

impl Evaluator {
    /// Measures who is correct.
    pub(super) async fn race(
        &self,
        scene: &mut Scene,
        field: &mut Field,
        mut trees: HashMap<Side, Tree>,
    ) -> Result<Option<Measured>, EvaluateError> {
        let entrants: Vec<Entrant> = field
            .correct()
            .filter_map(|(_, entry)| {
                let staged = entry.staged.as_ref()?;
                Some(Entrant {
                    id: staged.id.to_string(),
                    changed_lines: staged.size.changed_lines() as u64,
                })
            })
            .collect();
        let commands = self.bench_commands();
        if entrants.is_empty() || commands.is_empty() {
            return Ok(None);
        }
        for entrant in &entrants {
            let side = Side::Candidate(entrant.id.clone());
            if let Entry::Vacant(place) = trees.entry(side) {
                // Tested by an earlier process: its tree is made again.
                let number = field.find(&entrant.id).expect("an entrant is a candidate");
                let staged = field.entries[number]
                    .staged
                    .clone()
                    .expect("an entrant is staged");
                let tree = scene
                    .checking
                    .tree(&staged)
                    .await
                    .map_err(|failure| unusable(&failure))?;
                place.insert(tree);
            }
        }
        let offered = [Metric::Wall, Metric::Cpu];
        let metric = Metric::choose(&self.spec.measure.metrics, &offered);
        let metric = metric.map_err(|error| EvaluateError::Failed(error.to_string()))?;
        let checking = Arc::clone(&scene.checking);
        let mut track = Track {
            ground: &checking.ground,
            lock: &checking.lock,
            benches: commands,
            trees,
            cpu: None,
            processes: &checking.processes,
        };
        let facts = self.calibrate(scene, &mut track).await?;
        let settings = self.spec.measure.settings(metric);
        let round = 1;
        let fresh = Race::new(settings, round, benches(&track.benches), entrants.clone());
        let fresh = fresh.map_err(|error| EvaluateError::Invalid(error.to_string()))?;
        let mut race = self.go_on_racing(scene, fresh, round, &entrants)?;
        for entrant in &entrants {
            let number = field.find(&entrant.id).expect("an entrant is a candidate");
            field.entries[number].state = State::Racing;
            scene.telling.tell(Event::Candidate {
                id: Some(entrant.id.clone()),
                name: field.entries[number].name.clone(),
                state: State::Racing,
            });
        }
        let misfortunes = track.run(&mut race, &mut scene.telling).await?;
        let report = race.report();
        self.conclude(scene, field, &report, &misfortunes);
        let runs = scene.telling.runs()?;
        Ok(Some(Measured {
            metric,
            report,
            facts,
            cpu: None,
            pinning: "not pinned".to_owned(),
            runs,
        }))
    }

    /// Recorded blocks count if they were measured on this machine since it was started (CA-97).
    fn go_on_racing(
        &self,
        scene: &mut Scene,
        fresh: Race,
        round: u32,
        entrants: &[Entrant],
    ) -> Result<Race, EvaluateError> {
        let ids: Vec<String> = entrants.iter().map(|entrant| entrant.id.clone()).collect();
        let machine = scene.machine.clone();
        let same = scene.past.races.get(&round).is_some_and(|(raced, on)| {
            *raced == ids && (&on.boot_id, &on.cpu) == (&machine.boot_id, &machine.cpu)
        });
        if !same {
            scene.telling.keep(&Record::Race {
                round,
                entrants: ids,
                machine,
            })?;
            return Ok(fresh);
        }
        let recorded = scene.telling.runs()?;
        let recorded: Recorded = recorded.into_iter().collect();
        measure::resume(fresh, &recorded)
            .map_err(|failed| EvaluateError::Baseline(failed.to_string()))
    }

    async fn calibrate(
        &self,
        scene: &mut Scene,
        track: &mut Track<'_>,
    ) -> Result<BTreeMap<String, BenchFacts>, EvaluateError> {
        let mut all = BTreeMap::new();
        for number in 0..track.benches.len() {
            let name = track.benches[number].name.clone();
            let facts = match (track.benches[number].loops, scene.past.benches.get(&name)) {
                (Some(loops), _) => BenchFacts {
                    loops: Some(u64::from(loops)),
                    startup_s: None,
                },
                (None, Some(known)) => known.clone(),
                (None, None) => {
                    let facts = track
                        .calibrate(&track.benches[number], &scene.telling.audience)
                        .await?;
                    scene.telling.keep(&Record::Calibrated {
                        bench: name.clone(),
                        facts: facts.clone(),
                    })?;
                    facts
                }
            };
            track.benches[number].loops = facts.loops.and_then(|loops| u32::try_from(loops).ok());
            all.insert(name, facts);
        }
        Ok(all)
    }

    fn conclude(
        &self,
        scene: &Scene,
        field: &mut Field,
        report: &measure::Report,
        misfortunes: &Misfortunes,
    ) {
        for placing in &report.ranking {
            let Some(number) = field.find(&placing.candidate.id) else {
                continue;
            };
            let entry = &mut field.entries[number];
            let failure = placing.failure.as_ref().map(|why| {
                match misfortunes.0.get(&placing.candidate.id) {
                    Some(why) => Failure::new(FailureKind::Infra, why.clone()),
                    None => Failure::new(FailureKind::BenchFailed, why.clone()),
                }
            });
            entry.state = match failure {
                Some(_) => State::Failed,
                None => State::Done,
            };
            entry.failure = failure;
            scene.telling.tell(Event::Candidate {
                id: entry.id(),
                name: entry.name.clone(),
                state: entry.state,
            });
        }
    }

    /// What is measured, by name.
    fn bench_commands(&self) -> Vec<BenchErrand> {
        match &self.spec.bench {
            Bench::None => Vec::new(),
            Bench::Commands(commands) => commands
                .iter()
                .map(|bench| BenchErrand {
                    name: bench.name.clone(),
                    command: bench.command.clone(),
                    weight: bench.weight,
                    loops: match bench.loops {
                        Loops::Fixed(loops) => Some(loops),
                        Loops::Auto => None,
                    },
                    timeout: bench.timeout,
                    cwd: bench.cwd.clone(),
                    env: bench.env.clone(),
                    exit_code: 0,
                })
                .collect(),
            Bench::ReuseTests => self
                .spec
                .tests
                .iter()
                .map(|test| BenchErrand {
                    name: test.name.clone(),
                    command: test.command.clone(),
                    weight: 1.0,
                    loops: Some(1),
                    timeout: test.timeout,
                    cwd: test.cwd.clone(),
                    env: test.env.clone(),
                    exit_code: 0,
                })
                .collect(),
        }
    }
}
