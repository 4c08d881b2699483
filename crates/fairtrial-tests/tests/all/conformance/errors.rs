//! Errors: a call's own, and those that say nothing of it. Of an unknown key the types of this language speak.

use std::time::Duration;

use fairtrial_exec::{Backend, Call, EngineError, Event, Verdict};
use fairtrial_tests::{Story, bare, wait_until};

use super::Factory;
use super::scene::{Heard, ONE, Scene, in_time, shut};

cases! {
    a_traceback_shows_the_line_and_the_message,
    a_long_message_and_its_traceback_arrive_whole,
    a_missing_function_is_an_exception_that_names_it,
    source_that_is_none_is_an_exception_with_its_line,
    what_no_engine_could_run_is_refused_by_its_field_and_told_nobody,
    an_engine_error_is_no_verdict_and_has_its_complete,
}

/// CL-74
async fn a_traceback_shows_the_line_and_the_message<F: Factory>(scene: &Scene<F>) {
    let source = "def g(x):\n    raise KeyError('the missing one')\ndef f():\n    return g(1)\n";
    let outcome = scene.source(source, "[]").await;
    assert_eq!(outcome.verdict, Verdict::Exception);
    let error = outcome.error.expect("it says why");
    assert_eq!(error.kind, "KeyError");
    assert!(error.message.contains("the missing one"), "{error:?}");
    for word in ["line 2", "raise KeyError", "line 4", "return g(1)"] {
        assert!(error.traceback.contains(word), "{}", error.traceback);
    }
}

/// CL-13, CL-74: as this machine's own engine has it.
async fn a_long_message_and_its_traceback_arrive_whole<F: Factory>(scene: &Scene<F>) {
    let source = "def f(): raise ValueError('m' * 90_000)";
    let error = scene.source(source, "[]").await.error;
    let story = Story::new();
    let here = story.source(source, "[]").await.error;
    story.end().await;
    assert!(
        here.as_ref()
            .is_some_and(|error| error.message.len() > 10_000)
    );
    assert!(error == here, "it is another one");
}

/// CL-74
async fn a_missing_function_is_an_exception_that_names_it<F: Factory>(scene: &Scene<F>) {
    let call = bare::source(
        "def g(): pass",
        "not_there",
        fairtrial_tests::arguments("[]"),
    );
    let outcome = scene.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Exception);
    let error = outcome.error.expect("it says why");
    assert!(error.message.contains("not_there"), "{error:?}");
}

/// CL-74
async fn source_that_is_none_is_an_exception_with_its_line<F: Factory>(scene: &Scene<F>) {
    let outcome = scene.source("x = 1\ndef f(:", "[]").await;
    assert_eq!(outcome.verdict, Verdict::Exception);
    let error = outcome.error.expect("it says why");
    assert_eq!(error.kind, "SyntaxError");
    assert!(format!("{error:?}").contains("line 2"), "{error:?}");
}

/// CL-74, EX-92
async fn what_no_engine_could_run_is_refused_by_its_field_and_told_nobody<F: Factory>(
    scene: &Scene<F>,
) {
    let heard = Heard::by(&*scene.backend);
    let wrong = |change: fn(&mut Call)| {
        let mut call = Story::call(ONE, "[]");
        change(&mut call);
        call
    };
    for (call, field) in [
        (
            wrong(|call| call.timeout = Some(Duration::ZERO)),
            "timeout_s",
        ),
        (
            wrong(|call| call.queue_timeout = Some(Duration::ZERO)),
            "queue_timeout_s",
        ),
        (
            wrong(|call| drop(call.env.insert("A=B".into(), None))),
            "env.A=B",
        ),
        (bare::command([""]), "argv"),
    ] {
        match in_time(scene.backend.execute(call)).await {
            Err(EngineError::InvalidCall(invalid)) => assert_eq!(invalid.field, field),
            other => panic!("`{field}`: {other:?}"),
        }
    }
    shut(&*scene.backend).await;
    assert_eq!(heard.all(), [Event::Shutdown]);
}

/// CL-30, CL-74, EX-92
async fn an_engine_error_is_no_verdict_and_has_its_complete<F: Factory>(scene: &Scene<F>) {
    let broken = scene.factory.make_broken();
    let heard = Heard::by(&broken);
    let answers = in_time(async {
        tokio::join!(
            broken.execute(Story::call(ONE, "[]")),
            broken.execute(bare::command(["true"]))
        )
    });
    let answers = answers.await;
    assert!(answers.0.is_err() && answers.1.is_err(), "{answers:?}");
    wait_until("both are told", || heard.count("complete") == 2).await;
    shut(&broken).await;
    let all = heard.all();
    let completed = all
        .iter()
        .filter(|event| matches!(event, Event::Complete { verdict: None, .. }));
    assert_eq!((completed.count(), heard.count("submit")), (2, 2));
    assert_eq!(heard.count("shutdown"), 1);
}
