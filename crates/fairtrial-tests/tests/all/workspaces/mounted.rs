//! What a command finds in its workspace, and what is left of it.

use std::path::Path;

use fairtrial_exec::{ChangeKind, Level, Shared, SharedMode, Upper, Verdict, WorkspaceNamespace};
use fairtrial_tests::note;

use super::ground::{Ground, census, changed, kinds, said};

/// CA-25, CA-30, CA-33: at the repository's own path, as the caller's own user, again and again from the start.
#[tokio::test]
async fn every_command_finds_the_snapshot_at_the_repositorys_path() {
    let ground = Ground::new(&[("file", "base"), ("dir/inner", "inner"), ("dir/other", "o")]);
    let (repo, base) = (census(&ground.repo()), census(&ground.base()));
    let script =
        "pwd; id -u; ls; cat file; echo changed > file; rm dir/inner; mkdir made; : > made/new";
    for kind in kinds() {
        for _ in 0..2 {
            let outcome = ground.run(kind, script).await;
            let user = rustix::process::geteuid().as_raw();
            let place = ground.repo();
            let wanted = format!("{}\n{user}\ndir\nfile\nbase", place.display());
            assert_eq!(said(&outcome, kind), wanted, "{kind:?}");
            let wanted = [
                ("dir/inner", ChangeKind::Deleted),
                ("file", ChangeKind::Written),
                ("made/new", ChangeKind::Written),
            ];
            let wanted: Vec<_> = wanted.map(|(path, kind)| (path.to_owned(), kind)).into();
            let mut changed = changed(&outcome);
            changed.retain(|(path, _)| path != "made"); // whether a new directory is told as such depends on the mount
            assert_eq!(changed, wanted, "{kind:?}");
            let upper = outcome.upper.as_ref().expect("it had a workspace");
            let read = |path: &str| upper.read(Path::new(path), 100).expect("it can be read");
            assert_eq!(read("file"), Some(b"changed\n".to_vec()));
            assert_eq!(read("dir/inner"), None);
            assert_eq!(read("dir/other"), None);
        }
        assert_eq!(census(&ground.repo()), repo, "{kind:?}");
        assert_eq!(census(&ground.base()), base, "{kind:?}");
    }
}

/// CA-27: directories of layers and new ones, deleted, renamed, made anew.
#[tokio::test]
async fn directories_can_be_deleted_renamed_and_made_anew() {
    let ground = Ground::new(&[("gone/a", "a"), ("moved/deep/b", "b"), ("kept/c", "c")]);
    let script = "
        mkdir new; mv new newer; rmdir newer
        rm -r gone; mkdir gone; : > gone/fresh; ls gone
        mv moved elsewhere; cat elsewhere/deep/b; test ! -e moved
        rm -r kept; test ! -e kept";
    for kind in kinds() {
        let outcome = ground.run(kind, script).await;
        assert_eq!(said(&outcome, kind), "fresh\nb", "{kind:?}");
        let changed = changed(&outcome);
        let has = |path: &str, kind| changed.contains(&(path.to_owned(), kind));
        assert!(has("gone", ChangeKind::OpaqueDirectory), "{changed:?}");
        assert!(has("moved", ChangeKind::Deleted), "{changed:?}");
        assert!(has("kept", ChangeKind::Deleted), "{changed:?}");
    }
}

/// The one difference between the two ways to mount.
#[tokio::test]
async fn a_directory_of_a_layer_is_renamed_in_one_step_only_where_root_mounted() {
    let ground = Ground::new(&[("dir/a", "a")]);
    let python = "import os\ntry: os.rename('dir', 'other')\nexcept OSError as e: print(e.errno)";
    let script = format!("python3 -c \"{python}\"; ls");
    for kind in kinds() {
        let outcome = ground.run(kind, &script).await;
        let wanted = match kind.namespace {
            WorkspaceNamespace::User => "18\ndir\n", // EXDEV, upon which programs copy
            WorkspaceNamespace::Root => "other\n",
        };
        assert_eq!(said(&outcome, kind), wanted, "{kind:?}");
    }
}

/// CA-35: and nobody else is concerned.
#[tokio::test]
async fn a_full_workspace_ends_its_own_call_with_a_disk_limit() {
    let ground = Ground::new(&[("file", "base")]);
    for kind in kinds() {
        let mut small = ground.workspace(kind);
        small.upper = Upper::Memory { bytes: 1 << 20 };
        let fill = "dd if=/dev/zero of=big bs=64k count=100";
        let (full, other) = tokio::join!(
            ground.run_in(kind, small.clone(), fill),
            ground.run(
                kind,
                "dd if=/dev/zero of=big bs=64k count=100 && echo enough"
            ),
        );
        assert_eq!(
            full.verdict,
            Verdict::DiskLimit,
            "{kind:?}: {:?}",
            full.error
        );
        assert_eq!(said(&other, kind), "enough\n");
        // However it ends.
        let ignored = ground
            .run_in(kind, small, &format!("{fill} || exit 0"))
            .await;
        assert_eq!(ignored.verdict, Verdict::DiskLimit, "{kind:?}");
    }
}

/// CA-32: at their path, unchangeable or changed in private.
#[tokio::test]
async fn shared_directories_are_there_and_never_changed() {
    let ground = Ground::new(&[("file", "base")]);
    let write = |path: &str, text: &str| {
        let path = ground.repo().join(path);
        std::fs::create_dir_all(path.parent().expect("below the repository")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    write(".venv/bin/tool", "tool");
    write("a/node_modules/x/index", "x");
    let repo = census(&ground.repo());
    let shared = |path: &str, mode| Shared {
        at: ground.repo().join(path),
        source: ground.repo().join(path),
        mode,
    };
    let layers = Vec::new();
    let script = "
        cat .venv/bin/tool a/node_modules/x/index; ls a; echo; test ! -e mine
        (echo no > .venv/bin/tool) 2>/dev/null && echo written
        (rm .venv/bin/tool) 2>/dev/null && echo removed
        (: > .venv/new) 2>/dev/null && echo made
        echo changed > a/node_modules/x/index; rm -r a/node_modules/x; mkdir a/node_modules/y; ls a/node_modules";
    for kind in kinds() {
        for _ in 0..2 {
            let mut workspace = ground.workspace(kind);
            workspace.shared = vec![
                shared(".venv", SharedMode::ReadOnly),
                shared(
                    "a/node_modules",
                    SharedMode::CopyOnWrite {
                        layers: layers.clone(),
                    },
                ),
            ];
            let outcome = ground.run_in(kind, workspace, script.trim_start()).await;
            assert_eq!(said(&outcome, kind), "toolxnode_modules\n\ny\n", "{kind:?}");
            assert_eq!(changed(&outcome), [], "{kind:?}");
            assert_eq!(census(&ground.repo()), repo, "{kind:?}");
        }
    }
}

/// CA-59: covered where they are, and wherever else.
#[tokio::test]
async fn hidden_places_are_empty_and_stay_so() {
    let ground = Ground::new(&[("judge/secret", "s"), ("one", "1"), ("two", "2")]);
    let outside = ground.directory("outside");
    std::fs::write(outside.join("secret"), "s").expect("written");
    let single = ground.story.write("single", "s");
    let script = format!(
        "ls -A judge {0}; cat one {1}; cat two
        for place in judge/x {0}/x one {1}; do (: > $place) 2>/dev/null && echo $place; done; true",
        outside.display(),
        single.display(),
    );
    for kind in kinds() {
        let mut workspace = ground.workspace(kind);
        let inside = ["judge", "one", "not-there"].map(|name| ground.repo().join(name));
        workspace.hidden = inside.into();
        workspace
            .hidden
            .extend([outside.clone(), single.clone(), ground.path("nowhere")]);
        let outcome = ground.run_in(kind, workspace, &script).await;
        let wanted = format!("{}:\n\njudge:\n2", outside.display());
        let said = said(&outcome, kind);
        let mut lines: Vec<_> = said.lines().filter(|line| !line.is_empty()).collect();
        lines.sort_unstable();
        let mut wanted: Vec<_> = wanted.lines().filter(|line| !line.is_empty()).collect();
        wanted.sort_unstable();
        assert_eq!(lines, wanted, "{kind:?}");
    }
}

/// CA-31: what the user's `.git` holds is covered with all else of his tree.
#[tokio::test]
async fn the_users_own_git_directory_is_not_there() {
    let ground = Ground::new(&[(".git/HEAD", "one commit")]);
    let config = ground.repo().join(".git/config");
    std::fs::create_dir(ground.repo().join(".git")).expect("made");
    std::fs::write(config, "secret").expect("written");
    for kind in kinds() {
        let outcome = ground.run(kind, "ls .git; cat .git/HEAD").await;
        assert_eq!(said(&outcome, kind), "HEAD\none commit");
    }
}

/// CA-44: whoever is left is gone before anybody looks at what was changed.
#[tokio::test]
async fn what_is_left_running_is_gone_before_the_changes_are_looked_at() {
    let ground = Ground::new(&[("file", "base")]);
    let script =
        "(setsid sh -c 'while :; do echo more >> log; done' &) ; while ! test -s log; do :; done";
    for kind in kinds() {
        let outcome = ground.run(kind, script).await;
        said(&outcome, kind);
        let upper = outcome.upper.as_ref().expect("it had a workspace");
        let read = || {
            let log = upper.read(Path::new("log"), 60 << 20);
            log.expect("it can be read").expect("it was written").len()
        };
        let first = read();
        assert!(first > 0);
        tokio::task::yield_now().await;
        assert_eq!(read(), first, "{kind:?}: somebody still writes");
    }
}

/// CA-38: each its own.
#[tokio::test]
async fn eight_at_once_do_not_see_each_other() {
    let ground = Ground::new(&[("file", "base")]);
    for kind in kinds() {
        let runs: Vec<_> = (0..8)
            .map(|n| {
                let script = format!("cat file; echo {n} > file; mkdir d; : > d/{n}; cat file; ls d; ps ax 2>/dev/null | grep -c '[s]h -ec' || true");
                let call = ground.call(kind, ground.workspace(kind), &script);
                let run = ground.story.backend.submit(call);
                run.expect("the engine takes it")
            })
            .collect();
        for (n, run) in runs.into_iter().enumerate() {
            let outcome = run.await.expect("the engine does its work");
            let said = said(&outcome, kind);
            assert!(
                said.starts_with(&format!("base{n}\n{n}\n")),
                "{kind:?}: {said}"
            );
        }
    }
}

/// A working directory that only the snapshot has.
#[tokio::test]
async fn a_command_starts_in_a_directory_of_its_workspace() {
    let ground = Ground::new(&[("only/there/file", "x")]);
    for kind in kinds() {
        let mut call = ground.call(kind, ground.workspace(kind), "pwd; cat file; : > new");
        let place = ground.repo().join("only/there");
        call.cwd = Some(place.clone());
        let outcome = ground.story.run(call).await;
        assert_eq!(
            said(&outcome, kind),
            format!("{}\nx", place.display()),
            "{kind:?}"
        );
    }
}

/// CA-25: above `none` the workspace is what it can write, and nothing else of the user's.
#[tokio::test]
async fn the_write_scope_of_a_level_holds_beside_a_workspace() {
    let ground = Ground::new(&[("file", "base")]);
    let outside = ground.directory("outside");
    let script = format!(
        "echo > file; (: > {}/new) 2>/dev/null && echo outside; true",
        outside.display()
    );
    for kind in kinds() {
        let outcome = ground.run(kind, &script).await;
        let wanted = match kind.level {
            Level::None => "outside\n",
            Level::Limits | Level::Confined | Level::Strict => "",
        };
        assert_eq!(said(&outcome, kind), wanted, "{kind:?}");
    }
}

/// A program is looked for where its process is: in the workspace.
#[tokio::test]
async fn programs_of_the_workspace_run_by_every_name() {
    use super::ground::file_of;
    let ground = Ground::new(&[]);
    let layer = ground.layer(
        "tools",
        [file_of("bin/tool", "#!/bin/sh\necho ran\n", 0o755)],
    );
    for kind in kinds() {
        let whole = ground.repo().join("bin/tool");
        for name in [
            Path::new("bin/tool"),
            Path::new("./bin/tool"),
            &whole,
            Path::new("tool"),
        ] {
            let mut workspace = ground.workspace(kind);
            workspace.layers.insert(0, layer.clone());
            let mut call = ground.call(kind, workspace, "");
            let path = format!("{}:/usr/bin:/bin", ground.repo().join("bin").display());
            call.env.insert("PATH".into(), Some(path.into()));
            let fairtrial_exec::Work::Command(work) = &mut call.work else {
                unreachable!("a command")
            };
            work.argv = vec![name.into()];
            let outcome = ground.story.run(call).await;
            assert_eq!(said(&outcome, kind), "ran\n", "{kind:?} {name:?}");
        }
    }
}

/// A workspace that cannot be mounted says why.
#[tokio::test]
async fn a_layer_that_is_not_there_is_told() {
    let ground = Ground::new(&[]);
    for kind in kinds() {
        let mut workspace = ground.workspace(kind);
        workspace.layers.push(ground.path("nowhere"));
        let outcome = ground.run_in(kind, workspace, "true").await;
        assert_eq!(outcome.verdict, Verdict::SetupFailed, "{kind:?}");
        let error = outcome.error.expect("it is told why").message;
        let nowhere = ground.path("nowhere");
        let wanted = format!("workspace `{}`: No such file", nowhere.display());
        assert!(error.contains(&wanted), "{kind:?}: {error}");
    }
}

/// Processors can be chosen at every level.
#[tokio::test]
async fn a_command_in_a_workspace_can_be_kept_to_a_processor() {
    let ground = Ground::new(&[]);
    for kind in kinds() {
        let mut call = ground.call(kind, ground.workspace(kind), "nproc");
        let cpus = fairtrial_exec::available_cpus();
        if cpus < 2 {
            return note("skipped: there is only one processor");
        }
        call.sandbox.cpus = Some(vec![0]);
        assert_eq!(said(&ground.story.run(call).await, kind), "1\n", "{kind:?}");
    }
}

/// What is in force says so.
#[tokio::test]
async fn an_outcome_tells_of_the_workspace() {
    let ground = Ground::new(&[]);
    for kind in kinds() {
        let outcome = ground.run(kind, "umask").await;
        let umask = said(&outcome, kind);
        assert_eq!(umask == "0077\n", kind.level != Level::None, "{umask}");
        let names = ["workspace", "capabilities", "tree_kill", "environ_guard"];
        for name in names {
            let found = outcome.in_force.mechanisms.iter();
            let found = found.clone().find(|one| one.name == name);
            let state = found.map(|one| one.state);
            assert_eq!(
                state,
                Some(fairtrial_exec::State::Enforced),
                "{kind:?} {name}"
            );
        }
    }
}
