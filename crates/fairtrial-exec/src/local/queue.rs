//! Calls that wait, in order of submission. Pure.

use std::collections::{BTreeMap, HashMap};

use crate::dispatch::Dispatch;
use crate::event::CallId;

/// What a call needs before it can start: calls of one lane wait for the same zygote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Lane(pub(crate) u32);

/// Commands need nothing.
pub(crate) const COMMANDS: Lane = Lane(0);

/// The one queue. Ids are given in order of submission, so a call that comes back takes its old place.
#[derive(Debug)]
pub(crate) struct Queue<T = Dispatch> {
    lanes: BTreeMap<Lane, BTreeMap<CallId, T>>,
    lane_of: HashMap<CallId, Lane>,
    /// Those that run alone, one after the other.
    alone: BTreeMap<CallId, (Lane, T)>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            lanes: BTreeMap::new(),
            lane_of: HashMap::new(),
            alone: BTreeMap::new(),
        }
    }
}

impl<T> Queue<T> {
    pub(crate) fn push(&mut self, lane: Lane, id: CallId, call: T) {
        self.lanes.entry(lane).or_default().insert(id, call);
        self.lane_of.insert(id, lane);
    }

    /// A call that is to run alone.
    pub(crate) fn push_alone(&mut self, lane: Lane, id: CallId, call: T) {
        self.alone.insert(id, (lane, call));
    }

    /// The oldest call that is to run alone, if its lane can start one.
    pub(crate) fn pop_alone(&mut self, can_start: impl Fn(Lane) -> bool) -> Option<(Lane, T)> {
        let first = self.alone.first_entry()?;
        can_start(first.get().0).then(|| first.remove())
    }

    /// The call that `pop_alone` would give.
    pub(crate) fn peek_alone(&self) -> Option<&T> {
        self.alone.first_key_value().map(|(_, (_, call))| call)
    }

    /// Whether some are to run alone.
    pub(crate) fn has_alone(&self) -> bool {
        !self.alone.is_empty()
    }

    /// The oldest call among the lanes that can start one.
    pub(crate) fn pop(&mut self, can_start: impl Fn(Lane) -> bool) -> Option<(Lane, T)> {
        let heads = self
            .lanes
            .iter()
            .filter_map(|(lane, calls)| Some((*calls.first_key_value()?.0, *lane)));
        let (id, lane) = heads.filter(|(_, lane)| can_start(*lane)).min()?;
        Some((lane, self.remove(id)?))
    }

    /// The oldest call of a lane, if it is one that `goes`.
    pub(crate) fn pop_if(&mut self, lane: Lane, goes: impl Fn(&T) -> bool) -> Option<T> {
        let (id, call) = self.lanes.get(&lane)?.first_key_value()?;
        let id = *id;
        if goes(call) { self.remove(id) } else { None }
    }

    /// Takes a call out, wherever it stands.
    pub(crate) fn remove(&mut self, id: CallId) -> Option<T> {
        if let Some((_, call)) = self.alone.remove(&id) {
            return Some(call);
        }
        let lane = self.lane_of.remove(&id)?;
        let calls = self.lanes.get_mut(&lane)?;
        let call = calls.remove(&id);
        if calls.is_empty() {
            self.lanes.remove(&lane);
        }
        call
    }

    /// Takes out all calls of a lane.
    pub(crate) fn drain(&mut self, lane: Lane) -> Vec<T> {
        let calls = self.lanes.remove(&lane).unwrap_or_default();
        let calls = calls.into_iter();
        let mut calls: Vec<T> = calls
            .map(|(id, call)| (self.lane_of.remove(&id), call).1)
            .collect();
        let alone = std::mem::take(&mut self.alone);
        let (of_lane, others) = alone.into_iter().partition(|(_, (of, _))| *of == lane);
        self.alone = others;
        let of_lane: BTreeMap<CallId, (Lane, T)> = of_lane;
        calls.extend(of_lane.into_values().map(|(_, call)| call));
        calls
    }

    /// Takes out everything.
    pub(crate) fn drain_all(&mut self) -> Vec<T> {
        self.lane_of.clear();
        let alone = std::mem::take(&mut self.alone).into_values();
        std::mem::take(&mut self.lanes)
            .into_values()
            .flat_map(BTreeMap::into_values)
            .chain(alone.map(|(_, call)| call))
            .collect()
    }

    /// Lanes with calls waiting, the one with the oldest call first.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let heads = self
            .lanes
            .iter()
            .filter_map(|(lane, calls)| Some((*calls.first_key_value()?.0, *lane)));
        let alone = self.alone.first_key_value();
        let mut heads: Vec<_> = heads
            .chain(alone.map(|(id, (lane, _))| (*id, *lane)))
            .collect();
        heads.sort_unstable();
        let mut lanes: Vec<Lane> = Vec::with_capacity(heads.len());
        for (_, lane) in heads {
            if !lanes.contains(&lane) {
                lanes.push(lane);
            }
        }
        lanes
    }

    pub(crate) fn has(&self, lane: Lane) -> bool {
        self.lanes.contains_key(&lane) || self.alone.values().any(|(of, _)| *of == lane)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.alone.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(calls: &[(u32, u64)]) -> Queue<u64> {
        let mut queue = Queue::default();
        calls
            .iter()
            .for_each(|(lane, id)| queue.push(Lane(*lane), CallId(*id), *id));
        queue
    }

    /// EX-29
    #[test]
    fn the_oldest_that_can_start_starts() {
        let mut queue = queue(&[(1, 1), (2, 2), (1, 3), (2, 4)]);
        assert_eq!(queue.pop(|lane| lane == Lane(2)), Some((Lane(2), 2)));
        assert_eq!(queue.pop(|_| true), Some((Lane(1), 1)));
        assert_eq!(queue.pop(|_| false), None);
        assert_eq!(queue.pop(|_| true), Some((Lane(1), 3)));
    }

    /// EX-28
    #[test]
    fn a_call_that_comes_back_takes_its_old_place() {
        let mut queue = queue(&[(1, 1), (1, 2)]);
        let (lane, id) = queue.pop(|_| true).unwrap();
        queue.push(lane, CallId(id), id);
        assert_eq!(queue.pop(|_| true), Some((Lane(1), 1)));
    }

    /// FA-15
    #[test]
    fn what_runs_alone_waits_apart_and_is_found_like_the_rest() {
        let mut queue = queue(&[(1, 1), (2, 4)]);
        queue.push_alone(Lane(2), CallId(3), 3);
        queue.push_alone(Lane(1), CallId(2), 2);
        assert_eq!(queue.pop_alone(|lane| lane == Lane(2)), None); // in order
        assert_eq!(queue.pop(|_| true), Some((Lane(1), 1)));
        assert_eq!(queue.lanes(), [Lane(1), Lane(2)]);
        assert_eq!(queue.pop_alone(|_| true), Some((Lane(1), 2)));
        assert!(queue.has_alone() && !queue.has(Lane(1)));
        assert_eq!(queue.drain(Lane(2)), [4, 3]);
        queue.push_alone(Lane(2), CallId(5), 5);
        assert!(!queue.is_empty());
        assert_eq!(queue.remove(CallId(5)), Some(5));
        queue.push_alone(Lane(2), CallId(6), 6);
        assert_eq!(queue.drain_all(), [6]);
        assert!(queue.is_empty() && !queue.has_alone());
    }

    #[test]
    fn what_is_taken_out_is_gone() {
        let mut queue = queue(&[(1, 1), (2, 2), (1, 3)]);
        assert_eq!(queue.remove(CallId(2)), Some(2));
        assert_eq!(queue.remove(CallId(2)), None);
        assert_eq!(queue.drain(Lane(1)), [1, 3]);
        assert!(queue.is_empty() && !queue.has(Lane(1)));
    }
}
