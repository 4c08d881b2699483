//! Which queue an agent asks next: round robin by deficit and weight (CL-35). Pure: it is told what was asked and what
//! came of it.

use std::collections::BTreeMap;

use crate::answers::ListedQueue;
use crate::names::QueueName;

/// Turns of the queues that an agent serves. A queue's credit grows by its weight each round and falls by one with each
/// lease; a queue that had nothing loses its credit, so that idling saves nothing up.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    queues: BTreeMap<QueueName, Turn>,
    /// Whose turn it was last.
    last: Option<QueueName>,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    weight: u32,
    credit: u32,
    /// Had nothing when asked, in this pass over the queues.
    empty: bool,
}

impl Rounds {
    /// These are the queues now. Those known keep their credit.
    pub fn update(&mut self, listed: &[ListedQueue]) {
        let turn = |each: &ListedQueue| {
            let weight = each.weight.max(1);
            let known = self.queues.get(&each.queue).copied();
            let turn = known.unwrap_or(Turn {
                weight,
                credit: 0,
                empty: false,
            });
            (each.queue.clone(), Turn { weight, ..turn })
        };
        self.queues = listed.iter().map(turn).collect();
    }

    /// Forgets what was found empty: a hint came, or a second passed.
    pub fn wake(&mut self) {
        self.queues.values_mut().for_each(|turn| turn.empty = false);
    }

    /// The queue to ask now; none if each had nothing since the last [`Rounds::wake`].
    pub fn to_ask(&mut self) -> Option<QueueName> {
        if self.queues.values().all(|turn| turn.empty) {
            return None;
        }
        loop {
            if let Some(queue) = self.in_turn() {
                return Some(queue);
            }
            // Everybody with work has used its credit up: a new round.
            for turn in self.queues.values_mut().filter(|turn| !turn.empty) {
                turn.credit += turn.weight;
            }
        }
    }

    /// That queue gave work.
    pub fn leased(&mut self, queue: &QueueName) {
        if let Some(turn) = self.queues.get_mut(queue) {
            turn.credit = turn.credit.saturating_sub(1);
        }
    }

    /// That queue had none.
    pub fn empty(&mut self, queue: &QueueName) {
        if let Some(turn) = self.queues.get_mut(queue) {
            turn.empty = true;
            turn.credit = 0;
        }
    }

    /// That queue is gone.
    pub fn gone(&mut self, queue: &QueueName) {
        self.queues.remove(queue);
    }

    /// The next after the last, in a circle, that has work and credit.
    fn in_turn(&mut self) -> Option<QueueName> {
        let ready = |(queue, turn): (&QueueName, &Turn)| {
            (!turn.empty && turn.credit > 0).then(|| queue.clone())
        };
        let after = |queue: &QueueName| self.last.as_ref().is_none_or(|last| queue > last);
        let later = self
            .queues
            .iter()
            .filter(|(queue, _)| after(queue))
            .find_map(ready);
        let found = later.or_else(|| self.queues.iter().find_map(ready))?;
        self.last = Some(found.clone());
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> QueueName {
        QueueName::new(text).unwrap()
    }

    fn listed(queues: &[(&str, u32)]) -> Vec<ListedQueue> {
        let each = |(queue, weight): &(&str, u32)| ListedQueue {
            queue: name(queue),
            weight: *weight,
        };
        queues.iter().map(each).collect()
    }

    /// Serves backlogs until one is used up; how many leases each queue got.
    fn served(backlogs: &[(&str, u32, usize)]) -> Vec<usize> {
        let mut rounds = Rounds::default();
        rounds.update(&listed(
            &backlogs
                .iter()
                .map(|(queue, weight, _)| (*queue, *weight))
                .collect::<Vec<_>>(),
        ));
        let mut given = vec![0; backlogs.len()];
        loop {
            let queue = rounds.to_ask().unwrap();
            let at = backlogs
                .iter()
                .position(|(each, ..)| name(each) == queue)
                .unwrap();
            if given[at] == backlogs[at].2 {
                return given;
            }
            given[at] += 1;
            rounds.leased(&queue);
        }
    }

    /// CL-35, X20
    #[test]
    fn queues_of_equal_weight_share_alike_whatever_their_backlogs() {
        let given = served(&[("large", 1, 10_000), ("small", 1, 100)]);
        assert!(given[0].abs_diff(given[1]) <= 10, "{given:?}");
    }

    /// CL-35
    #[test]
    fn a_queue_gets_its_weights_share() {
        let given = served(&[("a", 3, 10_000), ("b", 1, 1_000), ("c", 2, 10_000)]);
        assert!(
            given[0].abs_diff(3 * given[1]) <= 3 && given[2].abs_diff(2 * given[1]) <= 2,
            "{given:?}"
        );
    }

    /// CL-35
    #[test]
    fn an_idle_queue_saves_nothing_up() {
        let mut rounds = Rounds::default();
        rounds.update(&listed(&[("busy", 1), ("idle", 1)]));
        for _ in 0..1_000 {
            rounds.wake();
            while let Some(queue) = rounds.to_ask() {
                if queue == name("busy") {
                    rounds.leased(&queue);
                    break;
                }
                rounds.empty(&queue);
            }
        }
        rounds.wake();
        let turns = (0..20).map(|_| {
            let queue = rounds.to_ask().unwrap();
            rounds.leased(&queue);
            queue
        });
        let idle = turns.filter(|queue| *queue == name("idle")).count();
        assert!((9..=11).contains(&idle), "{idle}");
    }

    #[test]
    fn when_all_are_empty_nobody_is_asked_until_a_wake() {
        let mut rounds = Rounds::default();
        assert_eq!(rounds.to_ask(), None);
        rounds.update(&listed(&[("a", 1), ("b", 1)]));
        rounds.empty(&name("a"));
        assert_eq!(rounds.to_ask(), Some(name("b")));
        rounds.empty(&name("b"));
        assert_eq!(rounds.to_ask(), None);
        rounds.wake();
        assert!(rounds.to_ask().is_some());
        rounds.gone(&name("a"));
        rounds.gone(&name("b"));
        assert_eq!(rounds.to_ask(), None);
    }
}
