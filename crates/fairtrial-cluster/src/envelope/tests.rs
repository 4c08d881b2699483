//! Envelopes there and back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{
    Arguments, Body, Call, Captured, Counters, CpuSource, EncodedValue, ErrorReport, Exit,
    FirstRun, HostTerms, InForce, Isolation, KilledBy, Level, Margin, MeasuredBy, Mechanism,
    Metrics, Outcome, PeakSource, PickledWork, PythonTerms, Resource, ResultFormat, Sandbox, State,
    Time, Verdict, WaitSource, Work,
};

use super::*;
use crate::blobs::Blob;
use crate::names::{StreamId, Token};
use crate::terms::{MAX_ENVELOPE, MAX_RESULT};

fn token() -> Token {
    let entry = StreamId { ms: 1, seq: 1 };
    Token { entry, delivery: 2 }
}

fn source_call(source: &str, arguments: Vec<u8>) -> Call {
    Call::source(source, "f", arguments)
}

fn sealed(call: &Call) -> SealedTask {
    TaskEnvelope::seal(call, "key", PackedParts::default(), None).expect("it fits")
}

/// The call that an agent makes of it, with what lies beside the envelope.
fn opened(sealed: &SealedTask, path: Vec<PathBuf>) -> Call {
    let envelope = TaskEnvelope::read(&sealed.bytes).expect("just made");
    let fetch = |blob: &Blob| {
        let piece = sealed.outgoing.iter().find(|piece| piece.blob == *blob)?;
        match &piece.body {
            OutgoingBody::Bytes(bytes) => Some(Arguments::Bytes(bytes.clone())),
            _ => None,
        }
    };
    envelope.to_call(path, fetch).expect("all is known")
}

fn everything() -> Call {
    let mut call = source_call("def f():\n    return 1\n", vec![0, 1, 255]);
    call.env.insert("A".into(), Some("b".into()));
    call.env.insert("GONE".into(), None);
    call.cwd = Some("/tmp".into());
    call.timeout = Some(Duration::from_millis(1500));
    call.time = Time::Cpu;
    call.term_grace = Duration::from_millis(20);
    call.cancel_grace = Duration::from_millis(30);
    call.limits.cpu = Some(Duration::from_secs(3));
    call.limits.set(Resource::Memory, Some(1 << 30));
    call.limits.set(Resource::Processes, None);
    call.sandbox = Sandbox::new(Level::Strict);
    call.sandbox.read = vec!["/data".into()];
    call.sandbox.cpus = Some(vec![0, 3]);
    call.capture_bytes = 77;
    let terms = call.python_mut().expect("a source call");
    terms.python = "python3.12".into();
    terms.preload = vec!["json".into()];
    terms.preload_shared = vec!["json".into()];
    terms.isolation = Isolation::Fresh;
    call
}

/// CL-1, CL-13
#[test]
fn a_call_arrives_as_it_was_sent() {
    let mut command = Call::command(["cat", "-"]);
    let Work::Command(work) = &mut command.work else {
        unreachable!("made as one");
    };
    work.stdin = b"\xff\x00in".to_vec();
    work.argv
        .push(std::os::unix::ffi::OsStringExt::from_vec(vec![0xff, b'a']));
    let pickled = Call::new(Work::Pickled(PickledWork {
        body: Arguments::Bytes(vec![128, 5]),
        python: PythonTerms {
            result: ResultFormat::Pickle,
            host: Some(Arc::new(HostTerms {
                sys_path: vec!["/lib".into()],
                argv: vec!["main".into()],
                faulthandler: true,
                authkey: None,
                logging: None,
                initializer: Some(vec![1, 2, 3]),
            })),
            ..PythonTerms::default()
        },
    }));
    let mut passed = everything();
    passed.pass_env.insert("KEY".into());
    for call in [everything(), passed, command, pickled] {
        assert_eq!(opened(&sealed(&call), Vec::new()), call);
    }
}

/// CL-13: what does not fit goes beside it, the longest first.
#[test]
fn an_envelope_never_passes_its_size_whatever_the_call_holds() {
    let long = "x = 1\n".repeat(5_000);
    for (source, arguments, beside) in [
        ("def f(): pass".to_owned(), vec![7; 100], 0),
        (long.clone(), vec![7; 100], 1),
        ("def f(): pass".to_owned(), vec![7; 40_000], 1),
        (long, vec![7; 40_000], 2),
    ] {
        let call = source_call(&source, arguments);
        let sealed = sealed(&call);
        assert!(sealed.bytes.len() <= MAX_ENVELOPE, "{}", sealed.bytes.len());
        assert_eq!(sealed.outgoing.len(), beside);
        assert_eq!(opened(&sealed, Vec::new()), call);
    }
    let mut call = Call::command(["true"]);
    call.env
        .insert("LONG".into(), Some("x".repeat(20_000).into()));
    let refused = TaskEnvelope::seal(&call, "key", PackedParts::default(), None);
    assert!(matches!(refused, Err(UnreadableTask::TooLong(20_000..))));
}

/// CL-14: the same call gives the same bytes.
#[test]
fn equal_calls_have_equal_envelopes() {
    assert_eq!(sealed(&everything()).bytes, sealed(&everything()).bytes);
    let mut other = everything();
    other.timeout = None;
    assert_ne!(sealed(&everything()).bytes, sealed(&other).bytes);
}

/// CL-40, CL-23, CL-24: as recorded from a version that has more to say.
#[test]
fn of_a_newer_minor_version_the_unknown_is_ignored_and_of_another_major_one_all_is_refused() {
    let bytes = sealed(&everything()).bytes;
    let mut newer: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    newer["protocol"] = "1.1".into();
    newer["colour"] = "red".into();
    newer["call"]["taste"] = serde_json::json!({"sweet": true});
    let read = TaskEnvelope::read(newer.to_string().as_bytes()).expect("a newer minor version");
    assert_eq!(read.to_call(Vec::new(), |_| None).unwrap(), everything());
    newer["protocol"] = "2.0".into();
    let refused = TaskEnvelope::read(newer.to_string().as_bytes());
    assert!(matches!(refused, Err(UnreadableTask::OtherProtocol { theirs }) if theirs == "2.0"));
    for damaged in [&b"{"[..], b"[]", b"{}", &bytes[..bytes.len() / 2]] {
        let refused = TaskEnvelope::read(damaged);
        assert!(
            matches!(refused, Err(UnreadableTask::Damaged(_))),
            "{refused:?}"
        );
    }
}

fn outcome(value: Vec<u8>, output: usize) -> Outcome {
    Outcome {
        verdict: Verdict::Exception,
        value: Some(EncodedValue {
            format: ResultFormat::Data,
            body: Body::Inline(value),
        }),
        error: Some(ErrorReport {
            kind: "ValueError".into(),
            message: "bad \u{1F600}".into(),
            traceback: "Traceback\n".into(),
            exception: Some(vec![1, 2]),
        }),
        exit: Some(Exit::Signal(9)),
        killed_by: Some(KilledBy::Outside),
        stdout: Captured {
            head: vec![b'a'; output],
            tail: vec![0xff; output / 2],
            dropped: 5,
        },
        stderr: Captured::default(),
        metrics: Metrics {
            wall_ns: Some(1),
            cpu_source: Some(CpuSource::Cgroup),
            peak_source: Some(PeakSource::Cgroup),
            worker_id: Some("abc".into()),
            measured_by: Some(MeasuredBy::Worker),
            wait_ns: Some(7),
            wait_source: Some(WaitSource::Schedstat),
            margin: Some(Margin {
                limit: "timeout_s".into(),
                used: 1.5,
            }),
            ..Metrics::default()
        },
        in_force: InForce {
            requested: Level::Limits,
            effective: Level::None,
            mode: "fresh",
            mechanisms: vec![Mechanism::new("memory", State::Sampled, "rss of the tree")],
            preload_shared: vec!["json".into()],
            counters: Counters {
                minor_faults: Some(3),
                ..Counters::default()
            },
            ..InForce::default()
        },
        tried_alone: Some(Box::new(FirstRun {
            verdict: Verdict::Timeout,
            metrics: Metrics {
                wait_ns: Some(9),
                ..Metrics::default()
            },
        })),
        upper: None,
    }
}

/// CL-1, CL-13
#[test]
fn an_outcome_arrives_as_it_was_sent_and_its_envelope_fits() {
    let id = serde_json::json!("id");
    for (value, output, beside) in [
        (10, 10, 0),
        (100_000, 10, 1),
        (10, 60_000, 1),
        (50_000, 500_000, 3),
    ] {
        let mut data = vec![b'b'];
        data.extend((value as u64).to_le_bytes());
        data.extend(vec![42; value]);
        let sent = outcome(data.clone(), output).to_json(&id).expect("a value");
        let sealed = ResultEnvelope::seal(outcome(data, output), token(), "here");
        assert!(sealed.bytes.len() <= MAX_RESULT);
        assert_eq!(sealed.outgoing.len(), beside);
        let read = ResultEnvelope::read(&sealed.bytes).expect("just made");
        assert_eq!(read.token, Some(token()));
        let arrived = read.to_outcome(|blob| {
            let piece = sealed.outgoing.iter().find(|piece| piece.blob == *blob)?;
            Some(Body::Inline(match &piece.body {
                OutgoingBody::Bytes(bytes) => bytes.clone(),
                OutgoingBody::Value(body) => body.bytes().to_vec(),
                OutgoingBody::File(_) => return None,
            }))
        });
        let arrived = arrived.expect("all is known");
        assert_eq!(arrived.to_json(&id).expect("a value"), sent);
        assert_eq!(
            arrived.error.and_then(|error| error.exception),
            Some(vec![1, 2])
        );
    }
}

/// CL-13: what a candidate calls its exception's type does not pass the size of an envelope either.
#[test]
fn an_envelope_fits_whatever_an_exception_is_called() {
    let mut sent = outcome(vec![b'T'], 10);
    let error = sent.error.as_mut().expect("it has one");
    error.kind = "\u{1F600}\u{1}".repeat(50_000);
    let sealed = ResultEnvelope::seal(sent, token(), "here");
    assert!(sealed.bytes.len() <= MAX_RESULT);
    let read = ResultEnvelope::read(&sealed.bytes).expect("just made");
    let arrived = read.to_outcome(|_| None).expect("all is here");
    let kind = arrived.error.expect("it has one").kind;
    assert!(kind.starts_with("\u{1F600}\u{1}") && kind.len() > 1000 && kind.len() <= 2048);
}

/// FA-11: however many words agents make up, outcomes are read; what the first of them said is still known.
#[test]
fn an_outcome_is_read_however_many_words_agents_made_up() {
    let of = |via: &str| {
        let bytes = ResultEnvelope::seal(outcome(vec![b'T'], 10), token(), "here").bytes;
        let text = String::from_utf8(bytes).expect("JSON");
        let text = text.replace("rss of the tree", via);
        let read = ResultEnvelope::read(text.as_bytes()).expect("an envelope");
        let outcome = read.to_outcome(|_| None).expect("it is read");
        outcome.in_force.mechanisms[0].via
    };
    assert_eq!(of("first word"), "first word");
    (0..6000).for_each(|number| _ = of(&format!("word {number}")));
    assert_eq!(of("one word too many"), "not known here");
    assert_eq!(of(&"long".repeat(1000)), "not known here");
    assert_eq!(of("first word"), "first word");
}

/// CL-24: what is no base64 is not taken for nothing, wherever it stands.
#[test]
fn damaged_bytes_are_never_other_bytes() {
    let mut call = everything();
    let odd: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(vec![0xff]);
    call.env.insert("ODD".into(), Some(odd));
    let task = String::from_utf8(sealed(&call).bytes).expect("JSON");
    let result = ResultEnvelope::seal(outcome(vec![0xff], 10), token(), "here").bytes;
    let result = String::from_utf8(result).expect("JSON");
    let damaged = |text: &str, sound: &str| {
        assert!(text.contains(sound), "{sound} is not in {text}");
        text.replace(sound, "\"base64\":\"*\"").into_bytes()
    };
    for sound in ["\"base64\":\"/w==\"", "\"base64\":\"AAH/\""] {
        let refused = TaskEnvelope::read(&damaged(&task, sound));
        assert!(matches!(refused, Err(UnreadableTask::Damaged(_))));
    }
    for sound in [
        "\"base64\":\"/w==\"",
        "\"base64\":\"AQI=\"",
        "\"base64\":\"//////8=\"",
    ] {
        let refused = ResultEnvelope::read(&damaged(&result, sound)).expect_err("damaged");
        assert_eq!(refused.code, ErrorCode::Invalid);
    }
}

/// A task and a result as the first version of the protocol wrote them. Never written again: agents and coordinators of
/// that version are about.
const TASK_1_0: &[u8] = include_bytes!("recorded/task-1.0.json");
const RESULT_1_0: &[u8] = include_bytes!("recorded/result-1.0.json");

/// CL-40: what was recorded is read as it was meant.
#[test]
fn recorded_envelopes_of_the_first_version_are_read() {
    let task = TaskEnvelope::read(TASK_1_0).expect("as it was written");
    // What the first version did not know has its default.
    let mut meant = everything();
    meant.time = Time::Wall;
    if let Work::Source(work) = &mut meant.work {
        work.python.preload_shared.clear();
    }
    assert_eq!(task.to_call(Vec::new(), |_| None), Ok(meant));
    assert_eq!(task.needs.level, "strict");
    let read = ResultEnvelope::read(RESULT_1_0).expect("as it was written");
    assert_eq!(read.token, Some(token()));
    assert_eq!(read.agent.as_deref(), Some("here"));
    let id = serde_json::json!("id");
    let arrived = read.to_outcome(|_| None).expect("all is known");
    let mut sent = outcome(vec![b'T'], 10).to_json(&id).expect("a value");
    // What later versions know besides.
    for metric in ["cpu_source", "wait_s", "wait_source", "margin"] {
        sent["metrics"][metric] = serde_json::Value::Null;
    }
    sent["tried_alone"] = serde_json::Value::Null;
    let in_force = sent["in_force"].as_object_mut().expect("an object");
    in_force.remove("preload_shared");
    // Of the machine where it was recorded.
    sent["in_force"]["digest"] =
        "sha256:18b689094557a6c1043d2fd079a27d7127a58d44633a5d0dbffe4866e6cb5c01".into();
    assert_eq!(arrived.to_json(&id).expect("a value"), sent);
}

/// CL-40: of a result the same is ignored and refused as of a task.
#[test]
fn a_result_of_a_newer_minor_version_is_read_and_of_another_major_one_is_not() {
    let mut newer: serde_json::Value = serde_json::from_slice(RESULT_1_0).expect("JSON");
    newer["protocol"] = "1.1".into();
    newer["colour"] = "red".into();
    newer["outcome"]["taste"] = serde_json::json!({"sweet": true});
    newer["outcome"]["metrics"]["joules"] = 3.into();
    let read = ResultEnvelope::read(newer.to_string().as_bytes()).expect("a newer minor version");
    let arrived = read
        .to_outcome(|_| None)
        .expect("all that is needed is known");
    assert_eq!(arrived.verdict, Verdict::Exception);
    newer["protocol"] = "2.0".into();
    let refused = ResultEnvelope::read(newer.to_string().as_bytes()).expect_err("another one");
    assert_eq!(refused.code, ErrorCode::Invalid);
    assert!(refused.message.contains("protocol 2.0"), "{refused}");
    let later = br#"{"protocol": "1.1", "kind": "error", "token": null, "agent": null,
        "error": {"code": "eaten", "message": "by a dog", "when": 3}}"#;
    let read = ResultEnvelope::read(later).expect("a newer minor version");
    let error = read.to_outcome(|_| None).expect_err("an error");
    assert_eq!(
        (error.code, &*error.message),
        (ErrorCode::Other, "by a dog")
    );
}

/// CL-30: as dispatch writes them by itself.
#[test]
fn an_error_is_told_by_its_name() {
    let bytes = br#"{"protocol": "1.0", "kind": "error", "token": null, "agent": null,
        "error": {"code": "lost", "message": "3 agents were lost with it"}}"#;
    let read = ResultEnvelope::read(bytes).expect("as the script writes it");
    let error = read.to_outcome(|_| None).expect_err("an error");
    assert_eq!(error.code, ErrorCode::Lost);
    let error = fairtrial_exec::EngineError::from(error);
    assert!(error.is_final());
    assert_eq!(error.to_string(), "3 agents were lost with it (lost)");
}

/// CL-13: most calls ask for nothing special, and the server holds and reads every byte of theirs.
#[test]
fn what_goes_without_saying_is_not_said() {
    let task = sealed(&source_call("def f(): pass", b"()".to_vec())).bytes;
    let result = ResultEnvelope::seal(outcome(b"N".to_vec(), 0), token(), "agent/nonce/0").bytes;
    for bytes in [&task, &result] {
        let text = std::str::from_utf8(bytes).expect("JSON");
        for nothing in ["[]", "\"\"", "{}"] {
            assert!(!text.contains(nothing), "{nothing} in {text}");
        }
    }
    let task: serde_json::Value = serde_json::from_slice(&task).expect("JSON");
    assert_eq!(task["call"].get("timeout_ns"), None);
}
