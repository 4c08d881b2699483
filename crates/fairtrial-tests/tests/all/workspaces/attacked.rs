//! Commands that look for what their workspace covers (CA-26).

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fairtrial_exec::{Level, Shared, SharedMode, Verdict, Work, Workspace};

use super::ground::{Ground, Kind, census, file, kinds, said};

const WORD: &str = "what-the-user-has";

/// A repository whose covered files hold a word, and all that is the engine's in one hidden place.
fn ground() -> (Ground, PathBuf) {
    let ground = Ground::new(&[("file", "base")]);
    let cache = ground.directory("cache");
    std::fs::rename(ground.base(), cache.join("base")).expect("it is ours");
    std::fs::write(cache.join("secret"), WORD).expect("written");
    std::fs::write(ground.repo().join("mine"), WORD).expect("written");
    std::fs::create_dir(ground.repo().join("sub")).expect("made");
    std::fs::write(ground.repo().join("sub/mine"), WORD).expect("written");
    (ground, cache)
}

fn workspace(ground: &Ground, cache: &Path, kind: Kind) -> Workspace {
    let mut workspace = ground.workspace(kind);
    workspace.layers = vec![cache.join("base")];
    workspace.hidden = vec![cache.to_path_buf()];
    workspace
}

/// CA-26
#[tokio::test]
async fn nothing_uncovers_or_changes_what_a_workspace_covers() {
    let (ground, cache) = ground();
    let program = include_str!("../../../programs/uncover_workspace.py");
    let (repo, covered) = (census(&ground.repo()), census(&cache));
    let handles = [
        ground.repo().join("mine"),
        ground.repo(),
        cache.join("secret"),
    ]
    .map(|path| handle(&path));
    for kind in kinds() {
        let mut call = ground.call(kind, workspace(&ground, &cache, kind), "");
        let Work::Command(work) = &mut call.work else {
            unreachable!("a command")
        };
        work.argv = ["python3", "-c", program].map(Into::into).into();
        work.argv.push(ground.repo().into());
        work.argv.push(WORD.into());
        work.argv.push(cache.clone().into());
        work.argv.push(handles.join(":").into());
        let outcome = ground.story.run(call).await;
        assert_eq!(said(&outcome, kind), "tried\n", "{kind:?}");
        if kind.level == Level::None {
            let entered = outcome.stderr.text();
            assert!(entered.contains("nested 1: entered"), "{kind:?}: {entered}");
        }
        assert_eq!(census(&ground.repo()), repo, "{kind:?}");
        assert_eq!(census(&cache), covered, "{kind:?}");
    }
}

/// The program that found nothing finds something where there is something to find.
#[tokio::test]
async fn the_attack_would_be_seen_if_it_succeeded() {
    let (ground, cache) = ground();
    let program = include_str!("../../../programs/uncover_workspace.py");
    let kind = kinds()[0];
    let mut open = workspace(&ground, &cache, kind);
    open.hidden.clear();
    let mut call = ground.call(kind, open, "");
    let Work::Command(work) = &mut call.work else {
        unreachable!("a command")
    };
    work.argv = ["python3", "-c", program].map(Into::into).into();
    work.argv.push(ground.repo().into());
    work.argv.push(WORD.into());
    work.argv.push(cache.clone().into());
    work.argv.push(handle(&cache).into());
    let outcome = ground.story.run(call).await;
    let said = said(&outcome, kind);
    let shows = format!("by itself: shows {}", cache.display());
    assert!(said.contains(&shows), "{said}");
}

/// CA-32: what is shared cannot be reached by a way around its read-only mount.
#[tokio::test]
async fn a_shared_directory_cannot_be_made_writable() {
    let ground = Ground::new(&[("file", "base")]);
    ground.directory("repo/.venv");
    std::fs::write(ground.repo().join(".venv/tool"), "tool").expect("written");
    let before = census(&ground.repo());
    let script = "
        mount -o remount,rw,bind .venv 2>/dev/null && echo remounted
        unshare -Urm sh -c 'mount -o remount,rw,bind .venv || umount .venv; : > .venv/tool' 2>/dev/null && echo changed
        unshare -Urm sh -c 'mount --bind .venv /tmp && : > /tmp/tool' 2>/dev/null && echo changed
        chmod 777 .venv/tool 2>/dev/null && echo changed
        cat .venv/tool";
    for kind in kinds() {
        let mut workspace = ground.workspace(kind);
        workspace.shared.push(Shared {
            at: ground.repo().join(".venv"),
            source: ground.repo().join(".venv"),
            mode: SharedMode::ReadOnly,
        });
        let outcome = ground.run_in(kind, workspace, script.trim_start()).await;
        assert_eq!(said(&outcome, kind), "tool", "{kind:?}");
        assert_eq!(census(&ground.repo()), before, "{kind:?}");
    }
}

/// CA-14, CA-32: a layer may have a link where a directory is needed; nothing is made where it leads.
#[tokio::test]
async fn what_is_shared_is_not_mounted_through_a_link() {
    let ground = Ground::new(&[("file", "base")]);
    let (beside, source) = (ground.directory("beside"), ground.directory("source"));
    std::os::unix::fs::symlink(&beside, ground.base().join("deps")).expect("made");
    for kind in kinds() {
        let mut workspace = ground.workspace(kind);
        workspace.shared.push(Shared {
            at: ground.repo().join("deps/lib"),
            source: source.clone(),
            mode: SharedMode::ReadOnly,
        });
        let outcome = ground.run_in(kind, workspace, "echo ran").await;
        assert_eq!(
            outcome.verdict,
            Verdict::SetupFailed,
            "{kind:?}: {outcome:?}"
        );
        let made = std::fs::read_dir(&beside).expect("it is there").count();
        assert_eq!(made, 0, "{kind:?}");
    }
}

/// Who is root without privileges owns files by which the kernel is told whose program to run.
#[tokio::test]
async fn at_strict_the_kernels_settings_cannot_be_written() {
    let ground = Ground::new(&[]);
    let strict = |kind: &Kind| kind.level == Level::Strict;
    let script = "
        for file in sys/kernel/core_pattern sys/kernel/modprobe sysrq-trigger; do
            test ! -w /proc/$file || echo $file
        done";
    for kind in kinds().into_iter().filter(strict) {
        let outcome = ground.run(kind, script.trim_start()).await;
        assert_eq!(said(&outcome, kind), "", "{kind:?}");
    }
}

/// CA-58: whatever a command writes is seen, and is gone for the next one.
#[tokio::test]
async fn what_a_command_does_to_protected_paths_is_seen() {
    let ground = Ground::new(&[("tests/test_a.py", "a"), ("tests/sub/test_b.py", "b")]);
    let attacks = [
        ("echo > tests/test_a.py", "tests/test_a.py"),
        ("rm tests/test_a.py", "tests/test_a.py"),
        ("chmod 600 tests/test_a.py", "tests/test_a.py"),
        ("mv tests away; mkdir tests; cp -r away/. tests", "tests"),
        ("mv tests away; ln -s away tests", "tests"),
        ("ln -s /etc/passwd tests/conftest.py", "tests/conftest.py"),
        (
            "cp tests/test_a.py x; mv x tests/test_a.py",
            "tests/test_a.py",
        ),
        (
            "python3 -c \"import mmap; f = open('tests/test_a.py', 'r+b'); mmap.mmap(f.fileno(), 0)[0] = 66\"",
            "tests/test_a.py",
        ),
    ];
    for kind in kinds() {
        for (attack, path) in attacks {
            let outcome = ground.run(kind, attack).await;
            said(&outcome, kind);
            let seen = super::ground::changed(&outcome);
            assert!(
                seen.iter().any(|(seen, _)| seen == path),
                "{kind:?} {attack}: {seen:?}"
            );
            let after = ground
                .run(kind, "find tests -type f | sort | xargs cat")
                .await;
            assert_eq!(said(&after, kind), "ba", "{kind:?} {attack}");
        }
    }
}

/// A candidate's layer is a stranger's, too: its links lead nowhere that matters.
#[tokio::test]
async fn links_of_a_layer_do_not_lead_mounts_elsewhere() {
    let ground = Ground::new(&[("file", "base")]);
    let venv = ground.directory("venv");
    std::fs::write(venv.join("tool"), "tool").expect("written");
    let victim = ground.directory("victim");
    std::fs::write(victim.join("file"), "kept").expect("written");
    let target = fairtrial_exec::LayerEntry::Link {
        target: victim.as_os_str().as_bytes().to_vec(),
    };
    let layer = ground.layer(
        "candidate",
        [(".venv".into(), Some(target)), file("a", "a")],
    );
    for kind in kinds() {
        let mut workspace = ground.workspace(kind);
        workspace.layers.insert(0, layer.clone());
        workspace.shared.push(Shared {
            at: ground.repo().join(".venv"),
            source: venv.clone(),
            mode: SharedMode::CopyOnWrite { layers: Vec::new() },
        });
        // Whether it can be mounted there is the candidate's own affair.
        ground
            .run_in(kind, workspace, "echo changed > .venv/file")
            .await;
        let kept = std::fs::read_to_string(victim.join("file")).expect("it is there");
        assert_eq!(kept, "kept", "{kind:?}");
        assert_eq!(
            std::fs::read_dir(&venv).expect("there").count(),
            1,
            "{kind:?}"
        );
    }
}

/// The kernel's name for a file, as `type-bytes`; empty where there are none.
fn handle(path: &Path) -> String {
    let script = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
blob, mount = ctypes.create_string_buffer(8 + 128), ctypes.c_int()
blob[0:4] = (128).to_bytes(4, sys.byteorder)
if libc.name_to_handle_at(-100, os.fsencode(sys.argv[1]), blob, ctypes.byref(mount), 0) == 0:
    size = int.from_bytes(blob.raw[0:4], sys.byteorder)
    kind = int.from_bytes(blob.raw[4:8], sys.byteorder, signed=True)
    print(f'{kind}-{blob.raw[8:8 + size].hex()}')
else:
    print('0-00')
";
    #[expect(
        clippy::disallowed_methods,
        reason = "the test asks the kernel, no candidate runs"
    )]
    let output = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(path)
        .output()
        .expect("python runs");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}
