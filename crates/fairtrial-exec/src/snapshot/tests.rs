use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::list::shown;
use super::*;
use crate::store::Keep;

const NONE: Keep = Keep {
    count: 0,
    age: Duration::ZERO,
};

/// A tree to freeze, and a store for it.
struct Place {
    dir: TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path().join("cache/fairtrial"));
        fs::create_dir(dir.path().join("tree")).unwrap();
        Self { dir, store }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let file = self.root().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
        File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(old)
            .unwrap();
        file
    }

    fn try_take(&self) -> Result<Snapshot, SnapshotError> {
        let files = list(&self.root(), |_| false).unwrap();
        Snapshot::take(&self.store, &self.root(), files, |_| false)
    }

    fn take(&self) -> Snapshot {
        self.try_take().unwrap()
    }

    fn stored(&self) -> Vec<String> {
        let entries = fs::read_dir(self.store.snapshots_path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }
}

/// What a program sees of a tree: kind, mode, time, bytes.
fn seen(root: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut to_look = vec![root.to_path_buf()];
    while let Some(path) = to_look.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let bytes = if meta.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else if meta.is_dir() {
            to_look.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let relative = path.strip_prefix(root).unwrap().to_owned();
        let time = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        all.insert(relative, (meta.mode(), time, bytes));
    }
    all
}

/// CA-20, CA-21
#[test]
fn a_snapshot_holds_what_the_tree_held_and_shares_no_file_with_it() {
    let place = Place::new();
    let script = place.write("bin/run", "#!/bin/sh\n");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let closed = place.write("read/only.txt", "x");
    fs::set_permissions(&closed, Permissions::from_mode(0o444)).unwrap();
    place.write("name\nwith line", "y");
    place.write("large", &"0123456789".repeat(100_000));
    fs::create_dir(place.root().join("empty")).unwrap();
    symlink("../outside", place.root().join("bin/link")).unwrap();
    fs::set_permissions(place.root().join("read"), Permissions::from_mode(0o555)).unwrap();
    let before = seen(&place.root());
    let snapshot = place.take();
    assert_eq!(seen(snapshot.path()), before);
    assert_eq!(
        seen(&place.root()),
        before,
        "the tree itself is not touched"
    );
    for path in ["bin/run", "large"] {
        let (copy, source) = (snapshot.path().join(path), place.root().join(path));
        let (copy, source) = (fs::metadata(copy).unwrap(), fs::metadata(source).unwrap());
        assert_ne!(copy.ino(), source.ino());
        assert_eq!((copy.nlink(), source.nlink()), (1, 1));
    }
    assert!(!snapshot.path().starts_with(place.root()));
    fs::set_permissions(place.root().join("read"), Permissions::from_mode(0o755)).unwrap();
}

/// CA-20
#[test]
fn its_entries_can_be_read_and_listed() {
    let place = Place::new();
    place.write("a/b.txt", "hello");
    place.write("a-b", "");
    symlink("b.txt", place.root().join("a/link")).unwrap();
    let snapshot = place.take();
    let paths: Vec<_> = snapshot.entries().map(|(path, _)| shown(path)).collect();
    assert_eq!(paths, ["a", "a-b", "a/b.txt", "a/link"]);
    assert_eq!(snapshot.read(b"a/b.txt").unwrap(), b"hello");
    assert_eq!(snapshot.read(b"a/link").unwrap(), b"b.txt");
    let entry = snapshot.get(b"a/b.txt").unwrap();
    assert_eq!((entry.kind, entry.size), (EntryKind::File, 5));
    assert_eq!(
        hex(&entry.sha256),
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert_eq!(snapshot.below(b"a").count(), 2);
    for (path, kind) in [
        (&b"a"[..], io::ErrorKind::IsADirectory),
        (b"", io::ErrorKind::NotFound),
        (b"a/link/x", io::ErrorKind::NotFound),
    ] {
        assert_eq!(snapshot.read(path).unwrap_err().kind(), kind);
    }
}

/// CA-22
#[test]
fn equal_trees_share_a_snapshot_and_unequal_ones_do_not() {
    let place = Place::new();
    place.write("a", "1");
    let (first, second) = (place.take(), place.take());
    assert_eq!(first.path(), second.path());
    assert_eq!(first.hash(), second.hash());
    place.write("a", "2");
    let third = place.take();
    assert_ne!(first.hash(), third.hash());
    assert_eq!(place.stored().len(), 2);
    // The bytes are those of the first, the time is not: both are there, for the first is in use.
    let touched = place.write("a", "1");
    File::open(touched)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let fourth = place.take();
    assert_eq!(first.hash(), fourth.hash());
    assert_ne!(first.path(), fourth.path());
    assert_eq!(fs::metadata(fourth.path().join("a")).unwrap().mtime(), 0);
    assert!(first.check().is_ok() && fourth.check().is_ok());
}

/// CA-22
#[test]
fn a_damaged_snapshot_is_built_anew() {
    type Damage = fn(&Path);
    let damages: [Damage; 6] = [
        |tree| fs::write(tree.join("a"), "2").unwrap(),
        |tree| fs::remove_file(tree.join("a")).unwrap(),
        |tree| fs::write(tree.join("dir/new"), "").unwrap(),
        |tree| fs::set_permissions(tree.join("a"), Permissions::from_mode(0o600)).unwrap(),
        |tree| {
            fs::rename(tree.join("dir"), tree.join("other")).unwrap();
            symlink("other", tree.join("dir")).unwrap();
        },
        |tree| fs::write(tree.parent().unwrap().join("manifest"), "").unwrap(),
    ];
    for (at, damage) in damages.into_iter().enumerate() {
        let place = Place::new();
        place.write("a", "1");
        place.write("dir/file", "1");
        let first = place.take();
        let (path, hash) = (first.path().to_owned(), first.hash().to_owned());
        let manifest = path.parent().unwrap().join("manifest");
        fs::set_permissions(manifest, Permissions::from_mode(0o600)).unwrap();
        damage(&path);
        if at < 5 {
            assert!(first.check().is_err());
        }
        assert!(Snapshot::open(&place.store, &hash).unwrap().is_none());
        let beside = place.take();
        assert_ne!(beside.path(), path, "the first is in use");
        // What is whole is used again; without that, what is not goes.
        let whole = beside.path().to_owned();
        drop((first, beside));
        assert_eq!(place.take().path(), whole);
        fs::remove_dir_all(whole.parent().unwrap()).unwrap();
        let second = place.take();
        assert_eq!(second.hash(), &*hash);
        assert_eq!(seen(second.path()), seen(&place.root()));
        second.check().unwrap();
    }
}

/// CA-22
#[test]
fn after_another_boot_every_byte_is_read() {
    let place = Place::new();
    place.write("a", "1");
    let snapshot = place.take();
    let hash = snapshot.hash().to_owned();
    assert!(Snapshot::open(&place.store, &hash).unwrap().is_some());
    let file = snapshot.path().join("a");
    let (manifest_file, mut manifest) = (
        snapshot.path().parent().unwrap().join("manifest"),
        snapshot.tree.manifest.clone(),
    );
    drop(snapshot);
    // As if a write was lost with the power: the size is right, the bytes are not.
    fs::write(&file, "2").unwrap();
    let entry = manifest.entries.iter_mut().find(|(path, _)| path == b"a");
    let (_, entry) = entry.unwrap();
    let stat = rustix::fs::stat(&file).unwrap();
    *entry = Entry {
        sha256: entry.sha256,
        ..Entry::of(&stat).unwrap()
    };
    let mut bytes = manifest.to_bytes();
    let keep = |bytes: &[u8]| {
        fs::remove_file(&manifest_file).unwrap();
        fs::write(&manifest_file, bytes).unwrap();
    };
    keep(&bytes);
    assert!(Snapshot::open(&place.store, &hash).unwrap().is_some());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let at = bytes
        .windows(boot.len())
        .position(|part| part == boot.as_bytes());
    bytes[at.unwrap()] = b'x';
    keep(&bytes);
    assert!(Snapshot::open(&place.store, &hash).unwrap().is_none());
}

/// CA-21
#[test]
fn what_is_listed_and_gone_is_left_out_and_no_link_is_followed() {
    let place = Place::new();
    place.write("here", "x");
    place.write("real/file", "x");
    symlink("real", place.root().join("link")).unwrap();
    let files = [
        "here",
        "gone",
        "no/where",
        "link/file",
        "link",
        "here/below",
    ];
    let snapshot = Snapshot::take(&place.store, &place.root(), files, |_| false).unwrap();
    let paths: Vec<_> = snapshot.entries().map(|(path, _)| shown(path)).collect();
    assert_eq!(paths, ["here", "link"]);
}

/// CA-8
#[test]
fn a_root_that_is_no_directory_is_an_error_that_names_it() {
    let place = Place::new();
    let file = place.write("a", "x");
    for root in [file, place.root().join("no")] {
        let taken = Snapshot::take(&place.store, &root, ["a"], |_| false);
        let error = taken.unwrap_err().to_string();
        assert_eq!(error, format!("cannot read `{}`", root.display()));
    }
}

/// CA-20
#[test]
fn special_files_are_refused_by_name_and_nothing_is_left() {
    let place = Place::new();
    place.write("a", "x");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.root().join("pipe"),
        rustix::fs::FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    let refused = place.try_take().unwrap_err().to_string();
    assert!(refused.starts_with("`pipe` is neither"), "{refused}");
    let _socket = std::os::unix::net::UnixListener::bind(place.root().join("a.sock")).unwrap();
    let refused = place.try_take().unwrap_err().to_string();
    assert!(refused.contains(".sock` is neither") || refused.contains("`pipe`"));
    assert_eq!(place.stored(), [""; 0]);
}

/// CA-42
#[test]
fn a_sweep_removes_what_nobody_uses_and_nothing_else() {
    let place = Place::new();
    place.write("a", "1");
    let used = place.take();
    place.write("a", "2");
    drop(place.take());
    // Left by engines that were killed while they made or removed one.
    fs::create_dir_all(place.store.snapshots_path().join("building-1-x/tree/deep")).unwrap();
    fs::create_dir_all(place.store.snapshots_path().join("gone-1/tree")).unwrap();
    let building = Building::start(&place.store).unwrap();
    assert_eq!(place.store.sweep(Keep::default()).unwrap(), 2);
    assert_eq!(place.stored().len(), 3);
    assert_eq!(place.store.sweep(NONE).unwrap(), 1);
    used.check().unwrap();
    assert_eq!(place.stored().len(), 2);
    drop((used, building));
    assert_eq!(place.store.sweep(NONE).unwrap(), 1);
    assert_eq!(place.stored(), [""; 0]);
}

/// CA-42
#[test]
fn the_last_used_are_kept_for_a_while() {
    let place = Place::new();
    let mut names = Vec::new();
    for n in 0..4_i64 {
        place.write("a", &n.to_string());
        let dir = place.take().path().parent().unwrap().to_owned();
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + n.unsigned_abs());
        File::open(&dir).unwrap().set_modified(used).unwrap();
        names.push(dir);
    }
    let keep = |count, days: u64| Keep {
        count,
        age: Duration::from_secs(days * 86_400),
    };
    assert_eq!(place.store.sweep(keep(3, 100_000)).unwrap(), 1);
    assert!(!names[0].exists() && names[1].exists());
    // Used again, it is the youngest.
    place.write("a", "1");
    drop(place.take());
    assert_eq!(place.store.sweep(keep(3, 7)).unwrap(), 2);
    assert!(names[1].exists());
}

/// CA-43
#[test]
fn engines_that_take_and_sweep_at_once_never_lose_a_snapshot() {
    let place = Place::new();
    for n in 0..20 {
        place.write(&format!("dir{}/{n}", n % 3), &n.to_string());
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let snapshot = place.take();
                    place.store.sweep(NONE).unwrap();
                    snapshot.check().unwrap();
                    assert_eq!(snapshot.read(b"dir1/7").unwrap(), b"7");
                }
            });
        }
    });
    place.store.sweep(NONE).unwrap();
    assert_eq!(place.stored(), [""; 0]);
}

impl Place {
    /// The snapshot that is there of the tree as it is, if nothing need be copied.
    fn reused(&self) -> Option<Snapshot> {
        let files = list(&self.root(), |_| false).unwrap();
        let files = list::chosen(files, |_| false).unwrap();
        let from = File::open(self.root()).unwrap();
        source::reuse(&self.store, from.as_fd(), &files).unwrap()
    }

    /// Waits until a change of what is there would show by its time.
    fn settle(&self) {
        use crate::linux::file_clock::{is_past, now_ns, pass};
        let stamp = |path: &Path| Entry::of(&rustix::fs::lstat(path).unwrap()).unwrap().mark;
        let latest = seen(&self.root()).into_keys();
        let latest = latest.map(|path| stamp(&self.root().join(path)).ctime_ns);
        let latest = latest.max().unwrap();
        while !is_past(latest, now_ns()) {
            pass(now_ns());
        }
    }
}

/// CA-22: neither by times nor, where those do not show it, by bytes.
#[test]
fn a_tree_that_is_still_the_same_is_not_copied_again() {
    let place = Place::new();
    place.write("a", "1");
    place.write("dir/b", "2");
    symlink("a", place.root().join("link")).unwrap();
    fs::create_dir(place.root().join("empty")).unwrap();
    assert!(place.reused().is_none(), "nothing is there yet");
    let first = place.take();
    // What was written just before it was frozen is read again, and known from then on.
    place.settle();
    for _ in 0..2 {
        let again = place.reused().expect("it is the same tree");
        assert_eq!((again.path(), again.hash()), (first.path(), first.hash()));
    }
    // Another file with the same bytes and times.
    let (file, other) = (place.root().join("a"), place.dir.path().join("other"));
    fs::copy(&file, &other).unwrap();
    let modified = fs::metadata(&file).unwrap().modified().unwrap();
    File::open(&other).unwrap().set_modified(modified).unwrap();
    let root = File::open(place.root()).unwrap();
    let modified = root.metadata().unwrap().modified().unwrap();
    fs::rename(&other, &file).unwrap();
    root.set_modified(modified).unwrap();
    assert!(place.reused().is_some());
    assert_eq!(place.take().path(), first.path());
    assert_eq!(place.stored().len(), 1);
}

/// CA-22
#[test]
fn a_tree_that_changed_is_copied_however_little_shows() {
    type Change = fn(&Place);
    let changes: [Change; 6] = [
        // Of one size, with the time put back.
        |place| drop(place.write("a", "2")),
        |place| fs::remove_file(place.root().join("a")).unwrap(),
        |place| drop(place.write("dir/new", "")),
        |place| {
            let mode = Permissions::from_mode(0o600);
            fs::set_permissions(place.root().join("a"), mode).unwrap();
        },
        |place| {
            fs::remove_file(place.root().join("link")).unwrap();
            symlink("b", place.root().join("link")).unwrap();
        },
        |place| fs::remove_dir(place.root().join("empty")).unwrap(),
    ];
    for settled in [false, true] {
        for (at, change) in changes.into_iter().enumerate() {
            let place = Place::new();
            place.write("a", "1");
            place.write("dir/b", "2");
            symlink("a", place.root().join("link")).unwrap();
            fs::create_dir(place.root().join("empty")).unwrap();
            drop(place.take());
            if settled {
                place.settle();
                assert!(place.reused().is_some());
            }
            change(&place);
            assert!(place.reused().is_none(), "{at}");
            assert_eq!(seen(place.take().path()), seen(&place.root()), "{at}");
        }
    }
}

/// CA-22
#[test]
fn a_snapshot_that_was_damaged_is_not_reused() {
    let place = Place::new();
    place.write("a", "1");
    let first = place.take();
    fs::write(first.path().join("a"), "2").unwrap();
    drop(first);
    assert!(place.reused().is_none());
    assert_eq!(seen(place.take().path()), seen(&place.root()));
    // Nor is what says nothing, or is of another tree.
    let other = Place::new();
    other.write("a", "1");
    drop(other.take());
    let kept = other
        .store
        .snapshots_path()
        .join(&other.stored()[0])
        .join("source");
    fs::remove_file(&kept).unwrap();
    fs::write(&kept, "x").unwrap();
    assert!(other.reused().is_none());
    assert_eq!(seen(other.take().path()), seen(&other.root()));
    assert!(other.reused().is_some(), "the record was made anew");
}
