//! What those who watch a race are told.

use super::super::looks::Look;
use super::super::run::SeriesId;
use super::super::verdict::Judgement;

/// What happened in a race, for those who watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A block is complete.
    Block {
        /// Of this series.
        series: SeriesId,
        /// Its number.
        block: u32,
    },
    /// Results were judged.
    Look {
        /// Of this series.
        series: SeriesId,
        /// After how many blocks, at which share.
        look: Look,
        /// Who was judged, and how.
        judgements: Vec<(String, Judgement)>,
    },
    /// The base differed from itself.
    ControlMissed {
        /// In this series.
        series: SeriesId,
    },
}
