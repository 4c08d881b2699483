//! The order of rivals, ties kept.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::settings::Entrant;
use super::verdict::{Judgement, Verdict};

/// A candidate's place in a ranking.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placing {
    /// Who.
    pub candidate: Entrant,
    /// What the race said; none if it failed, or ended, before the first look.
    pub judgement: Option<Judgement>,
    /// What a new series said, for those that might have won.
    pub confirmation: Option<Confirmation>,
    /// It cannot be told from the leader within `min_effect`; so of the leader itself.
    pub equals_leader: bool,
    /// What callgrind counted, where those that equal the leader are put in order by that.
    #[serde(default)]
    pub instructions: Option<f64>,
    /// Why its bench command failed.
    pub failure: Option<String>,
}

/// A would-be winner, measured again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// It was faster again.
    pub confirmed: bool,
    /// What the new series said; none if it failed, or ended, before its first look.
    pub judgement: Option<Judgement>,
    /// Why its bench command failed this time.
    pub failure: Option<String>,
}

/// Groups of a ranking, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    ConfirmedFaster,
    Faster,
    /// Equal, uncertain, eliminated; and unconfirmed, since a gain that vanished is none.
    Between,
    Slower,
    Failed,
}

impl Placing {
    /// It may be delivered: confirmed, or faster where nobody asked for confirmation.
    #[must_use]
    pub fn may_win(&self, confirm: bool) -> bool {
        match self.group() {
            Group::ConfirmedFaster => true,
            Group::Faster => !confirm,
            _ => false,
        }
    }

    /// Against the base it was faster, even if a rival was faster still.
    pub(crate) fn beat_the_base(&self) -> bool {
        let judgement = self.judgement.as_ref();
        self.failure.is_none()
            && judgement
                .is_some_and(|said| said.against_base == Verdict::Faster && said.doubt.is_none())
    }

    fn group(&self) -> Group {
        if self.failure.is_some() {
            return Group::Failed;
        }
        match &self.confirmation {
            Some(again) if again.confirmed => return Group::ConfirmedFaster,
            Some(again) if again.failure.is_some() => return Group::Failed,
            Some(_) => return Group::Between,
            None => {}
        }
        match self.judgement.as_ref().map(|judgement| judgement.verdict) {
            Some(Verdict::Faster) => Group::Faster,
            Some(Verdict::Slower) => Group::Slower,
            _ => Group::Between,
        }
    }

    fn ratio(&self) -> f64 {
        let judgement = self.judgement.as_ref();
        judgement.map_or(f64::INFINITY, |judgement| judgement.ratio)
    }

    /// Fewer first; those that could not be counted last.
    fn by_instructions(&self, other: &Self) -> Ordering {
        let count = |placing: &Self| placing.instructions.unwrap_or(f64::INFINITY);
        count(self).total_cmp(&count(other))
    }

    /// It is not compared with the leader any more.
    pub(crate) fn leave_the_tie(&mut self) {
        self.equals_leader = false;
        self.instructions = None;
    }
}

/// CA-80, best first. Counts decide among those that cannot be told from the leader, and nowhere else (CA-72).
pub(crate) fn rank(placings: &mut [Placing]) {
    placings.sort_by(|a, b| {
        let level = a.equals_leader && b.equals_leader;
        let by_size = || a.candidate.changed_lines.cmp(&b.candidate.changed_lines);
        let within_group = || match level {
            true => a.by_instructions(b).then_with(by_size),
            false => a.ratio().total_cmp(&b.ratio()),
        };
        a.group()
            .cmp(&b.group())
            .then(b.equals_leader.cmp(&a.equals_leader))
            .then_with(within_group)
            .then_with(|| a.candidate.id.cmp(&b.candidate.id))
    });
}

#[cfg(test)]
mod tests {
    use super::super::simulation::placing;
    use super::*;

    fn ranked(mut placings: Vec<Placing>) -> Vec<String> {
        rank(&mut placings);
        placings
            .into_iter()
            .map(|placing| placing.candidate.id)
            .collect()
    }

    fn again(confirmed: bool) -> Option<Confirmation> {
        Some(Confirmation {
            confirmed,
            judgement: None,
            failure: None,
        })
    }

    /// CA-80
    #[test]
    fn groups_come_in_order_and_by_ratio_within() {
        let mut confirmed = placing("confirmed", Verdict::Faster, 0.9);
        confirmed.confirmation = again(true);
        let mut failed = placing("failed", Verdict::Faster, 0.1);
        failed.failure = Some("timeout".to_owned());
        let order = ranked(vec![
            failed,
            placing("slower", Verdict::Slower, 1.1),
            placing("equal", Verdict::Equal, 1.0),
            placing("eliminated", Verdict::Eliminated, 0.95),
            placing("uncertain", Verdict::Uncertain, 0.97),
            placing("faster", Verdict::Faster, 0.8),
            confirmed,
        ]);
        assert_eq!(
            order,
            [
                "confirmed",
                "faster",
                "eliminated",
                "uncertain",
                "equal",
                "slower",
                "failed"
            ]
        );
    }

    /// CA-80
    #[test]
    fn of_those_equal_to_the_leader_the_smaller_change_wins_then_the_id() {
        let level = |id, ratio, changed_lines| {
            let mut placing = placing(id, Verdict::Faster, ratio);
            placing.candidate.changed_lines = changed_lines;
            placing.equals_leader = true;
            placing
        };
        let order = ranked(vec![
            level("leader", 0.70, 90),
            level("small-b", 0.71, 3),
            level("small-a", 0.72, 3),
            placing("behind", Verdict::Faster, 0.80),
        ]);
        assert_eq!(order, ["small-a", "small-b", "leader", "behind"]);
    }

    /// CA-72: counts come before sizes, and who has none comes after those that have.
    #[test]
    fn of_those_equal_to_the_leader_the_fewest_instructions_win() {
        let level = |id, instructions, changed_lines| {
            let mut placing = placing(id, Verdict::Faster, 0.7);
            placing.candidate.changed_lines = changed_lines;
            placing.equals_leader = true;
            placing.instructions = instructions;
            placing
        };
        let order = ranked(vec![
            level("uncounted-large", None, 9),
            level("uncounted", None, 1),
            level("many", Some(2e9), 2),
            level("few-large", Some(1e9), 90),
            level("few", Some(1e9), 80),
        ]);
        assert_eq!(
            order,
            ["few", "few-large", "many", "uncounted", "uncounted-large"]
        );
    }

    /// CA-72: whatever is counted, groups and ratios stand.
    #[test]
    fn counts_move_nobody_who_can_be_told_from_the_leader() {
        let counted = |id, verdict, ratio, instructions| {
            let mut placing = placing(id, verdict, ratio);
            placing.instructions = Some(instructions);
            placing
        };
        let mut leader = counted("leader", Verdict::Faster, 0.7, 9e9);
        leader.equals_leader = true;
        let order = ranked(vec![
            counted("slower", Verdict::Slower, 1.2, 1.0),
            counted("equal", Verdict::Equal, 1.0, 2.0),
            counted("uncertain", Verdict::Uncertain, 0.99, 3.0),
            counted("behind", Verdict::Faster, 0.9, 1.0),
            counted("ahead", Verdict::Faster, 0.8, 2.0),
            leader,
        ]);
        assert_eq!(
            order,
            ["leader", "ahead", "behind", "uncertain", "equal", "slower"]
        );
    }

    /// CA-77, CA-80
    #[test]
    fn an_unconfirmed_gain_ranks_below_one_that_was_not_tried() {
        let mut unconfirmed = placing("unconfirmed", Verdict::Faster, 0.5);
        unconfirmed.confirmation = again(false);
        let order = ranked(vec![unconfirmed, placing("faster", Verdict::Faster, 0.9)]);
        assert_eq!(order, ["faster", "unconfirmed"]);
    }

    /// CA-80
    #[test]
    fn alike_in_all_else_the_id_decides() {
        let order = ranked(vec![
            placing("b", Verdict::Equal, 1.0),
            placing("a", Verdict::Equal, 1.0),
        ]);
        assert_eq!(order, ["a", "b"]);
    }
}
