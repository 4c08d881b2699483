//! What an evaluator gave, as rows of a table (ST-14; SF-48 under `dre`). Knows nothing of processes.

use crate::binding::Contract;
use crate::value::Value;

const ROW_KEYS: [&str; 6] = [
    "metric_name",
    "metric_value",
    "metric_unit",
    "aggregation_level",
    "evaluator_id",
    "notes",
];
/// An output's part that DRE's evaluators are given, the first that is there.
const DRE_PARTS: [&str; 6] = [
    "candidate",
    "state",
    "answer",
    "solution",
    "final_answer",
    "x",
];

/// What an evaluator is given of an output.
pub(crate) fn input(output: &Value, run: Value, contract: Contract) -> Value {
    match contract {
        Contract::Run => Value::map([("output", output.clone()), ("run", run)]),
        Contract::Dre => {
            let mut parts = DRE_PARTS.iter().filter_map(|part| output.get(part));
            parts.next().unwrap_or(output).clone()
        }
    }
}

/// The rows of plain data, or why there are none.
pub(crate) fn rows(value: &Value, contract: Contract) -> Result<Value, String> {
    let rows = match contract {
        Contract::Run => native(value)?,
        Contract::Dre => dre(value),
    };
    Ok(Value::List(rows))
}

fn native(value: &Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Int(_) | Value::Float(_) => Ok(vec![row("score", value)]),
        Value::Map(entries) => entries
            .iter()
            .map(|(name, value)| match value {
                Value::Int(_) | Value::Float(_) | Value::Bool(_) => Ok(row(&name.to_str(), value)),
                other => Err(format!(
                    "`{}` is {}, not a number or a boolean",
                    name.to_str(),
                    other.kind()
                )),
            })
            .collect(),
        Value::List(items) => items.iter().enumerate().map(given_row).collect(),
        other => Err(format!(
            "the evaluation is {}, not a number, a mapping of numbers or a list of rows",
            other.kind()
        )),
    }
}

/// A row that an evaluator wrote itself.
fn given_row((index, item): (usize, &Value)) -> Result<Value, String> {
    let Value::Map(entries) = item else {
        return Err(format!("row {index} is {}, not a mapping", item.kind()));
    };
    if let Some((key, _)) = entries
        .iter()
        .find(|(key, _)| !ROW_KEYS.contains(&key.to_str().as_str()))
    {
        return Err(format!(
            "row {index} has `{}`, which no row has",
            key.to_str()
        ));
    }
    let Some(value) = item.get("metric_value") else {
        return Err(format!("row {index} has no `metric_value`"));
    };
    if !matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)) {
        return Err(format!(
            "`metric_value` of row {index} is {}, not a number or a boolean",
            value.kind()
        ));
    }
    let text = |name: &str, default: &str| match item.get(name) {
        None | Some(Value::Null) => Ok(default.to_owned()),
        Some(Value::Text(text)) => Ok(text.clone()),
        Some(other) => Err(format!("`{name}` of row {index} is {}", other.kind())),
    };
    let notes = item.get("notes").cloned().unwrap_or(Value::Map(Vec::new()));
    Ok(full_row(
        &text("evaluator_id", EVALUATOR_ID)?,
        &text("metric_name", "score")?,
        value.clone(),
        &text("metric_unit", UNIT)?,
        &text("aggregation_level", LEVEL)?,
        notes,
    ))
}

const EVALUATOR_ID: &str = "problem_evaluator";
const UNIT: &str = "unitless";
const LEVEL: &str = "run";

fn row(name: &str, value: &Value) -> Value {
    full_row(
        EVALUATOR_ID,
        name,
        value.clone(),
        UNIT,
        LEVEL,
        Value::Map(Vec::new()),
    )
}

fn full_row(
    evaluator_id: &str,
    name: &str,
    value: Value,
    unit: &str,
    level: &str,
    notes: Value,
) -> Value {
    Value::map([
        ("evaluator_id", Value::text(evaluator_id)),
        ("metric_name", Value::text(name)),
        ("metric_value", value),
        ("metric_unit", Value::text(unit)),
        ("aggregation_level", Value::text(level)),
        ("notes_json", notes),
    ])
}

/// As DRE reads it: what is no row is none.
fn dre(value: &Value) -> Vec<Value> {
    match value {
        Value::Map(entries) => {
            let has = |key| value.get(key).is_some();
            if has("metric_name") || has("metric_value") || has("value") {
                return vec![dre_row(value)];
            }
            let is_metric = |(key, value): &&(Value, Value)| {
                matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_))
                    && key.as_text() != Some("higher_is_better")
            };
            entries
                .iter()
                .filter(is_metric)
                .map(|(key, value)| row(&key.to_str(), value))
                .collect()
        }
        Value::List(items) => items.iter().flat_map(dre).collect(),
        _ => Vec::new(),
    }
}

fn dre_row(item: &Value) -> Value {
    let text = |name: &str, default: &str| {
        item.get(name)
            .map_or_else(|| default.to_owned(), Value::to_str)
    };
    let value = item.get("metric_value").or_else(|| item.get("value"));
    let notes = item
        .get("notes_json")
        .cloned()
        .unwrap_or(Value::Map(Vec::new()));
    full_row(
        &text("evaluator_id", EVALUATOR_ID),
        &text("metric_name", "score"),
        value.cloned().unwrap_or(Value::Null),
        &text("metric_unit", UNIT),
        &text("aggregation_level", LEVEL),
        notes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::canonical_json;
    use crate::json_text::parse_value;

    fn names(json: &str, contract: Contract) -> Result<String, String> {
        let Value::List(rows) = rows(&parse_value("test", json).unwrap(), contract)? else {
            panic!("rows are a list");
        };
        let shown = rows.iter().map(|row| {
            let value = canonical_json(row.get("metric_value").unwrap());
            format!("{}={value}", row.get("metric_name").unwrap().to_str())
        });
        Ok(shown.collect::<Vec<_>>().join(" "))
    }

    /// ST-14
    #[test]
    fn numbers_mappings_and_rows_are_evaluations_and_the_rest_is_named() {
        for (json, expected) in [
            ("3", "score=3"),
            (r#"{"a": 1.5, "b": true}"#, "a=1.5 b=true"),
            (
                r#"[{"metric_value": 2}, {"metric_name": "m", "metric_value": 0.5}]"#,
                "score=2 m=0.5",
            ),
        ] {
            assert_eq!(names(json, Contract::Run).unwrap(), expected);
        }
        for (json, named) in [
            (r#""good""#, "the evaluation is text"),
            ("null", "the evaluation is null"),
            (r#"{"a": "x"}"#, "`a` is text"),
            (
                r#"[{"metric_value": "x"}]"#,
                "`metric_value` of row 0 is text",
            ),
            (r#"[{"score": 1}]"#, "row 0 has `score`"),
            ("[{}]", "row 0 has no `metric_value`"),
            ("[1]", "row 0 is an integer"),
        ] {
            let error = names(json, Contract::Run).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    /// SF-48
    #[test]
    fn under_dre_what_is_no_row_is_none() {
        for (json, expected) in [
            ("3", ""),
            (r#"{"a": 1, "b": "x", "higher_is_better": true}"#, "a=1"),
            (r#"{"value": 2}"#, "score=2"),
            (
                r#"[{"metric_name": "m", "metric_value": 0.5}, {"z": false}]"#,
                "m=0.5 z=false",
            ),
        ] {
            assert_eq!(names(json, Contract::Dre).unwrap(), expected);
        }
        let output = parse_value("test", r#"{"x": 1, "answer": 2}"#).unwrap();
        assert_eq!(
            canonical_json(&input(&output, Value::Null, Contract::Dre)),
            "2"
        );
    }
}
