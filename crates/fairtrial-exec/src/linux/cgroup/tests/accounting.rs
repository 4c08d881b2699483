//! Whose memory, whose processes, whose time.

use super::super::*;
use super::*;
use crate::linux::monotonic::now_ns;

/// SB-30, SB-34, SB-35: attributed to its own limit, with a peak that the kernel kept.
#[test]
fn who_takes_more_memory_than_allowed_is_killed_and_it_shows() {
    const LIMIT: u64 = 32 * MIB;
    let Some(mut leaves) = leaves(&[Part::Memory, Part::Processes]) else {
        return;
    };
    let leaf = leaves.take(&limits(Some(LIMIT), Some(50))).unwrap();
    let ended = run_in(&leaf, HOG).wait().unwrap();
    assert!(!ended.success());
    let counters = leaf.counters();
    say(&format!("{counters:?}"));
    assert!(counters.memory_limit_killed() && counters.oom_kill.unwrap() >= 1);
    let peak = counters.peak.unwrap();
    assert!(
        peak.bytes > LIMIT * 9 / 10 && peak.bytes <= LIMIT,
        "{}",
        peak.bytes
    );
    assert_eq!(
        peak.source.to_string(),
        Access::find().via(Part::Memory).unwrap()[..9]
    );
}

/// SB-30
#[test]
fn a_shortage_above_is_not_the_leafs_own() {
    let Some(mut leaves) = leaves(&[Part::Memory, Part::Processes]) else {
        return;
    };
    let leaf = leaves.take(&limits(Some(1024 * MIB), Some(50))).unwrap();
    let above = leaves.engine_group(Part::Memory).unwrap();
    let limit = (32 * MIB).to_string();
    let v1 = files::write(above, "memory.limit_in_bytes", &limit);
    v1.or_else(|_| files::write(above, "memory.max", &limit))
        .unwrap();
    run_in(&leaf, HOG).wait().unwrap();
    let counters = leaf.counters();
    assert!(
        counters.oom_kill.unwrap() >= 1 && !counters.memory_limit_killed(),
        "{counters:?}"
    );
}

/// SB-33
#[test]
fn refused_processes_are_counted() {
    let Some(mut leaves) = leaves(&[Part::Processes]) else {
        return;
    };
    let leaf = leaves.take(&limits(None, Some(4))).unwrap();
    let mut child = run_in(&leaf, "for i in 1 2 3 4 5 6; do sleep 100 & done; wait");
    until("a refusal", || leaf.counters().refused.unwrap() > 0);
    assert!(leaf.processes().len() <= 4);
    leaf.kill_anyhow();
    child.wait().unwrap();
    until("empty", || leaf.is_empty());
}

/// SB-29, SB-34
#[test]
fn a_leaf_used_again_counts_from_nothing() {
    let Some(mut leaves) = leaves(&[Part::Memory, Part::Processes, Part::CpuTime]) else {
        return;
    };
    let leaf = leaves.take(&limits(Some(32 * MIB), Some(3))).unwrap();
    let slot = leaf.slot();
    run_in(
        &leaf,
        &format!("{HOG}; for i in 1 2 3 4; do : & done; wait"),
    )
    .wait()
    .unwrap();
    let first = leaf.counters();
    assert!(first.oom_kill.unwrap() > 0 && first.cpu_ns.unwrap() > 0);
    until("quiet", || leaf.is_quiet());
    leaves.give_back(leaf, now_ns());
    let again = leaves.take(&limits(Some(64 * MIB), None)).unwrap();
    if again.slot() != slot {
        say("the leaf was replaced: its peak cannot be reset, or too much stayed charged to it");
    }
    let expect_nothing = |counters: Counters| {
        let nothing = [
            counters.oom,
            counters.oom_kill,
            counters.refused,
            counters.cpu_ns,
        ];
        assert_eq!(nothing, [Some(0); 4]);
        assert!(
            counters.peak.is_none_or(|peak| peak.bytes <= 2 * MIB),
            "{counters:?}"
        );
    };
    expect_nothing(again.counters());
    run_in(
        &again,
        "head -c 20000000 /dev/zero | tail -c 16000000 >/dev/null",
    )
    .wait()
    .unwrap();
    let second = again.counters();
    assert_eq!((second.oom_kill, second.refused), (Some(0), Some(0)));
    assert!(
        (15 * MIB..40 * MIB).contains(&second.peak.unwrap().bytes),
        "{second:?}"
    );
}

/// SB-34
#[test]
fn what_a_call_left_in_the_page_cache_is_not_the_next_ones() {
    let Some(mut leaves) = leaves(&[Part::Memory, Part::Processes]) else {
        return;
    };
    // On a disk: what a tmpfs holds is charged as well, but this is about caches.
    let file = tempfile::NamedTempFile::new().unwrap();
    let leaf = leaves.take(&limits(None, Some(50))).unwrap();
    let slot = leaf.slot();
    let script = format!("head -c 8000000 /dev/zero > '{}'", file.path().display());
    run_in(&leaf, &script).wait().unwrap();
    until("quiet", || leaf.is_quiet());
    let left = leaf.charged();
    leaves.give_back(leaf, now_ns());
    let next = leaves.take(&LeafLimits::default()).unwrap();
    assert_eq!(next.slot() == slot, left <= MIB, "{left} bytes were left");
    assert!(next.counters().residue_bytes.unwrap() <= MIB);
    leaves.tend(now_ns());
    assert_eq!(leaves.leaving(), 0, "the old one is gone");
}
