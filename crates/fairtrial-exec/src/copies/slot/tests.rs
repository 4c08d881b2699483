use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;
use crate::skipped::skipped;

/// A frozen tree and a slot made from it.
struct Place {
    dir: TempDir,
    slot: CopySlot,
    before: Seen,
}

/// What a program sees: mode, links, time, bytes.
type Seen = BTreeMap<PathBuf, (u32, u64, i64, Vec<u8>)>;

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("pkg/deep/er")).unwrap();
        fs::create_dir_all(tree.join("empty")).unwrap();
        for path in ["a", "pkg/b", "pkg/deep/er/c", "run", "line\nbreak"] {
            fs::write(tree.join(path), format!("text of {path}")).unwrap();
        }
        fs::write(tree.join("large"), vec![3; 200_000]).unwrap();
        fs::set_permissions(tree.join("run"), Permissions::from_mode(0o555)).unwrap();
        fs::set_permissions(tree.join("empty"), Permissions::from_mode(0o555)).unwrap();
        symlink("pkg/b", tree.join("link")).unwrap();
        let source = Arc::new(FrozenTree::record(&tree).unwrap());
        let slot = CopySlot::make(source, &dir.path().join("slot"), true).unwrap();
        let before = seen(&tree);
        assert_eq!(seen(slot.path()), before);
        Self { dir, slot, before }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.slot.path().join(path)
    }

    fn reset(&mut self) -> Reset {
        let reset = self.slot.reset().unwrap();
        assert_eq!(seen(self.slot.path()), self.before);
        reset
    }
}

fn seen(root: &Path) -> Seen {
    let mut all = Seen::new();
    let mut to_look = vec![root.to_path_buf()];
    while let Some(path) = to_look.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let (mut links, mut bytes) = (meta.nlink(), Vec::new());
        if meta.is_symlink() {
            bytes = fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes();
        } else if meta.is_dir() {
            links = 0;
            to_look.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            bytes = fs::read(&path).unwrap();
        }
        let relative = path.strip_prefix(root).unwrap().to_owned();
        let time = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        let mode = if relative.as_os_str().is_empty() {
            0
        } else {
            meta.mode()
        };
        let time = if relative.as_os_str().is_empty() {
            0
        } else {
            time
        };
        all.insert(relative, (mode, links, time, bytes));
    }
    all
}

/// CA-33
#[test]
fn a_slot_that_nobody_touched_stays_as_it_is() {
    let mut place = Place::new();
    let inode = fs::metadata(place.at("a")).unwrap().ino();
    for _ in 0..3 {
        assert_eq!(place.reset(), Reset::default());
    }
    assert_eq!(fs::metadata(place.at("a")).unwrap().ino(), inode);
}

/// CA-33
#[test]
fn every_change_is_undone_and_only_that() {
    let mut place = Place::new();
    let kept = fs::metadata(place.at("large")).unwrap().ino();
    // Of one size, and with the time put back.
    let old = fs::metadata(place.at("a")).unwrap().modified().unwrap();
    fs::write(place.at("a"), "TEXT OF a").unwrap();
    File::options()
        .write(true)
        .open(place.at("a"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    fs::remove_file(place.at("link")).unwrap();
    fs::remove_dir_all(place.at("pkg/deep")).unwrap();
    fs::create_dir_all(place.at("__pycache__/x/y")).unwrap();
    fs::write(place.at("pkg/new.pyc"), "").unwrap();
    let reset = place.reset();
    // `a`, `link`, two directories with a file; `a` itself, the cache and the bytecode.
    assert_eq!((reset.restored, reset.removed), (5, 3));
    assert_eq!(fs::metadata(place.at("large")).unwrap().ino(), kept);
    assert_eq!(place.reset(), Reset::default());
}

/// CA-33
#[test]
fn a_change_at_once_after_a_reset_is_seen() {
    let mut place = Place::new();
    for _ in 0..30 {
        fs::write(place.at("a"), "TEXT OF a").unwrap();
        assert_eq!(place.reset().restored, 1);
    }
}

/// CA-36
#[test]
fn kinds_modes_and_names_do_not_stop_a_reset() {
    let mut place = Place::new();
    fs::remove_dir_all(place.at("pkg")).unwrap();
    fs::write(place.at("pkg"), "a file now").unwrap();
    fs::remove_file(place.at("a")).unwrap();
    fs::create_dir_all(place.at("a/b/c")).unwrap();
    fs::set_permissions(place.at("a/b"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(place.at("empty"), Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir(place.at("many")).unwrap();
    for n in 0..10_000 {
        File::create(place.at(&format!("many/{n}\n"))).unwrap();
    }
    fs::set_permissions(place.at("many"), Permissions::from_mode(0o000)).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(place.at("socket")).unwrap();
    place.reset();
    drop(socket);
    fs::set_permissions(place.at("pkg"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(place.slot.path(), Permissions::from_mode(0o000)).unwrap();
    place.reset();
}

/// CA-30, CA-33
#[test]
fn links_that_a_stranger_put_lead_no_write_out_of_the_slot() {
    let mut place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for file in ["b", "hard", "soft"] {
        fs::write(outside.join(file), "mine").unwrap();
    }
    let before = seen(&outside);
    fs::remove_file(place.at("a")).unwrap();
    fs::hard_link(outside.join("hard"), place.at("a")).unwrap();
    fs::remove_file(place.at("run")).unwrap();
    symlink(outside.join("soft"), place.at("run")).unwrap();
    fs::remove_dir_all(place.at("pkg")).unwrap();
    symlink(&outside, place.at("pkg")).unwrap();
    fs::remove_dir(place.at("empty")).unwrap();
    symlink(&outside, place.at("empty")).unwrap();
    symlink(&outside, place.at("extra")).unwrap();
    // A second name for a file of the slot: who has it could write to it later.
    fs::hard_link(place.at("large"), outside.join("large")).unwrap();
    let inode = fs::metadata(outside.join("large")).unwrap().ino();
    place.reset();
    assert_ne!(fs::metadata(place.at("large")).unwrap().ino(), inode);
    fs::remove_file(outside.join("large")).unwrap();
    let after = seen(&outside);
    let contents = |seen: Seen| -> Vec<_> {
        seen.into_iter()
            .map(|(path, entry)| (path, entry.3))
            .collect()
    };
    assert_eq!(contents(after), contents(before));
}

/// CA-33
#[test]
fn attributes_of_directories_go_too() {
    let mut place = Place::new();
    let dir = File::open(place.at("pkg")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(&dir, "user.mark", b"x", flags).is_err() {
        return skipped("this file system has no attributes");
    }
    place.reset();
    let mut value = [0_u8; 4];
    let found = rustix::fs::fgetxattr(&dir, "user.mark", &mut value[..]);
    assert_eq!(found, Err(Errno::NODATA));
}

/// CA-33, CA-37
#[test]
fn a_slot_becomes_a_copy_of_another_tree_and_keeps_what_both_have() {
    let mut place = Place::new();
    let inode = fs::metadata(place.at("large")).unwrap().ino();
    let other = place.dir.path().join("other");
    let first = Arc::clone(&place.slot.source);
    let prepared = CopySlot::make(Arc::clone(&first), &other, false).unwrap();
    fs::write(other.join("a"), "of a candidate").unwrap();
    fs::create_dir(other.join("built")).unwrap();
    fs::write(other.join("built/out"), "x").unwrap();
    fs::remove_dir_all(other.join("pkg")).unwrap();
    let candidate = Arc::new(FrozenTree::record(prepared.path()).unwrap());
    assert_ne!(candidate.hash(), first.hash());
    place.slot.reset_to(Arc::clone(&candidate)).unwrap();
    assert_eq!(seen(place.slot.path()), seen(&other));
    assert_eq!(fs::metadata(place.at("large")).unwrap().ino(), inode);
    assert_eq!(place.slot.reset().unwrap(), Reset::default());
    candidate.check().unwrap();
    place.slot.reset_to(first).unwrap();
    assert_eq!(place.reset(), Reset::default());
}

/// CA-45
#[test]
fn what_stands_in_the_way_is_named() {
    let mut place = Place::new();
    fs::remove_file(place.at("pkg/b")).unwrap();
    fs::remove_file(place.dir.path().join("tree/pkg/b")).unwrap();
    let error = place.slot.reset().unwrap_err().to_string();
    assert!(error.contains("`pkg/b`"), "{error}");
}

/// CA-30, CA-45
#[test]
fn a_slot_that_was_put_elsewhere_is_given_up() {
    let mut place = Place::new();
    let (path, other) = (place.slot.path().to_owned(), place.dir.path().join("other"));
    fs::rename(&path, &other).unwrap();
    assert_eq!(
        place.slot.reset().unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    fs::create_dir(&path).unwrap();
    fs::write(path.join("theirs"), "x").unwrap();
    let error = place.slot.reset().unwrap_err().to_string();
    assert_eq!(error, "the slot itself was replaced");
    symlink(&other, place.dir.path().join("link")).unwrap();
    fs::remove_dir_all(&path).unwrap();
    fs::rename(place.dir.path().join("link"), &path).unwrap();
    assert!(place.slot.reset().is_err());
}

/// CA-28, CA-58: what is told of a copy is what is told of a mount.
#[test]
fn what_a_command_left_is_told_by_its_kind() {
    let place = Place::new();
    let told = || {
        let mut told = BTreeMap::new();
        let each = |path: &Path, kind| _ = told.insert(path.to_owned(), kind);
        place.slot.visit(each).unwrap();
        told
    };
    assert_eq!(told(), BTreeMap::new());
    fs::write(place.at("a"), "text of a").unwrap(); // the same, and written all the same
    fs::write(place.at("new"), "new").unwrap();
    fs::remove_file(place.at("pkg/b")).unwrap();
    fs::remove_dir_all(place.at("pkg/deep")).unwrap();
    fs::remove_file(place.at("line\nbreak")).unwrap();
    fs::create_dir(place.at("line\nbreak")).unwrap();
    fs::remove_file(place.at("link")).unwrap();
    symlink("elsewhere", place.at("link")).unwrap();
    fs::set_permissions(place.at("run"), Permissions::from_mode(0o777)).unwrap();
    use crate::workspace::ChangeKind::{Deleted, Directory, Link, Written};
    let kinds = told();
    let of = |path: &str| kinds.get(Path::new(path)).copied();
    for (path, kind) in [
        ("a", Some(Written)),
        ("new", Some(Written)),
        ("pkg/b", Some(Deleted)),
        ("pkg/deep", Some(Deleted)),
        ("pkg/deep/er/c", Some(Deleted)),
        ("link", Some(Link)),
        ("run", Some(Written)),
        ("large", None),
        ("pkg", None),
    ] {
        assert_eq!(of(path), kind, "{path}");
    }
    assert!(matches!(of("line\nbreak"), Some(Deleted | Directory)));
}

/// CA-48, CA-59: regular files that the command wrote, through no link.
#[test]
fn only_what_a_command_wrote_is_read() {
    let place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "outside").unwrap();
    symlink(&outside, place.at("to_directory")).unwrap();
    symlink(outside.join("file"), place.at("to_file")).unwrap();
    fs::write(place.at("new"), "new").unwrap();
    fs::write(place.at("pkg/b"), "text of pkg/b").unwrap();
    let read = |path: &str| place.slot.read(Path::new(path), 100);
    assert_eq!(read("new").unwrap().as_deref(), Some(&b"new"[..]));
    assert_eq!(
        read("pkg/b").unwrap().as_deref(),
        Some(&b"text of pkg/b"[..])
    );
    for path in ["a", "pkg", "to_file", "to_directory/file", "no", "no/file"] {
        assert_eq!(read(path).unwrap(), None, "{path}");
    }
    fs::write(place.at("large"), vec![7; 101]).unwrap();
    let refused = read("large").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
    assert!(read("../outside/file").is_err());
}
