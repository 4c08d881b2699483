//! Files of v2 in a plain directory.

use super::super::*;
use super::*;

/// SB-33, SB-34: a v2 leaf as the kernel's documentation has it, since v1 holds the controllers here.
#[test]
fn a_v2_leaf_writes_and_reads_v2_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
    for empty in [
        "cgroup.kill",
        "cgroup.procs",
        "memory.max",
        "memory.swap.max",
        "memory.oom.group",
    ] {
        write(empty, "");
    }
    write("pids.max", "");
    write("cgroup.events", "populated 1\nfrozen 0\n");
    write(
        "memory.events",
        "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 1\n",
    );
    write("memory.current", "0\n");
    write("memory.peak", "33554432\n");
    write(
        "memory.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0 total=1\n",
    );
    write("pids.events", "max 4\n");
    write("pids.current", "1\n");
    write(
        "cpu.stat",
        "usage_usec 70\nuser_usec 60\nsystem_usec 10\nnr_throttled 0\nthrottled_usec 0\n",
    );
    write("cpu.stat.local", "throttled_usec 9\n");
    let handle = std::fs::File::open(dir.path()).unwrap();
    let mut leaf = Leaf::open(3, vec![(Version::V2, handle.into(), &Part::ALL)]).unwrap();
    leaf.set_limits(&limits(Some(MIB), Some(12))).unwrap();
    assert_eq!(
        (read("memory.max"), read("memory.swap.max")),
        ("1048576".into(), "0".into())
    );
    assert_eq!(
        (read("memory.oom.group"), read("pids.max")),
        ("1".into(), "12".into())
    );
    let counters = leaf.counters();
    let expected = Counters {
        oom: Some(2),
        oom_kill: Some(1),
        refused: Some(4),
        peak: Some(Peak {
            bytes: 32 * MIB,
            source: Version::V2,
        }),
        residue_bytes: Some(0),
        cpu_ns: Some(70_000),
        throttled_ns: Some(9_000),
        memory_stall_ns: Some(5_000),
    };
    assert_eq!(counters, expected);
    assert!(!leaf.is_empty() && leaf.kill());
    assert_eq!(read("cgroup.kill"), "1");
    assert_eq!(leaf.joins(false).len(), 1);
    // What this kernel says oddly, or no more, is not measured, and no reason to panic.
    for odd in [
        "memory.events",
        "memory.peak",
        "pids.events",
        "cpu.stat",
        "memory.pressure",
        "cgroup.events",
    ] {
        write(odd, "\u{0}nonsense \n\n-1 oom\noom\n");
    }
    std::fs::remove_file(dir.path().join("cpu.stat.local")).unwrap();
    let odd = leaf.counters();
    assert_eq!(
        (odd.oom, odd.peak, odd.refused, odd.cpu_ns),
        (None, None, None, None)
    );
    assert!(!leaf.is_empty());
}
