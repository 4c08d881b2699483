//! Records judged again: to go on with a race, or under other settings. Starts nothing.

use std::collections::HashMap;

use super::race::{BaseFailed, Race, Report};
use super::run::{Run, RunOrder, SeriesId, Side};

/// Runs that were made, found by what they were made for.
#[derive(Clone, Debug, Default)]
pub struct Recorded(HashMap<Key, Run>);

/// Not the position: who ran before whom is past, and other settings would have drawn another order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    series: SeriesId,
    block: u32,
    side: Side,
    bench: String,
    repeat: u32,
    partner_of: Option<Side>,
    loops: Option<u32>,
}

impl Key {
    fn of(order: &RunOrder) -> Self {
        Self {
            series: order.series.clone(),
            block: order.block,
            side: order.side.clone(),
            bench: order.bench.clone(),
            repeat: order.repeat,
            partner_of: order.partner_of.clone(),
            loops: order.loops,
        }
    }
}

impl Recorded {
    fn find(&self, order: &RunOrder) -> Option<&Run> {
        self.0.get(&Key::of(order))
    }
}

/// In the order of the file: of a block that was begun twice, the later runs count.
impl FromIterator<Run> for Recorded {
    fn from_iter<I: IntoIterator<Item = Run>>(runs: I) -> Self {
        let keyed = runs.into_iter().map(|run| (Key::of(&run.order), run));
        Self(keyed.collect())
    }
}

/// Takes a fresh race through all that was recorded, to its report. Blocks that were never run are not invented: a
/// candidate without them keeps what its last look decided, or is uncertain.
///
/// # Errors
/// The base failed in a recorded run.
pub fn rescore(mut race: Race, recorded: &Recorded) -> Result<Report, BaseFailed> {
    loop {
        match race.next_run().map(|order| recorded.find(order)) {
            Some(Some(run)) => drop(race.record(run.measured.clone())?),
            Some(None) => race.go_without(),
            None if !race.tied().is_empty() => race.go_without(),
            None => return Ok(race.report()),
        }
    }
}

/// Takes a fresh race to the first block that is not whole on record, to go on from there.
///
/// # Errors
/// The base failed in a recorded run.
pub fn resume(race: Race, recorded: &Recorded) -> Result<Race, BaseFailed> {
    let mut at_block = race;
    loop {
        let mut race = at_block.clone();
        let begun = at_block.next_run().map(place);
        while race.next_run().map(place) == begun {
            let Some(run) = race.next_run().and_then(|order| recorded.find(order)) else {
                return Ok(at_block);
            };
            race.record(run.measured.clone())?;
        }
        at_block = race;
    }
}

fn place(order: &RunOrder) -> (SeriesId, u32) {
    (order.series.clone(), order.block)
}
