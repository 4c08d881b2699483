//! Packing, unpacking, and archives that nobody packed.

mod cached;

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use tempfile::TempDir;

use super::*;
use crate::blobs::Blob;

/// Writes files: a path ending in `/` is a directory, `*` before one makes it executable, `a -> b` is a link.
pub(super) fn tree(entries: &[&str]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for entry in entries {
        if let Some((link, target)) = entry.split_once(" -> ") {
            make_parent(&root.path().join(link));
            symlink(target, root.path().join(link)).unwrap();
            continue;
        }
        let (name, mode) = match entry.strip_prefix('*') {
            Some(name) => (name, 0o750),
            None => (*entry, 0o640),
        };
        let path = root.path().join(name);
        make_parent(&path);
        if name.ends_with('/') {
            fs::create_dir_all(&path).unwrap();
        } else {
            fs::write(&path, format!("content of {name}\n")).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
    }
    root
}

fn make_parent(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
}

/// What is in a tree: modes and contents, or where links lead.
pub(super) fn contents(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut to_look = vec![root.to_owned()];
    while let Some(path) = to_look.pop() {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let kind = fs::symlink_metadata(&path).unwrap();
        let mode = kind.permissions().mode() & 0o7777;
        let shown = if kind.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if kind.is_dir() {
            to_look.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            format!("{mode:o}/")
        } else {
            format!("{mode:o} {}", fs::read_to_string(&path).unwrap())
        };
        found.insert(name, shown);
    }
    found
}

pub(super) fn packed(root: &Path) -> Vec<u8> {
    let scratch = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    pack(root, scratch.path())
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    bytes
}

fn refused(root: &Path) -> PackError {
    pack(root, root.parent().unwrap()).unwrap_err()
}

const TREE: [&str; 8] = [
    "z.py",
    "pkg/__init__.py",
    "pkg/data/table.csv",
    "*bin/run",
    "empty/",
    "pkg/up -> ../z.py",
    "here -> ./pkg/data",
    "nowhere -> not/there",
];

/// CL-42
#[test]
fn the_same_tree_gives_the_same_bytes() {
    let first = tree(&TREE);
    let mut reversed = TREE;
    reversed.reverse();
    let second = tree(&reversed);
    let file = File::open(second.path().join("z.py")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1))
        .unwrap();
    // Only whether the owner may run it counts.
    fs::set_permissions(second.path().join("z.py"), Permissions::from_mode(0o604)).unwrap();
    fs::set_permissions(
        second.path().join("bin/run"),
        Permissions::from_mode(0o4711),
    )
    .unwrap();
    fs::set_permissions(second.path().join("empty"), Permissions::from_mode(0o700)).unwrap();
    assert_eq!(packed(first.path()), packed(second.path()));
    // Any other difference is one.
    fs::set_permissions(second.path().join("z.py"), Permissions::from_mode(0o744)).unwrap();
    assert_ne!(packed(first.path()), packed(second.path()));
}

/// CL-42: the digest of a tree is part of what machines of all kinds and versions agree on.
#[test]
fn the_digest_of_a_tree_is_known() {
    let tree = tree(&["a.py", "*b/run", "b/link -> ../a.py", "c/"]);
    let blob = Blob::of(&packed(tree.path()));
    assert_eq!(
        (blob.bytes, &*blob.digest.to_string()),
        (
            4096,
            "a9698acb0d184edb13ee82a9a34173fbd05a455a236159980809357ec82301ef"
        )
    );
}

/// CL-42
#[test]
fn a_tree_comes_out_as_it_went_in_but_read_only() {
    let long = format!("{}/{}/file.py", "d".repeat(150), "e".repeat(200));
    let source = tree(&[&TREE[..], &[&long, "\u{e9}t\u{e9} 2.py"]].concat());
    let target = tempfile::tempdir().unwrap();
    let root = File::open(target.path()).unwrap().into();
    unpack::unpack(&*packed(source.path()), &root).unwrap();
    let mut expected = contents(source.path());
    for (name, shown) in &mut expected {
        *shown = match shown.split_once([' ', '/']) {
            Some(("->", _)) => continue,
            _ if name == "bin/run" => shown.replacen("750", "555", 1),
            Some((_, "")) => "555/".to_owned(),
            _ => shown.replacen("640", "444", 1),
        };
    }
    assert_eq!(contents(target.path()), expected);
    assert_eq!(packed(target.path()), packed(source.path()));
    fairtrial_exec::remove_tree(&target.keep()).unwrap();
}

/// CL-42: bytecode would change with every import, and with it the digest.
#[test]
fn bytecode_and_what_git_keeps_are_left_out() {
    let bare = tree(&["a.py"]);
    let full = tree(&[
        "a.py",
        "__pycache__/a.cpython-312.pyc",
        "b.pyc",
        ".git/HEAD",
    ]);
    assert_eq!(packed(bare.path()), packed(full.path()));
}

/// CL-42
#[test]
fn a_link_that_leads_out_is_refused_by_name() {
    for (link, target) in [
        ("out", "/etc/passwd"),
        ("out", ".."),
        ("out", "../other"),
        ("a/out", "../../x"),
        ("a/b/out", "../../../x"),
        ("out", "a/../../x"),
        // What is climbed from there may be anywhere.
        ("out", "a/../b"),
    ] {
        let tree = tree(&["plain.py", &format!("{link} -> {target}")]);
        match refused(tree.path()) {
            PackError::Link {
                link: named,
                target: to,
            } => assert_eq!((&*named, &*to), (link, target)),
            other => panic!("{link} -> {target}: {other}"),
        }
    }
}

/// CL-42
#[test]
fn neither_a_pipe_nor_a_socket_is_packed() {
    let tree = tree(&["a.py"]);
    let packed = || Blob::read(pack(tree.path(), tree.path()).unwrap()).unwrap();
    let without = packed();
    let pipe = tree.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.path().join("socket")).unwrap();
    assert_eq!(packed(), without);
}

/// CL-42: what others made of a tree, and what we write ourselves, is not part of it.
#[test]
fn caches_hidden_files_and_our_own_directories_are_left_out() {
    let tree = tree(&["a.py"]);
    let packed = || Blob::read(pack(tree.path(), tree.path()).unwrap()).unwrap();
    let (without, signature) = (packed(), Signature::of(tree.path()).unwrap());
    for made in [
        "__pycache__/a.pyc",
        ".git/config",
        "out/journal.sqlite",
        "sub/__pycache__/b.pyc",
    ] {
        let path = tree.path().join(made);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "made").unwrap();
    }
    fs::remove_dir_all(tree.path().join("sub")).unwrap();
    assert_eq!(
        (packed(), Signature::of(tree.path()).unwrap()),
        (without, signature.clone())
    );
    fs::write(tree.path().join("b.py"), "mine").unwrap();
    assert_ne!(packed(), without);
    assert_ne!(Signature::of(tree.path()).unwrap(), signature);
}

/// CL-42
#[test]
fn more_than_64_mib_is_refused_naming_what_was_too_much() {
    let tree = tree(&["a.py"]);
    let large = |name: &str, bytes: u64| {
        File::create(tree.path().join(name))
            .unwrap()
            .set_len(bytes)
            .unwrap()
    };
    large("b.bin", MOST_BYTES / 2);
    assert!(pack(tree.path(), tree.path()).is_ok());
    large("c.bin", MOST_BYTES / 2);
    assert!(matches!(refused(tree.path()), PackError::TooLarge { path, .. } if path == "c.bin"));
    large("c.bin", 1 << 40);
    assert!(matches!(refused(tree.path()), PackError::TooLarge { path, .. } if path == "c.bin"));
}

/// An archive with whatever names and links somebody wants.
fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (kind, name, content) in entries {
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        let size = if is_link { 0 } else { content.len() as u64 };
        let mut header = header(*kind, size, 0o644);
        let gnu = header.as_gnu_mut().unwrap();
        gnu.name[..name.len()].copy_from_slice(name.as_bytes());
        if is_link {
            gnu.linkname[..content.len()].copy_from_slice(content.as_bytes());
        }
        header.set_cksum();
        let body = if is_link { "" } else { content };
        archive.append(&header, body.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

/// CL-42, CL-43
#[test]
fn an_archive_that_means_harm_is_refused_and_writes_nothing_outside() {
    use EntryType::{Block, Char, Directory, Fifo, GNUSparse, Link, Regular, Symlink};
    let hostile: [&[(EntryType, &str, &str)]; 17] = [
        &[(Regular, "../evil", "x")],
        &[(Regular, "a/../../evil", "x")],
        &[(Regular, "/tmp/evil", "x")],
        &[(Regular, "a//b", "x")],
        &[(Regular, "./a", "x")],
        &[(Directory, "../evil/", "")],
        &[(Symlink, "out", "/etc")],
        &[(Symlink, "out", "../x")],
        &[(Symlink, "out", "")],
        &[(Symlink, "in", "sub"), (Regular, "in/evil", "x")],
        &[
            (Directory, "sub/", ""),
            (Symlink, "in", "sub"),
            (Regular, "in/evil", "x"),
        ],
        &[(Regular, "twice", "1"), (Regular, "twice", "2")],
        &[(Regular, "file", "1"), (Regular, "file/below", "2")],
        &[(Link, "hard", "/etc/passwd")],
        &[(Fifo, "pipe", "")],
        &[(Char, "null", ""), (Block, "disk", "")],
        &[(GNUSparse, "sparse", "")],
    ];
    for entries in hostile {
        let above = tempfile::tempdir().unwrap();
        let target = above.path().join("tree");
        fs::create_dir(&target).unwrap();
        let root = File::open(&target).unwrap().into();
        let refused = unpack::unpack(&*archive(entries), &root);
        assert!(
            matches!(refused, Err(PackError::Hostile(_))),
            "{entries:?}: {refused:?}"
        );
        assert_eq!(
            fs::read_dir(above.path()).unwrap().count(),
            1,
            "{entries:?}"
        );
        assert!(!target.join("sub/evil").exists());
    }
}

/// CL-52
#[test]
fn what_is_no_archive_or_only_part_of_one_is_refused() {
    let whole = packed(tree(&["a.py", "b.py"]).path());
    let mut altered = whole.clone();
    altered[0] ^= 1;
    for bytes in [&whole[..700], &whole[..1536], &altered, &[b'x'; 2000][..]] {
        let target = tempfile::tempdir().unwrap();
        let root = File::open(target.path()).unwrap().into();
        let result = unpack::unpack(bytes, &root);
        let is_refused = matches!(result, Err(PackError::Hostile(_)));
        // What ends between two entries is an archive too: that it is the right one, its digest tells.
        assert!(is_refused || bytes.len() == 1536, "{result:?}");
    }
}

proptest::proptest! {
    /// CL-42: any bytes, without a panic and without a way out.
    #[test]
    fn any_bytes_are_unpacked_or_refused(mut bytes in proptest::collection::vec(0_u8.., 0..3000), at in 0_usize..2000) {
        let whole = archive(&[(EntryType::Regular, "a/b", "content"), (EntryType::Symlink, "c", "a/b")]);
        let splice = at.min(whole.len());
        bytes.splice(0..0, whole[..splice].iter().copied());
        let above = tempfile::tempdir().unwrap();
        let target = above.path().join("tree");
        fs::create_dir(&target).unwrap();
        let root = File::open(&target).unwrap().into();
        unpack::unpack(&*bytes, &root).ok();
        assert_eq!(fs::read_dir(above.path()).unwrap().count(), 1);
        fairtrial_exec::remove_tree(&target).unwrap();
    }
}

/// CL-42
#[test]
fn a_file_that_shrinks_or_grows_while_it_is_packed_is_told() {
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("file");
    fs::write(&path, b"12345").unwrap();
    for size in [4, 6] {
        let mut bytes = Exactly {
            file: File::open(&path).unwrap(),
            left: size,
        };
        let mut read = Vec::new();
        bytes.read_to_end(&mut read).unwrap();
        let is_whole = bytes.left == 0 && bytes.file.read(&mut [0]).unwrap() == 0;
        assert!(!is_whole, "{size}");
    }
    let nowhere = pack(&file.path().join("missing"), file.path()).unwrap_err();
    assert!(
        matches!(nowhere, PackError::Reading { source, .. } if source.kind() == io::ErrorKind::NotFound)
    );
}

/// CL-27
#[test]
fn no_room_is_told_from_what_is_wrong_with_a_tree() {
    use rustix::io::Errno;
    let cache = |errno: Errno| PackError::Cache {
        path: "/cache".into(),
        source: errno.into(),
    };
    let store = PackError::Blob(BlobError {
        store: "s3://bucket".to_owned(),
        fault: Fault::Full("quota".to_owned()),
    });
    assert!(cache(Errno::NOSPC).is_full() && cache(Errno::DQUOT).is_full() && store.is_full());
    assert!(!cache(Errno::IO).is_full() && !PackError::Special("pipe".to_owned()).is_full());
}
