//! Sides measured in blocks, judged at looks, raced against each other and ranked.
//!
//! A [`Race`] says which run is next and is told what came of it. It starts nothing, waits for nothing and reads no clock;
//! the same settings and the same runs give the same ranking.

mod contamination;
mod looks;
mod median;
mod order;
mod random;
mod run;

pub use contamination::{CALIBRATION_RUNS, Cause, Limits};
pub use looks::{Look, NoLook, looks};
pub use run::{Measured, Metric, NoMetric, NotASeries, Purpose, Run, RunOrder, SeriesId, Side};
