//! A change as JSON, in the form in which it is given: `{patch}` or `{files}`. What is written is read back as it was.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::files::{Mode, Replacement};
use super::given::Content;
use super::jsonl::read_content;

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Patch(text) => match std::str::from_utf8(text) {
                Ok(text) => json!({"patch": text}),
                Err(_) => json!({"patch_base64": STANDARD.encode(text)}),
            },
            Self::Files(files) => json!({"files": files_json(files).map_err(S::Error::custom)?}),
        }
        .serialize(to)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut keys = Map::deserialize(from)?;
        if let Some(Value::String(text)) = keys.get("patch_base64") {
            return STANDARD
                .decode(text)
                .map(Self::Patch)
                .map_err(D::Error::custom);
        }
        read_content(&mut keys).map_err(D::Error::custom)
    }
}

fn files_json(files: &[(Vec<u8>, Replacement)]) -> Result<Map<String, Value>, String> {
    let written = files.iter().map(|(path, replacement)| {
        let path = str::from_utf8(path).map_err(|_| "a path is no text".to_owned())?;
        Ok((path.to_owned(), replacement_json(replacement)?))
    });
    written.collect()
}

fn replacement_json(replacement: &Replacement) -> Result<Value, String> {
    Ok(match replacement {
        Replacement::Deleted => Value::Null,
        Replacement::Special => return Err("a device has no content".to_owned()),
        Replacement::Link { target } => {
            json!({"base64": STANDARD.encode(target), "mode": "120000"})
        }
        Replacement::File {
            bytes,
            mode: Mode::Exactly(mode),
        } => {
            json!({"base64": STANDARD.encode(bytes), "mode": format!("{mode:o}")})
        }
        // A mode to fall back on is not part of the form; 644 is what readers fall back on.
        Replacement::File {
            bytes,
            mode: Mode::KeptOr(_),
        } => match str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => json!({"base64": STANDARD.encode(bytes)}),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(content: &Content) -> Content {
        let text = serde_json::to_string(content).expect("it is written");
        serde_json::from_str(&text).expect("it is read")
    }

    #[test]
    fn a_change_is_read_back_as_it_was() {
        let file = |bytes: &[u8], mode| Replacement::File {
            bytes: bytes.to_vec(),
            mode,
        };
        let files = vec![
            (b"a.py".to_vec(), file(b"x = 1\n", Mode::KeptOr(0o644))),
            (b"b.bin".to_vec(), file(b"\xff\0", Mode::KeptOr(0o644))),
            (
                b"run.sh".to_vec(),
                file(b"#!/bin/sh\n", Mode::Exactly(0o755)),
            ),
            (
                b"link".to_vec(),
                Replacement::Link {
                    target: b"a.py".to_vec(),
                },
            ),
            (b"gone".to_vec(), Replacement::Deleted),
        ];
        let contents = [
            Content::Files(files),
            Content::Patch(b"--- a/x\n".to_vec()),
            Content::Patch(b"--- a/\xff\n".to_vec()),
        ];
        for content in contents {
            assert_eq!(round_trip(&content), content);
        }
    }
}
