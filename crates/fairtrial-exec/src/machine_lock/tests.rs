use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::linux::record_lock;
use crate::linux::record_lock::forked::{ended_well, in_child};

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn place() -> (TempDir, MachineLock) {
    let dir = tempfile::tempdir().unwrap();
    let lock = MachineLock::at(dir.path().join("lock"));
    (dir, lock)
}

/// Whether a future gets what it waits for before anything else can happen.
async fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// CA-62
#[tokio::test]
async fn sharers_go_together_and_the_exclusive_alone() {
    let (_dir, lock) = place();
    let first = lock
        .shared("a", |_| panic!("nobody is there"))
        .await
        .unwrap();
    let second = lock
        .shared("b", |_| panic!("it can be shared"))
        .await
        .unwrap();
    let mut told = None;
    assert!(
        at_once(lock.exclusive("c", |holder| told = Some(holder)))
            .await
            .is_none()
    );
    assert_eq!(told.unwrap().pid, Some(std::process::id()));
    drop(first);
    assert!(at_once(lock.exclusive("c", |_| ())).await.is_none());
    drop(second);
    let alone = lock
        .exclusive("c", |_| panic!("all are gone"))
        .await
        .unwrap();
    assert!(at_once(lock.shared("d", |_| ())).await.is_none());
    drop(alone);
    lock.shared("d", |_| panic!("it is gone"))
        .await
        .map(drop)
        .unwrap();
}

/// CA-62
#[tokio::test]
async fn who_waits_to_be_alone_is_not_overtaken_by_sharers() {
    let (_dir, lock) = place();
    let sharer = lock.shared("a", |_| ()).await.unwrap();
    let mut alone = Box::pin(lock.exclusive("b", |_| ()));
    assert!(at_once(&mut alone).await.is_none());
    let mut late = Box::pin(lock.shared("c", |_| ()));
    assert!(at_once(&mut late).await.is_none(), "it comes after");
    drop(sharer);
    let alone = timeout(PATIENCE, alone).await.unwrap().unwrap();
    assert!(at_once(&mut late).await.is_none());
    drop(alone);
    drop(timeout(PATIENCE, late).await.unwrap().unwrap());
}

/// CL-37
#[tokio::test]
async fn who_has_it_can_see_that_somebody_waits() {
    let (_dir, lock) = place();
    let first = lock.shared("a", |_| ()).await.unwrap();
    let second = lock.shared("b", |_| ()).await.unwrap();
    assert!(!first.is_wanted() && !second.is_wanted());
    let mut alone = Box::pin(lock.exclusive("c", |_| ()));
    assert!(at_once(&mut alone).await.is_none());
    assert!(first.is_wanted() && second.is_wanted());
    drop((first, second));
    let alone = timeout(PATIENCE, alone).await.unwrap().unwrap();
    assert!(!alone.is_wanted());
    let mut late = Box::pin(lock.shared("d", |_| ()));
    assert!(at_once(&mut late).await.is_none());
    assert!(alone.is_wanted());
    drop(late);
    assert!(!alone.is_wanted(), "it gave up");
}

/// CL-37, CL-77: sharers of two processes may be at the turnstile at the same time, and none is in another's way.
#[tokio::test]
async fn sharers_of_other_processes_are_not_waited_for() {
    let (_dir, lock) = place();
    lock.check().unwrap();
    let (told, tell) = rustix::pipe::pipe().unwrap();
    let (wait, end) = rustix::pipe::pipe().unwrap();
    let mut options = fs::File::options();
    let file = options.read(true).write(true).open(lock.path()).unwrap();
    let passing = in_child(|| {
        let passes = [file::TURNSTILE, file::LOCK]
            .map(|byte| record_lock::try_lock(&file, byte, Kind::Shared).is_ok_and(|had| had));
        let word = rustix::io::write(&tell, if passes == [true; 2] { b"y" } else { b"n" });
        rustix::io::read(&wait, &mut [0_u8; 1]).is_ok() && word.is_ok()
    });
    let mut word = [0];
    rustix::io::read(&told, &mut word).unwrap();
    assert_eq!(&word, b"y");
    let held = at_once(lock.shared("b", |_| panic!("it is in nobody's way"))).await;
    let held = held.expect("at once").unwrap();
    assert!(!held.is_wanted(), "the other wants to share it, too");
    drop(held);
    let alone = at_once(lock.exclusive("c", |_| ())).await;
    assert!(alone.is_none(), "who wants to be alone waits");
    rustix::io::write(&end, b".").unwrap();
    assert!(ended_well(passing));
    let alone = timeout(PATIENCE, lock.exclusive("c", |_| ())).await;
    drop(alone.expect("the other is gone").unwrap());
}

/// CA-41, CA-62
#[tokio::test]
async fn who_gives_up_waiting_is_in_nobodys_way() {
    let (_dir, lock) = place();
    let sharer = lock.shared("a", |_| ()).await.unwrap();
    for _ in 0..50 {
        let mut alone = Box::pin(lock.exclusive("b", |_| ()));
        assert!(at_once(&mut alone).await.is_none());
        drop(alone);
        drop(
            lock.shared("c", |_| panic!("nobody waits any more"))
                .await
                .unwrap(),
        );
    }
    drop(sharer);
}

/// CA-62
#[tokio::test]
async fn a_file_that_is_removed_or_is_not_one_does_no_harm() {
    let (dir, lock) = place();
    let before = lock.exclusive("a", |_| ()).await.unwrap();
    fs::remove_file(lock.path()).unwrap();
    drop(lock.shared("b", |_| ()).await.unwrap());
    drop(before);
    let mode = fs::metadata(lock.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o666, "every user may open it");
    let target = dir.path().join("mine");
    fs::write(&target, "text").unwrap();
    let link = dir.path().join("link");
    symlink(&target, &link).unwrap();
    let hard = dir.path().join("hard");
    fs::hard_link(&target, &hard).unwrap();
    for path in [
        link,
        hard,
        dir.path().to_owned(),
        dir.path().join("no/lock"),
    ] {
        let error = MachineLock::at(&path)
            .shared("x", |_| ())
            .await
            .unwrap_err();
        let error = error.to_string();
        assert!(error.contains(&format!("`{}`", path.display())), "{error}");
    }
    assert_eq!(fs::read_to_string(target).unwrap(), "text");
}

/// CA-62
#[test]
fn the_machines_own_lock_is_in_a_directory_for_all() {
    let config = |vars: &[(&str, &str)]| {
        let vars = vars.iter().map(|(name, value)| (name.into(), value.into()));
        LocalConfig::from_vars(vars.collect()).unwrap()
    };
    let named = MachineLock::of(&config(&[("FAIRTRIAL_MACHINE_LOCK", "/x/lock")]));
    assert_eq!(named.path(), Path::new("/x/lock"));
    let common = MachineLock::of(&config(&[("TMPDIR", "/elsewhere")]));
    let parent = common.path().parent().unwrap();
    assert_eq!(
        fs::metadata(parent).unwrap().permissions().mode() & 0o1777,
        0o1777
    );
}

/// CA-62
#[test]
fn threads_that_share_and_exclude_at_random_never_meet_wrongly() {
    let (_dir, lock) = place();
    // Sharers count up, the exclusive one counts down.
    let inside = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4_u64 {
            let (lock, inside) = (&lock, &inside);
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                let turns = async { timeout(PATIENCE, take_turns(seed, lock, inside)).await };
                runtime.block_on(turns).unwrap();
            });
        }
    });
}

async fn take_turns(seed: u64, lock: &MachineLock, inside: &AtomicI64) {
    let mut chance = seed * 7919 + 1;
    for _ in 0..150 {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        match chance >> 61 {
            0..=2 => {
                let held = lock.exclusive("x", |_| ()).await.unwrap();
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 0);
                std::thread::yield_now();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), -1);
                drop(held);
            }
            3 => drop(at_once(lock.exclusive("given up", |_| ())).await),
            _ => {
                let held = lock.shared("s", |_| ()).await.unwrap();
                assert!(inside.fetch_add(1, Ordering::SeqCst) >= 0);
                std::thread::yield_now();
                assert!(inside.fetch_sub(1, Ordering::SeqCst) >= 1);
                drop(held);
            }
        }
    }
}

/// CA-42, CA-62
#[tokio::test]
async fn closing_the_last_room_takes_no_lock_from_the_next() {
    let (_dir, lock) = place();
    for _ in 0..50 {
        drop(lock.exclusive("x", |_| ()).await.unwrap());
        let held = lock.exclusive("y", |_| ()).await.unwrap();
        assert!(held.room.file().is_at(lock.path()));
    }
}
