//! Factors, blocks and constraints.

use std::collections::HashSet;

use crate::canonical::canonical_json;
use crate::expression::Expression;
use crate::fault::{short, suggestion};
use crate::node::{Content, Entry, Node};
use crate::read::{Reader, Record};
use crate::schema::{BLOCK, CONSTRAINT, FACTOR, LEVEL};
use crate::study::{Block, Constraint, Factor, Level};
use crate::value::Value;

/// What `dtype` may say.
const DTYPES: [&str; 12] = [
    "int",
    "integer",
    "float",
    "number",
    "str",
    "string",
    "text",
    "bool",
    "boolean",
    "category",
    "categorical",
    "any",
];

/// The factors, and their list in full.
pub(crate) fn factors(reader: &mut Reader, node: Option<&Node>) -> (Vec<Factor>, Value) {
    let Some(node) = node else {
        return (Vec::new(), Value::List(Vec::new()));
    };
    reader.doubts(node);
    let read: Vec<_> = match &node.content {
        Content::List(items) => {
            let item = |(index, item): (usize, &Node)| {
                let what = format!("`factors[{index}]`");
                let record = reader.record(item, &what, FACTOR);
                let levels = levels(reader, &record);
                factor(reader, &record, levels)
            };
            items.iter().enumerate().map(item).collect()
        }
        Content::Map(entries) if reader.is_native() => entries
            .iter()
            .map(|entry| shorthand(reader, entry))
            .collect(),
        _ => {
            reader.wrong_type(node, "factors", "a list", "write `- name: ...` items");
            Vec::new()
        }
    };
    let (factors, values) = read.into_iter().unzip();
    (factors, Value::List(values))
}

/// `name: [values]`
fn shorthand(reader: &mut Reader, entry: &Entry) -> (Factor, Value) {
    let name = match entry.key.as_text() {
        Some(name) if !name.trim().is_empty() => name.to_owned(),
        _ => {
            let message = "the name of a factor must be text that is not blank";
            reader.fault(&entry.key.place, "type", message, "quote it");
            entry.key.to_value().to_str()
        }
    };
    let levels = match &entry.value.content {
        Content::List(items) if !items.is_empty() => level_list(reader, items),
        Content::List(_) => {
            let message = format!("factor `{}` has no levels", short(&name));
            reader.fault(&entry.value.place, "no_levels", message, "list its values");
            Vec::new()
        }
        _ => {
            let hint = "write `name: [value, value]`";
            reader.wrong_type(&entry.value, &short(&name), "a list of levels", hint);
            Vec::new()
        }
    };
    let factor = Factor {
        place: entry.key.place.clone(),
        name,
        levels,
        default: Value::Null,
    };
    check_levels(reader, &factor);
    let mut value = vec![
        ("name", Value::text(&factor.name)),
        ("description", "".into()),
        ("kind", "manipulated".into()),
    ];
    value.push(("levels", levels_value(&factor.levels)));
    value.push(("dtype", Value::Null));
    value.push(("default", Value::Null));
    value.push(("metadata", Value::Map(Vec::new())));
    (factor, Value::map(value))
}

fn levels(reader: &mut Reader, record: &Record<'_>) -> Vec<Level> {
    match record.node("levels") {
        None => Vec::new(),
        Some(node) => match &node.content {
            Content::List(items) => level_list(reader, items),
            _ => {
                reader.wrong_type(node, "levels", "a list", "write `- name: ...` items");
                Vec::new()
            }
        },
    }
}

fn level_list(reader: &mut Reader, items: &[Node]) -> Vec<Level> {
    let levels = items
        .iter()
        .enumerate()
        .map(|(index, item)| match &item.content {
            Content::Map(_) => level(reader, item, index),
            Content::Scalar(value) if reader.is_native() => scalar_level(item, value.clone()),
            _ => {
                let expected = "a mapping with `name` and `value`";
                reader.wrong_type(item, &format!("levels[{index}]"), expected, "");
                scalar_level(item, Value::text(format!("?{index}")))
            }
        });
    levels.collect()
}

fn level(reader: &mut Reader, item: &Node, index: usize) -> Level {
    let record = reader.record(item, &format!("`levels[{index}]`"), LEVEL);
    let name = record.text("name");
    Level {
        place: record.place.clone(),
        label: record.maybe_text("label").unwrap_or_else(|| name.clone()),
        value: record.get("value").clone(),
        metadata: record.get("metadata").clone(),
        name,
    }
}

/// A level named by its value's text.
fn scalar_level(item: &Node, value: Value) -> Level {
    let name = match &value {
        Value::Text(text) => text.clone(),
        other => canonical_json(other),
    };
    Level {
        place: item.place.clone(),
        label: name.clone(),
        name,
        value,
        metadata: Value::Map(Vec::new()),
    }
}

fn levels_value(levels: &[Level]) -> Value {
    let level = |level: &Level| {
        Value::map([
            ("name", Value::text(&level.name)),
            ("value", level.value.clone()),
            ("label", Value::text(&level.label)),
            ("metadata", level.metadata.clone()),
        ])
    };
    Value::List(levels.iter().map(level).collect())
}

fn factor(reader: &mut Reader, record: &Record<'_>, levels: Vec<Level>) -> (Factor, Value) {
    let factor = Factor {
        place: record.place_of("name").clone(),
        name: record.text("name"),
        levels,
        default: record.get("default").clone(),
    };
    if factor.levels.is_empty() && factor.default == Value::Null {
        let message = format!(
            "factor `{}` has neither levels nor a default",
            short(&factor.name)
        );
        reader.fault(&factor.place, "no_levels", message, "add `levels`");
    }
    check_levels(reader, &factor);
    check_dtype(reader, record, &factor);
    let Value::Map(mut entries) = record.to_value(&[]) else {
        unreachable!("a record is a mapping");
    };
    for (key, value) in &mut entries {
        if key.as_text() == Some("levels") {
            *value = levels_value(&factor.levels);
        }
    }
    (factor, Value::Map(entries))
}

fn check_levels(reader: &mut Reader, factor: &Factor) {
    let (mut names, mut values) = (HashSet::new(), HashSet::new());
    for level in &factor.levels {
        let name = short(&factor.name);
        if !names.insert(&level.name) {
            let message = format!("level `{}` of `{name}` is given twice", short(&level.name));
            reader.fault(&level.place, "repeated_level", message, "rename one");
        }
        let value = canonical_json(&level.value);
        if !values.insert(value.clone()) {
            let message = format!("two levels of `{name}` have the value {}", short(&value));
            reader.dubious(
                &level.place,
                "equal_levels",
                message,
                "give each its own value",
            );
        }
    }
}

fn check_dtype(reader: &mut Reader, record: &Record<'_>, factor: &Factor) {
    let Some(dtype) = record.maybe_text("dtype") else {
        return;
    };
    if !reader.is_native() {
        return; // DRE does not look at it
    }
    if !DTYPES.contains(&dtype.as_str()) {
        let message = format!("unknown dtype `{}`", short(&dtype));
        reader.fault(
            record.place_of("dtype"),
            "dtype",
            message,
            suggestion(&dtype, DTYPES),
        );
        return;
    }
    for level in &factor.levels {
        let fits = match (dtype.as_str(), &level.value) {
            ("int" | "integer", value) => matches!(value, Value::Int(_)),
            ("float" | "number", value) => matches!(value, Value::Int(_) | Value::Float(_)),
            ("str" | "string" | "text", value) => matches!(value, Value::Text(_)),
            ("bool" | "boolean", value) => matches!(value, Value::Bool(_)),
            _ => true,
        };
        if !fits {
            let name = short(&level.name);
            let kind = level.value.kind();
            let message = format!("level `{name}` is {kind}, but the dtype is `{dtype}`");
            reader.fault(
                &level.place,
                "dtype",
                message,
                "change the value or the dtype",
            );
        }
    }
}

/// The blocks, and their list in full.
pub(crate) fn blocks(reader: &mut Reader, node: Option<&Node>) -> (Vec<Block>, Value) {
    let mut values = Vec::new();
    let mut blocks = Vec::new();
    for (index, item) in items(reader, node, "blocks").iter().enumerate() {
        reader.doubts(item);
        let record = reader.record(item, &format!("`blocks[{index}]`"), BLOCK);
        let levels = record.list("levels").to_vec();
        let mut seen = HashSet::new();
        for level in &levels {
            let text = canonical_json(level);
            if !seen.insert(text.clone()) {
                let message = format!("two levels of the block are {}", short(&text));
                let place = record.place_of("levels").clone();
                reader.dubious(&place, "equal_levels", message, "keep one");
            }
        }
        blocks.push(Block {
            place: record.place_of("name").clone(),
            name: record.text("name"),
            levels,
        });
        values.push(record.to_value(&[]));
    }
    (blocks, Value::List(values))
}

/// The constraints, and their list in full.
pub(crate) fn constraints(reader: &mut Reader, node: Option<&Node>) -> (Vec<Constraint>, Value) {
    let mut values = Vec::new();
    let mut constraints = Vec::new();
    for (index, item) in items(reader, node, "constraints").iter().enumerate() {
        let record = reader.record(item, &format!("`constraints[{index}]`"), CONSTRAINT);
        constraints.push(constraint(reader, &record));
        values.push(record.to_value(&[]));
    }
    for (index, constraint) in constraints.iter().enumerate() {
        let id = &constraint.id;
        if constraints[..index].iter().any(|other| other.id == *id) {
            let message = format!("constraint `{}` is given twice", short(id));
            reader.dubious(&constraint.place, "repeated_name", message, "rename one");
        }
    }
    (constraints, Value::List(values))
}

fn constraint(reader: &mut Reader, record: &Record<'_>) -> Constraint {
    let id = record.text("constraint_id");
    let severity = record.text("severity");
    if severity != "error" && severity != "warning" {
        let message = format!("severity `{}` acts as a warning", short(&severity));
        let place = record.place_of("severity").clone();
        reader.dubious(&place, "severity", message, "write `error` or `warning`");
    }
    let text = record.maybe_text("expression");
    let callable_ref = record.maybe_text("callable_ref");
    if text.is_none() && callable_ref.is_none() {
        let message = format!("constraint `{}` has no rule", short(&id));
        let hint = "add `expression` or `callable_ref`";
        reader.fault(&record.place, "no_rule", message, hint);
    }
    if let Some(callable) = &callable_ref
        && callable
            .split_once(':')
            .is_none_or(|(m, a)| m.is_empty() || a.is_empty())
    {
        let message = format!("`{}` does not name a callable", short(callable));
        let place = record.place_of("callable_ref").clone();
        reader.fault(&place, "callable_ref", message, "write `module:attribute`");
    }
    let place = record.place_of("expression").clone();
    let expression = text.and_then(|text| match Expression::parse(&text) {
        Ok(expression) => Some(expression),
        Err(error) => {
            let message = format!("constraint `{}`: {error}", short(&id));
            reader.fault(&place, "constraint", message, "");
            None
        }
    });
    Constraint {
        place,
        description: record.text("description"),
        expression,
        callable_ref,
        is_warning: severity != "error",
        id,
    }
}

/// The items of a list that may be absent.
fn items<'n>(reader: &mut Reader, node: Option<&'n Node>, key: &str) -> &'n [Node] {
    match node.map(|node| (node, &node.content)) {
        None => &[],
        Some((_, Content::List(items))) => items,
        Some((node, _)) => {
            let hint = match key {
                "blocks" => "write items as in `- {name: day, levels: [1, 2]}`",
                "constraints" => "write items as in `- {constraint_id: c, expression: x > 1}`",
                _ => "write `- ` items",
            };
            reader.wrong_type(node, key, "a list", hint);
            &[]
        }
    }
}
