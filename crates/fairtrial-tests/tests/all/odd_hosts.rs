//! A good call on hosts that are not as one would like them: with low limits, an odd umask, closed streams, missing file
//! systems, few privileges, in containers. It gives its value, or is refused in one line before anything starts; it is
//! never blamed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fairtrial_tests::note;
use rustix::process::geteuid;
use serde_json::{Value as Json, json as j};

use crate::environment::unprivileged_cli;

const SOLVE: &str = "def solve(n):\n    return [i * i for i in range(n)]\n";

/// Who runs the command.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    /// Root and, in another run, a user without any rights.
    Each,
    /// Only root can make such a host.
    Root,
}

/// What `strict` comes to, where `none` and `limits` give the value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Strict {
    /// The value, or a refusal that names what is missing: machines differ.
    AsFound,
    /// A refusal that says this.
    Refused(&'static str),
}
use By::{Each, Root};
use Strict::{AsFound, Refused};

/// A host: its name, a shell script that makes it and runs `"$@"` there, programs that the script needs.
const HOSTS: &[(&str, By, &str, &[&str], Strict)] = &[
    ("plain", Each, "exec \"$@\"", &[], AsFound),
    (
        "no core files",
        Each,
        "ulimit -c 0; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "no locked memory",
        Each,
        "ulimit -l 0; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "64 descriptors",
        Each,
        "ulimit -n 64; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "24 descriptors",
        Each,
        "ulimit -n 24; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "a small stack",
        Each,
        "ulimit -s 512; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "a umask of 777",
        Each,
        "umask 777; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "a working directory that is gone",
        Each,
        "mkdir gone && cd gone && rmdir ../gone && exec \"$@\"",
        &[],
        AsFound,
    ),
    ("no HOME", Each, "unset HOME; exec \"$@\"", &[], AsFound),
    (
        "a read-only HOME",
        Each,
        "export HOME=/proc; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "closed standard input",
        Each,
        "exec \"$@\" <&-",
        &[],
        AsFound,
    ),
    (
        "an ignored SIGCHLD",
        Each,
        "trap '' CHLD; exec \"$@\"",
        &[],
        AsFound,
    ),
    (
        "an empty environment",
        Each,
        "exec env -i FAIRTRIAL_SPILL_DIR=\"$FAIRTRIAL_SPILL_DIR\" PATH=\"$PATH\" \"$@\"",
        &[],
        AsFound,
    ),
    (
        "no new privileges",
        Each,
        "exec setpriv --no-new-privs \"$@\"",
        &["setpriv"],
        AsFound,
    ),
    (
        "a read-only /dev/shm",
        Root,
        "exec unshare -m sh -c 'mount -t tmpfs -o ro none /dev/shm; exec \"$@\"' host \"$@\"",
        &["unshare"],
        AsFound,
    ),
    (
        "no control groups",
        Root,
        "exec unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup; exec \"$@\"' host \"$@\"",
        &["unshare"],
        AsFound,
    ),
    (
        "a spill directory where nothing can be executed",
        Root,
        "exec unshare -m sh -c 'mkdir -p \"$FAIRTRIAL_SPILL_DIR\"; mount -t tmpfs -o noexec,mode=0700 none \"$FAIRTRIAL_SPILL_DIR\"; exec \"$@\"' host \"$@\"",
        &["unshare"],
        AsFound,
    ),
    (
        "root without capabilities",
        Root,
        "exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"",
        &["setpriv"],
        Refused("SETFCAP"), // since Linux 5.12 nobody else may map root, into whatever namespace
    ),
    (
        "root that may map itself and no others",
        Root,
        "exec setpriv --bounding-set=-all,+setfcap --inh-caps=-all \"$@\"",
        &["setpriv"],
        AsFound,
    ),
    (
        "user namespaces switched off",
        Root,
        "exec unshare -U -r sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' host \"$@\"",
        &["unshare"],
        Refused("user.max_user_namespaces=0"),
    ),
    (
        "a user namespace",
        Root,
        "exec unshare -U -r \"$@\"",
        &["unshare"],
        AsFound,
    ),
    (
        "bwrap",
        Each,
        "exec bwrap --ro-bind / / --bind \"$PWD\" \"$PWD\" --dev /dev --proc /proc --unshare-all --die-with-parent \"$@\"",
        &["bwrap"],
        AsFound,
    ),
];

/// A place where everybody can run the command.
pub(crate) struct Place {
    pub(crate) program: PathBuf,
    pub(crate) dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Option<Self> {
        let (program, dir) = unprivileged_cli()?;
        std::fs::write(dir.path().join("solve.py"), SOLVE).expect("written");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(dir.path(), open).expect("ours");
        for (user, id) in [("root", 0), ("nobody", 65534), ("self", geteuid().as_raw())] {
            let home = dir.path().join(user);
            std::fs::create_dir(&home).expect("made");
            if geteuid().is_root() {
                std::os::unix::fs::chown(&home, Some(id), Some(id)).expect("root may");
            }
        }
        Some(Self { program, dir })
    }

    /// A directory that is this user's own.
    pub(crate) fn home(&self, user: &str) -> PathBuf {
        self.dir.path().join(user)
    }

    /// Runs the command under `script` as this user; the spill directory is that user's.
    pub(crate) fn run(&self, user: &str, script: &str, arguments: &[&str]) -> Output {
        let words: &[&str] = match user {
            "nobody" => &[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--",
            ],
            _ => &["env"],
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "the command is run as a user runs it"
        )]
        let mut command = Command::new(words[0]);
        let home = self.home(user);
        command.args(&words[1..]).args(["sh", "-c", script, "host"]);
        command
            .arg(&self.program)
            .args(arguments)
            .current_dir(&home);
        command.env("FAIRTRIAL_SPILL_DIR", home.join("spill"));
        command.env("XDG_CACHE_HOME", home.join("cache"));
        command.output().expect("a shell runs")
    }
}

pub(crate) fn is_there(program: &&str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// The outcome on standard output.
fn outcome(host: &str, output: &Output) -> Json {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{host}: {output:?}"))
}

/// RE-8, RE-9, RE-10, FA-13
#[test]
fn a_good_call_gives_its_value_on_any_host_or_is_refused_and_never_blamed() {
    let Some(place) = Place::new() else { return };
    let users: &[&str] = match geteuid().is_root() {
        true => &["root", "nobody"],
        false => &["self"],
    };
    let solve = place.dir.path().join("solve.py");
    let solve = solve.to_str().expect("text");
    for (name, by, script, programs, strict) in HOSTS {
        if let Some(missing) = programs.iter().find(|program| !is_there(program)) {
            note(format!("skipped: {name}: there is no `{missing}`"));
            continue;
        }
        let users = users.iter().filter(|user| *by == Each || **user == "root");
        for user in users {
            for level in ["none", "limits", "confined", "strict"] {
                let host = format!("{name}, as {user}, at {level}");
                let arguments = [
                    "exec",
                    solve,
                    "--function",
                    "solve",
                    "--args",
                    "[3]",
                    "--json",
                    "--sandbox",
                    level,
                ];
                let outcome = outcome(&host, &place.run(user, script, &arguments));
                match (outcome["verdict"].as_str(), level, strict) {
                    (Some("ok"), _, AsFound) | (Some("ok"), "none" | "limits" | "confined", _) => {
                        assert_eq!(outcome["value"], j!([0, 1, 4]), "{host}");
                        assert_eq!(outcome["in_force"]["effective"], level, "{host}");
                    }
                    (Some("setup_failed"), "strict", strict) => {
                        let message = outcome["error"]["message"].as_str().unwrap_or_default();
                        assert!(message.contains("cannot be had"), "{host}: {message}");
                        if let Refused(hint) = strict {
                            assert!(message.contains(hint), "{host}: {message}");
                        }
                    }
                    other => panic!("{host}: {other:?}: {outcome}"),
                }
            }
        }
    }
}

/// RE-9, FA-13: what no engine can do without is named, with what helps.
#[test]
fn a_host_without_proc_or_dev_is_told_which_is_missing() {
    if !geteuid().is_root() || !is_there(&"unshare") {
        return note("skipped: only root can hide /proc and /dev, with `unshare`");
    }
    let Some(place) = Place::new() else { return };
    for (hidden, named) in [("/proc", "`/proc` mounted"), ("/dev", "`/dev/null`")] {
        let script = format!(
            "exec unshare -m sh -c 'mount -t tmpfs none {hidden}; exec \"$@\"' host \"$@\""
        );
        let output = place.run(
            "root",
            &script,
            &[
                "exec",
                "../solve.py",
                "--function",
                "solve",
                "--args",
                "[3]",
            ],
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(named), "{hidden}: {said}");
    }
}

/// FA-12
#[test]
fn with_few_descriptors_fewer_calls_run_at_a_time_and_with_too_few_each_is_told_why() {
    let Some(place) = Place::new() else { return };
    let user = if geteuid().is_root() {
        "nobody"
    } else {
        "self"
    };
    let call = j!({"source": "import time\ndef f(x):\n    time.sleep(0.01)\n    return x\n", "function": "f", "args": [7], "timeout_s": 60});
    let lines: String = (0..40).map(|_| format!("{call}\n")).collect();
    std::fs::write(place.home(user).join("calls.jsonl"), lines).expect("written");
    for (limit, verdict) in [
        (16, Json::Null),
        (23, Json::Null),
        (24, j!("ok")),
        (28, j!("ok")),
        (40, j!("ok")),
        (64, j!("ok")),
        (100, j!("ok")),
    ] {
        let script = format!("ulimit -n {limit}; exec \"$@\"");
        let output = place.run(user, &script, &["batch", "calls.jsonl", "-j", "8"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let text = String::from_utf8_lossy(&output.stdout);
        let records: Vec<Json> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert_eq!(records.len(), 40, "{limit}: {said}");
        let others = records.iter().find(|record| record["verdict"] != verdict);
        assert_eq!(others, None, "{limit}: {said}");
        match verdict {
            Json::Null => assert!(
                said.contains("descriptors") || said.contains("open files"),
                "{limit}: {said}"
            ),
            _ if limit < 100 => assert!(said.contains("calls run at a time"), "{limit}: {said}"),
            _ => {}
        }
    }
}

/// RE-10: the container engines' usual profile, by `crun`.
#[test]
fn a_good_call_gives_its_value_in_an_oci_container() {
    if !geteuid().is_root() || !is_there(&"crun") {
        return note("skipped: it takes root and `crun`");
    }
    let Some(place) = Place::new() else { return };
    let (dir, solve) = (place.home("root"), place.dir.path().join("solve.py"));
    let arguments = [
        "exec",
        solve.to_str().expect("text"),
        "--function",
        "solve",
        "--args",
        "[3]",
        "--json",
    ];
    std::fs::create_dir(dir.join("rootfs")).expect("made");
    let config = container(&place.program, &arguments);
    std::fs::write(dir.join("config.json"), config.to_string()).expect("written");
    let output = place.run("root", CRUN, &[]);
    if output.stdout.is_empty() {
        return note(format!(
            "skipped: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let outcome = outcome("crun", &output);
    assert_eq!(outcome["value"], j!([0, 1, 4]), "{outcome}");
    assert_eq!(outcome["in_force"]["effective"], "limits", "{outcome}");
}

/// Runs the container in `config.json`. Its engine does not know hosts with both versions of control groups.
pub(crate) const CRUN: &str = "exec unshare -m sh -c 'umount -l -R /sys/fs/cgroup; \
    mount -t cgroup2 none /sys/fs/cgroup; mount --bind / rootfs; \
    exec crun --root \"$PWD/state\" --cgroup-manager=disabled run fairtrial-test-$$'";

/// The capabilities of root in a container of Docker's or Podman's.
pub(crate) const USUAL_CAPABILITIES: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// What Docker and Podman give a container: fourteen capabilities, no core files, masked parts of `/proc`.
pub(crate) fn container(program: &Path, arguments: &[&str]) -> Json {
    let capabilities = USUAL_CAPABILITIES.map(|name| format!("CAP_{name}"));
    let mut argv = vec![program.to_str().expect("text")];
    argv.extend(arguments);
    let path = std::env::var("PATH").unwrap_or_default();
    let tmpfs = |place: &str, options: &[&str]| j!({"destination": place, "type": "tmpfs", "source": "tmpfs", "options": options});
    j!({
        "ociVersion": "1.0.0",
        "root": {"path": "rootfs", "readonly": true},
        "process": {
            "args": argv,
            "cwd": "/",
            "env": [format!("PATH={path}"), "FAIRTRIAL_SPILL_DIR=/run/spill", "FAIRTRIAL_CACHE_DIR=/run/cache"],
            "user": {"uid": 0, "gid": 0},
            "capabilities": {"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024},
                {"type": "RLIMIT_CORE", "hard": 0, "soft": 0},
            ],
            "noNewPrivileges": true,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            tmpfs("/dev", &["nosuid", "mode=755"]),
            tmpfs("/dev/shm", &["nosuid", "mode=1777"]),
            tmpfs("/run", &["nosuid", "mode=1777"]),
        ],
        "linux": {
            "namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "network"}],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}
