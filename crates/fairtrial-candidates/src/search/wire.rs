//! What proposers are sent, and how what they send is read (CA-84, CA-86).
//!
//! A request is `{v, id, kind, n, base, parents, ancestry}`; an answer is `{id, candidates: [{patch | files, note?,
//! parent?}], tokens?}` or `{id, error}`. Patches are changes of the base. Other keys are passed over: an answer was paid
//! for, and whoever adds to it does no harm.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::answer::{Answer, Failure, FailureKind, LONGEST_ANSWER, Malformed, Proposed};
use super::ask::{Ask, Kind, RequestId};
use super::fence::patch_in;
use super::secrets::Secrets;
use crate::stage::jsonl::{read_content, syntax, text_of};
use crate::stage::{Image, PostImages, strict_json};

/// The version of requests.
const VERSION: u32 = 1;

/// A request as it is sent: an [`Ask`], and what is known of those it is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    v: u32,
    /// Its number.
    pub id: RequestId,
    /// What for.
    pub kind: Kind,
    /// How many candidates are wanted.
    pub n: usize,
    /// What all candidates are changes of.
    pub base: BaseFacts,
    /// The candidates it is about.
    pub parents: Vec<Parent>,
    /// The parent's ancestors, oldest first, of an adaptive request.
    pub ancestry: Vec<Parent>,
}

/// What a proposer is told of the base.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BaseFacts {
    /// The snapshot's hash.
    pub hash: String,
    /// Files that the parents change, as the base has them; see [`sources`].
    pub sources: Map<String, Value>,
}

/// What a proposer is told of a candidate. The JSON of results, failures and diffs is that of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Parent {
    /// Its id.
    pub id: String,
    /// Its change of the base as a patch, if there is one of text alone.
    pub patch: Option<String>,
    /// The files it changes, as it has them; see [`sources`].
    pub sources: Map<String, Value>,
    /// How fast it is.
    pub result: Option<Value>,
    /// Why it failed.
    pub failure: Option<Value>,
    /// In which cases it differs from the base.
    pub diffs: Vec<Value>,
}

impl Request {
    /// The request `ask`, with what `facts` tells of each candidate.
    #[must_use]
    pub fn new(ask: &Ask, base: BaseFacts, facts: impl Fn(&str) -> Parent) -> Self {
        let all = |ids: &[String]| ids.iter().map(|id| facts(id)).collect();
        Self {
            v: VERSION,
            id: ask.id,
            kind: ask.kind,
            n: ask.n,
            base,
            parents: all(&ask.parents),
            ancestry: all(&ask.ancestry),
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("keys are texts, and numbers finite")
    }

    /// As the line that a program reads.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = self.to_json().to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

/// Changed files in the form in which candidates give them: `{path: text | null | {base64}}`.
#[must_use]
pub fn sources(images: &PostImages) -> Map<String, Value> {
    let shown = images.iter().map(|(path, image)| {
        let source = match image {
            None => Value::Null,
            Some(Image::Link { target }) => {
                json!({"base64": STANDARD.encode(target), "mode": "120000"})
            }
            Some(Image::File { bytes, .. }) => match str::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => json!({"base64": STANDARD.encode(bytes)}),
            },
        };
        (path.to_string(), source)
    });
    shown.collect()
}

/// What a text says, and to which request.
#[derive(Debug)]
pub(crate) struct Said {
    /// The id as it stands there; none if that could not be read.
    pub(crate) id: Option<String>,
    pub(crate) what: Result<Answer, Failure>,
}

/// Reads one answer.
pub(crate) fn read(text: &[u8], secrets: &Secrets) -> Said {
    // Before anything is read: a patch could hold one, too.
    let text = &*secrets.scrubbed_bytes(text);
    let malformed = |problem: String| Malformed::new(problem, text, secrets);
    let nobody = |problem| Said {
        id: None,
        what: Err(malformed(problem).into()),
    };
    if text.len() > LONGEST_ANSWER {
        return nobody(format!("has {} bytes, more than 16 MiB", text.len()));
    }
    let value = match strict_json::read(text) {
        Ok(value) => value,
        Err(error) => return nobody(syntax(&error)),
    };
    let Value::Object(mut keys) = value else {
        return nobody("is not a JSON object".to_owned());
    };
    match keys.remove("id") {
        Some(Value::String(id)) => Said {
            id: Some(id),
            what: read_keys(keys, secrets).map_err(|fault| fault.into_failure(malformed)),
        },
        Some(_) => nobody("`id` is not a text".to_owned()),
        None => nobody("has no `id`".to_owned()),
    }
}

/// What somebody said who was asked directly: an answer without an id.
pub fn said_by(answer: Value) -> Result<Answer, Failure> {
    let text = answer.to_string();
    let malformed = |problem: String| Malformed::new(problem, text.as_bytes(), &Secrets::none());
    let Value::Object(keys) = answer else {
        return Err(malformed("is not an object".to_owned()).into());
    };
    read_keys(keys, &Secrets::none()).map_err(|fault| fault.into_failure(malformed))
}

enum Fault {
    Declined(String),
    Malformed(String),
}

impl Fault {
    fn into_failure(self, malformed: impl Fn(String) -> Malformed) -> Failure {
        match self {
            Self::Declined(message) => Failure::new(FailureKind::Declined, message),
            Self::Malformed(problem) => malformed(problem).into(),
        }
    }
}

fn read_keys(mut keys: Map<String, Value>, secrets: &Secrets) -> Result<Answer, Fault> {
    let tokens = match keys.remove("tokens") {
        None | Some(Value::Null) => None,
        Some(tokens) => match tokens.as_u64() {
            Some(tokens) => Some(tokens),
            None => {
                return Err(Fault::Malformed(
                    "`tokens` is not a whole number".to_owned(),
                ));
            }
        },
    };
    let mut take = |key| keys.remove(key).filter(|value: &Value| !value.is_null());
    match (take("candidates"), take("error")) {
        (Some(Value::Array(candidates)), None) => read_candidates(candidates, tokens, secrets),
        (None, Some(Value::String(error))) => Err(Fault::Declined(secrets.scrubbed(&error))),
        (None, Some(error)) => Err(Fault::Declined(secrets.scrubbed(&error.to_string()))),
        (Some(_), None) => Err(Fault::Malformed("`candidates` is not a list".to_owned())),
        (Some(_), Some(_)) => Err(Fault::Malformed(
            "has both `candidates` and `error`".to_owned(),
        )),
        (None, None) => Err(Fault::Malformed(
            "has neither `candidates` nor `error`".to_owned(),
        )),
    }
}

/// A candidate that is none does not cost the others of its answer.
fn read_candidates(
    list: Vec<Value>,
    tokens: Option<u64>,
    secrets: &Secrets,
) -> Result<Answer, Fault> {
    let mut answer = Answer {
        tokens,
        ..Answer::default()
    };
    for (number, value) in (1..).zip(list) {
        let text = value.to_string();
        match read_candidate(value) {
            Ok(proposed) => answer.candidates.push(proposed),
            Err(problem) => answer.malformed.push(Malformed::new(
                format!("candidate {number} {problem}"),
                text.as_bytes(),
                secrets,
            )),
        }
    }
    match (&answer.candidates[..], answer.malformed.first()) {
        ([], Some(first)) => Err(Fault::Malformed(first.problem.clone())),
        _ => Ok(answer),
    }
}

fn read_candidate(value: Value) -> Result<Proposed, String> {
    let Value::Object(mut keys) = value else {
        return Err("is not an object".to_owned());
    };
    if let Some(Value::String(text)) = keys.get("patch") {
        let patch = patch_in(text).ok_or("has no patch")?;
        keys.insert("patch".to_owned(), patch.into());
    }
    let content = read_content(&mut keys)?;
    Ok(Proposed {
        content,
        note: text_of(&mut keys, "note")?,
        parent: text_of(&mut keys, "parent")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Content;

    const PATCH: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n";

    fn said(text: &str) -> Said {
        read(text.as_bytes(), &Secrets::none())
    }

    fn problem(text: &str) -> (Option<String>, String) {
        let said = said(text);
        let failure = said.what.expect_err("it is malformed");
        assert_eq!(failure.kind, FailureKind::Malformed);
        let malformed = failure.malformed.expect("an excerpt");
        assert!(text.starts_with(&malformed.excerpt[..malformed.excerpt.len().min(20)]));
        (said.id, failure.message)
    }

    /// CA-84
    #[test]
    fn a_request_is_one_line_of_json() {
        let ask = Ask {
            id: RequestId::numbered(7),
            kind: Kind::Adaptive,
            n: 1,
            parents: vec!["c-2".to_owned()],
            ancestry: vec!["c-1".to_owned()],
        };
        let facts = |id: &str| Parent {
            id: id.to_owned(),
            patch: Some("--- a/x\n".to_owned()),
            ..Parent::default()
        };
        let line = Request::new(&ask, BaseFacts::default(), facts).line();
        let line = String::from_utf8(line).expect("text");
        assert_eq!(line.find('\n'), Some(line.len() - 1));
        let object: Map<String, Value> = serde_json::from_str(&line).expect("an object");
        let keys: Vec<_> = object.keys().map(String::as_str).collect();
        assert_eq!(
            keys,
            ["v", "id", "kind", "n", "base", "parents", "ancestry"]
        );
        assert_eq!((&object["v"], &object["id"]), (&json!(1), &json!("r-7")));
        assert_eq!(object["kind"], "adaptive");
        let parent: Vec<_> = object["parents"][0]
            .as_object()
            .expect("an object")
            .keys()
            .collect();
        assert_eq!(
            parent,
            ["id", "patch", "sources", "result", "failure", "diffs"]
        );
        assert_eq!(object["ancestry"][0]["id"], "c-1");
    }

    /// CA-84
    #[test]
    fn an_answer_has_candidates_of_both_forms() {
        let text = json!({
            "id": "r-1",
            "candidates": [
                {"patch": PATCH, "note": "memo"},
                {"files": {"x": "new\n"}, "parent": "c-1", "mood": "good"},
            ],
            "tokens": 812,
        });
        let said = said(&text.to_string());
        assert_eq!(said.id.as_deref(), Some("r-1"));
        let answer = said.what.expect("an answer");
        assert_eq!(answer.tokens, Some(812));
        let [one, other] = &answer.candidates[..] else {
            panic!("{answer:?}")
        };
        assert_eq!(one.content, Content::Patch(PATCH.as_bytes().to_vec()));
        assert_eq!(one.note.as_deref(), Some("memo"));
        assert!(matches!(&other.content, Content::Files(files) if files.len() == 1));
        assert_eq!(other.parent.as_deref(), Some("c-1"));
    }

    /// CA-86
    #[test]
    fn a_patch_may_be_in_a_fenced_block() {
        let fenced = format!("Sure!\n```diff\n{PATCH}```");
        let text = json!({"id": "r-1", "candidates": [{"patch": fenced}]}).to_string();
        let answer = said(&text).what.expect("an answer");
        assert_eq!(
            answer.candidates[0].content,
            Content::Patch(PATCH.as_bytes().to_vec())
        );
    }

    /// CA-84
    #[test]
    fn an_error_is_a_refusal_and_no_candidates_are_an_answer() {
        let refused = said(r#"{"id": "r-1", "error": "too hard"}"#)
            .what
            .expect_err("refused");
        assert_eq!(
            (refused.kind, &*refused.message),
            (FailureKind::Declined, "too hard")
        );
        let none = said(r#"{"id": "r-1", "candidates": []}"#)
            .what
            .expect("an answer");
        assert!(none.candidates.is_empty());
    }

    /// CA-86
    #[test]
    fn what_is_not_understood_is_told_with_its_beginning() {
        let known = |text: &str| (Some("r-1".to_owned()), text.to_owned());
        assert_eq!(
            problem(r#"{"id": "r-1", "candidates": [{"patch": "no idea"}]}"#),
            known("candidate 1 has no patch")
        );
        assert_eq!(
            problem(r#"{"id": "r-1", "candidates": [{"note": "x"}]}"#),
            known("candidate 1 has neither `patch` nor `files`")
        );
        assert_eq!(
            problem(r#"{"id": "r-1"}"#),
            known("has neither `candidates` nor `error`")
        );
        assert_eq!(
            problem(r#"{"id": "r-1", "candidates": [], "tokens": -1}"#),
            known("`tokens` is not a whole number")
        );
        for text in [
            "",
            "nonsense",
            "[]",
            "{}",
            r#"{"id": 1}"#,
            r#"{"id": "r-1", "id": "r-2"}"#,
        ] {
            assert_eq!(problem(text).0, None, "{text}");
        }
        let long = format!(r#"{{"id": "r-1", "x": "{}"}}"#, "x".repeat(LONGEST_ANSWER));
        assert!(problem(&long).1.ends_with("more than 16 MiB"));
    }

    /// CA-86
    #[test]
    fn one_bad_candidate_does_not_cost_the_good_ones() {
        let text = json!({"id": "r-1", "candidates": [{"patch": 3}, {"patch": PATCH}]}).to_string();
        let answer = said(&text).what.expect("an answer");
        assert_eq!((answer.candidates.len(), answer.malformed.len()), (1, 1));
        assert_eq!(
            answer.malformed[0].problem,
            "candidate 1 `patch` is not a text"
        );
    }
}
