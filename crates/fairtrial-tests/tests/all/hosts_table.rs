//! The table of hosts in docs/security.md: which user on which host can have which level. Every row that can be made here
//! is made and compared with the document.
//!
//! `FAIRTRIAL_WRITE_TABLE=1 cargo nextest run -p fairtrial-tests hosts_table` writes the rows that were found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fairtrial_tests::note;
use rustix::process::geteuid;
use serde_json::{Value as Json, json as j};

use crate::odd_hosts::{CRUN, Place, USUAL_CAPABILITIES, container, is_there};

pub(crate) const LEVELS: [&str; 4] = ["none", "limits", "confined", "strict"];
const BEGIN: &str = "<!-- The rows below are found by tests/all/hosts_table.rs. -->\n";
const END: &str = "<!-- end of the rows -->\n";
const PLAIN_USER: u32 = 4711;
const NAMELESS_USER: u32 = 65534;

/// Users: how a row names one, its number, and by which command root becomes it.
fn users() -> [(&'static str, u32, String); 5] {
    let with = |capabilities: &[&str]| {
        let added = capabilities
            .iter()
            .map(|name| format!(",+{}", name.to_lowercase()));
        let added: String = added.collect();
        format!("setpriv --bounding-set=-all{added} --inh-caps=-all")
    };
    let user = |id: u32| format!("setpriv --reuid={id} --regid={id} --clear-groups");
    [
        ("root", 0, "env".into()),
        ("root without capabilities", 0, with(&[])),
        ("root with a container's 14", 0, with(&USUAL_CAPABILITIES)),
        (
            "uid 65534 without a passwd entry",
            NAMELESS_USER,
            user(NAMELESS_USER),
        ),
        ("a plain user", PLAIN_USER, user(PLAIN_USER)),
    ]
}

/// Hosts: how a row names one, and the command that makes it; `HELPER` is `in_a_user_namespace.py`.
const HOSTS: [(&str, &str); 3] = [
    ("user namespaces allowed", ""),
    ("user namespaces refused", "python3 HELPER 0"),
    ("inside a user namespace", "python3 HELPER -"),
];

/// What is the same on all of them: two users in `/etc/passwd`.
const PASSWD: &str = "root:x:0:0::/root:/bin/sh\ntrial:x:4711:4711::/:/bin/sh\n";

/// Runs a call of each level; gives the row's cells.
fn cells(place: &Place, home: &Path, script: &str) -> Result<Vec<String>, String> {
    let output = place.run(
        "root",
        script,
        &[
            "batch",
            home.join("calls.jsonl").to_str().expect("text"),
            "-j",
            "1",
        ],
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let records: Vec<Json> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if records.len() != LEVELS.len() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(LEVELS
        .iter()
        .zip(&records)
        .map(|(level, record)| cell(level, record))
        .collect())
}

/// What a level came to.
pub(crate) fn cell(level: &str, record: &Json) -> String {
    let in_force = &record["in_force"];
    let message = record["error"]["message"].as_str().unwrap_or_default();
    let lacking = message
        .split_once("cannot be had: `")
        .and_then(|(_, rest)| rest.split_once('`'));
    match (record["verdict"].as_str(), lacking) {
        (Some("ok"), _) if in_force["effective"] != level => {
            format!("as `{}`", in_force["effective"].as_str().unwrap_or("?"))
        }
        (Some("ok"), _) if level == "strict" && in_force["mechanisms"]["slot_uid"].is_null() => {
            "yes, a user id for each call".into()
        }
        (Some("ok"), _) => "yes".into(),
        (Some("setup_failed"), Some((mechanism, _))) => format!("no: `{mechanism}`"),
        (verdict, _) => format!("{verdict:?}: {message}"),
    }
}

/// All rows that can be made here, in order.
fn rows(place: &Place) -> Vec<(String, Vec<String>)> {
    let root = place.dir.path();
    let helper = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/programs/in_a_user_namespace.py"
    ));
    std::fs::copy(helper, root.join("helper.py")).expect("copied");
    std::fs::write(root.join("passwd"), PASSWD).expect("written");
    let call =
        |level: &&str| j!({"id": level, "argv": ["true"], "sandbox": level}).to_string() + "\n";
    let calls: String = LEVELS.iter().map(call).collect();
    let mut rows = Vec::new();
    let mut add = |name: String, home: &Path, script: &str| match cells(place, home, script) {
        Ok(cells) => rows.push((name, cells)),
        Err(problem) => note(format!("skipped: {name}: {problem}")),
    };
    let home_of = |name: &str, id: u32| {
        let home = root.join(name);
        std::fs::create_dir(&home).expect("made");
        std::fs::write(home.join("calls.jsonl"), &calls).expect("written");
        std::os::unix::fs::chown(&home, Some(id), Some(id)).expect("root may");
        home
    };
    // The spill directory is the user's own; the script runs in root's.
    let in_home = |home: &Path| {
        let home = home.display();
        format!(
            "export FAIRTRIAL_SPILL_DIR={home}/spill XDG_CACHE_HOME={home}/cache HOME={home}; cd {home}"
        )
    };
    for (at, (host, command)) in HOSTS.iter().enumerate() {
        let command = command.replace("HELPER", root.join("helper.py").to_str().expect("text"));
        for (n, (user, id, become_user)) in users().iter().enumerate() {
            let home = home_of(&format!("home-{at}-{n}"), *id);
            let script = format!(
                "{}; exec unshare -m sh -c 'mount --bind {}/passwd /etc/passwd; exec {command} {become_user} \"$@\"' host \"$@\"",
                in_home(&home),
                root.display()
            );
            add(format!("{user} | {host}"), &home, &script);
        }
    }
    let home = home_of("home-one-id", 0);
    let script = format!("{}; exec unshare -U -r \"$@\"", in_home(&home));
    add(
        "root | inside a user namespace that has one id".into(),
        &home,
        &script,
    );
    for (n, (user, id, become_user)) in users().iter().enumerate() {
        if !["root", "a plain user"].contains(user) || !is_there(&"bwrap") {
            continue;
        }
        let home = home_of(&format!("bwrap-{n}"), *id);
        let script = format!(
            "{}; exec {become_user} bwrap --ro-bind / / --bind {home} {home} --dev /dev --proc /proc --unshare-all \
             --die-with-parent \"$@\"",
            in_home(&home),
            home = home.display()
        );
        add(format!("{user} | `bwrap --unshare-all`"), &home, &script);
    }
    for (user, id) in [
        ("root with a container's 14", 0),
        ("a plain user", PLAIN_USER),
    ] {
        if !is_there(&"crun") {
            continue;
        }
        let home = home_of(&format!("crun-{id}"), id);
        std::fs::create_dir(home.join("rootfs")).expect("made");
        let calls = home.join("calls.jsonl");
        let arguments = ["batch", calls.to_str().expect("text"), "-j", "1"];
        let mut config = container(&place.program, &arguments);
        config["process"]["user"] = j!({"uid": id, "gid": id});
        if id != 0 {
            config["process"]["capabilities"] = j!({});
        }
        config["linux"]["seccomp"] = seccomp_of_engines();
        std::fs::write(home.join("config.json"), config.to_string()).expect("written");
        let script = format!("cd {}; {CRUN}", home.display());
        add(
            format!("{user} | `crun` with the engines' default profile"),
            &home,
            &script,
        );
    }
    rows
}

/// Those refusals of the default filter of Docker and Podman that concern isolation; what is not named is let through.
pub(crate) fn seccomp_of_engines() -> Json {
    const NAMESPACES: u64 = 0x7e02_0000;
    let refused = [
        "unshare",
        "setns",
        "mount",
        "umount2",
        "pivot_root",
        "open_tree",
        "move_mount",
        "fsopen",
        "fsconfig",
        "fsmount",
        "fspick",
        "mount_setattr",
        "keyctl",
        "add_key",
        "request_key",
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "quotactl",
        "acct",
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ];
    let bits = |bit: u32| 1_u64 << bit;
    let flags = (0..31).map(bits).filter(|flag| NAMESPACES & flag != 0);
    let by_flag = flags.map(|flag| {
        let argument =
            j!({"index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ"});
        j!({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": [argument]})
    });
    let mut rules = vec![
        j!({"names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": 1}),
        j!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38}),
    ];
    rules.extend(by_flag);
    j!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": rules})
}

fn line(name: &str, cells: &[String]) -> String {
    format!("| {name} | {} |\n", cells.join(" | "))
}

/// RE-10
#[test]
fn the_table_of_hosts_is_what_this_machine_does() {
    if !geteuid().is_root() || !["unshare", "setpriv", "python3"].iter().all(is_there) {
        return note(
            "skipped: only root can be each user on each host, with `unshare` and `setpriv`",
        );
    }
    let Some(place) = Place::new() else { return };
    let found = rows(&place);
    let all_yes =
        |(_, cells): &&(String, Vec<String>)| cells.iter().all(|cell| cell.starts_with("yes"));
    if found.first().filter(all_yes).is_none() {
        return note(format!(
            "skipped: root itself lacks something here: {:?}",
            found.first()
        ));
    }
    let file = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/security.md"
    ));
    let text = std::fs::read_to_string(&file).expect("the document is there");
    let (before, rest) = text.split_once(BEGIN).expect("the table is marked");
    let (table, after) = rest.split_once(END).expect("the table has an end");
    if std::env::var_os("FAIRTRIAL_WRITE_TABLE").is_some() {
        let head = "\n| user | host | `none` | `limits` | `confined` | `strict` |\n|---|---|---|---|---|---|\n";
        let lines: String = found
            .iter()
            .map(|(name, cells)| line(name, cells))
            .collect();
        let text = format!("{before}{BEGIN}{head}{lines}\n{END}{after}");
        std::fs::write(&file, text).expect("written");
        return;
    }
    let documented: BTreeMap<&str, ()> = table.lines().map(|line| (line, ())).collect();
    let differing = found.iter().map(|(name, cells)| line(name, cells));
    let differing: Vec<_> = differing
        .filter(|line| !documented.contains_key(line.trim_end()))
        .collect();
    assert!(
        differing.is_empty(),
        "not in docs/security.md:\n{}",
        differing.concat()
    );
    assert!(found.len() >= 15, "{found:?}");
}
