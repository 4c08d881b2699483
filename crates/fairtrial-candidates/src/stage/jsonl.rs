//! Candidates from JSON lines: `{name?, patch | files: {path: text | null | {base64, mode}}, parent?, meta?}`. A line that
//! is not so fails alone (CA-16).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::files::{Mode, Replacement};
use super::given::{Content, Given};
use super::overlay::MOST_BYTES;
use super::path::shown;
use super::strict_json;

/// A line that is no candidate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct LineFault {
    /// The file, as its reader names it.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and perhaps what was meant.
    pub message: String,
}

/// Reads a file of candidates. `file` is its name as people should see it; blank lines are passed over. A candidate
/// without a name is called by file and line.
pub fn read_jsonl(
    source: usize,
    file: &str,
    text: &[u8],
) -> impl Iterator<Item = Result<Given, LineFault>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let numbered = (1..).zip(text.split(|byte| *byte == b'\n'));
    let written = numbered.filter(|(_, text)| !text.trim_ascii().is_empty());
    written.map(move |(line, text)| {
        read_line(source, file, line, text).map_err(|message| LineFault {
            file: file.to_owned(),
            line,
            message,
        })
    })
}

/// As of a file: names are shown in a column.
const LONGEST_NAME: usize = 255;

const KEYS: [&str; 5] = ["name", "patch", "files", "parent", "meta"];
const FILE_KEYS: [&str; 2] = ["base64", "mode"];

/// Base 64 and escapes make a candidate's text longer than the candidate, but not by more.
const LONGEST_LINE: u64 = 8 * MOST_BYTES;

fn read_line(source: usize, file: &str, line: usize, text: &[u8]) -> Result<Given, String> {
    if text.len() as u64 > LONGEST_LINE {
        return Err(format!(
            "has {} bytes, more than a candidate can need",
            text.len()
        ));
    }
    let value = strict_json::read(text).map_err(|error| syntax(&error))?;
    let Value::Object(mut keys) = value else {
        return Err("is not a JSON object".to_owned());
    };
    check_keys(&keys, &KEYS)?;
    let name = text_of(&mut keys, "name")?;
    if name.as_ref().is_some_and(|name| name.len() > LONGEST_NAME) {
        return Err(format!("`name` has more than {LONGEST_NAME} bytes"));
    }
    let parent = text_of(&mut keys, "parent")?;
    // On one line, as names of files are: a table has a line for each candidate.
    let [name, parent] = [name, parent].map(|text| text.map(|text| shown(text.as_bytes())));
    let meta = match keys.remove("meta") {
        None | Some(Value::Null) => None,
        Some(Value::Object(meta)) => Some(meta),
        Some(_) => return Err("`meta` is not an object".to_owned()),
    };
    let content = read_content(&mut keys)?;
    Ok(Given {
        name: name.unwrap_or_else(|| format!("{file}:{line}")),
        parent,
        meta,
        ..Given::unnamed(source, file.as_bytes(), line, content)
    })
}

/// The `patch` or `files` of a candidate, taken from its keys.
pub(crate) fn read_content(keys: &mut Map<String, Value>) -> Result<Content, String> {
    // A null is an absent key, as some serialisers write it.
    let mut take = |key| keys.remove(key).filter(|value| !value.is_null());
    match (take("patch"), take("files")) {
        (Some(Value::String(patch)), None) => Ok(Content::Patch(patch.into_bytes())),
        (None, Some(Value::Object(files))) => Ok(Content::Files(read_files(files)?)),
        (Some(_), None) => Err("`patch` is not a text".to_owned()),
        (None, Some(_)) => Err("`files` is not an object".to_owned()),
        (Some(_), Some(_)) => Err("has both `patch` and `files`: one is meant".to_owned()),
        (None, None) => Err("has neither `patch` nor `files`".to_owned()),
    }
}

/// The column is worth more than the line, which is always the first.
pub(crate) fn syntax(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let message = text.split(" at line ").next().unwrap_or(&text);
    format!("is not JSON at column {}: {message}", error.column())
}

fn check_keys(map: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    let Some(key) = map.keys().find(|key| !known.contains(&key.as_str())) else {
        return Ok(());
    };
    let near = known
        .iter()
        .map(|word| (strsim::osa_distance(key, word), word))
        .filter(|(distance, word)| *distance <= 2 && *distance < word.len())
        .min();
    let hint = match near {
        Some((_, word)) => format!("did you mean `{word}`?"),
        None => format!("known are `{}`", known.join("`, `")),
    };
    Err(format!("unknown key `{}` ({hint})", shown(key.as_bytes())))
}

pub(crate) fn text_of(map: &mut Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    match map.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` is not a text")),
    }
}

fn read_files(files: Map<String, Value>) -> Result<Vec<(Vec<u8>, Replacement)>, String> {
    let read = files.into_iter().map(|(path, value)| {
        let replacement = read_file(value)
            .map_err(|what| format!("file `{}`: {what}", shown(path.as_bytes())))?;
        Ok((path.into_bytes(), replacement))
    });
    read.collect()
}

fn read_file(value: Value) -> Result<Replacement, String> {
    let mut keys = match value {
        Value::Null => return Ok(Replacement::Deleted),
        Value::String(text) => {
            let (bytes, mode) = (text.into_bytes(), Mode::KeptOr(0o644));
            return Ok(Replacement::File { bytes, mode });
        }
        Value::Object(keys) => keys,
        _ => return Err("is neither a text, nor null, nor `{base64, mode}`".to_owned()),
    };
    check_keys(&keys, &FILE_KEYS)?;
    let Some(text) = text_of(&mut keys, "base64")? else {
        return Err("has no `base64`".to_owned());
    };
    let decoded = STANDARD.decode(text.trim_ascii());
    let bytes = decoded.map_err(|error| format!("`base64`: {error}"))?;
    Ok(match keys.remove("mode") {
        None | Some(Value::Null) => Replacement::File {
            bytes,
            mode: Mode::KeptOr(0o644),
        },
        Some(mode) => match read_mode(&mode)? {
            GivenMode::Link => Replacement::Link { target: bytes },
            GivenMode::File(mode) => Replacement::File {
                bytes,
                mode: Mode::Exactly(mode),
            },
        },
    })
}

enum GivenMode {
    File(u32),
    Link,
}

/// Octal digits as a text, with or without the type; or the number itself, as `os.stat` gives it.
fn read_mode(mode: &Value) -> Result<GivenMode, String> {
    let bits = match mode {
        Value::String(digits) => u64::from_str_radix(digits, 8).ok(),
        number => number.as_u64(),
    };
    match bits {
        Some(0o120000 | 0o120777) => Ok(GivenMode::Link),
        // What its owner cannot read nobody can look after.
        Some(bits @ (0..=0o777 | 0o100000..=0o100777)) if bits & 0o400 != 0 => {
            Ok(GivenMode::File(bits as u32 & 0o777))
        }
        _ => Err(format!(
            "`mode` is {mode}, not one such as \"644\", \"755\" or \"120000\""
        )),
    }
}
