//! Which queue an agent asks next (CL-35): each has passed as far as it was served, by its weight; who has passed least
//! is asked first. Pure.

use std::collections::BTreeMap;

use crate::answers::ListedQueue;
use crate::names::QueueName;

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
}

impl Rounds {
    /// The queues there are now.
    pub(super) fn know(&mut self, queues: &[ListedQueue]) {
        self.queues
            .retain(|name, _| queues.iter().any(|queue| queue.queue == *name));
        for queue in queues {
            let passed = self.now;
            let turn = self.queues.entry(queue.queue.clone());
            turn.or_insert(Turn { weight: 1, passed }).weight = queue.weight.max(1);
        }
    }

    /// Whether it is one of them.
    pub(super) fn knows(&self, queue: &QueueName) -> bool {
        self.queues.contains_key(queue)
    }

    /// In the order in which they are to be asked.
    pub(super) fn order(&self) -> Vec<QueueName> {
        let mut queues: Vec<_> = self.queues.iter().collect();
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

    /// Serves `turns` times whoever is first in line and has work.
    fn serve(
        rounds: &mut Rounds,
        backlog: &mut BTreeMap<&str, u32>,
        turns: u32,
    ) -> BTreeMap<String, u32> {
        let mut served = BTreeMap::new();
        for _ in 0..turns {
            let first = rounds
                .order()
                .into_iter()
                .find(|queue| backlog[queue.as_str()] > 0);
            let Some(queue) = first else { break };
            *backlog.get_mut(queue.as_str()).unwrap() -= 1;
            rounds.served(&queue);
            *served.entry(queue.as_str().to_owned()).or_default() += 1;
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
}
