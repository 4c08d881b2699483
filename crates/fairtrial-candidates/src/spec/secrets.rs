//! Keys that open something do not belong in a file (CA-9). What is found here is never shown.

use fairtrial_document::fault::{Fault, Place, fault};
use fairtrial_document::node::{Content, Node};

use super::places::{item_path, key_path};

/// How keys of well-known services begin.
const BEGINNINGS: [&str; 14] = [
    "sk-",
    "sk_",
    "AIza",
    "AKIA",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "gsk_",
    "hf_",
    "pplx-",
    "r8_",
    "xai-",
    "xoxb-",
];

/// Fewer letters and digits in a row are a name.
const SHORTEST: usize = 16;

/// What people call a key where a proposer is described.
const NAMES: [&str; 8] = [
    "authorization",
    "bearer",
    "credential",
    "key",
    "password",
    "secret",
    "token",
    "apitoken",
];

const PROPOSER: &str = "search.proposer";

/// Every key that was found. While there are any, nothing else is said about the file: it might repeat one.
pub(super) fn secrets(root: &Node) -> Vec<Fault> {
    let mut found = Vec::new();
    search(root, "", &mut found);
    found
}

fn search(node: &Node, path: &str, found: &mut Vec<Fault>) {
    match &node.content {
        Content::Scalar(value) => {
            if value.as_text().is_some_and(looks_like_key) {
                found.push(refusal(&node.place));
            }
        }
        Content::List(items) => {
            for (index, item) in items.iter().enumerate() {
                search(item, &item_path(path, index), found);
            }
        }
        Content::Map(entries) => {
            for entry in entries {
                let name = entry.key.to_value().to_str();
                if looks_like_key(&name) {
                    found.push(refusal(outside(&entry.key, node)));
                } else if is_name_of_key(&name, path) {
                    let message = format!("{} would put an API key into the file", shown(&name));
                    let hint =
                        "name the variable that holds it, as in `api_key_env: OPENAI_API_KEY`";
                    found.push(fault(outside(&entry.key, node), "secret", message, hint));
                } else {
                    search(&entry.value, &key_path(path, &name), found);
                }
            }
        }
    }
}

fn refusal(place: &Place) -> Fault {
    let message = "this looks like an API key, and a file is no place for one";
    let hint = "put it into a variable and name that: `api_key_env: NAME`, or for commands `env: {pass: [NAME]}`";
    fault(place, "secret", message, hint)
}

/// The place of a key. That of a program's is its name, which may be what must not be shown: then what it is in.
fn outside<'n>(key: &'n Node, mapping: &'n Node) -> &'n Place {
    match key.place.line {
        0 => &mapping.place,
        _ => &key.place,
    }
}

/// A word is shown; anything else may hold the key.
fn shown(name: &str) -> String {
    let is_word = |byte: u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    match name.len() <= 20 && name.bytes().all(is_word) {
        true => format!("`{name}`"),
        false => "this".into(),
    }
}

/// Variables of commands may have any name.
fn is_name_of_key(name: &str, path: &str) -> bool {
    if path == "env.set" || path.ends_with("].env") {
        return false;
    }
    let bare: String = name.to_lowercase().replace(['-', '_'], "");
    let is_key = bare.contains("apikey") && bare != "apikeyenv";
    is_key || (path == PROPOSER && NAMES.contains(&bare.as_str()))
}

/// A known beginning, and somewhere after it a long run of letters and digits: names have dashes sooner.
pub(super) fn looks_like_key(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let is_run = |run: &str| run.len() >= SHORTEST && run.bytes().any(|byte| byte.is_ascii_digit());
    text.split(|c| !is_part(c)).any(|word| {
        let mut rests = BEGINNINGS
            .iter()
            .filter_map(|start| word.strip_prefix(start));
        rests.any(|rest| rest.split(['-', '_']).any(is_run))
    })
}
