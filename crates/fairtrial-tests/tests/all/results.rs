//! How values travel: inline, in memory, on disk, framed (EX-54 to EX-64).

use std::process::{Command, Stdio};

use fairtrial_exec::{Body, EngineError, Outcome, ResultFormat, SourceWork, Verdict, Work, value};
use fairtrial_tests::bare;
use fairtrial_tests::{
    Cli, Story, anonymous_bytes, arguments, is_alone, json, note, stress, wait_until,
};
use serde_json::{Value as Json, json as j};

const FORGER: &str = include_str!("../../programs/speak_for_the_shim.py");
const KEEPER: &str = include_str!("../../programs/keep_the_result_file.py");
const BYTES: &str = "def f(size):\n    return b'a' * size";

/// EX-54
#[tokio::test]
async fn small_values_ride_inline_and_large_ones_in_memory_or_on_disk() {
    let story = Story::with(|config| config.memfd_cap_bytes = Some(4 << 20));
    // The codec adds a tag and a length.
    for (size, place) in [
        (0, "inline"),
        (65_000, "inline"),
        (65_536, "/memfd:"),
        (4_000_000, "/memfd:"),
        (5_000_000, "/spill/"),
    ] {
        let outcome = story.source(BYTES, &j!([size]).to_string()).await;
        assert_eq!(place_of(&outcome), place, "{size}");
        assert!(body(&outcome).ends_with(&vec![b'a'; size]), "{size}");
    }
    // A quarter of the call's memory limit.
    let mut call = Story::call(BYTES, "[2000000]");
    call.limits.memory_bytes = Some(400 << 20);
    assert_eq!(place_of(&story.run(call.clone()).await), "/memfd:");
    let Work::Source(SourceWork {
        arguments: args, ..
    }) = &mut call.work
    else {
        unreachable!()
    };
    *args = arguments("[1500000]").into();
    call.limits.memory_bytes = Some(4 << 20);
    // The limit itself is passed by the interpreter; only where the file would go matters here.
    let outcome = story.run(call).await;
    assert!(outcome.verdict == Verdict::MemoryLimit || place_of(&outcome) == "/spill/");
    story.end().await;
}

/// Where the body lies: what this process's map says of its address.
fn place_of(outcome: &Outcome) -> &'static str {
    let value = outcome
        .value
        .as_ref()
        .unwrap_or_else(|| panic!("no value: {:?}", outcome.error));
    if matches!(value.body, Body::Inline(_)) {
        return "inline";
    }
    let address = value.body.bytes().as_ptr() as u64;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is there");
    let line = maps.lines().find(|line| {
        let range = line
            .split_whitespace()
            .next()
            .and_then(|range| range.split_once('-'));
        let parse = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
        range.is_some_and(|(begin, end)| (parse(begin)..parse(end)).contains(&address))
    });
    let line = line.expect("the body is mapped");
    ["/memfd:", "/spill/"]
        .into_iter()
        .find(|place| line.contains(place))
        .unwrap_or("elsewhere")
}

pub(crate) fn body(outcome: &Outcome) -> &[u8] {
    match &outcome.value {
        Some(value) => value.body.bytes(),
        None => panic!("no value: {} {:?}", outcome.verdict, outcome.error),
    }
}

/// EX-55, EX-60: also when every page of the value has been read.
#[test]
fn a_large_result_on_disk_costs_the_engine_no_memory() {
    if !is_alone("results::a_large_result_on_disk_costs_the_engine_no_memory") {
        return;
    }
    let size: usize = if stress() { 2 << 30 } else { 256 << 20 };
    run(async {
        let story = Story::with(|config| config.memfd_cap_bytes = Some(1 << 20));
        story.source(BYTES, "[100000]").await;
        let before = anonymous_bytes();
        let source = "def f(size):\n    return bytearray(size)";
        let outcome = story.source(source, &j!([size]).to_string()).await;
        assert_eq!(place_of(&outcome), "/spill/");
        let bytes = body(&outcome);
        assert_eq!(bytes.len(), size + 9);
        assert!(bytes[9..].iter().step_by(4096).all(|byte| *byte == 0));
        let grown = anonymous_bytes().saturating_sub(before);
        assert!(grown < 8 << 20, "{grown} bytes");
        drop(outcome);
        story.end().await;
    });
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work);
}

/// EX-56
#[tokio::test]
async fn a_spill_directory_that_others_could_meddle_with_is_refused_at_first_use() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().expect("a directory");
    let (open, link) = (dir.path().join("open"), dir.path().join("link"));
    std::fs::create_dir(&open).expect("a directory");
    std::fs::set_permissions(&open, PermissionsExt::from_mode(0o750)).expect("ours");
    symlink(dir.path(), &link).expect("a link");
    for (path, problem) in [(open, "0750"), (link, "symbolic link")] {
        let story = Story::with(|config| config.spill_dir = path);
        let refused = story
            .try_run(Story::call(BYTES, "[1]"))
            .await
            .expect_err("refused");
        assert!(matches!(refused, EngineError::SpillDir { .. }), "{refused}");
        assert!(refused.to_string().contains(problem), "{refused}");
        story.end().await;
    }
}

/// EX-57
#[test]
fn an_engine_killed_while_a_result_is_written_leaves_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let (spill, mark) = (dir.path().join("spill"), dir.path().join("half"));
    let size = 40_000_000;
    let call = j!({
        "source": FORGER, "function": "stall_with_half_a_file", "args": [size, mark],
        // A quarter of it is too little for the result, which so goes to the disk.
        "limits": {"memory_bytes": 150_000_000},
    });
    let mut cli = Cli::new(["batch", "-"])
        .env("FAIRTRIAL_SPILL_DIR", &spill)
        .start();
    cli.say(&call.to_string());
    run(async {
        wait_until("half the file is written", || mark.exists()).await;
        assert_eq!(files_below(&spill), 0, "no name while it is written");
        let told = std::fs::read_to_string(&mark).expect("it is there");
        let (pid, file) = told.split_once(' ').expect("a pid and a file");
        assert!(
            file.starts_with(&*spill.to_string_lossy()),
            "on disk: {file}"
        );
        let worker = std::path::Path::new("/proc").join(pid);
        assert!(worker.exists(), "it is still at it");
        cli.signal(rustix::process::Signal::KILL);
        assert_eq!(cli.end().code, None, "it was killed");
        wait_until("the worker is gone", || !worker.exists()).await;
    });
    assert_eq!(files_below(&spill), 0);
}

fn files_below(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir).map(|entries| entries.flatten().collect::<Vec<_>>());
    let entries = entries.unwrap_or_default();
    let dirs = entries.iter().filter(|entry| entry.path().is_dir());
    let below: usize = dirs.map(|entry| files_below(&entry.path())).sum();
    below
        + entries
            .iter()
            .filter(|entry| entry.path().is_file())
            .count()
}

/// EX-58, SB-37
#[tokio::test]
async fn a_worker_that_kept_the_file_cannot_change_a_value_after_its_reply() {
    let size = 300_000;
    for cap in [u64::MAX, 1] {
        let story = Story::with(|config| {
            config.max_workers = 1;
            config.memfd_cap_bytes = Some(cap);
        });
        let with = |function: &str, args: &str| {
            let mut call = Story::reuse_call(KEEPER, args);
            let Work::Source(work) = &mut call.work else {
                unreachable!()
            };
            work.function = function.into();
            call
        };
        let first = story
            .run(with("large_result", &j!([size, false]).to_string()))
            .await;
        let expected = body(&first).to_vec();
        assert!(expected.ends_with(&vec![b'a'; size]));
        let second = story.run(with("meddle", "[]")).await;
        assert_eq!(second.metrics.worker_id, first.metrics.worker_id);
        if cap == 1 {
            assert_ne!(
                json(&second),
                j!([]),
                "on disk the worker can still change its own file"
            );
        }
        assert!(
            body(&first) == expected,
            "the value changed: {}",
            json(&second)
        );
        // And while it is being taken over: whatever it is, it stays as it is.
        for _ in 0..5 {
            let raced = story
                .run(with("large_result", &j!([size, true]).to_string()))
                .await;
            if let Some(value) = &raced.value {
                let bytes = value.body.bytes().to_vec();
                story.run(with("meddle", "[]")).await;
                assert!(value.body.bytes() == bytes, "the value changed");
            } else {
                assert_eq!(raced.verdict, Verdict::BadResult, "{:?}", raced.error);
            }
        }
        story.end().await;
    }
}

/// EX-59
#[test]
fn large_results_leave_no_descriptor_and_outlive_their_backend() {
    if !is_alone("results::large_results_leave_no_descriptor_and_outlive_their_backend") {
        return;
    }
    let descriptors = || {
        std::fs::read_dir("/proc/self/fd")
            .expect("/proc is there")
            .count()
    };
    run(async {
        let mut kept = Vec::new();
        for cap in [u64::MAX, 1] {
            let story = Story::with(|config| {
                config.max_workers = 1;
                config.memfd_cap_bytes = Some(cap);
            });
            story.reuse(BYTES, "[100000]").await;
            let before = descriptors();
            for number in 0..if stress() { 10_000 } else { 1_000 } {
                let outcome = story.reuse(BYTES, "[100000]").await;
                assert_eq!(body(&outcome).len(), 100_009);
                if number < 50 {
                    kept.push(outcome.value.expect("a value"));
                }
            }
            assert_eq!(descriptors(), before);
            story.end().await;
        }
        for value in &mut kept {
            assert!(value.body.bytes().ends_with(&[b'a'; 100_000]));
            let Body::Mapped(mapping) = &mut value.body else {
                panic!("large values are mapped");
            };
            mapping.bytes_mut()[50_000] = b'b';
            assert_eq!(mapping.bytes()[50_000], b'b');
        }
    });
}

/// EX-60
#[tokio::test]
async fn a_value_stays_encoded_until_it_is_asked_for() {
    let story = Story::new();
    let outcome = story.source("def f():\n    return [1, 'a']\n", "[]").await;
    let items = vec![value::Value::Int(1), value::Value::Str("a".into())];
    let encoded = outcome.value.expect("a value");
    assert_eq!(
        encoded.body.bytes(),
        value::encode(&value::Value::List(items))
    );
    story.end().await;
}

pub(crate) async fn forged(story: &Story, payload: &[u8]) -> Outcome {
    let args = value::Value::Tuple(vec![value::Value::Bytes(payload.to_vec())]);
    let both = value::Value::Tuple(vec![args, value::Value::Dict(Vec::new())]);
    story
        .run(bare::source(FORGER, "forged", value::encode(&both)))
        .await
}

/// EX-61
#[tokio::test]
async fn large_arguments_arrive_mapped_and_writable() {
    let story = Story::with(|config| config.memfd_cap_bytes = Some(100 << 20));
    let large = if stress() { 2_200_000_000 } else { 300_000_000 };
    let source = "def f(first, second):\n    first[0] = 98\n    \
        return [len(first), first[-1], len(second), second[-1], bytes(first[:2])]";
    // One in memory, one on disk, one both inline and large.
    for size in [100_000, 50_000_000, large] {
        let mut bytes = vec![b'a'; size];
        bytes[size - 1] = b'z';
        let args = vec![
            value::Value::ByteArray(bytes),
            value::Value::Bytes(b"yx".to_vec()),
        ];
        let both = value::Value::Tuple(vec![
            value::Value::Tuple(args),
            value::Value::Dict(Vec::new()),
        ]);
        let encoded = value::encode(&both);
        drop(both);
        let outcome = story.run(bare::source(source, "f", encoded)).await;
        assert_eq!(json(&outcome), j!([size, 122, 2, 120, {"$bytes": "YmE="}]));
    }
    story.end().await;
}

/// EX-62: the disk is a small file system in a mount namespace of the binary's own.
#[test]
fn a_full_spill_disk_fails_its_call_alone_and_says_what_was_needed() {
    if !rustix::process::geteuid().is_root() {
        note("skipped: mounting a small file system needs root");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let mut binary = std::env::current_exe().expect("this process has a program");
    binary.pop();
    binary.pop();
    let script =
        "mount -t tmpfs -o size=8m,mode=700 tmpfs \"$1\" || exit 77; exec \"$2\" batch - -j 1";
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary runs in a mount namespace of its own"
    )]
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(binary.join("fairtrial"))
        .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            note(format_args!("skipped: `unshare` cannot be run: {error}"));
            return;
        }
    };
    let call = |size: u64| j!({"source": BYTES, "function": "f", "args": [size], "limits": {"memory_bytes": 150_000_000}});
    let lines = format!("{}\n{}\n{}\n", call(10), call(40_000_000), call(20));
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), lines.as_bytes()).ok(); // it may have ended
    let output = child.wait_with_output().expect("it ends");
    if output.status.code() == Some(77) || output.stdout.is_empty() {
        note(format_args!(
            "skipped: no mount namespace here: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
        return;
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let records: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(
        (&records[0]["verdict"], &records[2]["verdict"]),
        (&j!("ok"), &j!("ok")),
        "{text}"
    );
    assert_eq!(records[1]["verdict"], j!(null));
    let message = records[1]["error"]["message"]
        .as_str()
        .expect("it says why");
    assert!(
        message.contains("4000000") && message.contains("spill"),
        "{message}"
    );
}

/// EX-62
#[tokio::test]
async fn a_result_beyond_the_file_limit_is_over_the_disk_limit() {
    let story = Story::new();
    for make in [Story::call, Story::reuse_call] {
        for (size, verdict) in [(90_000, Verdict::Ok), (200_000, Verdict::DiskLimit)] {
            let mut call = make(BYTES, &j!([size]).to_string());
            call.limits.file_bytes = Some(100_000);
            let outcome = story.run(call).await;
            assert_eq!(outcome.verdict, verdict, "{size}: {:?}", outcome.error);
        }
    }
    story.end().await;
}

/// EX-63: each is found at once, for the forger would go on for 20 s.
#[tokio::test]
async fn what_is_no_single_whole_reply_is_a_bad_result_with_the_reason() {
    let sins = [
        ("junk", "begins with"),
        ("wrong_magic", "begins with"),
        ("wrong_version", "version 9"),
        ("unknown_kind", "kind 99"),
        ("huge_length", "9223372036854775808 bytes"),
        ("a_frame_out_of_place", "out of place"),
        ("an_ack_without_a_time", "out of place"),
        ("an_ack_with_more_than_a_time", "out of place"),
        ("half_a_frame_and_a_closed_socket", "closed its socket"),
        ("half_a_frame_and_an_end", "half a frame"),
        ("a_closed_socket", "closed its socket"),
        ("closed_descriptors", "closed its socket"),
        ("trailing_bytes", "after its reply"),
        ("a_second_reply", "after its reply"),
        ("a_file_it_was_not_given", "was not given"),
        ("a_small_file", "out of turn"),
        ("a_file_shorter_than_it_says", "claims 100000 bytes"),
        (
            "more_than_the_file_holds",
            "claims 4611686018427387904 bytes",
        ),
        ("a_second_file", "out of turn"),
        ("an_unreadable_record", "cannot be read"),
        ("a_claimed_verdict", "cannot be read"),
    ];
    // On disk, where a worker can cut its file; in memory the seals forbid it.
    let story = Story::with(|config| config.memfd_cap_bytes = Some(1));
    let mut wrong = Vec::new();
    for (function, reason) in sins {
        let mut call = bare::source(FORGER, function, arguments("[]"));
        call.timeout = Some(std::time::Duration::from_secs(15));
        let outcome = story.run(call).await;
        let message = outcome.error.map(|error| error.message).unwrap_or_default();
        if outcome.verdict != Verdict::BadResult || !message.contains(reason) {
            wrong.push(format!("{function}: {} {message}", outcome.verdict));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    story.end().await;
}

/// EX-63
#[tokio::test]
async fn a_reused_worker_that_sends_junk_costs_its_own_call_alone() {
    let story = Story::with(|config| config.max_workers = 1);
    for function in ["junk", "a_closed_socket", "huge_length"] {
        let mut call = bare::source(FORGER, function, arguments("[]"));
        call.python_mut().expect("a source call").isolation = fairtrial_exec::Isolation::Reuse;
        let sin = story.run(call).await;
        assert_eq!(
            sin.verdict,
            Verdict::BadResult,
            "{function}: {:?}",
            sin.error
        );
        let next = story.reuse("def f():\n    return 1", "[]").await;
        assert_eq!(json(&next), 1);
        assert_ne!(next.metrics.worker_id, sin.metrics.worker_id);
    }
    story.end().await;
}

/// EX-63: messages of another dispatch are nobody's.
#[tokio::test]
async fn a_reply_of_another_generation_is_dropped() {
    let story = Story::new();
    let outcome = story
        .run(bare::source(
            FORGER,
            "of_another_generation",
            arguments("[]"),
        ))
        .await;
    assert_eq!(json(&outcome), "the true reply");
    story.end().await;
}

/// EX-64: unpickled, the value would leave a file.
#[tokio::test]
async fn a_pickle_stays_closed_in_engine_and_command_line() {
    let story = Story::new();
    let trap = story.path().join("sprung");
    let source = "import os\nclass Trap:\n    def __init__(self, path):\n        self.path = path\n    \
        def __reduce__(self):\n        return os.mkdir, (self.path,)\ndef f(path):\n    return Trap(path)";
    let mut call = Story::call(source, &j!([trap]).to_string());
    call.python_mut().expect("a source call").result = ResultFormat::Pickle;
    let outcome = story.run(call).await;
    assert!(json(&outcome)["$pickle"].is_string());
    assert!(
        String::from_utf8_lossy(body(&outcome)).contains("mkdir"),
        "the trap is set"
    );
    let line = j!({"source": source, "function": "f", "args": [trap], "result": "pickle"});
    let finished = Cli::new(["batch", "-"])
        .env("FAIRTRIAL_SPILL_DIR", story.path().join("s"))
        .run_with(&line.to_string());
    let record: Json =
        serde_json::from_str(&finished.stdout).unwrap_or_else(|_| panic!("{finished:?}"));
    assert!(record["value"]["$pickle"].is_string(), "{record}");
    assert!(!trap.exists());
    story.end().await;
}

/// EX-62: a value is held to the limit however small the frame that brings it.
#[tokio::test]
async fn a_small_value_beyond_the_limit_on_files_is_a_disk_limit_too() {
    let story = Story::new();
    for make in [Story::call, Story::reuse_call] {
        for (length, verdict) in [(100, Verdict::Ok), (5000, Verdict::DiskLimit)] {
            let mut call = make("def f(n):\n    return 'x' * n", &format!("[{length}]"));
            call.limits.file_bytes = Some(2000);
            assert_eq!(story.run(call).await.verdict, verdict, "{length}");
        }
    }
    story.end().await;
}
