//! The scripts' text.

use std::path::Path;

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
    for (path, text) in scripts.iter().chain(&texts("rs")) {
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

/// CL-12, X17: no clock but the server's, so a node's cannot matter
#[test]
fn no_operation_sends_a_time_of_the_callers() {
    for (path, text) in texts("rs") {
        for clock in ["SystemTime", "Instant", "UNIX_EPOCH", "chrono"] {
            assert!(!text.contains(clock), "{path} has {clock}");
        }
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
