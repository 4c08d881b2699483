//! Sweeps: what is old and named by nobody goes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::super::{Blob, Swept};
use super::bench::{Bench, Keeps, fault};

const DAY: Duration = Duration::from_secs(24 * 3600);

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Makes a file older by the clock that wrote it.
fn age(path: &Path, by: Duration) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(modified(path) - by).unwrap();
}

/// CL-53
#[tokio::test]
async fn a_sweep_removes_what_is_old_and_named_by_nobody() {
    for keeps in [Keeps::Dir, Keeps::S3] {
        let bench = Bench::new(keeps);
        let mut blobs = Vec::new();
        for number in 0..6_u8 {
            blobs.push(bench.store.put(vec![number; 100]).await.unwrap());
        }
        for blob in &blobs[..4] {
            age(&bench.place(blob.digest), DAY + Duration::from_secs(60));
        }
        age(
            &bench.place(blobs[4].digest),
            DAY - Duration::from_secs(3600),
        );
        let stranger = bench.place(blobs[0].digest).with_file_name("not-a-blob");
        fs::write(&stranger, b"").unwrap();
        age(&stranger, 2 * DAY);
        let named: HashSet<_> = [blobs[0].digest, blobs[5].digest].into();
        let swept = bench.store.sweep(DAY, named.clone()).await.unwrap();
        let expected = Swept {
            removed: 3,
            named: 1,
            young: 2,
            partial: 0,
        };
        assert_eq!(swept, expected, "{keeps:?}");
        for (at, blob) in blobs.iter().enumerate() {
            assert_eq!(
                bench.place(blob.digest).exists(),
                !(1..4).contains(&at),
                "{keeps:?} {at}"
            );
        }
        assert!(stranger.exists());
        let again = bench.store.sweep(DAY, named).await.unwrap();
        assert_eq!(
            again,
            Swept {
                removed: 0,
                ..expected
            }
        );
    }
}

/// CL-53: what was stored again is young again, so it outlives a sweep that nobody told of the task yet.
#[tokio::test]
async fn storing_again_makes_young_again() {
    for keeps in [Keeps::Dir, Keeps::S3] {
        let bench = Bench::new(keeps);
        let blob = bench.store.put(&b"needed again"[..]).await.unwrap();
        age(&bench.place(blob.digest), 2 * DAY);
        bench.store.put(&b"needed again"[..]).await.unwrap();
        let swept = bench.store.sweep(DAY, HashSet::new()).await.unwrap();
        assert_eq!((swept.removed, swept.young), (0, 1), "{keeps:?}");
        bench.store.verify(blob).await.unwrap();
    }
}

/// CL-53
#[tokio::test]
async fn what_was_left_half_written_goes_too() {
    let bench = Bench::new(Keeps::Dir);
    bench.store.put(&b"x"[..]).await.unwrap();
    for (name, by) in [("old", DAY + DAY), ("young", Duration::ZERO)] {
        let path = bench.partial().join(name);
        fs::write(&path, b"half").unwrap();
        age(&path, by);
    }
    let swept = bench.store.sweep(DAY, HashSet::new()).await.unwrap();
    assert_eq!((swept.partial, swept.young), (1, 1));
    assert!(bench.partial().join("young").exists());
}

/// CL-53
#[tokio::test]
async fn a_store_that_cannot_be_listed_says_so_and_keeps_everything() {
    let bench = Bench::new(Keeps::Http);
    let blob = bench.store.put(&b"x"[..]).await.unwrap();
    assert_eq!(blob, Blob::of(b"x"));
    let fault = fault(bench.store.sweep(Duration::ZERO, HashSet::new()).await);
    assert!(fault.to_string().contains("cannot be listed"), "{fault}");
    assert_eq!(bench.blobs(), 1);
}
