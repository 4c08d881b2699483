//! What each block said of each side, from the raw runs (CA-66, CA-78).

use std::collections::BTreeMap;

use crate::measure::{Bench, Metric, Pair, Purpose, Run, SeriesId, Side, Slopes};

/// One block of one side beside the base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) block: u32,
    /// The side's cost over the base's.
    pub(crate) ratio: f64,
    /// It was kept though disturbed.
    pub(crate) flagged: bool,
}

/// By series and side.
#[derive(Debug, Default)]
pub(crate) struct Blocks(BTreeMap<SeriesId, BTreeMap<Side, Vec<Point>>>);

/// The runs of a block and bench command that count: each side's last, and the base's beside a repeat.
#[derive(Default)]
struct Cell<'r> {
    own: BTreeMap<&'r Side, Pair>,
    partners: BTreeMap<&'r Side, Pair>,
}

impl Blocks {
    /// Of all runs, in the order of their file. A bench command that is not among `benches` counts as 1, by whole runs.
    pub(crate) fn of(runs: &[Run], benches: &[Bench], metric: Metric) -> Self {
        let slopes: BTreeMap<&str, &Slopes> = benches
            .iter()
            .map(|bench| (&*bench.name, &bench.slopes))
            .collect();
        let weights: BTreeMap<&str, f64> = benches
            .iter()
            .map(|bench| (&*bench.name, bench.weight))
            .collect();
        let whole = Slopes::default();
        let slopes = |bench: &str| slopes.get(bench).copied().unwrap_or(&whole);
        let mut cells: BTreeMap<(&SeriesId, u32), BTreeMap<&str, Cell<'_>>> = BTreeMap::new();
        for run in runs {
            if run.order.series.purpose == Purpose::Calibration {
                continue;
            }
            let place = (&run.order.series, run.order.block);
            let benches = cells.entry(place).or_default();
            let cell = benches.entry(&run.order.bench).or_default();
            let pair = match &run.order.partner_of {
                Some(side) => cell.partners.entry(side).or_default(),
                None => cell.own.entry(&run.order.side).or_default(),
            };
            pair.put(run.clone(), slopes(&run.order.bench).is_low(&run.order));
        }
        let mut all = Self::default();
        for ((series, block), benches) in cells {
            let mut sides: Vec<&Side> = benches
                .values()
                .flat_map(|cell| cell.own.keys().copied())
                .collect();
            sides.sort();
            sides.dedup();
            for side in sides.into_iter().filter(|side| **side != Side::Base) {
                let of_side = all.0.entry(series.clone()).or_default();
                let points = of_side.entry(side.clone()).or_default();
                let terms = |bench: &str| {
                    let weight = weights.get(bench).copied().unwrap_or(1.0);
                    (weight, slopes(bench))
                };
                points.extend(point(block, &benches, side, terms, metric));
            }
        }
        all
    }

    /// The series of the last race that a side ran in, and what its blocks said.
    pub(crate) fn race(&self, side: &Side) -> Option<(&SeriesId, &[Point])> {
        self.last(side, |purpose| *purpose == Purpose::Race)
    }

    /// The series in which it was measured again.
    pub(crate) fn confirmation(&self, side: &Side) -> Option<(&SeriesId, &[Point])> {
        self.last(side, |purpose| {
            matches!((purpose, side), (Purpose::Confirmation(of), Side::Candidate(id)) if of == id)
        })
    }

    /// The base beside itself, in every series.
    pub(crate) fn controls(&self) -> impl Iterator<Item = (&SeriesId, &[Point])> {
        self.0.iter().filter_map(|(series, sides)| {
            let points = sides.get(&Side::Control)?;
            Some((series, &points[..]))
        })
    }

    fn last(
        &self,
        side: &Side,
        is_meant: impl Fn(&Purpose) -> bool,
    ) -> Option<(&SeriesId, &[Point])> {
        let mut latest = self
            .0
            .iter()
            .rev()
            .filter(|(series, _)| is_meant(&series.purpose));
        latest.find_map(|(series, sides)| {
            let points = sides.get(side).filter(|points| !points.is_empty())?;
            Some((series, &points[..]))
        })
    }
}

fn point<'s>(
    block: u32,
    benches: &BTreeMap<&str, Cell<'_>>,
    side: &Side,
    terms: impl Fn(&str) -> (f64, &'s Slopes),
    metric: Metric,
) -> Option<Point> {
    let (mut sum, mut total, mut flagged) = (0.0, 0.0, false);
    for (bench, cell) in benches {
        let (weight, slopes) = terms(bench);
        let own = cell.own.get(side)?;
        let partner = cell.partners.get(side);
        let partner = partner.filter(|pair| pair.repeat() == own.repeat());
        let base = partner.or_else(|| cell.own.get(&Side::Base))?;
        let cost = own.cost(slopes.of(side), metric)?;
        let base_cost = base.cost(slopes.of(&Side::Base), metric)?;
        sum += weight * (cost.value / base_cost.value).ln();
        total += weight;
        let mut runs = own.runs().chain(base.runs());
        flagged |= runs.any(|run| !run.contamination.is_empty());
    }
    (total > 0.0).then(|| Point {
        block,
        ratio: (sum / total).exp(),
        flagged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Entrant, LoopCounts, Measured, Race, Settings};

    /// CA-66, CA-82: the report's blocks are those that the race judged, repeats and partners included.
    #[test]
    fn blocks_are_those_that_the_race_judged() {
        let benches = ["one", "two"].map(|name| Bench {
            name: name.to_owned(),
            weight: if name == "one" { 1.0 } else { 3.0 },
            // Of one the time per loop is compared, of the other whole runs.
            slopes: match name {
                "one" => [(Side::Base, LoopCounts { low: 0, high: 5 })]
                    .into_iter()
                    .collect(),
                _ => Slopes::default(),
            },
        });
        let entrants = ["c-1", "c-2"].map(|id| Entrant {
            id: id.to_owned(),
            changed_lines: 1,
        });
        let mut race =
            Race::new(Settings::default(), 1, benches.to_vec(), entrants.to_vec()).unwrap();
        let mut runs = Vec::new();
        let mut made = 0_u32;
        while let Some(order) = race.next_run() {
            made += 1;
            let own = match &order.side {
                Side::Candidate(id) if id == "c-1" => 0.7,
                Side::Candidate(_) => 1.2,
                _ => 1.0,
            };
            let bench = if order.bench == "one" { 1.0 } else { 2.0 };
            let wobble = 1.0 + 0.002 * f64::from(made % 7);
            // Now and then something disturbs, so that runs are repeated beside a partner.
            let switches = if made > 20 && made.is_multiple_of(17) {
                900
            } else {
                0
            };
            let measured = Measured {
                wall_s: Some(match order.loops {
                    Some(loops) => 0.05 + f64::from(loops) * 0.02 * own * wobble,
                    None => 0.1 * own * bench * wobble,
                }),
                involuntary_switches: Some(switches),
                ..Measured::default()
            };
            runs.push(race.record(measured).unwrap());
        }
        assert!(runs.iter().any(|run| run.order.partner_of.is_some()));
        let blocks = Blocks::of(&runs, &benches, Metric::Wall);
        for placing in race.report().ranking {
            let said = placing.judgement.unwrap();
            let side = Side::Candidate(placing.candidate.id);
            let (_, points) = blocks.race(&side).unwrap();
            let mut ratios: Vec<f64> = points[..said.blocks as usize]
                .iter()
                .map(|point| point.ratio)
                .collect();
            ratios.sort_by(f64::total_cmp);
            let middle = ratios.len() / 2;
            let median = match ratios.len() % 2 {
                0 => (ratios[middle - 1] * ratios[middle]).sqrt(),
                _ => ratios[middle],
            };
            assert!(
                (median / said.ratio - 1.0).abs() < 1e-9,
                "{side}: {median} {}",
                said.ratio
            );
        }
        assert!(blocks.controls().count() >= 2, "race and confirmation");
    }
}
