//! Sides measured in blocks, judged at looks, raced against each other and ranked.
//!
//! A [`Race`] says which run is next and is told what came of it. It starts nothing, waits for nothing and reads no clock;
//! the same settings and the same runs give the same ranking.

mod block;
mod contamination;
mod looks;
mod loop_search;
mod loops;
mod median;
mod order;
mod pair;
mod race;
pub(crate) mod random;
mod rank;
mod replay;
mod run;
mod series;
mod settings;
#[cfg(test)]
pub(crate) mod simulation;
mod verdict;

pub use contamination::{CALIBRATION_RUNS, Cause, Limits};
pub use looks::{Look, NoLook, looks};
pub(crate) use loop_search::{Found, LoopSearch, aim_s};
pub use loops::{LoopCounts, Slopes};
pub(crate) use pair::{Pair, cost_per_loop};
pub use race::{BaseFailed, Counts, Event, Race, Report, Tally};
pub(crate) use rank::rank;
pub use rank::{Confirmation, Placing};
pub use replay::{Recorded, rescore, resume};
pub use run::{Measured, Metric, NoMetric, NotASeries, Purpose, Run, RunOrder, SeriesId, Side};
pub use settings::{Bench, Entrant, Settings};
pub use verdict::{Doubt, Judgement, Leaning, Verdict};
