//! The scripts' text.

use std::path::{Path, PathBuf};

fn texts(ending: &str) -> Vec<(String, String)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/redis");
    let files = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let wanted = files.filter(|path| path.extension().is_some_and(|found| found == ending));
    wanted
        .map(|path| {
            (
                path.display().to_string(),
                std::fs::read_to_string(path).unwrap(),
            )
        })
        .collect()
}

/// CL-71: what only some servers have, and what is lost without a word
#[test]
fn no_script_relies_on_what_servers_lack() {
    let unwanted = [
        "WAITAOF",
        "HEXPIRE",
        "HPEXPIRE",
        "HGETEX",
        "XACKDEL",
        "XDELEX",
        "FCALL",
        "'WAIT'",
        "\"WAIT\"",
        "__key",
        "keyspace-events",
        "CLIENT",
        "TRACKING",
        "redis.register_function",
        "JSON.",
        "FT.",
        "BF.",
        "'CLAIM'",
        "XAUTOCLAIM",
    ];
    let scripts = texts("lua");
    assert!(scripts.len() > 15);
    // Nothing else speaks to a server.
    let mut callers = sources(&source_dir());
    callers.retain(|(path, _)| path.contains("/src/redis"));
    assert!(callers.len() > scripts.len());
    for (path, text) in scripts.iter().chain(&callers) {
        for word in unwanted {
            assert!(!text.contains(word), "{path} has {word}");
        }
        assert!(!text.contains("'BLOCK'"), "{path}: no script waits");
    }
}

/// CL-46: what the users of the shipped list may not do
#[test]
fn scripts_use_only_commands_that_their_users_have() {
    let allowed = [
        "HGET",
        "HMGET",
        "HSET",
        "HDEL",
        "HEXISTS",
        "HLEN",
        "HINCRBY",
        "HSCAN",
        "XADD",
        "XACK",
        "XDEL",
        "XCLAIM",
        "XRANGE",
        "XPENDING",
        "XREADGROUP",
        "XGROUP",
        "XINFO",
        "SADD",
        "SREM",
        "SISMEMBER",
        "GET",
        "SET",
        "DEL",
        "EXPIRE",
        "PUBLISH",
        "TIME",
    ];
    for (path, text) in texts("lua") {
        for call in ["redis.call('", "redis.pcall('", "group_call('"] {
            for rest in text.split(call).skip(1) {
                let command = rest.split('\'').next().unwrap();
                assert!(allowed.contains(&command), "{path} calls {command}");
            }
        }
    }
}

/// CL-12, X17: no clock but the server's decides anything.
///
/// A node whose date is wrong by a day can differ from others only where its date is asked for, and neither agents,
/// coordinators nor dispatch ever ask: they measure how long something takes, by clocks that have no date. What speaks to
/// the server does not even do that: the times in it are the server's own. Only stores ask for the date. Files and objects
/// have ages, by the clock of whoever keeps them, and S3 wants its requests dated; a clock that is wrong by a day is then
/// refused by S3, and changes nothing that is recorded.
#[test]
fn no_operation_sends_a_time_of_the_callers() {
    let mut read = 0;
    for (path, text) in sources(&source_dir()) {
        if !["/src/blobs", "/src/pack"]
            .iter()
            .any(|keeps| path.contains(keeps))
        {
            read += 1;
            for date in ["SystemTime", "UNIX_EPOCH", "chrono", "clock_gettime"] {
                assert!(!text.contains(date), "{path} has {date}");
            }
        }
    }
    assert!(read > 50, "{read}");
    for (path, text) in texts("rs") {
        assert!(!text.contains("Instant"), "{path} has a clock");
    }
    for (path, text) in texts("lua") {
        assert!(
            !text.contains("os.time") && !text.contains("os.clock"),
            "{path}"
        );
    }
}

/// CL-3: what is above is not known here, neither as a package nor by a word of the code.
#[test]
fn nothing_of_studies_is_known_here() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (used, _) = manifest.split_once("[dev-dependencies]").unwrap();
    let ours: Vec<&str> = used
        .lines()
        .filter_map(|line| line.split([' ', '.', '=']).next())
        .filter(|name| name.starts_with("fairtrial-"))
        .collect();
    assert_eq!(ours, ["fairtrial-exec"]);
    for (path, text) in sources(&root.join("src")) {
        for crate_name in [
            "fairtrial_study",
            "fairtrial_candidates",
            "run_id",
            "StudyId",
        ] {
            assert!(!text.contains(crate_name), "{path} knows {crate_name}");
        }
    }
}

fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources(dir: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => {
                let text = std::fs::read_to_string(&path).unwrap();
                vec![(path.display().to_string(), text)]
            }
        })
        .collect()
}
