//! Calls that use up what all calls share, beside honest ones that need some of it (FA-5, FA-8): these fail, are run again
//! without others, and succeed.

mod attackers;

use std::path::Path;
use std::process::Command;

use fairtrial_tests::note;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::geteuid;
use serde_json::{Value as Json, json as j};

use crate::environment::unprivileged_cli;
use attackers::{ATTACKER, INNOCENT, Pair};

const INNOCENTS: usize = 3;

/// Who runs the calls.
#[derive(Clone, Copy, PartialEq)]
enum User {
    Root,
    /// Of nobody else's, so that the quotas of users are its own.
    Own(u32),
}

/// What a host is like: a script that is root's, in namespaces of mounts and networks of its own.
fn run(pair: &Pair, user: User) -> Option<(Vec<Json>, String)> {
    let (program, dir) = unprivileged_cli()?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.path(), open).expect("ours");
    let home = dir.path().join("home");
    let place = home.join("place");
    std::fs::create_dir_all(&place).expect("made");
    let pipe = place.join("here");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0).expect("made");
    std::fs::write(home.join("calls.jsonl"), calls(pair, &place)).expect("written");
    let spill = home.join("spill");
    std::fs::create_dir(&spill).expect("made");
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&spill, private).expect("ours");
    let mut words = vec!["env".to_owned()];
    if let User::Own(uid) = user {
        for path in [&home, &place, &pipe, &spill] {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("root may");
        }
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
        words = vec!["setpriv".into()];
        words.extend(ids);
        words.extend(["--clear-groups".into(), "--".into()]);
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the command is run as a user runs it"
    )]
    let mut command = Command::new("unshare");
    command.args([
        "-p",
        "-i",
        "-m",
        "-n",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]);
    let script = format!("ulimit -Sn 1024; {}exec \"$@\"", pair.host);
    command.args(["sh", "-e", "-c", &script, "host"]);
    command.args(words).arg(&program);
    command.args(["batch", "calls.jsonl", "-j", &(INNOCENTS + 1).to_string()]);
    command.current_dir(&home);
    command.env("FAIRTRIAL_SPILL_DIR", &spill);
    command.env("XDG_CACHE_HOME", home.join("cache"));
    let output = command.output().expect("a shell runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let records = text.lines().map(serde_json::from_str);
    let records = records.map(|record| record.expect("JSON")).collect();
    Some((records, String::from_utf8_lossy(&output.stderr).into()))
}

/// The attacker first, so that it is there when innocents start.
fn calls(pair: &Pair, place: &Path) -> String {
    let mut write = vec![place.to_path_buf()];
    if pair.shares_quotas {
        // More places than a call can have mounts for, and without these it has no quotas of its own.
        write.extend((0..65).map(|n| place.join(n.to_string())));
        write[1..]
            .iter()
            .for_each(|more| std::fs::create_dir(more).expect("made"));
    }
    let call = |id: String, prelude: &str, source: &str, timeout: f64| {
        j!({
            "id": id, "source": format!("{prelude}{source}"), "function": "f",
            "args": [place, INNOCENTS], "timeout_s": timeout,
            "sandbox": {"level": "limits", "write": write},
            "limits": {"memory_bytes": 256 << 20, "processes": 64, "file_bytes": 64 << 20},
        })
    };
    let attacker = call("attacker".into(), ATTACKER, pair.attacker, 40.0);
    let innocents = (0..INNOCENTS).map(|n| {
        let id = format!("innocent {n}");
        call(id, INNOCENT, pair.innocent, pair.innocent_timeout_s)
    });
    std::iter::once(attacker)
        .chain(innocents)
        .map(|call| format!("{call}\n"))
        .collect()
}

fn check(pair: &Pair, user: User) {
    if !geteuid().is_root() || !Path::new("/usr/bin/unshare").exists() {
        return note("skipped: only root can be another user, with `unshare`");
    }
    let Some((records, said)) = run(pair, user) else {
        return;
    };
    assert_eq!(records.len(), 1 + INNOCENTS, "{records:?}\n{said}");
    let (attacker, innocents) = (&records[0], &records[1..]);
    assert_eq!(attacker["verdict"], "ok", "{attacker}\n{said}");
    let mut repeated = 0;
    for innocent in innocents {
        assert_eq!(innocent["verdict"], "ok", "{innocent}\n{said}");
        assert_eq!(innocent["value"], "had some", "{innocent}");
        let first = &innocent["tried_alone"]["verdict"];
        repeated += usize::from(*first == pair.first_verdict);
        assert!(
            first.is_null() || *first == pair.first_verdict,
            "{innocent}"
        );
    }
    // One may find what the engine itself, which has the same user, just gave back.
    assert!(repeated > 0, "{innocents:?}\n{said}");
    assert!(said.contains("run again, each without others"), "{said}");
    // Root has other calls, which may have used up something else.
    if user != User::Root {
        assert!(said.contains(pair.name), "{said}");
    }
}

/// FA-5
#[test]
fn descriptors_in_flight_are_there_again_without_the_call_that_sent_them_all() {
    check(&attackers::SENT_DESCRIPTORS, User::Own(61_001));
}

/// FA-5: such circles are freed by the kernel's garbage collector, later than the process that made them.
#[test]
fn descriptors_in_flight_are_there_again_though_they_were_sent_in_circles() {
    check(&attackers::SENT_IN_CIRCLES, User::Own(61_002));
}

/// FA-5
#[test]
fn inotify_is_there_again_without_the_call_that_took_all_instances() {
    check(&attackers::INOTIFY, User::Own(61_003));
}

/// FA-5
#[test]
fn timers_are_there_again_without_the_call_that_took_all() {
    check(&attackers::TIMERS, User::Own(61_004));
}

/// FA-5: the machine's own limit is lowered meanwhile, to what nobody else comes near.
#[test]
fn epoll_watches_are_there_again_without_the_call_that_took_all() {
    struct Lowered(String);
    impl Drop for Lowered {
        fn drop(&mut self) {
            std::fs::write(attackers::MAX_WATCHES, &self.0).ok(); // nobody else changes it
        }
    }
    let most = std::fs::read_to_string(attackers::MAX_WATCHES).unwrap_or_default();
    let lowered = std::fs::write(attackers::MAX_WATCHES, attackers::FEWER_WATCHES);
    if lowered.is_err() {
        return note("skipped: the limit of epoll watches cannot be lowered");
    }
    let _usual = Lowered(most);
    check(&attackers::EPOLL_WATCHES, User::Own(61_005));
}

/// FA-8
#[test]
fn ports_are_there_again_without_the_call_that_took_all() {
    for user in [User::Root, User::Own(61_006)] {
        check(&attackers::TCP_PORTS, user);
        check(&attackers::UDP_PORTS, user);
    }
}

/// FA-8: what it wrote is removed before others are run again.
#[test]
fn the_disk_has_room_again_without_the_call_that_filled_it() {
    for user in [User::Root, User::Own(61_007)] {
        check(&attackers::BLOCKS, user);
        check(&attackers::INODES, user);
    }
}

/// FA-8
#[test]
fn shared_memory_is_there_again_without_the_call_that_took_all() {
    for user in [User::Root, User::Own(61_008)] {
        check(&attackers::SHARED_MEMORY, user);
    }
}

/// FA-8
#[test]
fn a_call_that_timed_out_at_a_lock_of_a_rival_is_run_again_without_it() {
    for user in [User::Root, User::Own(61_009)] {
        for lock in [
            &attackers::FLOCK,
            &attackers::RECORD_LOCK,
            &attackers::OPEN_FILE_LOCK,
        ] {
            check(lock, user);
        }
    }
}
