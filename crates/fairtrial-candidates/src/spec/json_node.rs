//! What a program gives, as nodes: a place is the path of keys, and counts on, so that what comes later is known.

use std::sync::Arc;

use fairtrial_document::fault::{Fault, Place, fault, short};
use fairtrial_document::node::{Content, DEEPEST, Entry, Node};
use fairtrial_document::value::Value;
use serde_json::{Number, Value as Json};

use super::places::{item_path, key_path};

/// What the whole is called.
const ROOT: &str = "spec";

pub(super) fn node_of(json: Json) -> Result<Node, Fault> {
    Counter { count: 0 }.node(json, "", 0)
}

struct Counter {
    count: usize,
}

impl Counter {
    fn place(&mut self, path: &str) -> Place {
        self.count += 1;
        Place {
            file: Arc::from(if path.is_empty() { ROOT } else { path }),
            line: 0,
            column: self.count,
        }
    }

    fn node(&mut self, json: Json, path: &str, depth: usize) -> Result<Node, Fault> {
        let place = self.place(path);
        if depth > DEEPEST {
            let message = format!("nested deeper than {DEEPEST} levels");
            return Err(fault(&place, "depth", message, ""));
        }
        let content = match json {
            Json::Null => Content::Scalar(Value::Null),
            Json::Bool(truth) => Content::Scalar(Value::Bool(truth)),
            Json::Number(number) => Content::Scalar(number_value(&number)),
            Json::String(text) => Content::Scalar(Value::Text(text)),
            Json::Array(items) => {
                let items = items.into_iter().enumerate();
                let node = |(index, item)| self.node(item, &item_path(path, index), depth + 1);
                Content::List(items.map(node).collect::<Result<_, _>>()?)
            }
            Json::Object(entries) => {
                let entry = |(key, value): (String, Json)| {
                    let path = key_path(path, &short(&key).replace(char::is_control, " "));
                    Ok(Entry {
                        key: Node::scalar(self.place(&path), Value::Text(key)),
                        value: self.node(value, &path, depth + 1)?,
                    })
                };
                Content::Map(entries.into_iter().map(entry).collect::<Result<_, _>>()?)
            }
        };
        Ok(Node {
            place,
            content,
            doubt: None,
        })
    }
}

fn number_value(number: &Number) -> Value {
    match (number.as_i64(), number.as_u64()) {
        (Some(int), _) => Value::from(int),
        (_, Some(int)) => Value::Int(int.into()),
        _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}
