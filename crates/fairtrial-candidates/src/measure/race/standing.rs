//! How candidates stand, now or at the end.

use serde::{Deserialize, Serialize};

use super::super::rank::{Placing, rank};
use super::super::run::Purpose;
use super::super::series::{Lane, Series};
use super::super::settings::Entrant;
use super::super::verdict::Verdict;
use super::{Race, Stage};

/// What a race has to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Best first.
    pub ranking: Vec<Placing>,
    /// The id of the first, if it may be delivered.
    pub winner: Option<String>,
    /// Half the width of the A/A control's interval, as a share; none before the first look.
    pub noise_floor: Option<f64>,
    /// Twice, the base differed from itself.
    pub aa_failed: bool,
    /// What was run.
    pub tally: Tally,
}

/// Counts of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// All of them, calibration and repeats included.
    pub runs: u64,
    /// Whole blocks.
    pub blocks: u64,
    /// Runs made because others were disturbed.
    pub repeated: u64,
    /// Runs kept though disturbed.
    pub flagged: u64,
}

impl Race {
    /// The ranking so far; final when there is no next run.
    #[must_use]
    pub fn report(&self) -> Report {
        let ranking = self.ranking();
        let winner = ranking
            .first()
            .filter(|first| first.may_win(self.settings.confirm));
        Report {
            winner: winner.map(|first| first.candidate.id.clone()),
            noise_floor: self
                .current()
                .and_then(|series| series.floor)
                .map(f64::exp_m1),
            aa_failed: self.aa_failed,
            tally: self.tally,
            ranking,
        }
    }

    pub(super) fn ranking(&self) -> Vec<Placing> {
        let leader = self.leader();
        let place = |candidate: &Entrant| self.placing(candidate, leader);
        let mut placings: Vec<Placing> = self.entrants.iter().map(place).collect();
        self.count(&mut placings);
        rank(&mut placings);
        placings
    }

    fn placing(&self, candidate: &Entrant, leader: Option<&Lane>) -> Placing {
        let lane = self.lane(&candidate.id);
        let tried = self
            .confirmations
            .iter()
            .find(|(id, _)| *id == candidate.id);
        Placing {
            candidate: candidate.clone(),
            judgement: lane.and_then(|lane| lane.judgement.clone()),
            confirmation: tried.and_then(|(_, said)| said.clone()),
            equals_leader: self.equals_leader(lane, leader),
            instructions: None,
            failure: lane.and_then(|lane| lane.failure.clone()),
        }
    }

    fn equals_leader(&self, lane: Option<&Lane>, leader: Option<&Lane>) -> bool {
        let (Some(series), Some(lane), Some(leader)) = (self.current(), lane, leader) else {
            return false;
        };
        lane.candidate == leader.candidate || (is_faster(lane) && series.ties(lane, leader))
    }

    /// The fastest of those shown to be faster than the base.
    fn leader(&self) -> Option<&Lane> {
        let lanes = self.current()?.lanes.iter();
        lanes
            .filter(|lane| is_faster(lane))
            .min_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    }

    pub(super) fn lane(&self, id: &str) -> Option<&Lane> {
        self.current()?
            .lanes
            .iter()
            .find(|lane| lane.candidate == id)
    }

    /// The race's series: the one that counts, or the one under way.
    fn current(&self) -> Option<&Series> {
        match &self.stage {
            Stage::Measuring(measuring) if measuring.0.id.purpose == Purpose::Race => {
                Some(&measuring.0)
            }
            _ => self.raced.as_ref(),
        }
    }
}

fn is_faster(lane: &Lane) -> bool {
    let verdict = lane.judgement.as_ref().map(|judgement| judgement.verdict);
    lane.failure.is_none() && verdict == Some(Verdict::Faster)
}
