//! Every row of `vectors.json`.

use std::path::Path;

use fairtrial_study::{
    Compat, CsvWriter, DesignKind, DesignTable, Expression, Random, Scope, SeedPolicy, Study,
    TableRequest, Value, canonical_json, stable_id,
};
use num_bigint::BigInt;

use crate::{fixture, items, text};

fn rows(key: &str) -> Vec<Value> {
    let vectors = fixture("vectors.json");
    items(vectors.get(key).expect("the vectors have this key")).to_vec()
}

fn int(value: &Value, key: &str) -> BigInt {
    match value.get(key) {
        Some(Value::Int(int)) => int.clone(),
        other => panic!("`{key}` is {other:?}"),
    }
}

fn u32_of(value: &Value) -> u32 {
    match value {
        Value::Int(int) => u32::try_from(int.clone()).expect("a small number"),
        other => panic!("{other:?} is no integer"),
    }
}

/// SF-20, SF-21, SF-22
#[test]
fn canonical_json_and_ids_are_dres() {
    for row in rows("canonical_json") {
        let input = match row.get("input") {
            Some(input) => input.clone(),
            None => {
                let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Value::Float);
                Value::map([("v", Value::List(values.to_vec()))])
            }
        };
        assert_eq!(canonical_json(&input), text(&row, "canonical"));
        assert_eq!(stable_id("id", &input), text(&row, "id"));
    }
}

/// SF-20: of keys that become equal text, the last wins.
#[test]
fn keys_become_text() {
    let one = |key: Value, value: i64| (key, Value::from(value));
    let map = Value::Map(vec![
        one(Value::Bool(true), 1),
        one(Value::Null, 2),
        one(Value::Float(2.5), 3),
        one("None".into(), 4),
    ]);
    assert_eq!(canonical_json(&map), r#"{"2.5":3,"None":4,"True":1}"#);
}

/// SF-22, SF-23
#[test]
fn ids_of_conditions_runs_and_events_are_dres() {
    for row in rows("condition_id") {
        let of = |key: &str| row.get(key).expect("a condition has it").clone();
        let payload = Value::map([("factors", of("factors")), ("blocks", of("blocks"))]);
        assert_eq!(stable_id("cond", &payload), text(&row, "id"));
    }
    for row in rows("run_id") {
        let Value::Map(mut entries) = row.clone() else {
            panic!("a row is a mapping");
        };
        entries.retain(|(key, _)| key.as_text() != Some("run_id"));
        assert_eq!(stable_id("run", &Value::Map(entries)), text(&row, "run_id"));
    }
    for row in rows("event_id") {
        let payload = row.get("payload").expect("an event has a payload");
        assert_eq!(stable_id("evt", payload), text(&row, "id"));
    }
}

/// SF-24
#[test]
fn seeds_are_dres() {
    for row in rows("seed") {
        let policy = SeedPolicy {
            base_seed: Some(int(&row, "base_seed")),
            strategy: text(&row, "strategy"),
            per_run_offset: Value::Int(int(&row, "per_run_offset")),
        };
        let replicate = u32_of(row.get("replicate").expect("a seed has a replicate"));
        let (study, condition, salt) = (
            text(&row, "study_id"),
            text(&row, "condition_id"),
            text(&row, "salt"),
        );
        let seed = policy.seed(&study, &condition, replicate, &salt);
        assert_eq!(BigInt::from(seed), int(&row, "seed"), "{row:?}");
        let wide = policy.seed64(&study, &condition, replicate, &salt);
        assert_eq!(wide % 2_147_483_647, u64::from(seed));
    }
}

/// SF-25
#[test]
fn the_generator_is_cpythons() {
    for row in rows("mt19937") {
        let seed = int(&row, "seed");
        let list = |key: &str| items(row.get(key).expect("a row has it")).to_vec();
        let mut random = Random::new(&seed);
        for expected in list("u32") {
            assert_eq!(random.u32(), u32_of(&expected), "seed {seed}");
        }
        let mut random = Random::new(&seed);
        for expected in list("random") {
            assert_eq!(Value::Float(random.unit()), expected, "seed {seed}");
        }
        for (key, n) in [("shuffle10", 10), ("shuffle100", 100)] {
            let mut numbers: Vec<u32> = (0..n).collect();
            Random::new(&seed).shuffle(&mut numbers);
            let expected: Vec<u32> = list(key).iter().map(u32_of).collect();
            assert_eq!(numbers, expected, "seed {seed}");
        }
    }
}

/// SF-18
#[test]
fn scalars_are_typed_as_yaml_1_1() {
    for row in rows("yaml11_scalars") {
        let written = text(&row, "text");
        let file = format!(
            "study_id: s\ntitle: t\nproblem_ids: [p]\nblocks:\n- name: b\n  levels:\n  - {written}\n"
        );
        let read = Study::parse(Path::new("s.yaml"), &file, Some(Compat::Dre));
        match row.get("canonical") {
            None => assert!(read.is_err(), "`{written}` is refused"),
            Some(canonical) => {
                let study = read.unwrap_or_else(|invalid| panic!("`{written}`: {invalid}"));
                let value = &study.blocks[0].levels[0];
                assert_eq!(canonical_json(value), canonical.to_str(), "`{written}`");
                let is_moment = matches!(value, Value::Moment(_));
                let expected = ["date", "datetime"].contains(&text(&row, "python_type").as_str());
                assert_eq!(is_moment, expected, "`{written}`");
            }
        }
    }
}

/// SF-36, SF-37, SF-38
#[test]
fn constraints_are_evaluated_as_in_dre_and_natively() {
    let context = fixture("vectors.json");
    let context = context.get("constraint_context").expect("there is one");
    let names = |key: &str| match context.get(key) {
        Some(Value::Map(entries)) => entries.clone(),
        other => panic!("{other:?}"),
    };
    let (factors, blocks) = (names("factors"), names("blocks"));
    for row in rows("constraints") {
        let expression = text(&row, "expr");
        for compat in [Compat::Dre, Compat::Native] {
            let expected = match (compat, row.get("native")) {
                (Compat::Native, Some(native)) => native.clone(),
                _ => row.clone(),
            };
            let found = evaluate(&expression, &factors, &blocks, compat);
            match found {
                Ok(truth) => {
                    assert_eq!(
                        expected.get("result"),
                        Some(&Value::Bool(truth)),
                        "{expression}"
                    );
                }
                Err((kind, node)) => {
                    assert_eq!(text(&expected, "error"), kind, "{expression} {compat}");
                    if let Some(expected) = expected.get("node") {
                        assert_eq!(expected.to_str(), node, "{expression}");
                    }
                }
            }
        }
    }
}

/// Through a study, so that natively what is refused before planning is refused here.
fn evaluate(
    expression: &str,
    factors: &[(Value, Value)],
    blocks: &[(Value, Value)],
    compat: Compat,
) -> Result<bool, (&'static str, &'static str)> {
    let error = |error: fairtrial_study::ExpressionError| (error.kind.name(), error.node);
    let parsed = Expression::parse(expression).map_err(error)?;
    let scope = Scope {
        factors: factors.iter().map(pair).collect(),
        blocks: blocks.iter().map(pair).collect(),
    };
    if compat == Compat::Native {
        parsed.check_names(&scope).map_err(error)?;
    }
    parsed.holds(&scope, compat).map_err(error)
}

fn pair((name, value): &(Value, Value)) -> (&str, &Value) {
    (name.as_text().expect("names are text"), value)
}

/// SF-35
#[test]
fn stand_alone_tables_are_dres() {
    for row in rows("generate_doe") {
        let args = row.get("args").expect("a row has arguments");
        let kind = DesignKind::from_name(&text(args, "kind")).expect("a known kind");
        let factors = args.get("factors").expect("a table has factors").clone();
        let mut request = TableRequest::new(kind, factors);
        let count = |key: &str| args.get(key).map(|value| u64::from(u32_of(value)));
        request.n_samples = count("n_samples");
        request.center_points = count("center_points").unwrap_or(0);
        request.replicates = count("replicates").unwrap_or(1);
        request.seed = count("seed").unwrap_or(0).into();
        request.randomize = args.get("randomize") != Some(&Value::Bool(false));
        request.block_randomization_key = args.get("block_randomization_key").map(Value::to_str);
        let table = DesignTable::build(&request).expect("a valid request");
        let result = row.get("result").expect("a row has a result");
        let Value::Map(mut expected) = result.clone() else {
            panic!("a result is a mapping");
        };
        expected.retain(|(key, _)| key.as_text() != Some("imbalanced"));
        assert_eq!(
            canonical_json(&table.to_value()),
            canonical_json(&Value::Map(expected))
        );
        let imbalanced = result.get("imbalanced").or(row.get("imbalanced"));
        let imbalanced: Vec<String> = items(imbalanced.expect("it is there"))
            .iter()
            .map(Value::to_str)
            .collect();
        assert_eq!(table.summary.imbalanced, imbalanced);
    }
}

/// SF-50
#[test]
fn cells_are_written_as_pythons_csv_does() {
    for row in rows("csv_cells") {
        let value = python_value(&text(&row, "value_python"));
        let mut out = Vec::new();
        let mut csv = CsvWriter::new(&mut out, Compat::Dre, ["a", "b"]).expect("memory takes it");
        csv.row([&value, &"z".into()]).expect("memory takes it");
        let written = String::from_utf8(out).expect("CSV is text");
        assert_eq!(written, format!("a,b\r\n{}", text(&row, "row")));
    }
    let mut out = Vec::new();
    let mut csv = CsvWriter::new(&mut out, Compat::Native, ["a"]).expect("memory takes it");
    csv.row([&Value::Null]).expect("memory takes it");
    csv.row([&Value::List(vec![1.into(), "x".into()])])
        .expect("memory takes it");
    assert_eq!(out, b"a\r\n\"\"\r\n\"[1,\"\"x\"\"]\"\r\n");
    let mut out = Vec::new();
    CsvWriter::new(&mut out, Compat::Native, []).expect("memory takes it");
    assert_eq!(out, b"\r\n");
}

/// The few Python literals of the vectors.
fn python_value(text: &str) -> Value {
    match text {
        "None" => Value::Null,
        "True" => true.into(),
        "False" => false.into(),
        "nan" => Value::Float(f64::NAN),
        "inf" => Value::Float(f64::INFINITY),
        "['x', 1]" => Value::List(vec!["x".into(), 1.into()]),
        "{'k': 'v'}" => Value::map([("k", "v".into())]),
        text if text.starts_with(['\'', '"']) => {
            let inner = &text[1..text.len() - 1];
            let inner = inner.replace("\\n", "\n").replace("\\r", "\r");
            Value::Text(inner.replace("\\t", "\t"))
        }
        text => TableRequest::factors_from_json("vectors", text).expect("a number"),
    }
}
