//! The times of each side of a bench command: whole runs, start-up, and the loops' own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::{LoopCounts, Metric, Purpose, Run, SeriesId, Side, Slopes, cost_per_loop};

/// A ratio of whole runs with more start-up than this share is marked as such.
const MOST_STARTUP: f64 = 1.0 / 3.0;

/// How a bench command was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BenchFacts {
    /// How often it loops on the base; none if it takes no count.
    pub loops: Option<u64>,
    /// How long the base takes to start and to end; none if that is not known.
    pub startup_s: Option<f64>,
    /// How far apart times of start-up were.
    #[serde(default)]
    pub startup_spread_s: Option<f64>,
    /// How start-up was found.
    #[serde(default)]
    pub startup_source: Option<StartupSource>,
    /// Its part of the base's run, from 0 to 1.
    #[serde(default)]
    pub startup_share: Option<f64>,
    /// Whether ratios are of the loops' own time.
    #[serde(default)]
    pub compared: Compared,
    /// By side: `base`, or a candidate's id.
    #[serde(default)]
    pub sides: BTreeMap<String, SideTimes>,
}

/// Of which times a ratio is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// The time per loop: the difference of a run of many loops and one of few.
    Net,
    /// Whole runs, start-up included.
    #[default]
    Gross,
}

/// How start-up was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartupSource {
    /// From runs of few loops.
    Loops,
    /// The command's interpreter ran an empty program. Imports of the command's own are not in it.
    Interpreter,
}

/// Medians of wall times of one side, of blocks that nothing disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideTimes {
    /// How often the measured run loops; none if the command takes no count.
    pub loops: Option<u64>,
    /// How often the run that is subtracted loops; none where whole runs are compared.
    pub low_loops: Option<u64>,
    /// Blocks that these times are of.
    pub blocks: u64,
    /// The whole run.
    pub gross_s: Option<f64>,
    /// Start-up and end; none where that is not known.
    pub startup_s: Option<f64>,
    /// The loops' own time; none where whole runs are compared.
    pub net_s: Option<f64>,
    /// One loop's own time; none where whole runs are compared.
    pub per_loop_s: Option<f64>,
    /// The range of the middle half of the blocks, as a share of the median: of the time that is compared.
    pub spread: Option<f64>,
}

impl SideTimes {
    fn counts(&self) -> Option<LoopCounts> {
        Some(LoopCounts {
            low: u32::try_from(self.low_loops?).ok()?,
            high: u32::try_from(self.loops?).ok()?,
        })
    }

    pub(crate) fn set_counts(&mut self, counts: LoopCounts) {
        self.loops = Some(counts.high.into());
        self.low_loops = Some(counts.low.into());
    }

    /// What a ratio is made of: the time per loop, or of a run.
    #[must_use]
    pub fn compared_s(&self) -> Option<f64> {
        match self.low_loops {
            Some(_) => self.per_loop_s,
            None => self.gross_s,
        }
    }
}

impl BenchFacts {
    /// How often each side loops, as a race takes it.
    pub(crate) fn slopes(&self) -> Slopes {
        let sides = self.sides.iter();
        sides
            .filter_map(|(side, times)| Some((Side::from(side.clone()), times.counts()?)))
            .collect()
    }

    /// The base's times.
    #[must_use]
    pub fn base(&self) -> Option<&SideTimes> {
        self.sides.get("base")
    }
}

/// Start-up's largest share among bench commands of which whole runs were compared, if it is too large.
pub(crate) fn gross_startup(benches: &BTreeMap<String, BenchFacts>) -> Option<f64> {
    let gross = benches
        .values()
        .filter(|facts| facts.compared == Compared::Gross);
    let shares = gross.filter_map(|facts| facts.startup_share);
    shares
        .filter(|share| *share > MOST_STARTUP)
        .max_by(f64::total_cmp)
}

/// Takes times from the runs of races and confirmations.
pub(crate) fn fill(benches: &mut BTreeMap<String, BenchFacts>, runs: &[Run]) {
    for (bench, facts) in benches {
        let slopes = facts.slopes();
        facts.compared = match slopes.is_empty() {
            true => Compared::Gross,
            false => Compared::Net,
        };
        for (side, pairs) in pairs(bench, &slopes, runs) {
            let times = facts.sides.entry(side.to_string()).or_default();
            match slopes.of(side) {
                Some(counts) => times.set_counts(counts),
                None => times.loops = facts.loops,
            }
            times.take(&pairs);
        }
        let gross_s = facts.base().and_then(|base| base.gross_s);
        let share = facts
            .startup_s
            .zip(gross_s)
            .map(|(startup_s, gross_s)| startup_s / gross_s);
        facts.startup_share = share.map(|share| share.clamp(0.0, 1.0));
    }
}

/// A run, and the one of few loops beside it.
type Beside<'r> = (Option<&'r Run>, Option<&'r Run>);

/// Whole pairs of one bench command, by side; the control is none.
fn pairs<'r>(bench: &str, slopes: &Slopes, runs: &'r [Run]) -> BTreeMap<&'r Side, Vec<Beside<'r>>> {
    type Place<'r> = (&'r Side, &'r SeriesId, u32, u32, &'r Option<Side>);
    let mut found: BTreeMap<Place<'r>, Beside<'r>> = BTreeMap::new();
    for run in runs {
        let order = &run.order;
        let counts = order.series.purpose != Purpose::Calibration && order.side != Side::Control;
        if order.bench == bench && counts && run.measured.failed.is_none() {
            let place = (
                &order.side,
                &order.series,
                order.block,
                order.repeat,
                &order.partner_of,
            );
            let beside = found.entry(place).or_default();
            match slopes.is_low(order) {
                true => beside.1 = Some(run),
                false => beside.0 = Some(run),
            }
        }
    }
    let mut by_side: BTreeMap<&Side, Vec<Beside<'r>>> = BTreeMap::new();
    for ((side, ..), beside) in found {
        if beside.0.is_some() && (beside.1.is_some() || slopes.is_empty()) {
            by_side.entry(side).or_default().push(beside);
        }
    }
    by_side
}

impl SideTimes {
    fn take(&mut self, pairs: &[Beside<'_>]) {
        let is_quiet = |(high, low): &&Beside<'_>| {
            high.iter()
                .chain(low)
                .all(|run| run.contamination.is_empty())
        };
        let quiet: Vec<Beside<'_>> = pairs.iter().filter(is_quiet).copied().collect();
        let pairs = if quiet.is_empty() { pairs } else { &quiet };
        let wall_s = |run: &Option<&Run>| run.and_then(|run| run.measured.wall_s);
        let gross = sorted(pairs.iter().filter_map(|(high, _)| wall_s(high)));
        self.blocks = pairs.len() as u64;
        self.gross_s = at(&gross, 0.5);
        let Some(counts) = self.counts() else {
            self.spread = spread(&gross);
            return;
        };
        let per_loop = sorted(pairs.iter().filter_map(|(high, low)| {
            let (low, high) = (&(*low)?.measured, &(*high)?.measured);
            let cost = cost_per_loop(low, high, counts, Metric::Wall)?;
            Some(cost.value)
        }));
        let low_s = at(
            &sorted(pairs.iter().filter_map(|(_, low)| wall_s(low))),
            0.5,
        );
        self.per_loop_s = at(&per_loop, 0.5);
        self.net_s = self.per_loop_s.map(|each_s| each_s * counts.between());
        self.startup_s = low_s
            .zip(self.per_loop_s)
            .map(|(low_s, each_s)| (low_s - f64::from(counts.low) * each_s).max(0.0));
        self.spread = spread(&per_loop);
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value at a share of the way, between the nearest two.
fn at(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

fn spread(sorted: &[f64]) -> Option<f64> {
    let middle = at(sorted, 0.5).filter(|middle| *middle > 0.0)?;
    Some((at(sorted, 0.75)? - at(sorted, 0.25)?) / middle)
}
