use serde_json::{Value, json};

use super::*;

/// As much of JSON schema as ours uses; a keyword it does not know is a fault of the test.
fn faults(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
    let Value::Object(rules) = schema else {
        assert_eq!(*schema, json!(true), "{at}");
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut refuse = |why: String| found.push(format!("{at}: {why}"));
    for (rule, said) in rules {
        match &**rule {
            "$schema" | "$id" | "$defs" | "title" | "description" | "properties" => {}
            "$ref" => {
                let name = said.as_str().unwrap().trim_start_matches('#');
                let meant = root.pointer(name).unwrap_or_else(|| panic!("{name}"));
                faults(meant, root, value, at)
                    .into_iter()
                    .for_each(&mut refuse);
            }
            "type" => {
                let words = said
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![said.clone()]);
                let fits = words.iter().any(|word| is_a(value, word.as_str().unwrap()));
                if !fits {
                    refuse(format!("is no {said}"));
                }
            }
            "enum" if !said.as_array().unwrap().contains(value) => {
                refuse(format!("none of {said}"))
            }
            "const" if said != value => refuse(format!("not {said}")),
            "minimum" if value.is_number() && value.as_f64() < said.as_f64() => {
                refuse(format!("below {said}"))
            }
            "enum" | "const" | "minimum" => {}
            "anyOf" => {
                let options = said.as_array().unwrap();
                if options
                    .iter()
                    .all(|option| !faults(option, root, value, at).is_empty())
                {
                    refuse("fits none".to_owned());
                }
            }
            "minItems" | "maxItems" => {
                let size = value.as_array().map_or(0, Vec::len) as u64;
                let limit = said.as_u64().unwrap();
                if (rule == "minItems" && size < limit) || (rule == "maxItems" && size > limit) {
                    refuse(format!("{size} items"));
                }
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    faults(said, root, item, &format!("{at}[{number}]"))
                        .into_iter()
                        .for_each(&mut refuse);
                }
            }
            "required" => {
                for key in said.as_array().unwrap() {
                    if value.is_object() && value.get(key.as_str().unwrap()).is_none() {
                        refuse(format!("{key} is missing"));
                    }
                }
            }
            "additionalProperties" => {
                for (key, item) in value.as_object().into_iter().flatten() {
                    let place = format!("{at}.{key}");
                    match (schema["properties"].get(key), said) {
                        (Some(known), _) => faults(known, root, item, &place)
                            .into_iter()
                            .for_each(&mut refuse),
                        (None, Value::Bool(false)) => refuse(format!("`{key}` is unknown")),
                        (None, other) => faults(other, root, item, &place)
                            .into_iter()
                            .for_each(&mut refuse),
                    }
                }
            }
            other => panic!("this test knows no `{other}`"),
        }
    }
    found
}

fn is_a(value: &Value, word: &str) -> bool {
    match word {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    }
}

fn check(report: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(REPORT_SCHEMA).unwrap();
    faults(&schema, &schema, report, "report")
}

/// Of a real evaluation: its directory, with the names of its machine taken out.
fn real() -> Value {
    let text = include_str!("../../tests/fixtures/evaluation/evaluation.json");
    serde_json::from_str(text).unwrap()
}

/// CA-79
#[test]
fn a_real_report_is_as_the_schema_says() {
    assert_eq!(check(&real()), Vec::<String>::new());
    let report: EvaluationReport = serde_json::from_value(real()).unwrap();
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        real(),
        "nothing is lost by reading it"
    );
}

/// CA-79: every part that a report can have, also those that the real one has not.
#[test]
fn everything_that_a_report_can_say_is_in_the_schema() {
    let mut report: EvaluationReport = serde_json::from_value(real()).unwrap();
    let quarantined = |why| QuarantinedCase {
        test: "t".to_owned(),
        case: "c".to_owned(),
        why,
    };
    report.baseline.quarantined = vec![
        quarantined(Unsteady::TimedOut),
        quarantined(Unsteady::Absent { seen: 1, runs: 3 }),
        quarantined(Unsteady::Value("v".to_owned())),
    ];
    report.provider.skipped = vec![("overlay(userns)".to_owned(), "not allowed".to_owned())];
    let function = FunctionProfile {
        lines: vec![LineProfile::default()],
        ..FunctionProfile::default()
    };
    let side = SideProfile {
        functions: vec![function],
        ..SideProfile::default()
    };
    report.profile = Some(ProfileReport {
        command: "bench".to_owned(),
        sides: vec![side],
    });
    let fates = json!([
        "waiting", {"evaluated": {"id": null, "found": {"failed": {"kind": "crash", "differing": 1, "cases": 2}}}},
        {"evaluated": {"id": "c-1", "found": "correct"}}, {"duplicate": {"of": "c-1"}}, {"not_run": {"why": "budget"}},
    ]);
    let fates = fates.as_array().unwrap().iter();
    let candidates: Vec<Value> = fates
        .map(|fate| json!({"name": "n", "parent": "p", "note": null, "fate": fate}))
        .collect();
    let malformed = json!({"problem": "p", "excerpt": "e", "bytes": 1});
    let entry = json!({
        "id": "r-1", "kind": "adaptive", "n": 1, "parents": ["c"], "ancestry": [], "state": "cancelled", "asked_s": 1.0,
        "ended_s": null, "tokens": 5, "error": "e", "malformed": [malformed], "candidates": candidates,
    });
    report.proposals = Some(Ledger {
        entries: vec![serde_json::from_value(entry).unwrap()],
        strays: vec![
            serde_json::from_value(
                json!({"at_s": 1.0, "problem": "p", "excerpt": "e", "bytes": 1}),
            )
            .unwrap(),
        ],
        ..Ledger::default()
    });
    for (one, kind) in report
        .evaluations
        .iter_mut()
        .zip(crate::cases::FailureKind::ALL)
    {
        one.failure = Some(Failure::of_engine(&std::io::Error::other("full")));
        one.failure.as_mut().unwrap().kind = kind;
        one.meta = Some(serde_json::Map::new());
        let count = InstructionCount {
            instructions: [("bench".to_owned(), 7)].into(),
            failed: Some("it hung".to_owned()),
        };
        one.tiebreak = Some(Tiebreak::by_callgrind(count, true));
    }
    assert_eq!(
        check(&serde_json::to_value(&report).unwrap()),
        Vec::<String>::new()
    );
}

/// CA-79
#[test]
fn unknown_and_missing_keys_are_refused_at_every_depth() {
    for place in [
        "",
        "/base",
        "/evaluations/0",
        "/evaluations/0/judgement",
        "/spec",
        "/measurement",
        "/costs",
    ] {
        let mut report = real();
        let part = report.pointer_mut(place).unwrap().as_object_mut().unwrap();
        let first = part.keys().next().unwrap().clone();
        part.insert("surprise".to_owned(), json!(1));
        assert!(!check(&report).is_empty(), "{place}: an unknown key");
        let part = report.pointer_mut(place).unwrap().as_object_mut().unwrap();
        part.remove("surprise");
        part.remove(&first);
        assert!(!check(&report).is_empty(), "{place} without {first}");
    }
    let mut report = real();
    report["evaluations"][0]["state"] = json!("winning");
    assert_eq!(check(&report).len(), 1);
}

/// CA-66, CA-72
#[test]
fn counts_of_several_bench_commands_are_weighed_as_times_are() {
    let benches = [("x", 3.0), ("y", 1.0)].map(|(name, weight)| Bench {
        name: name.to_owned(),
        weight,
        ..Bench::default()
    });
    let count = |x: u64, y: u64| InstructionCount {
        instructions: [("x".to_owned(), x), ("y".to_owned(), y)].into(),
        failed: None,
    };
    let mean = count(2000, 250).mean(&benches).unwrap();
    let expected = ((3.0 * 2000_f64.ln() + 250_f64.ln()) / 4.0).exp();
    assert!((mean - expected).abs() < 1e-9, "{mean}");
    let one = &benches[..1];
    let close = |x| count(x, 1).mean(one).unwrap();
    assert!(close(70_000_000_001) > close(70_000_000_000));
    assert_eq!(InstructionCount::failed("it hung").mean(&benches), None);
    assert_eq!(
        InstructionCount::default().mean(one),
        None,
        "a command is missing"
    );
    assert_eq!(count(1, 1).mean(&[]), None);
}
