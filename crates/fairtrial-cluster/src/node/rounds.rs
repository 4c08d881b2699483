//! Which queue an agent asks next (CL-35): each has passed as far as it was served, by its weight; who has passed least
//! is asked first. A queue that had nothing rests, unless something is heard of it: those that are idle or closed, and
//! there may be many, cost those that have work nothing. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::answers::ListedQueue;
use crate::names::QueueName;

/// A queue that had nothing is not asked for so long: less than an idle slot waits between two questions (CL-18).
const REST: Duration = Duration::from_millis(400);

/// Queues in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    queues: BTreeMap<QueueName, Turn>,
    /// How far the one served last had passed: who comes anew, or had nothing for a while, begins there.
    now: f64,
}

#[derive(Debug)]
struct Turn {
    weight: u32,
    passed: f64,
    /// Since when it is known to have nothing.
    empty: Option<Instant>,
    /// When it was last heard that it may have something.
    heard: Option<Instant>,
}

impl Turn {
    fn rests(&self, at: Instant) -> bool {
        self.empty.is_some_and(|since| at < since + REST)
    }
}

impl Rounds {
    /// The queues there are now.
    pub(super) fn know(&mut self, queues: &[ListedQueue]) {
        self.queues
            .retain(|name, _| queues.iter().any(|queue| queue.queue == *name));
        for queue in queues {
            let turn = self.queues.entry(queue.queue.clone()).or_insert(Turn {
                weight: 1,
                passed: self.now,
                empty: None,
                heard: None,
            });
            turn.weight = queue.weight.max(1);
        }
    }

    /// Whether it is one of them.
    pub(super) fn knows(&self, queue: &QueueName) -> bool {
        self.queues.contains_key(queue)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// In the order in which they are to be asked, those left out that rest.
    pub(super) fn order(&self, at: Instant) -> Vec<QueueName> {
        let awake = self.queues.iter().filter(|(_, turn)| !turn.rests(at));
        let mut queues: Vec<_> = awake.collect();
        queues.sort_by(|(_, one), (_, two)| one.passed.total_cmp(&two.passed));
        queues.into_iter().map(|(name, _)| name.clone()).collect()
    }

    /// It had work.
    pub(super) fn served(&mut self, queue: &QueueName) {
        if let Some(turn) = self.queues.get_mut(queue) {
            // What it did not use while it was empty is not made up for later.
            let from = turn.passed.max(self.now);
            self.now = from;
            turn.passed = from + 1.0 / f64::from(turn.weight);
            turn.empty = None;
        }
    }

    /// It had none when it was asked. What was heard since then may have come after its answer.
    pub(super) fn had_nothing(&mut self, queue: &QueueName, asked: Instant) {
        if let Some(turn) = self.queues.get_mut(queue)
            && turn.heard.is_none_or(|heard| heard < asked)
        {
            turn.empty = Some(asked);
        }
    }

    /// It may have some.
    pub(super) fn may_have(&mut self, queue: &QueueName, heard: Instant) {
        if let Some(turn) = self.queues.get_mut(queue) {
            (turn.empty, turn.heard) = (None, Some(heard));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(queues: &[(&str, u32)]) -> Vec<ListedQueue> {
        let listed = queues.iter().map(|(name, weight)| ListedQueue {
            queue: QueueName::new(*name).unwrap(),
            weight: *weight,
        });
        listed.collect()
    }

    /// Serves `turns` times whoever is first in line and has work; whoever was asked, and whether it had work.
    fn ask(
        rounds: &mut Rounds,
        backlog: &mut BTreeMap<&str, u32>,
        turns: u32,
        at: Instant,
    ) -> Vec<(String, bool)> {
        let mut asked = Vec::new();
        for _ in 0..turns {
            for queue in rounds.order(at) {
                let left = backlog.get_mut(queue.as_str()).unwrap();
                asked.push((queue.as_str().to_owned(), *left > 0));
                if *left > 0 {
                    *left -= 1;
                    rounds.served(&queue);
                    break;
                }
                rounds.had_nothing(&queue, at);
            }
        }
        asked
    }

    fn serve(
        rounds: &mut Rounds,
        backlog: &mut BTreeMap<&str, u32>,
        turns: u32,
    ) -> BTreeMap<String, u32> {
        let mut served = BTreeMap::new();
        for (queue, had_work) in ask(rounds, backlog, turns, Instant::now()) {
            *served.entry(queue).or_default() += u32::from(had_work);
        }
        served
    }

    /// CL-35
    #[test]
    fn equal_queues_share_equally_whatever_their_backlogs() {
        let mut rounds = Rounds::default();
        rounds.know(&listed(&[("long", 1), ("short", 1)]));
        let mut backlog = BTreeMap::from([("long", 10_000), ("short", 100)]);
        let served = serve(&mut rounds, &mut backlog, 200);
        assert_eq!((served["long"], served["short"]), (100, 100));
    }

    /// CL-35
    #[test]
    fn weights_are_shares_and_a_late_queue_does_not_make_up_for_the_past() {
        let mut rounds = Rounds::default();
        rounds.know(&listed(&[("heavy", 3), ("light", 1)]));
        let mut backlog = BTreeMap::from([("heavy", 10_000), ("late", 10_000), ("light", 10_000)]);
        let served = serve(&mut rounds, &mut backlog, 400);
        assert!(served["heavy"].abs_diff(300) <= 1, "{served:?}");
        rounds.know(&listed(&[("heavy", 3), ("late", 4), ("light", 1)]));
        let served = serve(&mut rounds, &mut backlog, 800);
        assert!(served["late"].abs_diff(400) <= 2, "{served:?}");
        assert!(served["light"].abs_diff(100) <= 2, "{served:?}");
    }

    /// CL-18, CL-35: idle queues are asked every so often, not before each call of another.
    #[test]
    fn queues_without_work_cost_the_others_nothing() {
        let mut rounds = Rounds::default();
        rounds.know(&listed(&[("busy", 1), ("idle", 1), ("over", 100)]));
        let mut backlog = BTreeMap::from([("busy", 10_000), ("idle", 0), ("over", 0)]);
        let begin = Instant::now();
        let asked = ask(&mut rounds, &mut backlog, 1_000, begin);
        assert_eq!(asked.len(), 1_002, "each of the others once");
        let asked = ask(&mut rounds, &mut backlog, 1_000, begin + REST);
        assert_eq!(asked.len(), 1_002, "and once more");
    }

    /// CL-18: a hint may be quicker than the answer that there was nothing before.
    #[test]
    fn a_queue_that_something_is_heard_of_does_not_rest() {
        let mut rounds = Rounds::default();
        rounds.know(&listed(&[("q", 1)]));
        let queue = QueueName::new("q").unwrap();
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        rounds.had_nothing(&queue, begin);
        assert_eq!(rounds.order(after(1)), []);
        rounds.may_have(&queue, after(2));
        assert_eq!(rounds.order(after(2)), std::slice::from_ref(&queue));
        rounds.had_nothing(&queue, after(1));
        assert_eq!(rounds.order(after(3)), std::slice::from_ref(&queue));
        rounds.had_nothing(&queue, after(3));
        assert_eq!(rounds.order(after(4)), []);
    }
}
