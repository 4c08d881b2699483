//! What follows a series: another attempt, the next confirmation, or the end.

use super::super::rank::{Confirmation, Placing};
use super::super::run::{Purpose, SeriesId};
use super::super::series::{End, Series};
use super::super::verdict::Verdict;
use super::{Event, Race, Stage};

/// How many would-be winners are measured again.
const MOST_CONFIRMATIONS: usize = 3;
/// A series whose A/A control misses 1 is made anew once.
const LAST_ATTEMPT: u32 = 2;

impl Race {
    pub(super) fn close_series(&mut self, mut series: Series, end: End) {
        let SeriesId {
            purpose, attempt, ..
        } = series.id.clone();
        // Where a second attempt was never run, the first one's failure stands.
        let failed = end == End::ControlMissed || (attempt == LAST_ATTEMPT && series.blocks == 0);
        if failed {
            self.events.push(Event::ControlMissed {
                series: series.id.clone(),
            });
            series.distrust();
        }
        let again = failed && attempt < LAST_ATTEMPT;
        match &purpose {
            Purpose::Confirmation(id) if !again => self.conclude(id, &series),
            Purpose::Confirmation(_) => {}
            _ => {
                self.aa_failed = failed && !again;
                if series.blocks > 0 {
                    self.raced = Some(self.with_earlier_failures(series));
                } else if let Some(first) = &mut self.raced {
                    first.distrust();
                }
            }
        }
        match purpose {
            purpose if again => self.begin(purpose, attempt + 1),
            Purpose::Confirmation(_) => self.confirm_next(),
            _ => self.break_ties(),
        }
    }

    fn with_earlier_failures(&self, mut series: Series) -> Series {
        let earlier = self.raced.iter().flat_map(|first| &first.lanes);
        let failed = earlier.filter(|lane| lane.failure.is_some());
        series.lanes.extend(failed.cloned());
        series
    }

    fn conclude(&mut self, id: &str, series: &Series) {
        // A series that was never run says nothing, neither for nor against.
        let confirmation = (series.blocks > 0).then(|| {
            let lane = &series.lanes[0];
            let said = lane.judgement.as_ref().map(|judgement| judgement.verdict);
            Confirmation {
                confirmed: lane.failure.is_none() && said == Some(Verdict::Faster),
                judgement: lane.judgement.clone(),
                failure: lane.failure.clone(),
            }
        });
        self.confirmations.push((id.to_owned(), confirmation));
    }

    /// The next in rank, until one is confirmed.
    pub(super) fn confirm_next(&mut self) {
        self.stage = Stage::Over;
        let confirmed = |(_, said): &(String, Option<Confirmation>)| {
            said.as_ref().is_some_and(|said| said.confirmed)
        };
        let tried = &self.confirmations;
        if !self.settings.confirm
            || tried.len() >= MOST_CONFIRMATIONS
            || tried.iter().any(confirmed)
        {
            return;
        }
        let untried = |placing: &Placing| tried.iter().all(|(id, _)| *id != placing.candidate.id);
        let ranking = self.ranking();
        // Those eliminated by a leader that was not confirmed may still be faster than the base.
        let next = ranking
            .iter()
            .find(|placing| untried(placing) && placing.beat_the_base());
        if let Some(placing) = next {
            self.begin(Purpose::Confirmation(placing.candidate.id.clone()), 1);
        }
    }
}
