//! The lock among evaluations, with others in processes of their own.

use std::sync::mpsc::channel;

use fairtrial_exec::{Holder, MachineLock};
use fairtrial_tests::{PATIENCE, Process, StandIn};
use tempfile::TempDir;
use tokio::time::timeout;

struct Place {
    dir: TempDir,
    lock: MachineLock,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lock = MachineLock::at(dir.path().join("lock"));
        Self { dir, lock }
    }

    fn file(&self) -> &str {
        self.lock.path().to_str().unwrap()
    }
}

/// CA-62
#[test]
fn processes_that_share_and_exclude_at_random_never_meet_wrongly_and_all_finish() {
    let place = Place::new();
    let log = place.dir.path().join("log");
    let start = |seed: u32| {
        let seed = (seed * 7919 + 1).to_string();
        StandIn::start(&["turns", place.file(), log.to_str().unwrap(), &seed, "200"])
    };
    let others: Vec<StandIn> = (0..4).map(start).collect();
    for other in others {
        assert!(other.end());
    }
    let (mut sharers, mut alone, mut turns) = (0_u32, 0_u32, 0);
    for line in std::fs::read_to_string(log).unwrap().lines() {
        match line {
            "+s" => (sharers, turns) = (sharers + 1, turns + 1),
            "-s" => sharers -= 1,
            "+x" => (alone, turns) = (alone + 1, turns + 1),
            "-x" => alone -= 1,
            other => panic!("`{other}` is no turn"),
        }
        assert!(
            alone <= 1 && (alone == 0 || sharers == 0),
            "{sharers} share, {alone} alone"
        );
    }
    assert_eq!((sharers, alone, turns), (0, 0, 800));
}

/// CA-42, CA-62
#[tokio::test]
async fn who_waits_is_told_of_the_holder_whose_death_frees_the_lock_though_its_children_live() {
    let place = Place::new();
    let holder = StandIn::start(&["hold", place.file(), "block 3 of topo"]);
    let said = holder.heard().expect("it has the lock");
    let child = said.strip_prefix("held ").unwrap().parse().unwrap();
    let child = Process::find(child).expect("it lives");
    let (sender, told) = channel();
    let waiting = place
        .lock
        .shared("test", move |holder| sender.send(holder).unwrap());
    let mut waiting = Box::pin(waiting);
    assert!(
        timeout(std::time::Duration::ZERO, &mut waiting)
            .await
            .is_err()
    );
    let expected = Holder {
        pid: Some(holder.pid()),
        label: Some("block 3 of topo".to_owned()),
    };
    assert_eq!(told.try_recv(), Ok(expected));
    assert!(child.is_running());
    holder.kill();
    drop(timeout(PATIENCE, waiting).await.expect("in time").unwrap());
}

/// CA-62
#[tokio::test]
async fn neither_side_starves_beside_a_crowd_of_the_other() {
    for crowd in ["shared", "exclusive"] {
        let place = Place::new();
        let crowds = [0, 1].map(|_| StandIn::start(&["crowd", place.file(), crowd]));
        for crowd in &crowds {
            assert_eq!(crowd.heard().as_deref(), Some("busy"));
        }
        for _ in 0..5 {
            let held = match crowd {
                "shared" => timeout(PATIENCE, place.lock.exclusive("alone", |_| ())).await,
                _ => timeout(PATIENCE, place.lock.shared("sharer", |_| ())).await,
            };
            drop(held.expect("in time").unwrap());
        }
        for crowd in crowds {
            assert!(crowd.end());
        }
    }
}
