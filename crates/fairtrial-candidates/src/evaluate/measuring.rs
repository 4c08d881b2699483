//! Races driven: one measured process at a time, whole blocks under the machine's lock (CA-61, CA-62).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairtrial_exec::{Counted, Outcome, Surroundings, Verdict};

use super::error::EvaluateError;
use super::event::Event;
use super::ground::{Errand, Ground, Tree};
use super::telling::Telling;
use super::turns::Turns;
use crate::cases::{Failure, FailureKind};
use crate::evaluation::BenchFacts;
use crate::measure::{self, Bench, Measured, Race, Run, RunOrder, SeriesId, Side, Slopes};
use crate::spec::{Command, Fault, Place};
use crate::stage::TreePath;

/// A bench command, ready to be run.
#[derive(Debug, Clone)]
pub(crate) struct BenchErrand {
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) weight: f64,
    /// `None` loops: found out by trying.
    pub(crate) loops: Option<u32>,
    /// Loop counts of each side, where the time per loop is compared.
    pub(crate) slopes: Slopes,
    pub(crate) timeout: Duration,
    pub(crate) cwd: Option<TreePath>,
    pub(crate) env: BTreeMap<String, String>,
    /// Where it was asked for.
    pub(crate) place: Place,
    /// Codes with which the base ended it, if it is a test: those of candidates may end so too, and the base as it likes.
    pub(crate) codes: Option<BTreeSet<i32>>,
}

impl BenchErrand {
    /// It cannot be run on the base: an end of the whole, in one line (CA-76).
    pub(super) fn fails_in_base(&self, why: &str) -> EvaluateError {
        EvaluateError::Bench(Fault {
            place: self.place.clone(),
            code: "bench",
            message: format!(
                "baseline unusable: bench command `{}` failed in the base: {why}",
                self.name
            ),
            hint: "mend it, and give the same command again".to_owned(),
        })
    }

    /// Takes loop counts that were found.
    pub(super) fn take(&mut self, facts: &BenchFacts) {
        self.loops = facts.loops.and_then(|loops| u32::try_from(loops).ok());
        self.slopes = facts.slopes();
    }

    /// Whether a code other than 0 is as good.
    pub(super) fn may_end_with(&self, code: i32, tree: &Tree) -> bool {
        match &self.codes {
            None => false,
            Some(codes) => tree.is_base() || codes.contains(&code),
        }
    }
}

/// What a race is run on.
pub(crate) struct Track<'a> {
    pub(crate) ground: &'a Ground,
    pub(crate) turns: &'a Turns,
    pub(crate) benches: &'a [BenchErrand],
    /// By side; the control runs on the base's.
    pub(crate) trees: &'a HashMap<Side, Tree>,
    /// Candidates that have none, by id: nothing of theirs can be run.
    pub(crate) unmade: &'a HashMap<String, Failure>,
    /// Bench commands that write to standard output in the base, by name.
    pub(crate) reporting: &'a BTreeSet<String>,
    /// The processors that measured runs have to themselves; none if they are not pinned.
    pub(crate) cpus: &'a [usize],
    /// What the processor counts of them.
    pub(crate) counted: &'a [Counted],
    /// What disturbs them.
    pub(crate) surroundings: &'a Surroundings,
    /// Processes started so far.
    pub(crate) processes: &'a AtomicU64,
}

/// How often the engine's own failure is forgiven (CA-56).
pub(super) const RETRIES: u32 = 2;

impl Track<'_> {
    /// Runs a race, block after block, for as long as it asks for runs.
    pub(crate) async fn run(
        &self,
        race: &mut Race,
        telling: &mut Telling,
    ) -> Result<(), EvaluateError> {
        while let Some(first) = race.next_run().cloned() {
            let label = format!("{} block {}", first.series, first.block);
            let held = self.turns.exclusive(&label).await;
            let held = held.map_err(EvaluateError::attempting("measuring"))?;
            let mut runs: Vec<Run> = Vec::new();
            while let Some(order) = race
                .next_run()
                .filter(|order| is_same_block(order, &first))
                .cloned()
            {
                let measured = self.measure(&order).await?;
                let run = race
                    .record(measured)
                    .map_err(|failed| EvaluateError::Baseline(failed.to_string()))?;
                runs.push(run);
            }
            drop(held);
            telling.keep_runs(&runs)?;
            for event in race.take_events() {
                tell(telling, event);
            }
        }
        Ok(())
    }

    async fn measure(&self, order: &RunOrder) -> Result<Measured, EvaluateError> {
        let bench = self
            .benches
            .iter()
            .find(|bench| bench.name == order.bench)
            .expect("a race names benches it was given");
        if let Side::Candidate(id) = &order.side
            && let Some(failure) = self.unmade.get(id)
        {
            return Ok(Measured {
                failed: Some(failure.message.clone()),
                infra: failure.kind == FailureKind::Infra,
                ..Measured::default()
            });
        }
        let tree = &self.trees[&on_the_base(&order.side)];
        let mut tries = 0;
        loop {
            match self
                .run_once(bench, tree, order.loops.or(bench.loops), order.hash_seed)
                .await
            {
                Ok((measured, reported)) => {
                    let is_mute = !reported && self.reporting.contains(&bench.name);
                    return Ok(match is_mute && !tree.is_base() {
                        true => mute(measured),
                        false => measured,
                    });
                }
                Err(_) if tries < RETRIES => tries += 1,
                Err(why) => match &order.side {
                    Side::Candidate(_) => {
                        return Ok(Measured {
                            failed: Some(why),
                            infra: true,
                            ..Measured::default()
                        });
                    }
                    _ => return Err(EvaluateError::Failed(format!("measuring the base: {why}"))),
                },
            }
        }
    }

    /// One fresh process in a fresh workspace, and whether it wrote to standard output. An error is not the candidate's.
    pub(super) async fn run_once(
        &self,
        bench: &BenchErrand,
        tree: &Tree,
        loops: Option<u32>,
        hash_seed: u32,
    ) -> Result<(Measured, bool), String> {
        let command = match loops {
            Some(loops) => bench.command.with_loops(loops),
            None => bench.command.clone(),
        };
        let errand = Errand {
            cwd: bench.cwd.as_ref(),
            env: Some(&bench.env),
            timeout: Some(bench.timeout),
            hash_seed,
            cpus: (!self.cpus.is_empty()).then(|| self.cpus.to_vec()),
            counted: self.counted,
            ..Errand::new(&command)
        };
        tree.verify()?;
        self.processes.fetch_add(1, Ordering::Relaxed);
        let before = self.surroundings.read();
        let ran = self
            .ground
            .execute(tree, &errand)
            .await
            .map_err(|error| error.to_string())?;
        let disturbance = self.surroundings.read().since(&before);
        let outcome = ran.outcome;
        if outcome.verdict == Verdict::SetupFailed {
            let error = outcome.error.as_ref().map(|error| error.message.clone());
            return Err(error.unwrap_or_else(|| "it could not be set up".to_owned()));
        }
        let mut measured = measured(&outcome, |code| bench.may_end_with(code, tree));
        measured.steal_s = disturbance.steal_s;
        measured.pressure_s = disturbance.pressure_s;
        measured.tree_hash = Some(tree.hash.clone());
        Ok((measured, !outcome.stdout.bytes().is_empty()))
    }

    /// How many processors a bench command keeps busy on the base, and whether it writes to standard output there.
    pub(crate) async fn try_on_base(
        &self,
        bench: &BenchErrand,
    ) -> Result<(f64, bool), EvaluateError> {
        let held = self.turns.exclusive("calibration").await;
        let _held = held.map_err(EvaluateError::attempting("measuring"))?;
        let ran = self
            .run_once(bench, &self.trees[&Side::Base], bench.loops, 0)
            .await;
        let (ran, reported) = ran.map_err(|why| bench.fails_in_base(&why))?;
        if let Some(why) = ran.failed {
            return Err(bench.fails_in_base(&why));
        }
        let share = ran
            .cpu_s()
            .zip(ran.wall_s)
            .map(|(cpu_s, wall_s)| cpu_s / wall_s.max(1e-9));
        Ok((share.unwrap_or(0.0), reported))
    }
}

fn is_same_block(one: &RunOrder, other: &RunOrder) -> bool {
    (&one.series, one.block) == (&other.series, other.block)
}

fn on_the_base(side: &Side) -> Side {
    match side {
        Side::Control => Side::Base,
        side => side.clone(),
    }
}

/// An outcome as a race takes it.
fn measured(outcome: &Outcome, is_well: impl Fn(i32) -> bool) -> Measured {
    let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
    let metrics = &outcome.metrics;
    let count = |of: Counted| {
        let found = metrics.counted.iter().find(|count| count.of == of);
        found.and_then(|found| found.count.clone().ok())
    };
    let uncounted = metrics
        .counted
        .iter()
        .find_map(|count| count.count.as_ref().err());
    Measured {
        wall_s: seconds(metrics.wall_ns),
        user_s: seconds(metrics.user_ns),
        system_s: seconds(metrics.system_ns),
        peak_rss_bytes: metrics.peak_rss_bytes,
        instructions: count(Counted::Instructions),
        cycles: count(Counted::Cycles),
        uncounted: uncounted.map(ToString::to_string),
        involuntary_switches: outcome.in_force.counters.involuntary_switches,
        isolation: Some(outcome.in_force.digest()),
        failed: why_failed(outcome, is_well),
        ..Measured::default()
    }
}

/// CA-76: what does not end as the base does is no gain, however fast.
pub(super) fn why_failed(outcome: &Outcome, is_well: impl Fn(i32) -> bool) -> Option<String> {
    use fairtrial_exec::Exit;
    match (outcome.verdict, outcome.exit) {
        (Verdict::Ok, _) => None,
        (Verdict::Exit, Some(Exit::Code(code))) if is_well(code) => None,
        (Verdict::Exit, Some(Exit::Code(code))) => {
            Some(format!("exit code {code}{}", last_words(outcome)))
        }
        (Verdict::Signal, Some(Exit::Signal(signal))) => {
            Some(format!("ended by signal {signal}{}", last_words(outcome)))
        }
        (verdict, _) => Some(format!("{}{}", verdict.name(), last_words(outcome))),
    }
}

/// CA-76: who ends well without having said what the base says has done something else, however fast.
fn mute(measured: Measured) -> Measured {
    let why = || "it wrote nothing to standard output, and the base does".to_owned();
    Measured {
        failed: measured.failed.or_else(|| Some(why())),
        ..measured
    }
}

/// The last line it wrote, for people.
fn last_words(outcome: &Outcome) -> String {
    let stderr = outcome.stderr.text();
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
    last.map_or_else(String::new, |line| {
        format!(": {}", line.trim().chars().take(200).collect::<String>())
    })
}

fn tell(telling: &Telling, event: measure::Event) {
    match event {
        measure::Event::Block { series, block } => telling.tell(Event::Block { series, block }),
        measure::Event::Look {
            series,
            look,
            judgements,
        } => {
            let eliminated = judgements
                .iter()
                .filter(|(_, said)| said.verdict == measure::Verdict::Eliminated);
            let eliminated: Vec<String> = eliminated.map(|(id, _)| id.clone()).collect();
            telling.tell(Event::Look {
                series,
                blocks: look.blocks,
                judgements,
            });
            for id in eliminated {
                telling.tell(Event::Eliminated { id });
            }
        }
        measure::Event::ControlMissed { series } => telling.audience.warn(missed(&series)),
    }
}

fn missed(series: &SeriesId) -> String {
    format!("in series {series} the base differed from itself: the machine is not quiet enough")
}

/// As a race takes them.
pub(crate) fn benches(errands: &[BenchErrand]) -> Vec<Bench> {
    let bench = |errand: &BenchErrand| Bench {
        name: errand.name.clone(),
        weight: errand.weight,
        slopes: errand.slopes.clone(),
    };
    errands.iter().map(bench).collect()
}
