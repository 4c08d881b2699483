//! The clock that engine and launcher share: deadlines and ends travel between them as its readings.

/// `CLOCK_MONOTONIC`: stands still while the machine is suspended, knows nothing of the wall clock (EX-53).
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
