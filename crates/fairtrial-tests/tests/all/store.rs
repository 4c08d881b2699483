//! Snapshots and workspaces of several engines, some of which are killed.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

use fairtrial_exec::{Keep, Store};
use fairtrial_tests::StandIn;

fn entries(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

/// CA-42, CA-43
#[test]
fn engines_killed_at_random_lose_nobody_elses_workspace_and_leave_nothing_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, tree) = (dir.path().join("cache"), dir.path().join("tree"));
    for n in 0..40 {
        let file = tree.join(format!("dir{}/file{n}", n % 5));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("text {n}")).unwrap();
    }
    let part = ["keep", cache.to_str().unwrap(), tree.to_str().unwrap()];
    let chance = RandomState::new();
    for round in 0..50_u32 {
        let killed = StandIn::start(&part);
        let other = StandIn::start(&part);
        for _ in 0..chance.hash_one(round) % 3 {
            assert!(killed.heard().is_some(), "round {round}");
        }
        killed.kill();
        // What it did while the other was killed, and one round that began afterwards.
        let done =
            |line: Option<String>| line.and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let first: u32 = done(other.heard()).expect("it lives");
        while done(other.heard()).expect("it lives") < first + 2 {}
        assert!(other.end(), "round {round}");
    }
    let store = Store::at(&cache);
    for orphan in store.orphans().unwrap() {
        orphan.remove().unwrap();
    }
    let none = Keep {
        count: 0,
        age: Duration::ZERO,
    };
    store.sweep(none).unwrap();
    assert_eq!(entries(&cache.join("snapshots")), [""; 0]);
    assert_eq!(entries(&cache.join("workspaces")), [""; 0]);
}
