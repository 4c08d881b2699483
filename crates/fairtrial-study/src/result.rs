//! What an agent gave, checked and in one shape (ST-11 to ST-13). Knows nothing of processes.

use fairtrial_exec::value::Value as Data;
use num_bigint::BigInt;

use crate::binding::Contract;
use crate::fault::nearest;
use crate::value::Value;

/// Values in one result, containers and keys counted.
pub(crate) const MAX_VALUES: usize = 4_000_000;

const KEYS: [&str; 8] = [
    "output",
    "text",
    "ok",
    "error",
    "metrics",
    "events",
    "metadata",
    "trace_refs",
];
const LEVELS: [&str; 6] = ["study", "run", "trial", "step", "tool-call", "evaluation"];
/// What an event may say of itself; the rest of its fields are the run's.
const EVENT_TEXTS: [&str; 9] = [
    "timestamp",
    "record_id",
    "text",
    "session_id",
    "actor_id",
    "event_type",
    "trial_id",
    "step_id",
    "tool_name",
];
/// Of those, what is kept as it is.
const PASSED_ON: [&str; 4] = ["trial_id", "step_id", "tool_name", "evaluation_id"];
const NUMBERS: [&str; 3] = ["cost_usd", "input_tokens", "output_tokens"];

/// A valid result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunResult {
    /// `output`, `metrics`, `events`, `metadata`, `trace_refs`: all there, all of the right type.
    pub(crate) value: Value,
    /// Faults that did not fail it.
    pub(crate) warnings: Vec<Warning>,
}

/// A fault in an optional part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// Where, such as `events[3].level`.
    pub(crate) path: String,
    /// What is wrong there.
    pub(crate) message: String,
}

/// Why a value is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// The agent says that it failed.
    NotOk(String),
    /// It is not what a result is.
    Bad(String),
}

/// A result from plain data.
pub(crate) fn parse(value: &Value, contract: Contract) -> Result<RunResult, NoResult> {
    let Value::Map(entries) = value else {
        return Err(NoResult::Bad(format!(
            "the result is {}, not a mapping: return {{\"output\": {{…}}}}",
            value.kind()
        )));
    };
    for (key, _) in entries {
        let key = key.to_str();
        if !KEYS.contains(&key.as_str()) {
            let hint = match nearest(&key, KEYS) {
                Some(near) => format!("; did you mean `{near}`?"),
                None => format!("; wrap it: {{\"output\": {{\"{key}\": …}}}}"),
            };
            return Err(NoResult::Bad(format!(
                "`{key}` is no part of a result{hint}"
            )));
        }
    }
    let error = match value.get("error") {
        None | Some(Value::Null) => String::new(),
        Some(Value::Text(text)) => text.clone(),
        Some(other) => return bad("error", "text", other),
    };
    match value.get("ok") {
        None | Some(Value::Bool(true)) => {}
        Some(Value::Bool(false)) => {
            let said = if error.is_empty() {
                "the agent says `ok: false`".into()
            } else {
                error
            };
            return Err(NoResult::NotOk(said));
        }
        Some(other) => return bad("ok", "a boolean", other),
    }
    let mut warnings = Vec::new();
    let parts = [
        ("output", output(value)?),
        (
            "metrics",
            metrics(value.get("metrics"), contract, &mut warnings)?,
        ),
        ("events", events(value.get("events"), &mut warnings)?),
        ("metadata", mapping(value.get("metadata"), "metadata")?),
        ("trace_refs", trace_refs(value.get("trace_refs"))?),
    ];
    Ok(RunResult {
        value: Value::map(parts),
        warnings,
    })
}

fn bad<T>(field: &str, expected: &str, found: &Value) -> Result<T, NoResult> {
    Err(NoResult::Bad(format!(
        "`{field}` is {}, not {expected}",
        found.kind()
    )))
}

fn output(value: &Value) -> Result<Value, NoResult> {
    match (value.get("output"), value.get("text")) {
        (Some(output @ Value::Map(_)), _) => Ok(output.clone()),
        (Some(other), _) => bad("output", "a mapping", other),
        (None, Some(Value::Text(text))) => Ok(Value::map([("text", Value::text(text))])),
        (None, Some(other)) => bad("text", "text", other),
        (None, None) => Err(NoResult::Bad(
            "the result has no `output`: return {\"output\": {…}}".into(),
        )),
    }
}

fn mapping(value: Option<&Value>, field: &str) -> Result<Value, NoResult> {
    match value {
        None | Some(Value::Null) => Ok(Value::Map(Vec::new())),
        Some(map @ Value::Map(_)) => Ok(map.clone()),
        Some(other) => bad(field, "a mapping", other),
    }
}

fn metrics(
    value: Option<&Value>,
    contract: Contract,
    warnings: &mut Vec<Warning>,
) -> Result<Value, NoResult> {
    let Value::Map(entries) = mapping(value, "metrics")? else {
        return Ok(Value::Map(Vec::new()));
    };
    let mut kept = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let name = key.to_str();
        // DRE takes any value (SF-47).
        if contract == Contract::Run && matches!(value, Value::List(_) | Value::Map(_)) {
            return bad(
                &format!("metrics.{name}"),
                "a number, a boolean, text or null",
                &value,
            );
        }
        if NUMBERS.contains(&name.as_str()) && number_of(&value).is_none() {
            warnings.push(Warning {
                path: format!("metrics.{name}"),
                message: format!("{} is no number and counts 0", value.to_repr()),
            });
        }
        kept.push((Value::Text(name), value));
    }
    Ok(Value::Map(kept))
}

/// What Python's `float` makes of it; null is no number.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(truth) => Some(f64::from(u8::from(*truth))),
        Value::Text(text) => text.trim().parse().ok(),
        other => other.as_number(),
    }
}

fn events(value: Option<&Value>, warnings: &mut Vec<Warning>) -> Result<Value, NoResult> {
    let items = match value {
        None | Some(Value::Null) => return Ok(Value::List(Vec::new())),
        Some(Value::List(items)) => items,
        Some(other) => return bad("events", "a list", other),
    };
    let kept = items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| event(index, item, warnings));
    Ok(Value::List(kept.collect()))
}

/// An event with what it says of itself and `index`, its place among those that were given; none if it is none.
fn event(index: usize, item: &Value, warnings: &mut Vec<Warning>) -> Option<Value> {
    let mut warn = |path: String, message: String| warnings.push(Warning { path, message });
    if !matches!(item, Value::Map(_)) {
        let message = format!("{} is no event, and dropped", item.kind());
        warn(format!("events[{index}]"), message);
        return None;
    }
    let mut fields = vec![("index", Value::Int(BigInt::from(index)))];
    for name in EVENT_TEXTS.into_iter().chain(["evaluation_id"]) {
        match item.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Text(text)) => fields.push((name, Value::text(text))),
            Some(Value::List(_) | Value::Map(_)) => {
                warn(
                    format!("events[{index}].{name}"),
                    "is no text, and left out".into(),
                );
            }
            Some(other) if PASSED_ON.contains(&name) => fields.push((name, other.clone())),
            Some(other) => fields.push((name, Value::Text(other.to_str()))),
        }
    }
    match item.get("meta_json") {
        None | Some(Value::Null) => {}
        Some(map @ Value::Map(_)) => fields.push(("meta_json", map.clone())),
        Some(other) => warn(
            format!("events[{index}].meta_json"),
            format!("{} is no mapping, and left out", other.kind()),
        ),
    }
    match item.get("level") {
        None | Some(Value::Null) => {}
        Some(Value::Text(level)) if LEVELS.contains(&level.as_str()) => {
            fields.push(("level", Value::text(level)));
        }
        Some(other) => warn(
            format!("events[{index}].level"),
            format!("{} is no level and becomes `step`", other.to_repr()),
        ),
    }
    Some(Value::map(fields))
}

fn trace_refs(value: Option<&Value>) -> Result<Value, NoResult> {
    match value {
        None | Some(Value::Null) => Ok(Value::List(Vec::new())),
        Some(Value::List(items)) => {
            if let Some(other) = items.iter().find(|item| item.as_text().is_none()) {
                return bad("trace_refs", "a list of texts", other);
            }
            Ok(Value::List(items.clone()))
        }
        Some(other) => bad("trace_refs", "a list of texts", other),
    }
}

/// Plain data of what a worker sent; what is none is named with its place (ST-12).
pub(crate) fn plain(data: &Data, path: &str) -> Result<Value, String> {
    Ok(match data {
        Data::None => Value::Null,
        Data::Bool(value) => Value::Bool(*value),
        Data::Int(value) => Value::Int(BigInt::from(*value)),
        Data::BigInt(bytes) => Value::Int(BigInt::from_signed_bytes_le(bytes)),
        Data::Float(value) => Value::Float(*value),
        Data::Str(text) => Value::text(text),
        Data::SurrogateStr(_) => Value::Text(data.to_text().unwrap_or_default()),
        Data::List(items) | Data::Tuple(items) => Value::List(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| plain(item, &format!("{path}[{index}]")))
                .collect::<Result<_, _>>()?,
        ),
        Data::Dict(entries) => Value::Map(
            entries
                .iter()
                .map(|(key, value)| {
                    let key = plain(key, path)?;
                    let dot = if path.is_empty() { "" } else { "." };
                    let value = plain(value, &format!("{path}{dot}{}", key.to_str()))?;
                    Ok((Value::Text(key.to_str()), value))
                })
                .collect::<Result<_, String>>()?,
        ),
        Data::Set(_) | Data::FrozenSet(_) => return not_plain(path, "a set"),
        Data::Bytes(_) | Data::ByteArray(_) => return not_plain(path, "bytes"),
        Data::Complex(..) => return not_plain(path, "a complex number"),
    })
}

fn not_plain<T>(path: &str, what: &str) -> Result<T, String> {
    let place = if path.is_empty() { "the result" } else { path };
    Err(format!(
        "`{place}` is {what}: plain data are numbers, texts, booleans, lists and mappings"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::canonical_json;
    use crate::json_text::parse_value;

    fn parsed(json: &str) -> Result<RunResult, NoResult> {
        parse(&parse_value("test", json).unwrap(), Contract::Run)
    }

    /// ST-11
    #[test]
    fn text_is_short_for_output_and_the_rest_is_filled_in() {
        let result = parsed(r#"{"text": "hi"}"#).unwrap();
        assert_eq!(
            canonical_json(&result.value),
            r#"{"events":[],"metadata":{},"metrics":{},"output":{"text":"hi"},"trace_refs":[]}"#
        );
        assert!(result.warnings.is_empty());
        let not_ok = |json| parsed(json).unwrap_err();
        assert_eq!(
            not_ok(r#"{"ok": false, "error": "no luck"}"#),
            NoResult::NotOk("no luck".into())
        );
        assert!(matches!(not_ok(r#"{"ok": false}"#), NoResult::NotOk(_)));
    }

    /// ST-12
    #[test]
    fn what_is_no_result_is_named() {
        for (json, named) in [
            ("3", "the result is an integer"),
            ("{}", "has no `output`"),
            (r#"{"answer": 3}"#, "{\"output\": {\"answer\": …}}"),
            (r#"{"outputs": {}}"#, "output"),
            (r#"{"output": 3}"#, "`output` is an integer, not a mapping"),
            (r#"{"output": {}, "ok": 1}"#, "`ok` is an integer"),
            (
                r#"{"output": {}, "metrics": {"a": []}}"#,
                "`metrics.a` is a list",
            ),
            (r#"{"output": {}, "events": {}}"#, "`events` is a mapping"),
            (
                r#"{"output": {}, "trace_refs": [1]}"#,
                "`trace_refs` is an integer",
            ),
            (r#"{"text": 1}"#, "`text` is an integer"),
        ] {
            let NoResult::Bad(message) = parsed(json).unwrap_err() else {
                panic!("{json}");
            };
            assert!(message.contains(named), "{message}");
        }
        let data = |value: Data| Data::Dict(vec![(Data::Str("output".into()), value)]);
        let inner = Data::Dict(vec![(
            Data::Str("x".into()),
            Data::List(vec![Data::Set(Vec::new())]),
        )]);
        assert_eq!(
            plain(&data(inner), "").unwrap_err(),
            "`output.x[0]` is a set: plain data are numbers, texts, booleans, lists and mappings"
        );
    }

    /// ST-13
    #[test]
    fn faults_in_optional_parts_are_warnings() {
        let result = parsed(
            r#"{"output": {}, "metrics": {"cost_usd": "n/a", "input_tokens": "12"},
                "events": [{"event_type": "step", "level": "loud", "meta_json": 3}, 7, {"text": "x"}]}"#,
        )
        .unwrap();
        let paths: Vec<_> = result.warnings.iter().map(|w| w.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "metrics.cost_usd",
                "events[0].meta_json",
                "events[0].level",
                "events[1]"
            ]
        );
        assert_eq!(
            canonical_json(result.value.get("events").unwrap()),
            r#"[{"event_type":"step","index":0},{"index":2,"text":"x"}]"#
        );
    }
}
