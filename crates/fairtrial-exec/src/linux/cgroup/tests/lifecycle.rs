//! Leaves lent, killed, taken back, removed.

use std::os::fd::AsRawFd;
use std::process::Child;
use std::time::Instant;

use super::super::*;
use super::*;
use crate::linux::monotonic::now_ns;

/// SB-29
#[test]
fn limits_are_set_raised_lowered_and_lifted() {
    let Some(mut leaves) = leaves(&[Part::Memory, Part::Processes]) else {
        return;
    };
    let mut leaf = leaves.take(&limits(Some(64 * MIB), Some(7))).unwrap();
    let read = |leaf: &Leaf| {
        let file = ["memory.limit_in_bytes", "memory.max"]
            .into_iter()
            .find_map(|file| leaf.text(file));
        (file.unwrap(), leaf.text("pids.max").unwrap())
    };
    let unlimited = ["max".to_owned(), "9223372036854771712".to_owned()];
    assert_eq!(read(&leaf), ((64 * MIB).to_string(), "7".into()));
    for (memory, processes) in [
        (Some(128), None),
        (Some(32), Some(3)),
        (None, Some(3)),
        (Some(16), Some(9)),
    ] {
        leaf.set_limits(&limits(memory.map(|mib| mib * MIB), processes))
            .unwrap();
        let (set, most) = read(&leaf);
        match memory {
            Some(mib) => assert_eq!(set, (mib * MIB).to_string()),
            None => assert!(unlimited.contains(&set), "{set}"),
        }
        assert_eq!(
            most,
            processes.map_or("max".into(), |most: u64| most.to_string())
        );
        if let (Some(mib), Some(swap)) = (memory, leaf.text("memory.memsw.limit_in_bytes")) {
            let slack = swap.parse::<u64>().unwrap() - mib * MIB;
            assert!(slack <= MIB, "{slack}");
        }
    }
    leaves.give_back(leaf, now_ns());
    let again = leaves.take(&LeafLimits::default()).unwrap();
    assert!(unlimited.contains(&read(&again).0));
    assert_eq!((again.slot(), read(&again).1), (0, "max".into()));
}

/// SB-78: in sessions of their own, and by both means.
#[test]
fn a_leaf_of_many_processes_is_emptied_at_once() {
    let found = Access::find();
    for access in [Access::forced(found.kind(), &[Part::Kill]), found] {
        let Some(mut leaves) = leaves_by(&access, &[Part::Processes]) else {
            return;
        };
        let leaf = leaves.take(&limits(None, Some(300))).unwrap();
        let mut child = run_in(
            &leaf,
            "for i in $(seq 200); do setsid sleep 1000 & done; wait",
        );
        until("all are there", || leaf.processes().len() == 201);
        let began = Instant::now();
        let at_once = leaf.kill();
        assert_eq!(at_once, access.via(Part::Kill).is_ok());
        until("empty", || {
            if !at_once {
                leaf.kill_anyhow();
            }
            leaf.is_empty()
        });
        say(&format!(
            "201 processes gone after {:?} (at once: {at_once})",
            began.elapsed()
        ));
        child.wait().unwrap();
        assert!(leaf.processes().is_empty());
    }
}

/// SB-29
#[test]
fn a_leaf_given_back_with_somebody_inside_is_lent_again_when_it_is_quiet() {
    let Some(mut leaves) = leaves(&[Part::Processes]) else {
        return;
    };
    let leaf = leaves.take(&limits(None, Some(9))).unwrap();
    let (slot, mut child) = (leaf.slot(), run_in(&leaf, "exec sleep 100"));
    leaves.give_back(leaf, 0);
    leaves.tend(1);
    assert_eq!(
        leaves.leaving(),
        1,
        "a zombie at best, for we are its parent"
    );
    child.wait().unwrap(); // killed, or this would take long
    leaves.tend(2);
    assert_eq!(leaves.leaving(), 0);
    let again = leaves.take(&LeafLimits::default()).unwrap();
    assert_eq!(again.slot() == slot, again.can_be_reused());
    assert_eq!(again.counters().refused, Some(0));
}

/// SB-29: retried for a second.
#[test]
fn a_leaf_that_stays_busy_is_not_lent_again_and_goes_at_the_end() {
    let Some(mut leaves) = leaves(&[Part::Processes]) else {
        return;
    };
    let leaf = leaves.take(&limits(None, Some(9))).unwrap();
    let (slot, mut zombie) = (leaf.slot(), run_in(&leaf, "exit 0"));
    until("it has ended", || leaf.is_empty());
    let joins = leaf.joins(false).into_iter();
    let joins: Vec<_> = joins.map(|fd| fd.try_clone_to_owned().unwrap()).collect();
    leaves.give_back(leaf, 0);
    // Somebody comes who was not there to be killed: as if he could not be.
    let mut late = run(
        joins.iter().map(AsRawFd::as_raw_fd).collect(),
        "exec sleep 100",
    );
    zombie.wait().unwrap();
    leaves.tend(owner::PATIENCE_NS);
    assert_eq!(leaves.leaving(), 0);
    let next = leaves.take(&LeafLimits::default()).unwrap();
    assert_ne!(next.slot(), slot);
    leaves.end().unwrap();
    late.wait().unwrap();
}

/// A process that stands for an engine; what it leaves goes even when the test fails.
struct Engine<'a> {
    process: Child,
    access: &'a Access,
}

impl Engine<'_> {
    fn die(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        self.die();
        sweep_dead_owners(self.access).unwrap();
    }
}

/// SB-11, SB-12: by the next engine, or by the one that outlives its launcher.
#[test]
fn what_a_dead_engine_left_is_killed_and_removed() {
    let access = Access::find();
    if leaves_by(&access, &[Part::Processes]).is_none() {
        return;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a test needs an engine that ends"
    )]
    let process = std::process::Command::new("sleep").arg("100").spawn();
    let mut engine = Engine {
        process: process.unwrap(),
        access: &access,
    };
    let dead = EngineName::new(engine.process.id(), 0).unwrap();
    let mut left = Leaves::new(&access, &dead).unwrap();
    let leaf = left.take(&limits(None, Some(9))).unwrap();
    let mut orphan = run_in(&leaf, "setsid sleep 100 & sleep 100");
    std::mem::forget(left); // its launcher is gone, too
    assert!(Leaves::new(&access, &dead).is_err(), "it is there");
    sweep_dead_owners(&access).unwrap();
    assert!(!leaf.is_empty(), "a living engine's is left alone");
    engine.die();
    assert!(sweep_dead_owners(&access).unwrap() >= 1);
    orphan.wait().unwrap();
    assert!(!leaf.kill(), "its directory is gone");
}

/// SB-22
#[test]
fn cgroups_made_inside_a_leaf_go_with_it() {
    let found = Access::find();
    for access in [Access::forced(found.kind(), &[Part::Kill]), found] {
        let Some(mut leaves) = leaves_by(&access, &[Part::Processes]) else {
            return;
        };
        let leaf = leaves.take(&limits(None, Some(9))).unwrap();
        let mut child = run_in(&leaf, "read x");
        let dirs = access
            .hierarchies()
            .iter()
            .map(|hierarchy| hierarchy.parts.as_slice());
        for part in dirs.filter_map(<[Part]>::first) {
            let engine = leaves.engine_group(*part).unwrap();
            let leaf_dir = group::open(engine, &*leaf.slot().to_string()).unwrap();
            let inner = group::make(group::make(&leaf_dir, "a").unwrap(), "b").unwrap();
            files::write(&inner, "cgroup.procs", &child.id().to_string()).unwrap();
        }
        assert_eq!(
            leaf.is_empty(),
            access.via(Part::Kill).is_err(),
            "v2 tells of those below, too"
        );
        leaves.end().unwrap();
        child.wait().unwrap();
    }
}
