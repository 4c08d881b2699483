use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::ftruncate;
use tempfile::TempDir;

use super::*;
use crate::spill::{SpillDir, sealed_argument};

const SIZE: u64 = 3 << 20;

/// A spill directory and the two policies that lead to memory and to disk.
struct Scene {
    parent: TempDir,
}

impl Scene {
    fn new() -> Self {
        let parent = tempfile::tempdir().unwrap();
        Self { parent }
    }

    fn policy(&self, storage: Storage) -> SpillPolicy {
        SpillPolicy {
            dir: SpillDir::new(self.parent.path().join("spill")),
            memfd_cap_bytes: if storage == Storage::Memory {
                u64::MAX
            } else {
                0
            },
            memory_limit_bytes: None,
        }
    }

    /// A filled file, and another descriptor of it as a worker would hold.
    fn filled(&self, storage: Storage) -> (ResultFile, File) {
        let file = ResultFile::create(SIZE, &self.policy(storage)).unwrap();
        assert_eq!(file.storage, storage);
        let worker = File::from(file.fd().try_clone_to_owned().unwrap());
        worker.write_all_at(&pattern(), 0).unwrap();
        (file, worker)
    }
}

fn pattern() -> Vec<u8> {
    (0..SIZE).map(|i| (i % 253) as u8).collect()
}

const EACH: [(Storage, Writers); 4] = [
    (Storage::Memory, Writers::Dead),
    (Storage::Memory, Writers::MayLive),
    (Storage::Disk, Writers::Dead),
    (Storage::Disk, Writers::MayLive),
];

/// EX-54, EX-57, EX-59
#[test]
fn a_settled_value_is_what_the_worker_wrote_and_leaves_no_name() {
    let scene = Scene::new();
    for (storage, writers) in EACH {
        let (file, worker) = scene.filled(storage);
        drop(worker);
        let body = file.settle(SIZE, writers).unwrap();
        assert!(body.bytes() == pattern());
        assert!(matches!(body, Body::Mapped(_)));
    }
    let spill = scene.parent.path().join("spill");
    assert_eq!(std::fs::read_dir(spill).unwrap().count(), 0);
}

/// EX-54
#[test]
fn storage_follows_the_cap_and_the_memory_limit() {
    let scene = Scene::new();
    let mut policy = scene.policy(Storage::Memory);
    let storage = |policy: &SpillPolicy, size| policy.create(size).unwrap().0;
    assert_eq!(storage(&policy, 8 << 20), Storage::Memory);
    policy.memory_limit_bytes = Some(32 << 20);
    assert_eq!(storage(&policy, 8 << 20), Storage::Memory);
    assert_eq!(storage(&policy, (8 << 20) + 1), Storage::Disk);
    policy.memfd_cap_bytes = 1 << 20;
    assert_eq!(storage(&policy, 1 << 20), Storage::Memory);
    assert_eq!(storage(&policy, (1 << 20) + 1), Storage::Disk);
}

/// EX-58, SB-37
#[test]
fn a_descriptor_kept_by_a_worker_changes_nothing_after_the_value_is_settled() {
    let scene = Scene::new();
    for (storage, writers) in EACH {
        let (file, worker) = scene.filled(storage);
        let body = file.settle(SIZE, writers).unwrap();
        // Memory: refused by the seals. Disk: done, to a file the value is no longer in.
        _ = worker.write_all_at(b"overwritten", 0);
        _ = worker.set_len(0);
        assert!(body.bytes() == pattern(), "{storage:?} {writers:?}");
    }
}

/// EX-58, SB-53, SB-37
#[test]
fn a_writable_mapping_kept_by_a_worker_changes_nothing_after_the_value_is_settled() {
    let scene = Scene::new();
    for (storage, writers) in EACH {
        let (file, worker) = scene.filled(storage);
        let mut mapped = crate::linux::mapping::shared_for_tests(&worker, SIZE as usize);
        drop(worker);
        let body = file.settle(SIZE, writers).unwrap();
        mapped.fill(7);
        assert!(body.bytes() == pattern(), "{storage:?} {writers:?}");
    }
}

/// EX-58
#[test]
fn a_worker_that_kept_the_file_open_for_reading_cannot_open_it_anew_and_change_the_value() {
    let scene = Scene::new();
    for (storage, writers) in EACH {
        let (file, worker) = scene.filled(storage);
        let link = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
        let reader = File::open(link(&worker)).unwrap();
        drop(worker);
        let body = file.settle(SIZE, writers).unwrap();
        if let Ok(anew) = File::options().write(true).open(link(&reader)) {
            _ = anew.write_all_at(b"overwritten", 0);
            _ = anew.set_len(0);
        }
        assert!(body.bytes() == pattern(), "{storage:?} {writers:?}");
    }
}

/// EX-58: the same from another process, which has the descriptor and outlives the settling.
#[test]
fn another_process_that_cuts_and_rewrites_the_file_changes_nothing() {
    let scene = Scene::new();
    for (storage, writers) in EACH {
        let (file, worker) = scene.filled(storage);
        let script = "read x; printf overwritten 1<>/dev/stdout; : > /dev/stdout; exit 0";
        #[expect(
            clippy::disallowed_methods,
            reason = "a test needs a process that meddles"
        )]
        let mut meddler = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(worker)
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let body = file.settle(SIZE, writers).unwrap();
        drop(meddler.stdin.take());
        meddler.wait().unwrap();
        assert!(body.bytes() == pattern(), "{storage:?} {writers:?}");
    }
}

/// EX-58
#[test]
fn threads_that_cut_and_rewrite_the_file_never_crash_the_reader_nor_change_a_settled_value() {
    let scene = Scene::new();
    for (storage, writers) in EACH {
        for _ in 0..50 {
            let (file, worker) = scene.filled(storage);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        _ = ftruncate(&worker, 0);
                        _ = ftruncate(&worker, SIZE);
                        _ = worker.write_all_at(&[1; 4096], SIZE / 2);
                    }
                });
                match file.settle(SIZE, writers) {
                    Ok(body) => {
                        let first = body.bytes().to_vec();
                        std::thread::yield_now();
                        assert!(body.bytes() == first, "{storage:?} {writers:?}");
                    }
                    Err(SettleError::Changed | SettleError::Size { .. }) => (),
                    Err(other) => panic!("{other}"),
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// EX-63, SB-37
#[test]
fn a_claim_beyond_the_file_is_told_and_one_below_it_is_cut() {
    let scene = Scene::new();
    for (storage, writers) in EACH {
        let (file, _worker) = scene.filled(storage);
        let error = file.settle(SIZE + 1, writers).unwrap_err();
        assert!(
            matches!(error, SettleError::Size { claimed, actual } if (claimed, actual) == (SIZE + 1, SIZE))
        );
        let (file, _worker) = scene.filled(storage);
        assert!(file.settle(10, writers).unwrap().bytes() == &pattern()[..10]);
        let (file, _worker) = scene.filled(storage);
        assert!(file.settle(0, writers).unwrap().is_empty());
    }
}

/// EX-62
#[test]
fn a_value_that_cannot_fit_the_disk_is_refused_with_figures_before_the_disk_fills() {
    let scene = Scene::new();
    for needed in [1 << 60, u64::MAX] {
        match ResultFile::create(needed, &scene.policy(Storage::Disk)) {
            Err(EngineError::Spill {
                needed: n,
                free,
                dir,
            }) => {
                assert_eq!((n, free < n), (needed, true));
                assert!(dir.ends_with("spill"));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// EX-59
#[test]
fn settled_values_hold_no_descriptor() {
    let scene = Scene::new();
    let ours = |link: std::path::PathBuf| {
        std::fs::read_link(link).is_ok_and(|to| {
            let to = to.to_string_lossy().into_owned();
            to.contains(&*scene.parent.path().to_string_lossy())
        })
    };
    let bodies: Vec<_> = (0..100)
        .map(|_| {
            scene
                .filled(Storage::Disk)
                .0
                .settle(SIZE, Writers::Dead)
                .unwrap()
        })
        .collect();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    assert_eq!(
        open.filter(|fd| ours(fd.as_ref().unwrap().path())).count(),
        0
    );
    assert!(bodies.iter().all(|body| body.len() as u64 == SIZE));
}

/// EX-61
#[test]
fn an_argument_arrives_whole_and_cannot_be_written_through_its_descriptor() {
    let scene = Scene::new();
    for storage in [Storage::Memory, Storage::Disk] {
        for bytes in [pattern(), vec![]] {
            let file = File::from(sealed_argument(&bytes, &scene.policy(storage)).unwrap());
            let mut back = vec![0; bytes.len()];
            file.read_exact_at(&mut back, 0).unwrap();
            assert!(back == bytes);
            assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
            assert!(file.write_all_at(b"x", 0).is_err(), "{}", file.as_raw_fd());
        }
    }
}
