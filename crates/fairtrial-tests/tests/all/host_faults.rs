//! Faults of the host are never a candidate's: what somebody else killed, removed or used up is an engine error, after
//! tries that would mend it.

use fairtrial_exec::{Call, EngineError, Level, Sandbox, Verdict};
use fairtrial_tests::{Gate, Story, json};
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
