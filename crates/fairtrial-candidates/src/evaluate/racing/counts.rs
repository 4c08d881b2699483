//! How often each side loops: found before a race, kept on record, and the same for all rounds.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use fairtrial_exec::{Pin, Pinning, Surroundings, Usable, keep_off};

use super::super::calibrating::{Calibrated, Searched};
use super::super::error::EvaluateError;
use super::super::record::{Past, Record};
use super::super::scene::Scene;
use super::{Races, measured_on};
use crate::cases::{Failure, FailureKind};
use crate::measure::{self, Entrant, LoopCounts, Side};

impl Races {
    pub(super) fn recall_loops(&mut self, past: &Past) {
        for (bench, facts) in &past.benches {
            if let Some(command) = self
                .commands
                .iter_mut()
                .find(|command| command.name == *bench)
            {
                command.take(facts);
                self.facts.insert(bench.clone(), facts.clone());
            }
        }
    }

    /// Finds how often each bench command loops on the base: once, and the same for all rounds.
    pub(super) async fn calibrate(&mut self, scene: &mut Scene) -> Result<(), EvaluateError> {
        if std::mem::replace(&mut self.calibrated, true) {
            return Ok(());
        }
        self.recall_loops(&scene.past);
        let checking = Arc::clone(&scene.checking);
        let mut rough = HashMap::new();
        for number in 0..self.commands.len() {
            if self.commands[number].loops.is_none() {
                let command = &self.commands[number];
                let loops = self.track(&checking).rough_loops(command).await?;
                self.commands[number].loops = Some(loops);
                rough.insert(number, loops);
            }
        }
        self.choose_processors(scene).await?;
        let kept_off = self.pinning.as_ref().map(keep_off);
        for number in 0..self.commands.len() {
            let command = &self.commands[number];
            let name = command.name.clone();
            if self.facts.contains_key(&name) {
                continue;
            }
            let rough = rough.get(&number).copied();
            let Calibrated { facts, warning } =
                self.track(&checking).calibrate(command, rough).await?;
            scene.telling.keep(&Record::Calibrated {
                bench: name.clone(),
                facts: facts.clone(),
            })?;
            scene.warn(warning);
            self.commands[number].take(&facts);
            self.facts.insert(name, facts);
        }
        drop(kept_off);
        Ok(())
    }

    /// Finds how often each candidate loops: a faster one more often, so that its loops can be measured beside its start-up.
    pub(super) async fn calibrate_entrants(
        &mut self,
        entrants: &[Entrant],
        scene: &mut Scene,
    ) -> Result<(), EvaluateError> {
        let checking = Arc::clone(&scene.checking);
        let kept_off = self.pinning.as_ref().map(keep_off);
        for number in 0..self.commands.len() {
            for Entrant { id, .. } in entrants {
                let bench = &self.commands[number];
                let facts = &self.facts[&bench.name];
                let side = Side::Candidate(id.clone());
                let is_known = facts.sides.contains_key(id) || self.unmade.contains_key(id);
                let (false, Some(tree)) = (is_known, self.trees.get(&side)) else {
                    continue;
                };
                let aim_s = measure::aim_s(facts.startup_spread_s.unwrap_or(0.0));
                let track = self.track(&checking);
                match track.search_for(bench, tree, aim_s).await? {
                    None => {}
                    Some(Searched::Found(found)) => {
                        let bench = bench.name.clone();
                        let warning = (!found.is_enough()).then(|| {
                            let loops = found.counts.high;
                            format!("`{bench}`: {loops} loops of {id} take too little time to be measured")
                        });
                        let counts = found.counts;
                        let id = id.clone();
                        scene.telling.keep(&Record::Looped { bench, id, counts })?;
                        scene.warn(warning);
                        self.take_counts(number, side, counts);
                    }
                    // The race shows it again if the engine failed, and not the candidate.
                    Some(Searched::Failed(failed)) if failed.is_infra => {}
                    Some(Searched::Failed(failed)) => {
                        let failure = Failure::new(FailureKind::BenchFailed, failed.why);
                        self.unmade.insert(id.clone(), failure);
                    }
                }
            }
        }
        drop(kept_off);
        Ok(())
    }

    fn take_counts(&mut self, number: usize, side: Side, counts: LoopCounts) {
        let bench = &mut self.commands[number];
        if let Some(facts) = self.facts.get_mut(&bench.name) {
            let times = facts.sides.entry(side.to_string()).or_default();
            times.set_counts(counts);
        }
        bench.slopes.set(side, counts);
    }

    /// Decides where measured processes run (CA-73).
    async fn choose_processors(&mut self, scene: &Scene) -> Result<(), EvaluateError> {
        let (mut busiest, mut reporting) = (0.0_f64, BTreeSet::new());
        for command in &self.commands {
            let (busy, reports) = self.track(&scene.checking).try_on_base(command).await?;
            busiest = busiest.max(busy);
            if reports {
                reporting.insert(command.name.clone());
            }
        }
        let pin = match scene.checking.ground.can_pin() {
            true => &self.pin,
            false => &Pin::Off,
        };
        let pinning = Pinning::choose(pin, &Usable::now(), busiest);
        let pinning = pinning.map_err(|error| EvaluateError::Failed(error.to_string()))?;
        self.surroundings = Surroundings::of(measured_on(Some(&pinning)));
        (self.pinning, self.reporting) = (Some(pinning), reporting);
        Ok(())
    }
}
