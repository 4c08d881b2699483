//! Waiting with open eyes, for a moment: a thread that sleeps lets its processor sleep too, and to wake both can cost as
//! much as a short call.
//!
//! Whoever else wants the processor gets it at each look. If that takes long, or the answer does, looking is no use just
//! now, and nobody looks for a while.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an answer is looked for.
const LOOK: Duration = Duration::from_micros(200);
/// How long nobody looks after it was in vain.
const REST: Duration = Duration::from_millis(5);

static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Nanoseconds after `ZERO`.
static RESTS_UNTIL: AtomicU64 = AtomicU64::new(0);
/// One thread is enough: more would take the processor from each other.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether `ready` holds soon. False says nothing.
pub(crate) fn comes_soon(mut ready: impl FnMut() -> bool) -> bool {
    let begun = ZERO.elapsed();
    if begun < Duration::from_nanos(RESTS_UNTIL.load(Ordering::Relaxed))
        || TAKEN.swap(true, Ordering::Acquire)
    {
        return false;
    }
    let found = loop {
        if ready() {
            break true;
        }
        if ZERO.elapsed() - begun > LOOK {
            break false;
        }
        std::thread::yield_now();
    };
    TAKEN.store(false, Ordering::Release);
    let now = ZERO.elapsed();
    if now - begun > LOOK {
        let until = u64::try_from((now + REST).as_nanos()).unwrap_or(u64::MAX);
        RESTS_UNTIL.store(until, Ordering::Relaxed);
    }
    found
}
