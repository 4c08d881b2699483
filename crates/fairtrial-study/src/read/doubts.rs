//! Scalars that two versions of YAML read differently.

use crate::fault::short;
use crate::node::{Content, Node};
use crate::read::Reader;
use crate::value::Value;

impl Reader {
    /// Warns of each plain scalar below that YAML 1.1 and YAML 1.2 read differently.
    pub(crate) fn doubts(&mut self, node: &Node) {
        if !self.is_native() {
            return;
        }
        match &node.content {
            Content::Scalar(value) => {
                let Some(doubt) = &node.doubt else { return };
                let message = format!(
                    "`{}` is {} here, as YAML 1.1 has it, and {} in YAML 1.2",
                    short(&doubt.text),
                    described(value),
                    described(&doubt.newer)
                );
                let hint = format!(
                    "write `\"{}\"` for text, or {} for this value",
                    short(&doubt.text),
                    plain_form(value, &doubt.text)
                );
                self.findings
                    .warn(&node.place, "yaml_version", message, hint);
            }
            Content::List(items) => items.iter().for_each(|item| self.doubts(item)),
            Content::Map(entries) => {
                for entry in entries {
                    self.doubts(&entry.key);
                    self.doubts(&entry.value);
                }
            }
        }
    }
}

fn described(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("the text `{}`", short(text)),
        Value::Moment(moment) => format!("the time {moment}"),
        Value::Bool(truth) => truth.to_string(),
        other => other.to_repr(),
    }
}

/// A way to write a value that both versions read alike.
fn plain_form(value: &Value, text: &str) -> String {
    match value {
        Value::Text(_) => format!("`'{}'`", short(text)),
        Value::Bool(truth) => format!("`{truth}`"),
        Value::Moment(moment) => format!("`\"{moment}\"`"),
        other => format!("`{}`", other.to_repr()),
    }
}
