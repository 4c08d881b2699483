//! Attackers beside innocents (FA-10): whatever a rival does, honest calls come to what they come to alone, the attacker is
//! contained, and the engine lives. Run as root and as a user without rights, with and without user namespaces and
//! control groups, at every level that claims a defence.

mod attackers;

use std::process::{Command, Output};

use fairtrial_exec::{Call, Level, Sandbox, State};
use fairtrial_tests::{Story, json, note};
use rustix::process::geteuid;
use serde_json::{Value as Json, json as j};

use crate::environment::unprivileged_cli;
use attackers::{AGAINST_FILES_AND_QUOTAS, ATTACKERS, DELICATE, INNOCENT, PRELUDE};

/// Where it all runs: whose calls they are, and what a script takes away from the host. All in namespaces of processes
/// and System V objects of their own, should a defence not hold.
struct Place {
    name: &'static str,
    user: &'static str,
    script: &'static str,
    /// Calls can have mounts and quotas of their own.
    has_user_namespaces: bool,
}

impl Place {
    fn attackers(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let more = match self.has_user_namespaces {
            true => AGAINST_FILES_AND_QUOTAS,
            false => &[],
        };
        ATTACKERS.iter().chain(more)
    }

    fn innocent(&self) -> &'static str {
        match self.has_user_namespaces {
            true => DELICATE,
            false => INNOCENT,
        }
    }
}

const NO_GROUPS: &str =
    "exec unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup; exec \"$@\"' host \"$@\"";

const INNOCENTS: usize = 12;

/// The attackers first, so that they are there when innocents start, and more slots than attackers, so that these do.
fn calls(place: &Place, level: &str) -> String {
    let limits = j!({"memory_bytes": 256 << 20, "processes": 64, "file_bytes": 64 << 20, "output_bytes": 4 << 20});
    let sandbox = match level {
        "strict" => j!({"level": "strict", "scratch_bytes": 64 << 20}),
        other => j!(other),
    };
    let call = |id: &str, source: String, arguments: Json| {
        let timeout = if id.starts_with("innocent") { 60 } else { 10 };
        j!({
            "id": id, "source": source, "function": "f", "args": arguments, "timeout_s": timeout,
            "sandbox": sandbox, "limits": limits,
        })
    };
    let attackers = place
        .attackers()
        .map(|(name, source)| call(name, format!("{PRELUDE}{source}"), j!([])));
    let innocent = place.innocent();
    let innocents =
        (0..INNOCENTS).map(|n| call(&format!("innocent {n}"), innocent.into(), j!([n])));
    attackers
        .chain(innocents)
        .map(|call| format!("{call}\n"))
        .collect()
}

fn run(place: &Place, level: &str) -> Option<Output> {
    let (program, dir) = unprivileged_cli()?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("ours");
    let home = dir.path().join("home");
    std::fs::create_dir(&home).expect("made");
    let words: &[&str] = match place.user {
        "nobody" => {
            std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("root may");
            &[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--",
            ]
        }
        _ => &["env"],
    };
    std::fs::write(home.join("calls.jsonl"), calls(place, level)).expect("written");
    #[expect(
        clippy::disallowed_methods,
        reason = "the command is run as a user runs it"
    )]
    let mut command = Command::new("unshare");
    command.args(["-p", "-i", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-c", place.script, "host"]);
    command.args(words).arg(&program);
    let slots = (place.attackers().count() + 4).to_string();
    command.args(["batch", "calls.jsonl", "-j", &slots]);
    command.current_dir(&home);
    command.env("FAIRTRIAL_SPILL_DIR", home.join("spill"));
    command.env("XDG_CACHE_HOME", home.join("cache"));
    Some(command.output().expect("a shell runs"))
}

/// Runs all of them at each level that claims a defence.
fn check(place: &Place) {
    if !geteuid().is_root() || !std::path::Path::new("/usr/bin/unshare").exists() {
        return note("skipped: only root can be each of these users, with `unshare`");
    }
    let name = place.name;
    for level in ["limits", "confined", "strict"] {
        let Some(output) = run(place, level) else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        let records: Vec<Json> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let attackers = place.attackers().count();
        assert_eq!(
            records.len(),
            attackers + INNOCENTS,
            "{name}, {level}: {said}"
        );
        let (attackers, innocents) = records.split_at(attackers);
        let refused = |record: &Json| {
            let message = record["error"]["message"].as_str().unwrap_or_default();
            record["verdict"] == "setup_failed" && message.contains("cannot be had")
        };
        if level != "limits" && records.iter().all(refused) {
            note(format!(
                "skipped: {name}: {}",
                records[0]["error"]["message"]
            ));
            continue;
        }
        for (n, record) in innocents.iter().enumerate() {
            assert_eq!(record["verdict"], "ok", "{name}, {level}: {record}\n{said}");
            assert_eq!(record["value"], j!([n, 4 << 20]), "{name}, {level}");
        }
        for record in attackers {
            assert!(record["verdict"].is_string(), "{name}, {level}: {record}");
        }
    }
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_of_roots() {
    check(&Place {
        name: "root",
        user: "root",
        script: "exec \"$@\"",
        has_user_namespaces: true,
    });
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_of_a_users() {
    check(&Place {
        name: "a user",
        user: "nobody",
        script: "exec \"$@\"",
        has_user_namespaces: true,
    });
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_without_control_groups() {
    check(&Place {
        name: "root without control groups",
        user: "root",
        script: NO_GROUPS,
        has_user_namespaces: true,
    });
}

/// FA-1, FA-5, FA-10
#[test]
fn no_attacker_changes_the_verdict_of_an_innocent_without_user_namespaces() {
    check(&Place {
        name: "without user namespaces",
        user: "root",
        script: "exec unshare -U -r sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' host \"$@\"",
        has_user_namespaces: false,
    });
}

/// Thirty sessions of one busy process each, for as long as it takes.
const SPINNERS: &str = "import os, time
def f(ready):
    for _ in range(30):
        if os.fork() == 0:
            os.setsid()
            end = time.monotonic() + 4
            while time.monotonic() < end:
                pass
            os._exit(0)
    open(ready, 'w').close()
    for _ in range(30):
        os.wait()
";
/// Its own processor time in two seconds beside them.
const ONE_SPINNER: &str = "import os, time
def f(ready):
    while not os.path.exists(ready):
        time.sleep(0.001)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        pass
    return time.process_time()
";

/// FA-6: on one processor, so that shares can be compared whatever else the machine does.
#[tokio::test]
async fn a_call_with_thirty_sessions_gets_no_more_of_a_processor_than_one_with_a_single_thread() {
    let story = Story::with(|config| config.max_workers = 2);
    let ready = story.write("shared/ready", "");
    std::fs::remove_file(&ready).expect("just made");
    let at = |source: &str| {
        let mut call: Call = Story::call(source, &j!([ready]).to_string());
        call.sandbox = Sandbox::new(Level::Limits);
        call.sandbox.cpus = Some([0].into());
        call.sandbox.write = vec![ready.parent().expect("below").to_path_buf()];
        call
    };
    let innocent = story.backend.submit(at(ONE_SPINNER)).expect("taken");
    let spinners = story.backend.submit(at(SPINNERS)).expect("taken");
    let innocent = innocent.await.expect("runs");
    let spinners = spinners.await.expect("runs");
    let mut mechanisms = innocent.in_force.mechanisms.iter();
    let share = mechanisms.find(|mechanism| mechanism.name == "cpu_share");
    if share.is_none_or(|share| share.state != State::Enforced) {
        return note("skipped: no control group shares processors here");
    }
    let own = json(&innocent).as_f64().expect("seconds");
    let theirs = spinners.metrics.user_ns.expect("measured") as f64 / 1e9;
    // The spinners run twice as long. By processes they would have sixty times as much.
    assert!(own > theirs / 15.0, "{own} s beside {theirs} s");
    story.end().await;
}
