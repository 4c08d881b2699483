//! The cache: who uses what, what is verified, what goes.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use super::super::{PackError, TreeCache, pack};
use super::{archive, contents, packed, tree};
use crate::blobs::{Blob, BlobStore, Digest};

const ROOMY: u64 = 1 << 30;

fn cache(directory: &TempDir) -> TreeCache {
    TreeCache::at(directory.path(), ROOMY)
}

fn entries(directory: &TempDir) -> usize {
    fs::read_dir(directory.path().join("trees"))
        .unwrap()
        .count()
}

/// An archive of one file of so many bytes.
fn of_size(name: &str, bytes: usize) -> (Digest, Vec<u8>) {
    let content = "x".repeat(bytes);
    let archive = archive(&[(tar::EntryType::Regular, name, &content)]);
    (Digest::of(&archive), archive)
}

/// Trees are read-only, so whoever removes their directory has to say so.
fn end(directory: TempDir) {
    fairtrial_exec::remove_tree(&directory.keep()).unwrap();
}

/// CL-42
#[tokio::test]
async fn a_directory_goes_through_a_store_into_a_cache_and_is_unpacked_once() {
    let (stored, cached) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let url = format!("file://{}", stored.path().display());
    let store = BlobStore::open(&url, &BTreeMap::new()).unwrap();
    let source = tree(&["pkg/mod.py", "*run", "link -> pkg/mod.py"]);
    let archive = pack(source.path(), cached.path()).unwrap();
    let blob = store.put_file(archive).await.unwrap();
    let cache = cache(&cached);
    let first = cache.fetch(&store, blob).await.unwrap();
    assert_eq!(
        contents(first.path())["pkg/mod.py"],
        "444 content of pkg/mod.py\n"
    );
    store.delete(blob.digest).await.unwrap();
    let second = cache.fetch(&store, blob).await.unwrap();
    assert_eq!(first.path(), second.path());
    let missing = cache.fetch(&store, Blob::of(b"never")).await.unwrap_err();
    assert!(matches!(missing, PackError::Blob(_)), "{missing}");
    end(cached);
}

/// CL-42, CL-43: a call at `limits` may write to what is ours; the next one does not get it.
#[test]
fn a_tree_that_somebody_changed_is_not_used_again() {
    let source = tree(&["pkg/mod.py", "other.py"]);
    let bytes = packed(source.path());
    let digest = Digest::of(&bytes);
    let changes: [fn(&Path); 5] = [
        |tree| {
            // Same size, and the times put back.
            let path = tree.join("pkg/mod.py");
            let times = fs::metadata(&path).unwrap().modified().unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            fs::write(&path, "CONTENT of pkg/mod.py\n").unwrap();
            fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(times)
                .unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        },
        |tree| {
            let cache = tree.join("pkg/__pycache__");
            fs::set_permissions(tree.join("pkg"), Permissions::from_mode(0o755)).unwrap();
            fs::create_dir(&cache).unwrap();
            fs::write(cache.join("mod.cpython-312.pyc"), b"evil").unwrap();
            fs::set_permissions(tree.join("pkg"), Permissions::from_mode(0o555)).unwrap();
        },
        |tree| {
            fs::remove_file(tree.join("other.py"))
                .unwrap_or_else(|_| fairtrial_exec::remove_tree(&tree.join("other.py")).unwrap())
        },
        |tree| fs::set_permissions(tree.join("other.py"), Permissions::from_mode(0o555)).unwrap(),
        |tree| fs::write(tree.with_file_name("marker"), b"").unwrap(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let cached = tempfile::tempdir().unwrap();
        let cache = cache(&cached);
        let used = cache.add(digest, Cursor::new(&bytes)).unwrap();
        let clean = contents(used.path());
        // As root no mode keeps anybody from writing; as a user one is set first.
        fs::set_permissions(used.path(), Permissions::from_mode(0o755)).unwrap();
        change(used.path());
        fs::set_permissions(used.path(), Permissions::from_mode(0o555)).unwrap();
        assert!(cache.get(digest).unwrap().is_none(), "{at}");
        let fresh = cache.add(digest, Cursor::new(&bytes)).unwrap();
        assert_eq!(contents(fresh.path()), clean, "{at}");
        assert_ne!(
            fresh.path(),
            used.path(),
            "the damaged one stays where its user has it"
        );
        drop(used);
        assert_eq!(cache.get(digest).unwrap().unwrap().path(), fresh.path());
        assert_eq!(
            entries(&cached),
            1,
            "{at}: the damaged one is gone with its user"
        );
        end(cached);
    }
}

/// CL-42
#[test]
fn many_that_unpack_one_archive_at_once_share_one_tree() {
    let bytes = packed(tree(&["a.py", "b/c.py"]).path());
    let digest = Digest::of(&bytes);
    let cached = tempfile::tempdir().unwrap();
    let cache = cache(&cached);
    std::thread::scope(|scope| {
        let adds: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| cache.add(digest, Cursor::new(&bytes)).unwrap()))
            .collect();
        let trees: Vec<_> = adds.into_iter().map(|add| add.join().unwrap()).collect();
        assert!(trees.iter().all(|tree| tree.path() == trees[0].path()));
    });
    assert_eq!(entries(&cached), 1);
    end(cached);
}

/// CL-42
#[test]
fn the_longest_unused_go_when_there_are_too_many_and_those_in_use_stay() {
    let cached = tempfile::tempdir().unwrap();
    let cache = TreeCache::at(cached.path(), 2500);
    let archives = ["a", "b", "c", "d"].map(|name| of_size(name, 1000));
    let add = |at: usize| {
        let (digest, bytes) = &archives[at];
        cache.add(*digest, Cursor::new(bytes)).unwrap()
    };
    let is_there = |at: usize| cache.get(archives[at].0).unwrap().is_some();
    let in_use = add(0);
    drop(add(1));
    drop(add(2));
    // `a` is the oldest, and in use; so `b` went.
    assert_eq!([0, 1, 2].map(is_there), [true, false, true]);
    drop(in_use);
    assert!(is_there(0), "looking at it is using it");
    drop(add(3));
    assert_eq!([0, 2, 3].map(is_there), [true, false, true]);
    end(cached);
}

/// CL-42
#[test]
fn what_was_left_half_made_is_swept_unless_somebody_makes_it() {
    let cached = tempfile::tempdir().unwrap();
    let cache = cache(&cached);
    let (digest, bytes) = of_size("a", 10);
    drop(cache.add(digest, Cursor::new(&bytes)).unwrap());
    let trees = cached.path().join("trees");
    for name in ["building-1-a", "gone-1-b", "building-2-c"] {
        fs::create_dir_all(trees.join(name).join("tree/sub")).unwrap();
    }
    let held = super::super::lock::take_if_free(&trees.join("building-2-c"))
        .unwrap()
        .unwrap();
    cache.sweep().unwrap();
    assert_eq!(entries(&cached), 2);
    drop(held);
    cache.sweep().unwrap();
    assert_eq!(entries(&cached), 1);
    end(cached);
}

/// CL-42, CL-52
#[test]
fn what_cannot_be_unpacked_leaves_nothing() {
    let cached = tempfile::tempdir().unwrap();
    let cache = cache(&cached);
    let hostile = archive(&[
        (tar::EntryType::Regular, "fine", "x"),
        (tar::EntryType::Regular, "../evil", "x"),
    ]);
    let refused = cache.add(Digest::of(&hostile), Cursor::new(&hostile));
    assert!(matches!(refused, Err(PackError::Hostile(_))), "{refused:?}");
    assert_eq!(entries(&cached), 0);
    assert_eq!(
        fs::metadata(cached.path().join("trees"))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777,
        0o700
    );
}
