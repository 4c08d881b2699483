//! Command calls (EX-95, EX-96).

use fairtrial_exec::{Call, Exit, Verdict, Work};
use fairtrial_tests::Story;

/// EX-96
#[tokio::test]
async fn an_exit_code_of_137_is_no_signal() {
    let story = Story::new();
    let outcome = story.run(Call::command(["sh", "-c", "exit 137"])).await;
    assert_eq!(
        (outcome.verdict, outcome.exit),
        (Verdict::Exit, Some(Exit::Code(137)))
    );
    story.end().await;
}

/// EX-96
#[tokio::test]
async fn input_is_written_without_deadlock_and_an_early_close_is_no_error() {
    let story = Story::new();
    for (script, expected) in [
        ("cat", 5_000_000),
        ("head -c 10", 10),
        ("exec <&-; echo ok", 3),
    ] {
        let mut call = Call::command(["sh", "-c", script]);
        let Work::Command(work) = &mut call.work else {
            unreachable!()
        };
        work.stdin = vec![b'x'; 5_000_000];
        call.capture_bytes = 8 << 20;
        let outcome = story.run(call).await;
        assert_eq!(
            (outcome.verdict, outcome.stdout.bytes().len()),
            (Verdict::Ok, expected),
            "{script}"
        );
    }
    story.end().await;
}
