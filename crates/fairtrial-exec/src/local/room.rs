//! How many calls run at a time where the host has too few descriptors, processes or too little memory for all slots.
//! Pure.

/// Descriptors that the engine has open whatever it runs, and those of its host.
const STANDING_DESCRIPTORS: u64 = 40;
/// With fewer not even one call can be started beside a warm interpreter.
const FEWEST_DESCRIPTORS: u64 = 24;
/// Descriptors of one call while it starts, and of the worker forked ahead for the next.
const DESCRIPTORS_PER_CALL: u64 = 12;
/// Calls that must end per slot before one more slot is tried again.
const CALLS_BEFORE_GROWTH: usize = 16;

/// Why a process that may have so many descriptors can start no call.
pub(super) fn no_room(descriptors: Option<u64>) -> Option<String> {
    let limit = descriptors.filter(|limit| *limit < FEWEST_DESCRIPTORS)?;
    Some(format!(
        "this process may have {limit} descriptors, and one call at a time takes {FEWEST_DESCRIPTORS}: raise the \
         hard limit (`ulimit -Hn`)"
    ))
}

/// The slots in use: all that are configured, unless the host has room for fewer.
#[derive(Debug)]
pub(super) struct Room {
    configured: usize,
    /// What this process's descriptors allow at best.
    most: usize,
    now: usize,
    ended: usize,
    /// It has shrunk before.
    told: bool,
}

impl Room {
    /// For so many configured slots, in a process that may have so many descriptors; `None` is without limit.
    pub(super) fn new(configured: usize, descriptors: Option<u64>) -> Self {
        let fits = descriptors.map_or(configured, |limit| {
            let calls = limit.saturating_sub(STANDING_DESCRIPTORS) / DESCRIPTORS_PER_CALL;
            usize::try_from(calls).unwrap_or(usize::MAX).max(1)
        });
        let most = configured.min(fits);
        Self {
            configured,
            most,
            now: most,
            ended: 0,
            told: false,
        }
    }

    /// Calls that may run at a time.
    pub(super) fn slots(&self) -> usize {
        self.now
    }

    /// Whether fewer slots are in use than were asked for.
    pub(super) fn is_short(&self) -> bool {
        self.now < self.configured
    }

    /// A call found no room beside `busy` others: no more than these run until calls have ended. Gives whether that
    /// is fewer than before, and for the first time.
    pub(super) fn shrink(&mut self, busy: usize) -> bool {
        let before = self.now;
        (self.now, self.ended) = (before.min(busy.max(1)), 0);
        self.now < before && !std::mem::replace(&mut self.told, true)
    }

    /// After enough calls have ended one more slot is tried.
    pub(super) fn call_ended(&mut self) {
        self.ended += 1;
        if self.now < self.most && self.ended >= CALLS_BEFORE_GROWTH * self.now {
            (self.now, self.ended) = (self.now + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-12
    #[test]
    fn few_descriptors_mean_fewer_slots_and_never_none() {
        let slots = |descriptors| Room::new(8, descriptors).slots();
        assert_eq!(slots(None), 8);
        assert_eq!(slots(Some(1024)), 8);
        assert_eq!(slots(Some(64)), 2);
        assert_eq!(slots(Some(24)), 1);
        assert_eq!(slots(Some(0)), 1);
        assert!(Room::new(8, Some(64)).is_short() && !Room::new(8, None).is_short());
        let mut room = Room::new(8, Some(64));
        for _ in 0..1000 * CALLS_BEFORE_GROWTH {
            room.call_ended();
        }
        assert_eq!(room.slots(), 2, "there will be no more descriptors");
    }

    /// FA-12
    #[test]
    fn too_few_descriptors_for_one_call_are_said_to_be_so() {
        assert_eq!(no_room(None), None);
        assert_eq!(no_room(Some(24)), None);
        let problem = no_room(Some(23)).expect("too few");
        assert!(problem.contains("23 descriptors") && problem.contains("ulimit"));
    }

    /// FA-11
    #[test]
    fn a_shortage_takes_slots_away_and_ended_calls_bring_them_back_one_by_one() {
        let mut room = Room::new(8, None);
        assert!(room.shrink(3));
        assert!(!room.shrink(5), "more ran than have room now");
        assert_eq!(room.slots(), 3);
        for _ in 0..3 * CALLS_BEFORE_GROWTH {
            assert_eq!(room.slots(), 3);
            room.call_ended();
        }
        assert_eq!(room.slots(), 4);
        assert!(!room.shrink(0), "it is told once");
        assert_eq!(room.slots(), 1);
        for _ in 0..1000 * CALLS_BEFORE_GROWTH {
            room.call_ended();
        }
        assert_eq!(room.slots(), 8);
    }
}
