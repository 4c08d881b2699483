//! What of the machine bears on a measured run, and what can be done about it: read and set from outside (CA-71 to CA-73).
//!
//! Which runs count as disturbed is decided by whoever measures.

mod counters;
mod pinning;
mod surroundings;

pub use counters::{Count, NoCounters, probe_counters};
pub(crate) use pinning::for_calls;
pub use pinning::{KeptOff, Pin, Pinning, UnusableCpu, Usable, WhyNotPinned, keep_off};
pub use surroundings::{Disturbance, Reading, Surroundings};
