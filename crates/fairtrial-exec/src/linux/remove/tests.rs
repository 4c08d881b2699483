use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, mkdirat, mkfifoat};
use tempfile::TempDir;

use super::*;
use crate::skipped::skipped;

/// A directory `victim` to remove, beside a `bystander` that must not be touched.
struct Scene(TempDir);

impl Scene {
    fn new() -> Self {
        Self::within(TempDir::new().unwrap())
    }

    /// In memory where there is such a place: making a deep tree on disk takes longer than removing it.
    fn in_memory() -> Self {
        Self::within(TempDir::new_in("/dev/shm").unwrap_or_else(|_| TempDir::new().unwrap()))
    }

    fn within(parent: TempDir) -> Self {
        let scene = Self(parent);
        fs::create_dir(scene.victim()).unwrap();
        fs::create_dir(scene.bystander()).unwrap();
        fs::write(scene.bystander().join("kept"), b"kept").unwrap();
        scene
    }

    fn victim(&self) -> std::path::PathBuf {
        self.0.path().join("victim")
    }

    fn bystander(&self) -> std::path::PathBuf {
        self.0.path().join("bystander")
    }

    fn remove(&self) -> io::Result<()> {
        remove_tree(File::open(self.0.path()).unwrap(), "victim")
    }

    fn expect_gone(&self) {
        self.remove().unwrap();
        let left: Vec<_> = fs::read_dir(self.0.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(fs::read(self.bystander().join("kept")).unwrap(), b"kept");
    }
}

/// Makes a chain of directories without ever naming a long path.
fn dig(from: &Path, levels: usize) {
    let mut here = OwnedFd::from(File::open(from).unwrap());
    for _ in 0..levels {
        mkdirat(&here, c"d", Mode::RWXU).unwrap();
        here = openat(&here, c"d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    openat(&here, c"f", OFlags::CREATE | OFlags::WRONLY, Mode::empty()).unwrap();
}

/// Runs on a thread that is not root, whoever runs the tests: system calls for ids act on the thread alone.
fn as_nobody(test: fn()) {
    let uid = rustix::process::Uid::from_raw(65534);
    std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        }
        test();
    })
    .join()
    .unwrap();
}

/// SB-40
#[test]
fn an_empty_directory_a_file_and_a_missing_name_are_removed() {
    let scene = Scene::new();
    scene.expect_gone();
    scene.expect_gone();
    fs::write(scene.victim(), b"x").unwrap();
    scene.expect_gone();
}

/// SB-40, SB-39
#[test]
fn links_are_removed_and_never_followed() {
    let scene = Scene::new();
    let inner = scene.victim().join("a/b");
    fs::create_dir_all(&inner).unwrap();
    for place in [&scene.victim(), &inner] {
        symlink(scene.bystander(), place.join("to_directory")).unwrap();
        symlink(scene.bystander().join("kept"), place.join("to_file")).unwrap();
        symlink("..", place.join("up")).unwrap();
        symlink("nowhere", place.join("dangling")).unwrap();
        fs::hard_link(scene.bystander().join("kept"), place.join("hard")).unwrap();
    }
    scene.expect_gone();
    symlink(scene.bystander(), scene.victim()).unwrap();
    scene.expect_gone();
}

/// SB-40
#[test]
fn fifos_sockets_and_names_that_are_no_text_are_removed() {
    let scene = Scene::new();
    let inner = scene.victim().join("inner");
    fs::create_dir(&inner).unwrap();
    for place in [scene.victim(), inner] {
        mkfifoat(CWD, place.join("fifo"), Mode::RWXU).unwrap();
        UnixListener::bind(place.join("socket")).unwrap();
        for name in [&b"\xff\xfe"[..], b"new\nline", b" ", b"-rf", &[b'n'; 255]] {
            fs::write(place.join(OsStr::from_bytes(name)), b"").unwrap();
        }
        fs::create_dir_all(place.join(OsStr::from_bytes(&[b'd'; 255])).join("more")).unwrap();
    }
    scene.expect_gone();
}

/// SB-40
#[test]
fn directories_without_any_permission_are_removed_by_an_ordinary_user() {
    as_nobody(|| {
        for mode in [0o000, 0o111, 0o444, 0o555, 0o666] {
            let scene = Scene::new();
            let deep = scene.victim().join("a/b/c/d");
            fs::create_dir_all(&deep).unwrap();
            fs::write(deep.join("file"), b"x").unwrap();
            for closed in deep.ancestors().take(5) {
                fs::set_permissions(closed, Permissions::from_mode(mode)).unwrap();
            }
            scene.expect_gone();
        }
    });
}

/// SB-40
#[test]
fn a_hundred_thousand_levels_are_removed_with_few_descriptors() {
    let scene = Scene::in_memory();
    dig(&scene.victim(), 100_000);
    scene.expect_gone();
}

/// SB-40
#[test]
fn a_wide_and_deep_tree_is_removed() {
    let scene = Scene::new();
    for branch in 0..20 {
        let branch = scene.victim().join(format!("branch{branch}"));
        fs::create_dir(&branch).unwrap();
        dig(&branch, 30);
        for file in 0..200 {
            fs::write(branch.join(format!("file{file}")), b"").unwrap();
        }
    }
    scene.expect_gone();
}

/// SB-40
#[test]
fn what_may_not_be_removed_is_reported_and_the_rest_goes() {
    as_nobody(|| {
        let scene = Scene::new();
        // Its parent cannot be written, so it cannot be removed, as an immutable file could not.
        let closed = scene.0.path();
        fs::create_dir_all(scene.victim().join("a/b")).unwrap();
        fs::set_permissions(closed, Permissions::from_mode(0o500)).unwrap();
        let error = scene.remove().unwrap_err();
        fs::set_permissions(closed, Permissions::from_mode(0o700)).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read_dir(scene.victim()).unwrap().count(), 0);
        scene.expect_gone();
    });
}

/// SB-40
#[test]
fn an_immutable_file_is_reported_and_all_beside_it_goes() {
    let scene = Scene::new();
    fs::create_dir_all(scene.victim().join("a/b/c")).unwrap();
    let stuck = File::create(scene.victim().join("a/b/stuck")).unwrap();
    for beside in ["x", "a/y", "a/b/z", "a/b/c/w"] {
        fs::write(scene.victim().join(beside), b"").unwrap();
    }
    let Ok(flags) = rustix::fs::ioctl_getflags(&stuck) else {
        return skipped("this machine lacks file attributes");
    };
    if rustix::fs::ioctl_setflags(&stuck, flags | rustix::fs::IFlags::IMMUTABLE).is_err() {
        return skipped("this machine lacks the right to make a file immutable");
    }
    let error = scene.remove().unwrap_err();
    rustix::fs::ioctl_setflags(&stuck, flags).unwrap();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    let mut left = 0;
    let mut pending = vec![scene.victim()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
            left += 1;
            pending.extend(entry.file_type().unwrap().is_dir().then(|| entry.path()));
        }
    }
    assert_eq!(left, 2, "the file and the directory it is in");
    scene.expect_gone();
}
