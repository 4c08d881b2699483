//! One block: every remaining side per bench command, and repeats of what was disturbed. A side runs once; where the time
//! per loop is compared twice, with few loops and with many.

use std::collections::{BTreeMap, VecDeque};

use super::contamination::{Cause, Limits};
use super::order::{few_loops_first, hash_seed, order};
use super::pair::Pair;
use super::run::{Measured, Metric, Run, RunOrder, SeriesId, Side};
use super::settings::{Bench, Terms};

/// A bench command, by its place, of a side.
type Cell = (usize, Side);

/// A block under way.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    series: SeriesId,
    number: u32,
    hash_seed: u32,
    sides: Vec<Side>,
    queue: VecDeque<(usize, RunOrder)>,
    positions: u32,
    /// The last run of each side and, where it was repeated alone, of the base beside it.
    kept: BTreeMap<Cell, Kept>,
    failed: BTreeMap<String, String>,
    repeated: u32,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    own: Pair,
    partner: Pair,
}

impl Kept {
    /// The base's runs beside a repeat; none of an earlier repeat.
    fn partner(&self) -> Option<&Pair> {
        let is_beside =
            self.partner.repeat().is_some() && self.partner.repeat() == self.own.repeat();
        is_beside.then_some(&self.partner)
    }

    fn runs(&self) -> impl Iterator<Item = &Run> {
        let partner = self.partner().into_iter().flat_map(Pair::runs);
        self.own.runs().chain(partner)
    }

    fn is_disturbed(&self) -> bool {
        self.runs().any(|run| !run.contamination.is_empty())
    }

    fn repeat(&self) -> u32 {
        self.own.repeat().unwrap_or(0)
    }
}

/// What is usual of one bench command's runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchLimits {
    /// Of runs of few loops, where there are any.
    pub(crate) low: Limits,
    pub(crate) high: Limits,
}

/// The logarithms of a side's costs over the base's, of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratios {
    pub(crate) main: f64,
    pub(crate) cpu: Option<f64>,
    /// The loops of either side took no measurable time.
    pub(crate) is_bound: bool,
}

/// What a block gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockResult {
    pub(crate) number: u32,
    pub(crate) ratios: BTreeMap<Side, Ratios>,
    /// Candidates whose command failed, and how.
    pub(crate) failed: BTreeMap<String, String>,
    /// Runs that were made again.
    pub(crate) repeated: u32,
    /// Runs kept though disturbed.
    pub(crate) flagged: u32,
}

impl Block {
    pub(crate) fn new(terms: &Terms, series: &SeriesId, number: u32, sides: Vec<Side>) -> Self {
        let mut block = Self {
            series: series.clone(),
            number,
            hash_seed: hash_seed(terms.seed, series, number),
            sides,
            queue: VecDeque::new(),
            positions: 0,
            kept: BTreeMap::new(),
            failed: BTreeMap::new(),
            repeated: 0,
        };
        block.queue_all(terms, 0);
        block
    }

    /// What to run next; nothing when the block is over.
    pub(crate) fn next(&self) -> Option<&RunOrder> {
        self.queue.front().map(|(_, order)| order)
    }

    /// Takes the result of [`Block::next`].
    pub(crate) fn record(
        &mut self,
        terms: &Terms,
        limits: &[BenchLimits],
        measured: Measured,
    ) -> Run {
        let (bench, order) = self.queue.pop_front().expect("a run was asked for");
        let is_low = terms.benches[bench].slopes.is_low(&order);
        let limits = limits.get(bench).map(|limits| match is_low {
            true => limits.low,
            false => limits.high,
        });
        let contamination = limits.map_or_else(Vec::new, |limits| limits.exceeded(&measured));
        let mut run = Run {
            order,
            measured,
            contamination,
        };
        self.keep(terms, bench, &mut run);
        if self.queue.is_empty() {
            self.queue_repeats(terms);
        }
        run
    }

    /// A candidate of which there is no run to be had.
    pub(crate) fn drop_side(&mut self, terms: &Terms, side: &Side) {
        self.forget(side);
        if self.queue.is_empty() {
            self.queue_repeats(terms);
        }
    }

    /// Once nothing is left to run.
    pub(crate) fn result(&self, terms: &Terms) -> BlockResult {
        let others = self.sides.iter().filter(|side| **side != Side::Base);
        let ratios = others.filter_map(|side| Some((side.clone(), self.ratios(terms, side)?)));
        let kept_runs = self.kept.values().flat_map(Kept::runs);
        let flagged = kept_runs
            .filter(|run| !run.contamination.is_empty())
            .count();
        BlockResult {
            number: self.number,
            ratios: ratios.collect(),
            failed: self.failed.clone(),
            repeated: self.repeated,
            flagged: u32::try_from(flagged).expect("a block has fewer runs"),
        }
    }

    /// The later run of a pair whose difference is not above 0 is marked as disturbed.
    fn keep(&mut self, terms: &Terms, bench: usize, run: &mut Run) {
        let side = run.order.side.clone();
        if let (Side::Candidate(id), Some(why)) = (&side, terms.failure(&run.measured)) {
            self.failed.insert(id.clone(), why);
            self.forget(&side);
            return;
        }
        let slopes = &terms.benches[bench].slopes;
        let (is_low, counts) = (slopes.is_low(&run.order), slopes.of(&side));
        let cell = (bench, run.order.partner_of.clone().unwrap_or(side));
        let kept = self.kept.entry(cell).or_default();
        let pair = match run.order.partner_of {
            Some(_) => &mut kept.partner,
            None => &mut kept.own,
        };
        pair.put(run.clone(), is_low);
        if pair.has_no_net(counts, terms.metric) {
            run.contamination.push(Cause::NoNetTime);
            pair.put(run.clone(), is_low);
        }
    }

    fn forget(&mut self, side: &Side) {
        self.sides.retain(|other| other != side);
        self.kept.retain(|(_, other), _| other != side);
        self.queue
            .retain(|(_, order)| order.side != *side && order.partner_of.as_ref() != Some(side));
    }

    /// CA-71: the base's run takes its whole block with it, any other a fresh run of the base.
    fn queue_repeats(&mut self, terms: &Terms) {
        let again: Vec<(Cell, u32)> = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.is_disturbed() && kept.repeat() < terms.repeats)
            .map(|(cell, kept)| (cell.clone(), kept.repeat() + 1))
            .collect();
        if let Some((_, repeat)) = again.iter().find(|((_, side), _)| *side == Side::Base) {
            self.queue_all(terms, *repeat);
        } else {
            for ((bench, side), repeat) in again {
                self.queue_pair(terms, bench, &side, repeat);
            }
        }
        self.repeated += u32::try_from(self.queue.len()).expect("a block has fewer runs");
    }

    fn queue_all(&mut self, terms: &Terms, repeat: u32) {
        let sides = self.sides.clone();
        for (bench, Bench { name, .. }) in terms.benches.iter().enumerate() {
            let drawn = order(
                terms.seed,
                &self.series,
                (self.number, repeat),
                name,
                &sides,
            );
            for side in drawn {
                self.push_pair(terms, bench, &side, repeat, None);
            }
        }
    }

    fn queue_pair(&mut self, terms: &Terms, bench: usize, side: &Side, repeat: u32) {
        let name = &terms.benches[bench].name;
        let pair = [Side::Base, side.clone()];
        for drawn in order(terms.seed, &self.series, (self.number, repeat), name, &pair) {
            let partner_of = (drawn == Side::Base).then(|| side.clone());
            self.push_pair(terms, bench, &drawn, repeat, partner_of.as_ref());
        }
    }

    /// A side's run of the whole program, or its runs of few loops and of many.
    fn push_pair(
        &mut self,
        terms: &Terms,
        bench: usize,
        side: &Side,
        repeat: u32,
        partner_of: Option<&Side>,
    ) {
        let Bench { name, slopes, .. } = &terms.benches[bench];
        let loops = match slopes.of(side) {
            None => vec![None],
            Some(counts) => {
                let place = (self.number, repeat);
                let mut both = vec![Some(counts.low), Some(counts.high)];
                if !few_loops_first(terms.seed, &self.series, place, name) {
                    both.reverse();
                }
                both
            }
        };
        for loops in loops {
            let order = RunOrder {
                series: self.series.clone(),
                block: self.number,
                position: self.positions,
                side: side.clone(),
                bench: name.clone(),
                hash_seed: self.hash_seed,
                repeat,
                partner_of: partner_of.cloned(),
                loops,
            };
            self.positions += 1;
            self.queue.push_back((bench, order));
        }
    }

    fn ratios(&self, terms: &Terms, side: &Side) -> Option<Ratios> {
        let (main, is_bound) = self.ratio(terms, side, terms.metric)?;
        let cpu = self.ratio(terms, side, Metric::Cpu);
        Some(Ratios {
            main,
            cpu: cpu.filter(|(_, is_bound)| !is_bound).map(|(cpu, _)| cpu),
            is_bound,
        })
    }

    /// CA-66: ln(t_side / t_base), weighted over bench commands; and whether any of it is only a bound.
    fn ratio(&self, terms: &Terms, side: &Side, metric: Metric) -> Option<(f64, bool)> {
        let (mut sum, mut weights, mut is_bound) = (0.0, 0.0, false);
        for (bench, Bench { weight, slopes, .. }) in terms.benches.iter().enumerate() {
            let kept = self.kept.get(&(bench, side.clone()))?;
            let base = match kept.partner() {
                Some(partner) => partner,
                None => &self.kept.get(&(bench, Side::Base))?.own,
            };
            let own = kept.own.cost(slopes.of(side), metric)?;
            let base = base.cost(slopes.of(&Side::Base), metric)?;
            sum += weight * (own.value / base.value).ln();
            weights += weight;
            is_bound |= own.is_bound || base.is_bound;
        }
        Some((sum / weights, is_bound))
    }
}
