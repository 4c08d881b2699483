//! Any bytes at every door that a stranger's bytes come in by: what `cargo fuzz` would do, bounded, on stable Rust.
//!
//! Each door is shown what once broke it or was made to (`testdata/strangers/DOOR/`), then valid messages with a few
//! changes. It must not panic, must not allocate on the word of a length, and what it accepts must mean the same when
//! it is written again. An input that fails is kept beside the others, and the message names its seed.
//!
//! `FAIRTRIAL_FUZZ_ROUNDS` says how many changed messages each door is shown; `FAIRTRIAL_FUZZ_SEED` which come first.

mod attack;
mod chance;
mod launcher;
mod seeds;
mod values;
mod workers;

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What the thread that runs the tests may take meanwhile.
const OTHERS: usize = 4 << 10;

/// What `act` gives, if it never held more than `bound` bytes more than there were.
fn measured<T>(bound: usize, act: impl FnOnce() -> T) -> T {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = act();
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(peak <= bound + OTHERS, "{peak} bytes held, {bound} allowed");
    result
}
