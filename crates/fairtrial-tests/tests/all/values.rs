//! Values of the `data` codec, from Python to the engine and back, and in JSON (EX-65 to EX-69).

use fairtrial_exec::{Verdict, value};
use fairtrial_tests::bare;
use fairtrial_tests::{Cli, Story, anonymous_bytes, arguments, json, note};
use serde_json::{Value as Json, json as j};

use crate::results::{body, forged};

/// What the vectors' expressions refer to.
const VECTOR_NAMES: &str = "import struct\n";

/// EX-65: from Python to the engine and back, for every vector of the codec that needs no numpy.
#[tokio::test]
async fn values_make_the_round_trip_exactly() {
    let story = Story::with(|config| config.max_workers = 1);
    let vectors = include_str!("../../../fairtrial-exec/testdata/values.json");
    let vectors: Vec<Json> = serde_json::from_str(vectors).expect("JSON");
    let mut tried = 0;
    for vector in &vectors {
        let python = vector["python"].as_str().expect("text");
        if python.contains("np.") || python.contains("numpy") {
            continue;
        }
        tried += 1;
        let hex = vector["hex"].as_str().expect("text");
        let made = story
            .reuse(
                &format!("{VECTOR_NAMES}def f():\n    return {python}"),
                "[]",
            )
            .await;
        assert_eq!(to_hex(body(&made)), hex, "{python}");
        if vector["exact"] == true {
            let text = vector["json"].as_str().expect("text");
            let back = story
                .reuse("def f(x):\n    return x", &format!("[{text}]"))
                .await;
            assert_eq!(to_hex(body(&back)), hex, "{python} through JSON");
        }
    }
    assert!(tried > 40, "{tried} vectors");
    story.end().await;
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// EX-65
#[tokio::test]
async fn subclasses_travel_as_their_base() {
    let source = "import collections, enum\nclass E(enum.IntEnum):\n    A = 7\n\
        P = collections.namedtuple('P', 'x y')\nclass S(str):\n    pass\ndef f():\n    \
        return [E.A, P(1, 2), collections.defaultdict(int, a=1), collections.OrderedDict(b=2), S('s'), True]";
    let story = Story::new();
    let outcome = story.source(source, "[]").await;
    assert_eq!(
        json(&outcome),
        j!([7, {"$tuple": [1, 2]}, {"a": 1}, {"b": 2}, "s", true])
    );
    story.end().await;
}

/// EX-65, EX-68
#[tokio::test]
async fn numpy_values_make_the_round_trip_and_memmaps_arrive_as_arrays() {
    let Some(python) = std::env::var_os("FAIRTRIAL_TEST_NUMPY") else {
        note("skipped: FAIRTRIAL_TEST_NUMPY names no interpreter with numpy");
        return;
    };
    let story = Story::with(|config| config.max_workers = 1);
    let makers = [
        "np.array(7)",
        "np.zeros((0, 3))",
        "np.arange(24, dtype='>i2').reshape(2, 3, 4)",
        "np.asfortranarray(np.arange(6.0).reshape(2, 3))",
        "np.arange(20)[::3]",
        "np.array([(1, 2.5)], dtype=[('a', 'i4'), ('b', 'f8')])",
        "np.array(['2020-01-01', 'NaT'], dtype='M8[D]')",
        "np.array(['ab', 'c'])",
        "np.array([True, False])",
        "np.array([1 + 2j])",
        "np.arange(100_000.0)",
    ];
    let call = |source: &str, args: Vec<u8>| {
        let mut call = bare::source(source, "f", args);
        call.python_mut().expect("a source call").python = python.to_string_lossy().into_owned();
        call
    };
    for maker in makers {
        let made = story
            .run(call(
                &format!("import numpy as np\ndef f():\n    return {maker}"),
                arguments("[]"),
            ))
            .await;
        let text = json(&made);
        let args = value::arguments_from_json(&j!([text]), &j!({})).expect("arguments");
        let check = format!(
            "import numpy as np\ndef f(x):\n    y = {maker}\n    x = np.asarray(x)\n    \
             assert x.dtype == y.dtype and x.shape == y.shape, (x.dtype, x.shape)\n    \
             assert x.tobytes() == np.asarray(y).tobytes()\n    \
             if x.ndim: assert x.flags.writeable, 'read-only'\n    return y"
        );
        let back = story.run(call(&check, args)).await;
        assert_eq!(json(&back), text, "{maker}");
    }
    let scalar = "import numpy as np\ndef f():\n    return np.float32(1.5)";
    let outcome = story.run(call(scalar, arguments("[]"))).await;
    assert_eq!(body(&outcome)[0], b'n', "a scalar keeps its dtype");
    let memmap = "import numpy as np\ndef f():\n    m = np.memmap('m', dtype='f8', mode='w+', shape=(3, 4))\n    \
        m[:] = 2\n    return m";
    let outcome = story.run(call(memmap, arguments("[]"))).await;
    assert_eq!(json(&outcome)["$array"]["shape"], j!([3, 4]));
    let object = "import numpy as np\ndef f():\n    return np.array([object()])";
    let outcome = story.run(call(object, arguments("[]"))).await;
    assert_eq!(outcome.verdict, Verdict::BadResult, "no object arrays");
    story.end().await;
}

/// EX-68
#[tokio::test]
async fn the_shim_does_not_import_numpy_by_itself() {
    let Some(python) = std::env::var_os("FAIRTRIAL_TEST_NUMPY") else {
        note("skipped: FAIRTRIAL_TEST_NUMPY names no interpreter with numpy");
        return;
    };
    let story = Story::with(|config| config.max_workers = 1);
    for _ in 0..2 {
        let source = "import sys\ndef f(x):\n    return [x, 'numpy' in sys.modules]";
        let mut call = Story::reuse_call(source, "[{\"$complex\": [1.0, 2.0]}]");
        call.python_mut().expect("a source call").python = python.to_string_lossy().into_owned();
        assert_eq!(json(&story.run(call).await)[1], false);
    }
    story.end().await;
}

/// EX-66
#[tokio::test]
async fn what_cannot_travel_is_named_with_its_path() {
    let cases = [
        ("{'items': [1, 2, 3, {'fn': open}]}", "$.items[3].fn"),
        ("(1, {2: object()})", "object"),
        ("[1, (x for x in ())]", "$[1]"),
        ("cycle()", "cycle"),
        ("deep(1001)", "1000"),
    ];
    let helpers = "def cycle():\n    x = []\n    x.append(x)\n    return x\ndef deep(n):\n    x = []\n    \
        for _ in range(n):\n        x = [x]\n    return x\n";
    let story = Story::new();
    for (expression, named) in cases {
        let outcome = story
            .source(&format!("{helpers}def f():\n    return {expression}"), "[]")
            .await;
        assert_eq!(outcome.verdict, Verdict::BadResult, "{expression}");
        let message = outcome.error.expect("it says why").message;
        assert!(
            message.replace(',', "").contains(named),
            "{expression}: {message}"
        );
        if expression.contains("open") {
            assert!(message.contains("pickle"), "{message}");
        }
    }
    let outcome = story
        .source(&format!("{helpers}def f():\n    return deep(999)"), "[]")
        .await;
    assert_eq!(outcome.verdict, Verdict::Ok, "{:?}", outcome.error);
    story.end().await;
}

/// EX-67, H36: lengths that lie, in a reply of a few bytes.
#[tokio::test]
async fn a_forged_value_is_refused_and_reserves_no_memory_for_its_claims() {
    let story = Story::new();
    let before = anonymous_bytes();
    for tag in 0..=255_u8 {
        if tag % 2 == 1 && !tag.is_ascii_alphabetic() {
            continue; // enough of those that mean nothing
        }
        let payload = [&[tag][..], &(1_u64 << 61).to_le_bytes(), &[0xff; 24]].concat();
        let read = value::to_json(&payload);
        assert!(read.is_err() || tag.is_ascii(), "{tag}");
    }
    for payload in [
        &b"l\xff\xff\xff\xff\xff\xff\xff\x7f"[..],
        b"s\xff\xff\xff\xff\xff\xff\xff\x7fx",
        b"",
        b"NN",
        b"A",
    ] {
        let outcome = forged(&story, payload).await;
        assert_eq!(outcome.verdict, Verdict::BadResult, "{payload:?}");
        let problem = outcome.error.expect("a reason").message;
        assert!(
            problem.starts_with("what it sent is no value: at byte "),
            "{problem}"
        );
    }
    assert!(anonymous_bytes().saturating_sub(before) < 256 << 20);
    story.end().await;
}

/// EX-69: as the command line shows them, and takes them back.
#[test]
fn values_have_one_exact_form_in_json() {
    let dir = tempfile::tempdir().expect("a directory");
    let forms = [
        ("float('nan')", j!({"$float": "NaN"})),
        ("-float('inf')", j!({"$float": "-Infinity"})),
        ("-0.0", j!(-0.0)),
        ("b'\\x00\\xff'", j!({"$bytes": "AP8="})),
        ("(1, 2)", j!({"$tuple": [1, 2]})),
        ("{1}", j!({"$set": [1]})),
        ("frozenset([1])", j!({"$frozenset": [1]})),
        ("1 + 2j", j!({"$complex": [1.0, 2.0]})),
        ("{1: 2}", j!({"$map": [[1, 2]]})),
        ("{'$a': 1}", j!({"$map": [["$a", 1]]})),
        ("'\\ud800'", j!({"$str": "7aCA"})),
        ("{'a': [None, True, 'é']}", j!({"a": [null, true, "é"]})),
    ];
    let mut lines = String::new();
    for (expression, form) in &forms {
        let make = j!({"source": format!("def f():\n    return {expression}"), "function": "f"});
        let back = j!({"source": format!("def f(x):\n    y = {expression}\n    assert repr(x) == repr(y), x\n    return x"),
            "function": "f", "args": [form]});
        lines += &format!("{make}\n{back}\n");
    }
    let finished = Cli::new(["batch", "-"])
        .env("FAIRTRIAL_SPILL_DIR", dir.path().join("s"))
        .run_with(&lines);
    let records: Vec<Json> = finished
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("a record"))
        .collect();
    for (pair, (expression, form)) in records.chunks(2).zip(&forms) {
        assert_eq!(
            (&pair[0]["value"], &pair[1]["value"]),
            (form, form),
            "{expression}: {pair:?}"
        );
    }
    let big = "def f():\n    return 10 ** 5000";
    let line = j!({"source": big, "function": "f"}).to_string();
    let finished = Cli::new(["batch", "-"])
        .env("FAIRTRIAL_SPILL_DIR", dir.path().join("s"))
        .run_with(&line);
    assert!(finished.stdout.contains("\"$int\":\"1000"), "{finished:?}");
}
