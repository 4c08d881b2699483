//! A request in words, for a model.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::super::ask::Kind;
use super::super::settings::HttpSettings;
use super::super::wire::{Parent, Request};

const SYSTEM: &str = "You make programs faster without changing what they do. You are shown files of a base, and \
candidates: changes of that base, with what testing and measuring them showed. Ratios are a candidate's time over the \
base's, so below 1 is faster.

Answer with unified diffs against the base, never against a candidate. Put each proposal into one fenced block that \
begins with ```diff and holds all files it changes, with paths such as `a/src/x.py` and `b/src/x.py`, exact context \
lines and right line counts. Leave tests alone. Before each block say in one sentence what it does.";

/// The body of a request for a chat completion.
pub(super) fn body(request: &Request, settings: &HttpSettings) -> Vec<u8> {
    let mut body = json!({
        "model": settings.model,
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": facts(request)},
        ],
    });
    if let Some(most) = settings.max_tokens {
        body["max_tokens"] = most.into();
    }
    if let Some(temperature) = settings.temperature {
        body["temperature"] = temperature.into();
    }
    body.to_string().into_bytes()
}

fn facts(request: &Request) -> String {
    let mut text = task(request);
    text.push_str("\n\n# The base\n");
    files(&mut text, &request.base.sources);
    for (title, candidates) in [
        ("Ancestor", &request.ancestry),
        ("Candidate", &request.parents),
    ] {
        for candidate in candidates {
            write!(text, "\n# {title} {}\n", candidate.id).expect("a String takes all");
            describe(&mut text, candidate);
        }
    }
    text
}

fn task(request: &Request) -> String {
    let task = match (request.kind, request.n) {
        (Kind::Repair, _) => {
            "The candidate below does not do what the base does. Propose a version of it that does."
        }
        (Kind::Refine, 1) => {
            "The candidate below is faster than the base. Propose a version of it that is faster still."
        }
        (Kind::Refine, _) => {
            "The candidates below are faster than the base. For each of them, in their order, propose \
                              a version that is faster still."
        }
        (Kind::Adaptive, _) => {
            "The candidate below came of its ancestors, oldest first. Learn from what each step \
                                gained, and propose one that is faster than all of them."
        }
    };
    let wanted = match request.n {
        1 => "One proposal is wanted: one fenced block.".to_owned(),
        n => format!("{n} proposals are wanted: {n} fenced blocks."),
    };
    format!("{task} {wanted}")
}

fn describe(text: &mut String, candidate: &Parent) {
    match &candidate.patch {
        Some(patch) => block(text, "Its change of the base", "diff", patch),
        None => files(text, &candidate.sources),
    }
    let known = [
        ("Its result", &candidate.result),
        ("Its failure", &candidate.failure),
    ];
    for (title, value) in known {
        if let Some(value) = value {
            block(text, title, "json", &pretty(value));
        }
    }
    if !candidate.diffs.is_empty() {
        let diffs = Value::from(candidate.diffs.clone());
        block(
            text,
            "Cases in which it differs from the base",
            "json",
            &pretty(&diffs),
        );
    }
}

fn files(text: &mut String, sources: &Map<String, Value>) {
    for (path, source) in sources {
        match source {
            Value::String(content) => block(text, &format!("`{path}`"), "", content),
            Value::Null => write!(text, "\n`{path}` is not there.\n").expect("a String takes all"),
            _ => write!(text, "\n`{path}` is no text.\n").expect("a String takes all"),
        }
    }
}

/// Fenced by more marks than the content has anywhere.
fn block(text: &mut String, title: &str, label: &str, content: &str) {
    let longest = content
        .split(|mark| mark != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let end = if content.is_empty() || content.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    write!(text, "\n{title}:\n{fence}{label}\n{content}{end}{fence}\n")
        .expect("a String takes all");
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON is written as JSON")
}

#[cfg(test)]
mod tests {
    use super::super::super::ask::{Ask, RequestId};
    use super::super::super::wire::BaseFacts;
    use super::*;

    fn request(kind: Kind, parents: &[&str], ancestry: &[&str]) -> Request {
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let ask = Ask {
            id: RequestId::numbered(1),
            kind,
            n: parents.len(),
            parents: owned(parents),
            ancestry: owned(ancestry),
        };
        let sources = |text: &str| Map::from_iter([("x.py".to_owned(), Value::from(text))]);
        let base = BaseFacts {
            hash: "abc".to_owned(),
            sources: sources("'''\n```\n'''\n"),
        };
        Request::new(&ask, base, |id| Parent {
            id: id.to_owned(),
            patch: (id != "c-2").then(|| format!("--- a/x.py of {id}")),
            sources: sources("x = 2"),
            result: Some(json!({"ratio": 0.71})),
            failure: None,
            diffs: vec![json!({"case": "test_x"})],
        })
    }

    /// CA-85
    #[test]
    fn a_model_is_told_all_that_is_known() {
        let text = facts(&request(Kind::Adaptive, &["c-3"], &["c-1", "c-2"]));
        let places = [
            "````\n'''",
            "# Ancestor c-1",
            "--- a/x.py of c-1",
            "# Ancestor c-2",
            "x = 2",
            "# Candidate c-3",
        ];
        let found: Vec<_> = places.iter().map(|part| text.find(part)).collect();
        assert!(
            found.iter().all(Option::is_some) && found.is_sorted(),
            "{found:?}: {text}"
        );
        assert!(text.contains("\"ratio\": 0.71") && text.contains("test_x"));
        let batch = facts(&request(Kind::Refine, &["c-1", "c-2"], &[]));
        assert!(batch.contains("2 proposals are wanted"));
    }

    /// CA-85
    #[test]
    fn options_are_sent_if_they_are_set() {
        let mut settings = HttpSettings::new("http://127.0.0.1:1/v1", "some-model");
        let request = request(Kind::Repair, &["c-1"], &[]);
        let sent = |settings: &HttpSettings| -> Value {
            serde_json::from_slice(&body(&request, settings)).expect("JSON")
        };
        let plain = sent(&settings);
        assert_eq!(plain["model"], "some-model");
        assert!(plain.get("max_tokens").is_none() && plain.get("temperature").is_none());
        (settings.max_tokens, settings.temperature) = (Some(900), Some(0.5));
        let full = sent(&settings);
        assert_eq!(
            (&full["max_tokens"], &full["temperature"]),
            (&json!(900), &json!(0.5))
        );
    }
}
