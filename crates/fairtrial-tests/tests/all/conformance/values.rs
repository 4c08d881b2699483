//! Values: what goes in comes out, by every backend.

use fairtrial_exec::{
    Call, Level, Outcome, PickledWork, PythonTerms, ResultFormat, Sandbox, Verdict, Work, value,
};
use fairtrial_tests::{Story, bare, json, note};
use serde_json::json as j;

use super::Factory;
use super::scene::Scene;

cases! {
    scalars_and_collections_arrive_as_themselves,
    keyword_arguments_arrive_under_their_names,
    bytes_of_any_size_arrive_as_themselves,
    arrays_arrive_as_themselves_and_can_be_written_to,
    two_hundred_megabytes_come_back,
    two_hundred_megabytes_go_in,
    a_large_source_is_run,
    a_pickled_value_is_opened_by_nobody_unasked,
    a_pickled_call_is_opened_by_its_worker_alone,
    a_commands_input_and_output_are_any_bytes,
    output_is_captured_also_of_a_call_that_was_stopped,
    output_is_kept_within_its_bounds_and_the_rest_is_counted,
    long_outputs_that_are_all_alike_arrive_whole,
    a_directory_to_import_from_is_there,
}

const SAME: &str = "def f(x): return x\n";
const MANY: usize = 200_000_000;

/// CL-74, EX-65
async fn scalars_and_collections_arrive_as_themselves<F: Factory>(scene: &Scene<F>) {
    let values = j!([
        null, true, 0, -1, 1.5, {"$float": "-Infinity"}, {"$complex": [2.0, 3.0]}, "text", "\u{e9}\n\0",
        {"$bytes": "AP8="}, [], [1, [2, []]], {"$tuple": [1, {"$tuple": []}]}, {"$set": [1]}, {"$frozenset": ["a"]},
        {"b": [1, {"a": {"$tuple": [{"$bytes": "eA=="}, null]}}]},
        {"$map": [[3, {"deep": [[[]]]}], [{"$tuple": [1, 2]}, "key"]]},
    ]);
    let all = scene.source(SAME, &j!([values]).to_string()).await;
    assert_eq!(json(&all), values);
    let large = "1".repeat(200);
    let outcome = scene.source(SAME, &format!("[{large}]")).await;
    let came = scene.source("def f(): return int('1' * 200)", "[]").await;
    assert_eq!(bytes(&outcome), bytes(&came), "an integer of 200 digits");
}

/// CL-74
async fn keyword_arguments_arrive_under_their_names<F: Factory>(scene: &Scene<F>) {
    let kwargs = j!({"a": 1, "b": [2]});
    let arguments = value::arguments_from_json(&j!([]), &kwargs).expect("arguments");
    let call = bare::source("def f(**kwargs): return kwargs", "f", arguments);
    assert_eq!(json(&scene.run(call).await), kwargs);
}

/// CL-13, CL-74: in a message, beside it, and too large for one, in each direction.
async fn bytes_of_any_size_arrive_as_themselves<F: Factory>(scene: &Scene<F>) {
    for size in [0, 1_000, 20_000, 70_000, 3_000_000] {
        let sent = scrambled(size);
        let outcome = scene.run(with_bytes(SAME, &sent)).await;
        assert!(
            bytes(&outcome).ends_with(&sent),
            "{size}: {:?}",
            outcome.error
        );
        let length = scene
            .run(with_bytes("def f(x): return len(x)", &sent))
            .await;
        assert_eq!(json(&length), size);
    }
}

/// CL-74, EX-68
async fn arrays_arrive_as_themselves_and_can_be_written_to<F: Factory>(scene: &Scene<F>) {
    let Ok(python) = std::env::var("FAIRTRIAL_TEST_NUMPY") else {
        return note("skipped: FAIRTRIAL_TEST_NUMPY names no interpreter with numpy");
    };
    let with_numpy = |source: &str, args: Vec<u8>| {
        let mut call = bare::source(source, "f", args);
        call.python_mut()
            .expect("a source call")
            .python
            .clone_from(&python);
        call
    };
    for maker in ["np.arange(12).reshape(3, 4)", "np.arange(100_000.0)"] {
        let source = format!("import numpy as np\ndef f(): return {maker}");
        let made = scene
            .run(with_numpy(&source, fairtrial_tests::arguments("[]")))
            .await;
        let arguments = value::arguments_from_json(&j!([json(&made)]), &j!({})).expect("arguments");
        let source = format!(
            "import numpy as np\ndef f(x):\n    assert (x == {maker}).all() and x.dtype == ({maker}).dtype\n    \
             x[0] = 7\n    return x.shape"
        );
        let shape = scene.run(with_numpy(&source, arguments)).await;
        assert_eq!(
            json(&shape)["$tuple"],
            json(&made)["$array"]["shape"],
            "{maker}"
        );
    }
}

/// CL-54, CL-74
async fn two_hundred_megabytes_come_back<F: Factory>(scene: &Scene<F>) {
    let outcome = scene
        .source("def f(n): return b'x' * n", &j!([MANY]).to_string())
        .await;
    let body = bytes(&outcome);
    let value = &body[body.len() - MANY..];
    assert!(value.iter().all(|byte| *byte == b'x'));
    assert!(body.len() < MANY + 20, "a tag and a length besides");
}

/// CL-67, CL-74
async fn two_hundred_megabytes_go_in<F: Factory>(scene: &Scene<F>) {
    let sent = scrambled(1_000_000).repeat(MANY / 1_000_000);
    let source = "def f(x): return [len(x), x == x[:1_000_000] * 200, x[-5:].hex()]";
    let outcome = scene.run(with_bytes(source, &sent)).await;
    let last: String = sent[MANY - 5..]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(json(&outcome), j!([MANY, true, last]));
}

/// CL-13, CL-74
async fn a_large_source_is_run<F: Factory>(scene: &Scene<F>) {
    let text = "y".repeat(100_000);
    let source = format!("TEXT = '{text}'\ndef f(): return len(TEXT)");
    assert_eq!(json(&scene.source(&source, "[]").await), 100_000);
}

/// CL-49, CL-74, EX-64
async fn a_pickled_value_is_opened_by_nobody_unasked<F: Factory>(scene: &Scene<F>) {
    let place = scene.factory.path().join("sprung");
    let source = "import os\nclass Trap:\n    def __init__(self, place): self.place = place\n    \
                  def __reduce__(self): return os.mkdir, (self.place,)\ndef f(place): return Trap(place)\n";
    let mut call = Story::call(source, &j!([place]).to_string());
    call.python_mut().expect("a source call").result = ResultFormat::Pickle;
    let outcome = scene.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    let answer = outcome.value.as_ref().expect("a value");
    assert_eq!(answer.format, ResultFormat::Pickle);
    assert!(!place.exists());
    // It would have done it: the pickle stands behind two lengths.
    let open = "import pickle\ndef f(x): pickle.loads(x[16:])";
    scene.run(with_bytes(open, answer.body.bytes())).await;
    assert!(place.exists());
}

/// CL-49, CL-74
async fn a_pickled_call_is_opened_by_its_worker_alone<F: Factory>(scene: &Scene<F>) {
    let place = scene.factory.path().join("opened");
    let code = format!(
        "import os; open('{}', 'a').write('%d ' % os.getpid())",
        place.display()
    );
    // `repr(exec(code))`, in protocol 0: the code runs when it is loaded.
    let pickle = format!("(cbuiltins\nrepr\n(cbuiltins\nexec\n(V{code}\ntRt}}t.");
    let mut body = (pickle.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(&[0; 8]); // no buffers out of band
    body.extend_from_slice(pickle.as_bytes());
    let mut call = Call::new(Work::Pickled(PickledWork {
        body: body.into(),
        python: PythonTerms::default(),
    }));
    call.sandbox = Sandbox::new(Level::None);
    let outcome = scene.run(call).await;
    assert_eq!(json(&outcome), "None");
    let opened = std::fs::read_to_string(&place).expect("somebody did");
    let worker = outcome.metrics.worker_pid.expect("a worker ran it");
    assert_eq!(opened.trim(), worker.to_string());
}

/// CL-74, EX-96
async fn a_commands_input_and_output_are_any_bytes<F: Factory>(scene: &Scene<F>) {
    let sent = scrambled(100_000);
    let mut call = bare::command(["cat"]);
    let Work::Command(work) = &mut call.work else {
        unreachable!("a command")
    };
    work.stdin.clone_from(&sent);
    let outcome = scene.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    assert!(outcome.stdout.bytes() == sent, "as it was sent");
    assert_eq!(outcome.stdout.dropped, 0);
}

/// CL-74, EX-90, section 8
async fn output_is_captured_also_of_a_call_that_was_stopped<F: Factory>(scene: &Scene<F>) {
    let say = "import os, time\nprint('module')\ndef f(hang):\n    os.write(2, b'raw')\n    \
               os.system('echo child')\n    time.sleep(600 * hang)\n";
    let mut hung = Story::call(say, "[1]");
    hung.timeout = Some(std::time::Duration::from_millis(700));
    for (call, verdict) in [
        (Story::call(say, "[0]"), Verdict::Ok),
        (hung, Verdict::Timeout),
    ] {
        let outcome = scene.run(call).await;
        assert_eq!(outcome.verdict, verdict);
        assert_eq!(outcome.stdout.text(), "module\nchild\n");
        assert_eq!(outcome.stderr.text(), "raw");
    }
}

/// CL-74, EX-90, section 8
async fn output_is_kept_within_its_bounds_and_the_rest_is_counted<F: Factory>(scene: &Scene<F>) {
    let mut call = bare::command(["sh", "-c", "yes | head -c 100000"]);
    call.capture_bytes = 1000;
    let outcome = scene.run(call).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    let kept = outcome.stdout.bytes().len() as u64;
    assert!(kept <= 1000, "{kept}");
    assert_eq!(kept + outcome.stdout.dropped, 100_000);
}

/// CL-13, CL-74: both streams, and the two halves of each, are one blob where they are in a store.
async fn long_outputs_that_are_all_alike_arrive_whole<F: Factory>(scene: &Scene<F>) {
    let script = "yes | head -c 2000000; yes | head -c 2000000 >&2";
    let outcome = scene.run(bare::command(["sh", "-c", script])).await;
    assert_eq!(outcome.verdict, Verdict::Ok);
    for stream in [outcome.stdout, outcome.stderr] {
        let kept = stream.bytes();
        assert!(kept.len() >= 1_000_000, "{}", kept.len());
        assert_eq!(kept.len() as u64 + stream.dropped, 2_000_000);
        assert!(kept.chunks(2).all(|line| line == b"y\n"));
    }
}

/// CL-42, CL-74
async fn a_directory_to_import_from_is_there<F: Factory>(scene: &Scene<F>) {
    let library = scene.factory.path().join("library");
    std::fs::create_dir(&library).expect("a directory");
    std::fs::write(library.join("helper_of_conformance.py"), "X = 22").expect("a file");
    let mut call = Story::call(
        "import helper_of_conformance as h\ndef f(): return h.X",
        "[]",
    );
    call.python_mut().expect("a source call").python_path = vec![library];
    assert_eq!(json(&scene.run(call).await), 22);
}

/// `f(bytes)`.
fn with_bytes(source: &str, sent: &[u8]) -> Call {
    let sent = value::Value::Bytes(sent.to_vec());
    let args = value::Value::Tuple(vec![sent]);
    let arguments = value::encode(&value::Value::Tuple(vec![args, value::Value::Dict(vec![])]));
    bare::source(source, "f", arguments)
}

/// Bytes without a pattern that a copy could get right by chance.
fn scrambled(size: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..size).map(|_| next()).collect()
}

/// The encoded value; the test fails with the error if there is none.
fn bytes(outcome: &Outcome) -> &[u8] {
    match &outcome.value {
        Some(value) => value.body.bytes(),
        None => panic!("no value: {} {:?}", outcome.verdict, outcome.error),
    }
}
