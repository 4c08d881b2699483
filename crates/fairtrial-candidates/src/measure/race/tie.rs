//! Who cannot be told from the leader, and by what else they are put in order (CA-72).
//!
//! Counts come after the race and before the confirmation: so they can say who of those alike is confirmed, and change no
//! verdict.

use std::collections::BTreeMap;

use super::super::rank::Placing;
use super::{Race, Stage};

/// Instructions by candidate; none of one that could not be counted.
pub type Counts = BTreeMap<String, Option<f64>>;

impl Race {
    /// Has ties with the leader broken by instructions; `known` are those that need not be counted any more.
    #[must_use]
    pub fn breaking_ties(mut self, known: Counts) -> Self {
        self.counts = Some(known);
        self
    }

    /// Whom to count before the race can go on; nobody unless it waits for that.
    #[must_use]
    pub fn tied(&self) -> Vec<String> {
        match self.stage {
            Stage::Tied => self.uncounted(),
            _ => Vec::new(),
        }
    }

    /// Takes counts of those that are [`Race::tied`], and goes on. Who is not among them has none.
    pub fn take_counts(&mut self, counts: &Counts) {
        for id in self.tied() {
            let count = counts.get(&id).copied().flatten();
            self.counts.get_or_insert_default().insert(id, count);
        }
        if matches!(self.stage, Stage::Tied) {
            self.confirm_next();
        }
    }

    pub(super) fn break_ties(&mut self) {
        match self.uncounted().is_empty() {
            true => self.confirm_next(),
            false => self.stage = Stage::Tied,
        }
    }

    /// Lets counts decide where there is something to decide.
    pub(super) fn count(&self, placings: &mut [Placing]) {
        let Some(counts) = self.counts.as_ref().filter(|_| is_tie(placings)) else {
            return;
        };
        for placing in placings.iter_mut().filter(|placing| placing.equals_leader) {
            placing.instructions = counts.get(&placing.candidate.id).copied().flatten();
        }
    }

    fn uncounted(&self) -> Vec<String> {
        let Some(counts) = &self.counts else {
            return Vec::new();
        };
        let mut ranking = self.ranking();
        if !is_tie(&ranking) {
            return Vec::new();
        }
        ranking
            .retain(|placing| placing.equals_leader && !counts.contains_key(&placing.candidate.id));
        let ids = ranking.into_iter().map(|placing| placing.candidate.id);
        ids.collect()
    }
}

/// The leader equals itself: one more makes a tie.
fn is_tie(placings: &[Placing]) -> bool {
    let level = placings.iter().filter(|placing| placing.equals_leader);
    level.count() > 1
}

#[cfg(test)]
mod tests {
    use super::super::super::replay::{Recorded, rescore, resume};
    use super::super::super::run::Run;
    use super::super::super::settings::Settings;
    use super::super::super::simulation::{bench, drive, entrants, number, timed};
    use super::*;

    /// `c-00` and `c-01` are alike and fast, `c-02` is faster than the base, `c-03` is like it.
    const RATIOS: [f64; 4] = [0.70, 0.70, 0.85, 1.0];

    fn race(known: Option<Counts>) -> Race {
        let race = Race::new(Settings::default(), 1, bench(), entrants(4)).unwrap();
        match known {
            Some(known) => race.breaking_ties(known),
            None => race,
        }
    }

    fn run(race: &mut Race) -> Vec<Run> {
        drive(race, |order| {
            let cost = number(&order.side).map_or(1.0, |i| RATIOS[i]);
            // Some noise that is the same for nobody.
            let noise = (order.block * 7 + order.position * 3) % 11;
            timed(cost * (1.0 + f64::from(noise) * 2e-4))
        })
    }

    /// Each changes as many lines as its number: without counts the first would win.
    fn counts(of: [Option<f64>; 2]) -> Counts {
        let ids = ["c-00", "c-01"].map(str::to_owned);
        ids.into_iter().zip(of).collect()
    }

    fn order(race: &Race) -> Vec<String> {
        let ranking = race.report().ranking.into_iter();
        ranking.map(|placing| placing.candidate.id).collect()
    }

    /// CA-72, CA-77: only those alike are counted, and of them the one with the fewest is confirmed.
    #[test]
    fn ties_with_the_leader_are_broken_before_the_confirmation() {
        let mut race = race(Some(Counts::new()));
        run(&mut race);
        assert_eq!(race.tied(), ["c-00", "c-01"]);
        assert!(race.next_run().is_none(), "it waits");
        race.take_counts(&counts([Some(9e8), Some(8e8)]));
        assert!(race.tied().is_empty());
        let confirmation = run(&mut race);
        let series = confirmation[0].order.series.to_string();
        assert_eq!(series, "1/confirm/c-01/1", "though the other changes less");
        let report = race.report();
        assert_eq!(report.winner.as_deref(), Some("c-01"));
        assert_eq!(order(&race), ["c-01", "c-00", "c-02", "c-03"]);
        let used = |placing: &Placing| placing.instructions.is_some();
        assert_eq!(
            report.ranking.iter().map(used).collect::<Vec<_>>(),
            [true, true, false, false]
        );
    }

    /// CA-72
    #[test]
    fn counts_change_no_verdict() {
        let mut plain = race(None);
        run(&mut plain);
        assert!(plain.tied().is_empty(), "nobody asked");
        let mut broken = race(Some(counts([Some(9e8), Some(8e8)])));
        run(&mut broken);
        let verdicts = |race: &Race| -> BTreeMap<String, _> {
            let ranking = race.report().ranking.into_iter();
            ranking
                .map(|placing| (placing.candidate.id, placing.judgement))
                .collect()
        };
        assert_eq!(verdicts(&plain), verdicts(&broken));
        assert_eq!((&*order(&plain)[0], &*order(&broken)[0]), ("c-00", "c-01"));
    }

    /// CA-72: one that failed under valgrind comes after those that did not; without any count all is as without counting.
    #[test]
    fn who_cannot_be_counted_comes_after_those_who_can() {
        for (given, first) in [
            (counts([None, Some(8e8)]), "c-01"),
            (counts([Some(9e8), None]), "c-00"),
            (counts([None, None]), "c-00"),
            (Counts::new(), "c-00"),
        ] {
            let mut race = race(Some(Counts::new()));
            run(&mut race);
            race.take_counts(&given);
            run(&mut race);
            assert_eq!(order(&race)[0], first, "{given:?}");
        }
    }

    /// CA-72: one leader is no tie.
    #[test]
    fn without_a_tie_nothing_is_counted() {
        let race = Race::new(Settings::default(), 1, bench(), entrants(1)).unwrap();
        let mut race = race.breaking_ties(Counts::new());
        run(&mut race);
        assert!(race.tied().is_empty());
        assert_eq!(race.report().winner.as_deref(), Some("c-00"));
    }

    /// CA-81, CA-97: with the counts on record nothing is asked for again, and all is as it was.
    #[test]
    fn a_race_judged_again_needs_no_new_counts() {
        let given = counts([Some(9e8), Some(8e8)]);
        let mut whole = race(Some(Counts::new()));
        let mut runs = run(&mut whole);
        let raced: Recorded = runs.iter().cloned().collect();
        whole.take_counts(&given);
        runs.extend(run(&mut whole));
        let recorded: Recorded = runs.into_iter().collect();
        let again = rescore(race(Some(given.clone())), &recorded).unwrap();
        assert_eq!(again, whole.report());
        // Killed before the counts were on record, it waits for them again; with them it goes on to confirm.
        let waits = resume(race(Some(Counts::new())), &raced).unwrap();
        assert_eq!(waits.tied(), ["c-00", "c-01"]);
        let goes_on = resume(race(Some(given)), &raced).unwrap();
        let next = goes_on.next_run().unwrap().series.to_string();
        assert_eq!(next, "1/confirm/c-01/1");
        // Without a record of counts, as they were never taken.
        let without = rescore(race(Some(Counts::new())), &raced).unwrap();
        assert_eq!(without.ranking[0].candidate.id, "c-00");
    }
}
