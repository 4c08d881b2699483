//! The same numbers from CPython itself. Skipped, with a word, where there is no `python3`.

use fairtrial_study::{Random, TableRequest, canonical_json};
use fairtrial_tests::note;
use num_bigint::BigInt;

/// What a script prints; none where there is no interpreter.
fn python(script: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test asks CPython what it would do"
    )]
    let output = std::process::Command::new("python3")
        .args(["-I", "-c", script])
        .output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).ok(),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            note(format!("skipped: python3: {error}"));
            None
        }
    }
}

/// SF-21: 10,000 random values.
#[test]
fn canonical_json_is_cpythons() {
    let script = r#"
import json, random, struct
r = random.Random(11)
def text():
    return "".join(chr(r.choice([r.randrange(0x20, 0x7f), r.randrange(0, 0x300), r.randrange(0x2000, 0xd800), r.randrange(0xe000, 0x11000), r.randrange(0x1f300, 0x1f700)])) for _ in range(r.randrange(6)))
def number():
    k = r.randrange(5)
    if k == 0: return r.randrange(-10, 10)
    if k == 1: return r.randrange(-2**80, 2**80)
    if k == 2: return r.random() * 10 ** r.randrange(-20, 25)
    if k == 3: return round(r.uniform(-100, 100), r.randrange(4))
    return struct.unpack("<d", struct.pack("<Q", r.getrandbits(64)))[0]
def value(d):
    k = r.randrange(8 if d else 6)
    if k == 0: return None
    if k == 1: return r.random() < 0.5
    if k in (2, 3): return number()
    if k in (4, 5): return text()
    if k == 6: return [value(d - 1) for _ in range(r.randrange(4))]
    return {text(): value(d - 1) for _ in range(r.randrange(4))}
for _ in range(10000):
    v = value(3)
    print(json.dumps(v))
    print(json.dumps(v, sort_keys=True, separators=(",", ":"), ensure_ascii=True))
"#;
    let Some(printed) = python(script) else {
        return;
    };
    let mut lines = printed.lines();
    let mut compared = 0;
    while let (Some(input), Some(expected)) = (lines.next(), lines.next()) {
        let value = TableRequest::factors_from_json("value", input).expect("JSON");
        assert_eq!(canonical_json(&value), expected);
        compared += 1;
    }
    assert_eq!(compared, 10_000);
}

/// SF-25: shuffles of 100 random seeds, small and large, negative ones too.
#[test]
fn shuffles_are_cpythons() {
    let script = "
import random
r = random.Random(3)
for _ in range(100):
    seed = r.randrange(-2**r.choice([1, 8, 31, 32, 33, 64, 200]), 2**r.choice([1, 8, 31, 32, 33, 64, 200]))
    g = random.Random(seed)
    x = list(range(r.randrange(1, 300)))
    g.shuffle(x)
    print(seed, g.random().hex(), *x)
";
    let Some(printed) = python(script) else {
        return;
    };
    for line in printed.lines() {
        let mut words = line.split(' ');
        let seed: BigInt = words
            .next()
            .and_then(|word| word.parse().ok())
            .expect("a seed");
        words.next();
        let expected: Vec<u32> = words.map(|word| word.parse().expect("a number")).collect();
        let mut found: Vec<u32> = (0..expected.len() as u32).collect();
        Random::new(&seed).shuffle(&mut found);
        assert_eq!(found, expected, "seed {seed}");
    }
    assert_eq!(printed.lines().count(), 100);
}

/// SF-36, SF-37: random rules mean what they mean in Python.
#[test]
fn rules_mean_what_they_mean_in_python() {
    let script = r#"
import random
r = random.Random(5)
names = {"a": 3, "b": -2.5, "s": "abc", "t": True, "n": None, "l": [1, "x"]}
def e(d):
    k = r.randrange(10)
    if d == 0 or k < 2: return r.choice(["a", "b", "s", "t", "n", "l", "0", "7", "2.5", "'b'", "1e3", "(1, 2)", "[3]", "-1", "{1: 2}"])
    if k < 5: return "(%s %s %s)" % (e(d-1), r.choice("+ - * / %".split()), e(d-1))
    if k < 8: return "(%s %s %s)" % (e(d-1), r.choice(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]), e(d-1))
    if k == 8: return "%s(%s)" % (r.choice(["len", "int", "float", "str", "bool"]), e(d-1))
    return "(not %s)" % e(d-1)
done = 0
while done < 3000:
    x = e(3)
    try:
        v = eval(x, {"__builtins__": {"len": len, "int": int, "float": float, "str": str, "bool": bool}}, names)
    except ZeroDivisionError: v = "zero_division"
    except TypeError: v = "type_error"
    except (ValueError, OverflowError): v = "type_error"
    if isinstance(v, bool) or v in ("zero_division", "type_error"):
        done += 1
        print(x, v, sep="\t")
"#;
    let Some(printed) = python(script) else {
        return;
    };
    let json = r#"{"a": 3, "b": -2.5, "s": "abc", "t": true, "n": null, "l": [1, "x"]}"#;
    let names = TableRequest::factors_from_json("names", json).expect("JSON");
    let fairtrial_study::Value::Map(entries) = &names else {
        panic!("names are a mapping");
    };
    let factors = entries
        .iter()
        .filter_map(|(name, value)| Some((name.as_text()?, value)));
    let scope = fairtrial_study::Scope {
        factors: factors.collect(),
        blocks: Vec::new(),
    };
    for line in printed.lines() {
        let (rule, expected) = line.split_once('\t').expect("two columns");
        let parsed =
            fairtrial_study::Expression::parse(rule).unwrap_or_else(|e| panic!("{rule}: {e}"));
        let found = match parsed.holds(&scope, fairtrial_study::Compat::Native) {
            Ok(true) => "True",
            Ok(false) => "False",
            Err(error) => error.kind.name(),
        };
        assert_eq!(found, expected, "{rule}");
    }
}
