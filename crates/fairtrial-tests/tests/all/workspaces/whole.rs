//! The suite as somebody without privileges, what works here, and what is left when everything is killed.

use std::path::Path;
use std::process::Command;

use fairtrial_exec::{Upper, Workspace, WorkspaceNamespace, probe_workspaces};
use fairtrial_tests::{Story, is_alone, note, running_with, wait_until};

use super::ground::{Ground, census, kinds};

/// CA-25, CA-26: the same suite, run by a user who has nothing.
#[test]
fn all_of_it_holds_for_a_user_without_privileges() {
    if !rustix::process::geteuid().is_root() {
        return note("not needed: this is no privileged user");
    }
    if !Path::new("/usr/bin/setpriv").exists() {
        return note("skipped: there is no `setpriv` to be somebody else");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("tests");
    let built = std::env::current_exe().expect("this process has a program");
    std::fs::copy(built, &program).expect("it can be copied");
    for path in [directory.path(), &program] {
        std::os::unix::fs::chown(path, Some(12345), Some(12345)).expect("root may");
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the test binary runs itself, no candidate"
    )]
    let output = Command::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--clear-groups", "--"])
        .arg(&program)
        .args([
            "workspaces::mounted",
            "workspaces::layers",
            "workspaces::attacked",
        ])
        .args(["--test-threads=2"])
        .env("TMPDIR", directory.path())
        .env("HOME", directory.path())
        .output()
        .expect("it can be run");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains(" 0 passed"), "{text}");
}

/// CA-27
#[tokio::test]
async fn what_works_here_is_found_out_by_using_it() {
    let story = Story::new();
    let reports = probe_workspaces(&story.backend, story.path()).await;
    let reports = reports.expect("a directory can be made");
    let root = rustix::process::geteuid().is_root();
    for report in &reports {
        let works = report.problem.is_none();
        let wanted = root || report.namespace == WorkspaceNamespace::User;
        assert_eq!(works, wanted, "{report:?}");
    }
    assert_eq!(reports.len(), 4);
    let left = std::fs::read_dir(story.path()).expect("it is there");
    let left = left.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    assert_eq!(left.filter(|name| name.starts_with("probe-")).count(), 0);
    story.end().await;
}

/// CA-45: a disk that takes no more, or none at all, is told and stops nobody else.
#[tokio::test]
async fn an_upper_directory_that_is_not_there_is_told() {
    let ground = Ground::new(&[("file", "base")]);
    for kind in kinds() {
        let mut workspace: Workspace = ground.workspace(kind);
        workspace.upper = Upper::Disk {
            directory: ground.path("nowhere"),
        };
        let outcome = ground.run_in(kind, workspace, "true").await;
        let error = outcome.error.expect("it is told why").message;
        assert!(error.contains("No such file"), "{kind:?}: {error}");
    }
}

/// CA-45: an engine that has no descriptor left still hears what is said.
#[test]
fn a_message_is_heard_without_its_descriptors_where_there_is_no_room() {
    use fairtrial_exec::linux::socket::{Wait, pair_seqpacket, recv_what_fits, send_with_fds};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsFd;
    if !is_alone(
        "workspaces::whole::a_message_is_heard_without_its_descriptors_where_there_is_no_room",
    ) {
        return;
    }
    let (ours, theirs) = pair_seqpacket().expect("a socket can be had");
    send_with_fds(ours.as_fd(), b"news", &[theirs.as_fd()], Wait::Never).expect("there is room");
    let had = getrlimit(Resource::Nofile);
    let none = Rlimit {
        current: Some(0),
        ..had
    };
    setrlimit(Resource::Nofile, none).expect("anybody may");
    let mut buffer = [0; 8];
    let received = recv_what_fits(theirs.as_fd(), &mut buffer, Wait::Never);
    setrlimit(Resource::Nofile, had).expect("not above what it was");
    let (length, fds, complete) = received.expect("it is heard");
    assert_eq!(
        (&buffer[..length], fds.len(), complete),
        (&b"news"[..], 0, false)
    );
}

/// Rather than leave it without a directory of its own.
#[tokio::test]
async fn a_workspace_that_covers_the_scratch_directory_is_refused() {
    let ground = Ground::new(&[("file", "base")]);
    let kind = kinds()[0];
    let mut workspace = ground.workspace(kind);
    workspace.hidden.push(ground.path("spill"));
    let refused = ground.story.try_run(ground.call(kind, workspace, "true"));
    let error = refused.await.expect_err("it cannot run").to_string();
    assert!(error.contains("scratch"), "{error}");
}

/// CA-42: with the launcher everything goes, and the user's tree is what it was.
#[tokio::test]
async fn nothing_is_left_when_the_launcher_is_killed() {
    let ground = Ground::new(&[("file", "base")]);
    let repo = census(&ground.repo());
    for kind in kinds() {
        let mark = format!(
            "mark-{}-{:?}-{}",
            std::process::id(),
            kind.namespace,
            kind.level
        );
        let script = format!(": {mark}; echo > file; while :; do :; done");
        let mut call = ground.call(kind, ground.workspace(kind), &script);
        call.env.insert("MARK".into(), Some(mark.clone().into()));
        let beginning = call.beginning.clone();
        let run = ground
            .story
            .backend
            .submit(call)
            .expect("the engine takes it");
        // Before the engine knows that it began it would be run again.
        wait_until("it runs", || {
            beginning.is_past() && !running_with(&mark).is_empty()
        })
        .await;
        let launcher = launcher_of(running_with(&mark)[0]);
        let launcher = rustix::process::Pid::from_raw(launcher).expect("a pid");
        rustix::process::kill_process(launcher, rustix::process::Signal::KILL).expect("ours");
        assert!(run.await.is_err(), "{kind:?}");
        wait_until("nothing runs", || running_with(&mark).is_empty()).await;
        assert_eq!(census(&ground.repo()), repo, "{kind:?}");
    }
}

fn launcher_of(pid: u32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent
        .expect("it has one")
        .trim()
        .parse()
        .expect("a number")
}
