//! What layers show: a candidate's own files, and what a build left.

use std::path::Path;

use fairtrial_exec::{
    ChangeKind, LayerEntry, Level, MOST_CHANGES, Shared, SharedMode, Upper, Workspace, remove_tree,
    write_layer,
};
use rustix::process::geteuid;

use super::ground::{Ground, Kind, census, changed, file, file_of, gone, kinds, long_ago, said};

/// Every path with its kind, mode, time and what is in it, as the command sees them.
const LIST: &str = r#"
import os, stat
for top, dirs, files in os.walk('.'):
    dirs.sort()
    for name in sorted(dirs + files):
        path = os.path.join(top, name)
        s = os.lstat(path)
        what = ''
        if stat.S_ISREG(s.st_mode): what = open(path).read()
        if stat.S_ISLNK(s.st_mode): what = os.readlink(path)
        print(ascii(path), stat.filemode(s.st_mode), s.st_mtime_ns, ascii(what))
"#;

fn list() -> String {
    format!("python3 -c \"{}\"", LIST.trim())
}

/// CA-33: all that a candidate can do to a tree.
#[tokio::test]
async fn a_candidates_layer_shows_its_files_and_hides_what_it_deletes() {
    let base = [
        ("same", "same"),
        ("edited", "old"),
        ("deleted", "x"),
        ("d/deleted", "x"),
        ("d/kept", "kept"),
        ("whole/a", "x"),
        ("whole/b/c", "x"),
        ("anew/old", "x"),
        ("to_file/x", "x"),
        ("to_directory", "x"),
    ];
    let ground = Ground::new(&base);
    std::fs::set_permissions(
        ground.base().join("d"),
        std::os::unix::fs::PermissionsExt::from_mode(0o750),
    )
    .expect("it is ours");
    let link = LayerEntry::Link {
        target: b"d/kept".to_vec(),
    };
    let candidate = ground.layer(
        "candidate",
        [
            file_of("edited", "new", 0o755),
            gone("deleted"),
            gone("d/deleted"),
            gone("whole"),
            gone("anew"),
            file("anew/new", "new"),
            gone("to_file/x"),
            file("to_file", "file"),
            gone("to_directory"),
            file("to_directory/x", "x"),
            ("link".into(), Some(link)),
            file("made/deep/x", "x"),
        ],
    );
    let script = "
        find . | sort; cat edited anew/new to_file to_directory/x link made/deep/x
        stat -c '%n %a' d edited made; stat -c '%n %Y' edited same d";
    for kind in kinds() {
        let mut workspace = ground.workspace(kind);
        workspace.layers.insert(0, candidate.clone());
        let outcome = ground.run_in(kind, workspace, script.trim_start()).await;
        let wanted = "
.
./anew
./anew/new
./d
./d/kept
./edited
./link
./made
./made/deep
./made/deep/x
./same
./to_directory
./to_directory/x
./to_file
newnewfilexkeptxd 750
edited 755
made 755
edited 1500000000
same 1500000000
d 1500000000
";
        assert_eq!(said(&outcome, kind), wanted.trim_start(), "{kind:?}");
        assert_eq!(changed(&outcome), [], "{kind:?}");
    }
}

/// A layer is made of paths below it, whoever names them.
#[test]
fn a_path_that_leads_elsewhere_is_no_path_of_a_layer() {
    let directory = tempfile::tempdir().expect("a directory");
    for (n, path) in ["/etc/x", "../x", "a/../../x", ""].into_iter().enumerate() {
        let layer = directory.path().join(n.to_string());
        let written = write_layer(&layer, [file(path, "x")], &[], long_ago());
        assert!(written.is_err(), "{path}");
    }
    let layer = directory.path().join("both");
    let both = [file("a", "x"), file("a/b", "x")];
    assert!(write_layer(&layer, both, &[], long_ago()).is_err());
}

/// CA-33: what a build made, deleted, replaced and moved is what every later command finds.
#[tokio::test]
async fn what_a_build_left_is_a_layer_for_others() {
    let ground = Ground::new(&[
        ("src/a", "a"),
        ("src/b", "b"),
        ("gone/x", "x"),
        ("again/old", "x"),
        ("moved/deep/x", "x"),
    ]);
    let base = census(&ground.base());
    let build = format!(
        "mkdir out; echo built > out/lib; rm -r gone again; mkdir again; : > again/new
        mv moved elsewhere; rm src/b; echo more >> src/a; chmod 700 src; ln -s src/a link
        mkdir \"$(printf 'new\\nline')\"; mkdir closed; : > closed/x; chmod 0 closed/x; chmod 500 closed
        touch -d @1400000000 out/lib src; {}",
        list().replace("open(path).read()", "'-' if s.st_mode & 0o777 == 0 else open(path).read()")
    );
    let list = list().replace(
        "open(path).read()",
        "'-' if s.st_mode & 0o777 == 0 else open(path).read()",
    );
    for (n, kind) in kinds().into_iter().enumerate() {
        let directory = ground.directory(&format!("kept-{n}"));
        let mut workspace = ground.workspace(kind);
        workspace.upper = Upper::Disk {
            directory: directory.clone(),
        };
        let output = workspace.upper.layer().expect("it is on disk");
        let built = ground.run_in(kind, workspace, &build).await;
        let wanted = said(&built, kind);
        assert!(wanted.contains("elsewhere/deep/x"), "{wanted}");
        let told = changed(&built);
        let has = |path: &str, kind| told.contains(&(path.to_owned(), kind));
        assert!(has("src/b", ChangeKind::Deleted) && has("closed/x", ChangeKind::Written));
        let left = census_of(&output);
        for _ in 0..2 {
            let mut workspace = ground.workspace(kind);
            workspace.layers.insert(0, output.clone());
            let script = format!("{list}; rm -rf out src again; : > new");
            let later = ground.run_in(kind, workspace, &script).await;
            assert_eq!(said(&later, kind), wanted, "{kind:?}");
            assert_eq!(census_of(&output), left, "{kind:?}");
        }
        assert_eq!(census(&ground.base()), base, "{kind:?}");
        // CA-36
        remove_tree(&directory).expect("whatever it holds");
        assert!(!directory.exists());
    }
}

/// As root sees it, who may look everywhere.
fn census_of(path: &Path) -> Option<impl PartialEq + std::fmt::Debug> {
    geteuid().is_root().then(|| census(path))
}

/// CA-33: a build may change what is shared copy-on-write, too.
#[tokio::test]
async fn what_a_build_left_in_a_shared_directory_is_kept_beside() {
    let ground = Ground::new(&[("file", "base")]);
    let source = ground.directory("repo/target");
    std::fs::write(source.join("warm"), "warm").expect("written");
    std::fs::write(source.join("stale"), "stale").expect("written");
    let before = census(&ground.repo());
    for (n, kind) in kinds().into_iter().enumerate() {
        let shared = |layers| Shared {
            at: source.clone(),
            source: source.clone(),
            mode: SharedMode::CopyOnWrite { layers },
        };
        let mut build = ground.workspace(kind);
        build.upper = Upper::Disk {
            directory: ground.directory(&format!("kept-{n}")),
        };
        build.shared = vec![shared(Vec::new())];
        let kept = build.upper.clone();
        let script = "rm target/stale; echo built > target/new; echo out > out";
        said(&ground.run_in(kind, build, script).await, kind);
        let mut later = ground.workspace(kind);
        later.layers.insert(0, kept.layer().expect("on disk"));
        later.shared = vec![shared(vec![kept.of_shared(0).expect("on disk")])];
        let outcome = ground
            .run_in(kind, later, "ls . target; echo > target/x")
            .await;
        let wanted = ".:\nfile\nout\ntarget\n\ntarget:\nnew\nwarm\n";
        assert_eq!(said(&outcome, kind), wanted, "{kind:?}");
        assert_eq!(census(&ground.repo()), before);
    }
}

/// CA-34: two candidates of equal size and time.
#[tokio::test]
async fn bytecode_of_one_candidate_is_never_run_by_another() {
    let ground = Ground::new(&[("main.py", "import module; print(module.VALUE)")]);
    let candidates: Vec<_> = ["1", "2"]
        .map(|value| ground.layer(value, [file("module.py", &format!("VALUE = {value}\n"))]))
        .into();
    let list = "python3 main.py; ls __pycache__ | wc -l";
    for kind in kinds() {
        for (n, candidate) in candidates
            .iter()
            .enumerate()
            .chain(candidates.iter().enumerate())
        {
            let mut workspace = ground.workspace(kind);
            workspace.layers.insert(0, candidate.clone());
            let mut call = ground.call(kind, workspace, list);
            call.env.insert("PYTHONDONTWRITEBYTECODE".into(), None);
            let outcome = ground.story.run(call).await;
            assert_eq!(said(&outcome, kind), format!("{}\n1\n", n + 1), "{kind:?}");
        }
    }
}

/// CA-36: made, looked at and removed.
#[tokio::test]
async fn ten_thousand_entries_and_strange_names_and_modes_stop_nobody() {
    let many: Vec<String> = (0..10_000).map(|n| format!("many/{n}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
    let ground = Ground::new(&many);
    let script = "
        ls many | wc -l; rm -r many; mkdir many; ls many
        python3 - <<'END'
import os
for n in range(NEW): open(f'many/new\\n{n}', 'w').close()
os.mkdir('closed'); open('closed/x', 'w').close(); os.chmod('closed/x', 0); os.chmod('closed', 0)
END";
    let bare = |kind: &Kind| kind.level == Level::None;
    for (n, kind) in kinds().into_iter().filter(bare).enumerate() {
        let directory = ground.directory(&format!("kept-{n}"));
        let memory = Upper::Memory { bytes: 64 << 20 };
        for (upper, new) in [(memory, 10_500), (Upper::Disk { directory }, 500)] {
            let mut workspace: Workspace = ground.workspace(kind);
            workspace.upper = upper;
            let kept = workspace.upper.clone();
            let script = script.trim_start().replace("NEW", &new.to_string());
            let outcome = ground.run_in(kind, workspace, &script).await;
            assert_eq!(said(&outcome, kind), "10000\n", "{kind:?}");
            let upper = outcome.upper.as_ref().expect("it had a workspace");
            let changes = upper.changes().expect("they can be looked at");
            // Two directories and what is in them.
            assert_eq!(
                (changes.total, changes.complete),
                (new + 3, true),
                "{kind:?}"
            );
            let kept_paths = changes.paths.len() as u64;
            assert_eq!(kept_paths, (new + 3).min(MOST_CHANGES as u64));
            let mut seen = 0;
            let looked = upper.visit(|path, _| {
                seen += u64::from(path.to_str().is_some_and(|path| path.contains('\n')));
            });
            assert!(looked.expect("it can be looked at") && seen == new);
            if let Upper::Disk { directory } = &kept {
                remove_tree(directory).expect("whatever it holds");
                assert!(!directory.exists());
            }
        }
    }
}

/// CA-59: outputs are regular files, however they are named.
#[tokio::test]
async fn only_regular_files_are_read_out() {
    let ground = Ground::new(&[("dir/x", "x")]);
    let kind = Kind {
        namespace: fairtrial_exec::WorkspaceNamespace::User,
        level: Level::None,
    };
    let script = "
        echo out > out; ln -s /etc/passwd link; ln -s /etc directory; mkfifo pipe; mkdir new
        ln out hard; rm dir/x; dd if=/dev/zero of=large bs=1k count=100 2>/dev/null; chmod 755 out";
    let outcome = ground.run(kind, script.trim_start()).await;
    said(&outcome, kind);
    let upper = outcome.upper.as_ref().expect("it had a workspace");
    let read = |path: &str| upper.read(Path::new(path), 1000).ok();
    assert_eq!(read("out"), Some(Some(b"out\n".to_vec())));
    assert_eq!(read("hard"), Some(Some(b"out\n".to_vec())));
    for none in [
        "link",
        "directory/passwd",
        "pipe",
        "new",
        "dir/x",
        "nowhere",
        "directory",
    ] {
        assert_eq!(read(none), Some(None), "{none}");
    }
    for refused in ["large", "/etc/passwd", "../../etc/passwd"] {
        assert_eq!(read(refused), None, "{refused}");
    }
    assert_eq!(upper.mode(Path::new("out")).ok(), Some(Some(0o755)));
}
