//! Faults of the host are never a candidate's: what somebody else killed, removed or used up is an engine error, after
//! tries that would mend it.

use fairtrial_exec::{Call, EngineError, Level, Sandbox, Verdict};
use fairtrial_tests::{Gate, Shell, Story, json, note};
use serde_json::json as j;

use crate::process::{script, with_python};

const ONE: &str = "def f(): return 1\n";

/// An interpreter that is killed the first `times` times that it starts.
fn killed_python(story: &Story, times: u32) -> String {
    let count = story.write("killed", "");
    let text = format!(
        "#!/bin/sh\nif [ \"$(wc -l < {0})\" -lt {times} ]; then echo >> {0}; kill -9 $$; fi\nexec python3 \"$@\"\n",
        count.display()
    );
    script(story, "python", &text)
}

/// FA-11
#[tokio::test]
async fn calls_outlive_interpreters_that_are_killed_while_they_start() {
    let story = Story::new();
    let python = killed_python(&story, 3);
    let call = || with_python(Story::call(ONE, "[]"), &python);
    let calls: Vec<_> = (0..20)
        .map(|_| story.backend.submit(call()).expect("taken"))
        .collect();
    for call in calls {
        assert_eq!(json(&call.await.expect("no engine error")), 1);
    }
    story.end().await;
}

/// FA-11
#[tokio::test]
async fn an_interpreter_that_is_killed_at_every_start_is_an_engine_error_and_no_verdict() {
    let story = Story::new();
    let python = killed_python(&story, 1000);
    let call = || with_python(Story::call(ONE, "[]"), &python);
    let calls: Vec<_> = (0..20)
        .map(|_| story.backend.submit(call()).expect("taken"))
        .collect();
    for call in calls {
        let error = call.await.expect_err("no verdict");
        assert!(matches!(error, EngineError::Killed { .. }), "{error}");
        assert!(error.to_string().contains("python"), "{error}");
    }
    assert_eq!(json(&story.source(ONE, "[]").await), 1, "others go on");
    story.end().await;
}

/// FA-11
#[tokio::test]
async fn an_interpreter_that_ends_by_itself_is_a_set_up_that_cannot_be_had() {
    let story = Story::new();
    let python = script(&story, "python", "#!/bin/sh\nexit 3\n");
    let outcome = story
        .run(with_python(Story::call(ONE, "[]"), &python))
        .await;
    assert_eq!(outcome.verdict, Verdict::SetupFailed);
    story.end().await;
}

/// FA-11
#[tokio::test]
async fn calls_go_on_when_the_scratch_root_is_removed_moved_or_replaced() {
    let look =
        "import os\ndef f(x):\n    open('own', 'w').write('x')\n    return [x, os.listdir('.')]\n";
    for level in [Level::None, Level::Limits] {
        for replace in [
            "rm -rf scratch-*",
            "for root in scratch-*; do mv $root away-$root; done",
            "for root in scratch-*; do mv $root away-$root; mkdir -m 700 $root; done",
            "cd ..; mv spill away; mkdir -m 700 spill",
        ] {
            let story = Story::new();
            let at = |mut call: Call| {
                call.sandbox = Sandbox::new(level);
                call
            };
            let source = |n: u32| at(Story::call(look, &j!([n]).to_string()));
            let kept = |n: u32| at(Story::reuse_call(look, &j!([n]).to_string()));
            let command = || at(Call::command(["sh", "-c", "echo x > own && ls"]));
            for n in 0..3 {
                assert_eq!(json(&story.run(source(n)).await), j!([n, ["own"]]));
            }
            assert_eq!(json(&story.run(kept(3)).await), j!([3, ["own"]]));
            #[expect(clippy::disallowed_methods, reason = "somebody tidies up")]
            let status = std::process::Command::new("sh")
                .args(["-c", replace])
                .current_dir(story.path().join("spill"))
                .status();
            assert!(status.expect("a shell").success());
            let calls: Vec<_> = (4..10)
                .flat_map(|n| [source(n), kept(n), command()])
                .map(|call| story.backend.submit(call).expect("taken"))
                .collect();
            for call in calls {
                let outcome = call.await.expect("no engine error");
                let said = (&outcome.verdict, &outcome.error);
                assert_eq!(outcome.verdict, Verdict::Ok, "{level}, {replace}: {said:?}");
            }
            story.end().await;
        }
    }
}

/// A control group for memory below this process's own, removed when dropped.
struct Bound(std::path::PathBuf);

impl Bound {
    /// With so much memory; `None` where none can be made.
    fn new(bytes: u64) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let own = format!("/sys/fs/cgroup/memory{}", own.trim_end_matches('/'));
        let group = format!("{own}/fairtrial-test-{}", std::process::id());
        std::fs::create_dir(&group).ok()?;
        let bound = Self(group.into());
        std::fs::write(bound.0.join("memory.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let removed = (0..100).any(|_| {
            let removed = std::fs::remove_dir(&self.0).is_ok();
            if !removed {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "version 1 does not tell when the last zombie of a group is reaped"
                )]
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            removed
        });
        assert!(
            removed || std::thread::panicking(),
            "somebody is left in it"
        );
    }
}

/// FA-7: together they need twice what there is, each alone a third of it.
#[test]
fn innocents_that_the_kernel_ended_for_want_of_memory_are_run_again_and_get_their_verdict() {
    let Some(bound) = Bound::new(420 << 20) else {
        return note("skipped: no control group for memory (version 1) can be made");
    };
    let shell = Shell::new();
    let source = "import time\ndef f(x):\n    block = bytearray(b'x') * (150 << 20)\n    time.sleep(0.3)\n    \
                  return [x, len(block)]\n";
    let call = |n: u32| {
        j!({"source": source, "function": "f", "args": [n], "timeout_s": 60, "sandbox": "limits",
            "limits": {"memory_bytes": 400 << 20}})
    };
    shell.write_lines("calls.jsonl", &(0..8).map(call).collect::<Vec<_>>());
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", bound.0.display());
    let run = shell.fairtrial(["batch", "calls.jsonl", "-j", "6"]);
    let run = run.under_all(&["sh", "-c", &enter, "host"]).run();
    let records = run.stdout.lines().map(serde_json::from_str);
    let records: Vec<serde_json::Value> = records.map(|record| record.expect("JSON")).collect();
    assert_eq!(records.len(), 8, "{}", run.stderr);
    for (n, record) in records.iter().enumerate() {
        assert_eq!(record["verdict"], "ok", "{record}: {}", run.stderr);
        assert_eq!(record["value"], j!([n, 150 << 20]));
    }
    assert!(run.stderr.contains("ran out of memory"), "{}", run.stderr);
}

/// Twenty small processes that together take more than any innocent does.
const MANY_SMALL: &str = "import os, time
def f(place):
    for _ in range(20):
        if os.fork() == 0:
            block = bytearray(b'x') * (9 << 20)
            open(f'{place}/grown-{os.getpid()}', 'w').close()
            time.sleep(20)
            os._exit(0)
    for _ in range(20):
        os.wait()
";
/// One process that grows once memory is short, and notes each of its starts.
const ONE_LARGE: &str = "import os, time
def f(place):
    open(f'{place}/start-{os.getpid()}-{time.monotonic_ns()}', 'w').close()
    end = time.monotonic() + 20
    while time.monotonic() < end and sum(name.startswith('grown-') for name in os.listdir(place)) < 40:
        time.sleep(0.01)
    blocks = []
    for _ in range(60):
        blocks.append(bytearray(b'x') * (1 << 20))
        time.sleep(0.005)
    return len(blocks)
";

/// FA-7: two attackers of 21 small processes take nine tenths of what there is, then innocents need some.
#[test]
fn the_call_that_takes_most_is_ended_first_however_small_its_processes_are() {
    let Some(bound) = Bound::new(440 << 20) else {
        return note("skipped: no control group for memory (version 1) can be made");
    };
    let shell = Shell::new();
    shell.write("place/kept", "");
    let place = shell.path().join("place");
    let call = |source: &str| {
        j!({"source": source, "function": "f", "args": [place], "timeout_s": 40,
            "sandbox": {"level": "limits", "write": [place]}, "limits": {"memory_bytes": 400 << 20}})
    };
    let calls = [MANY_SMALL, MANY_SMALL, ONE_LARGE, ONE_LARGE, ONE_LARGE].map(call);
    shell.write_lines("calls.jsonl", &calls);
    let enter = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", bound.0.display());
    let run = shell.fairtrial(["batch", "calls.jsonl", "-j", "5"]);
    let run = run.under_all(&["sh", "-c", &enter, "host"]).run();
    let records = run.stdout.lines().map(serde_json::from_str);
    let records: Vec<serde_json::Value> = records.map(|record| record.expect("JSON")).collect();
    for innocent in &records[2..] {
        assert_eq!(innocent["verdict"], "ok", "{innocent}: {}", run.stderr);
    }
    let names = std::fs::read_dir(&place).expect("it is there");
    let names = names.map(|entry| entry.expect("read").file_name());
    let starts = names.filter(|name| name.to_string_lossy().starts_with("start-"));
    assert_eq!(starts.count(), 3, "an innocent was ended, and run again");
    assert!(run.stderr.contains("ran out of memory"), "{}", run.stderr);
}

/// FA-11, FA-12: what has no room beside others waits for their end.
#[tokio::test]
async fn a_call_that_finds_no_descriptors_beside_others_runs_after_them() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let name = "host_faults::a_call_that_finds_no_descriptors_beside_others_runs_after_them";
    if !fairtrial_tests::is_alone(name) {
        return;
    }
    let story = Story::with(|config| config.max_workers = 4);
    assert_eq!(json(&story.source(ONE, "[]").await), 1);
    let gate = Gate::new(&story, "gate");
    let running = story.backend.submit(gate.reuse_call()).expect("taken");
    gate.reached_by(1).await;
    let had = getrlimit(Resource::Nofile);
    // Not one more descriptor than there are.
    let open = std::fs::read_dir("/proc/self/fd").expect("ours").count() as u64;
    let none_left = Rlimit {
        current: Some(open),
        maximum: had.maximum,
    };
    setrlimit(Resource::Nofile, none_left).expect("lower");
    let waiting = story.backend.submit(Story::call(ONE, "[]")).expect("taken");
    let patience = std::time::Duration::from_secs(2); // longer than three tries, had they been counted
    let early = tokio::time::timeout(patience, waiting).await;
    setrlimit(Resource::Nofile, had).expect("as it was");
    assert!(early.is_err(), "it was answered: {early:?}");
    gate.open();
    assert_eq!(json(&running.await.expect("runs")), "through");
    assert_eq!(json(&story.source(ONE, "[]").await), 1);
    story.end().await;
}
