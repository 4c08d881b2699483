//! A chat completion, read.

use serde_json::Value;

use super::super::answer::{Answer, Failure, LONGEST_ANSWER, Malformed, Proposed};
use super::super::fence::{Found, patches_in};
use super::super::secrets::Secrets;
use super::exchange::Exchange;
use crate::stage::Content;

/// Of the prose before a patch.
const LONGEST_NOTE: usize = 500;

/// The candidates of a completion that was to have `n` of them.
pub(super) fn read(exchange: Exchange, n: usize, secrets: &Secrets) -> Result<Answer, Failure> {
    let Exchange::Response(response) = exchange else {
        unreachable!("only responses are read")
    };
    let body = &*secrets.scrubbed_bytes(&response.body);
    let malformed = |problem: &str| Malformed::new(problem, body, secrets);
    if body.len() > LONGEST_ANSWER {
        return Err(malformed("has more than 16 MiB").into());
    }
    let Ok(completion) = serde_json::from_slice::<Value>(body) else {
        return Err(malformed("is not JSON").into());
    };
    let tokens = tokens(&completion["usage"]);
    let failed = |malformed: Malformed| Failure {
        tokens,
        ..malformed.into()
    };
    let choice = &completion["choices"][0];
    let Some(text) = text_of(&choice["message"]["content"]) else {
        return Err(failed(malformed(
            "has no text in `choices[0].message.content`",
        )));
    };
    let found = patches_in(&text, n);
    if found.is_empty() {
        let cut = choice["finish_reason"] == "length";
        let problem = if cut {
            "has no patch: it was cut at `max_tokens`"
        } else {
            "has no patch"
        };
        return Err(failed(Malformed::new(problem, text.as_bytes(), secrets)));
    }
    Ok(Answer {
        candidates: found.into_iter().map(proposed).collect(),
        malformed: Vec::new(),
        tokens,
    })
}

fn proposed(found: Found) -> Proposed {
    let note: String = found.before.chars().take(LONGEST_NOTE).collect();
    Proposed {
        content: Content::Patch(found.patch.into_bytes()),
        note: (!note.is_empty()).then_some(note),
        parent: None,
    }
}

/// A text, or the texts of a list of parts.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(
            parts
                .iter()
                .filter_map(|part| part["text"].as_str())
                .collect(),
        ),
        _ => None,
    }
}

fn tokens(usage: &Value) -> Option<u64> {
    let count = |key: &str| usage[key].as_u64();
    let parts = || Some(count("prompt_tokens")?.saturating_add(count("completion_tokens")?));
    count("total_tokens").or_else(parts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::answer::FailureKind;
    use super::super::exchange::Response;
    use super::*;

    const PATCH: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n";

    fn completed(body: &Value) -> Result<Answer, Failure> {
        let body = body.to_string().into_bytes();
        let response = Response {
            status: 200,
            body,
            ..Response::default()
        };
        read(
            Exchange::Response(response),
            1,
            &Secrets::new(["sk-12345678".to_owned()]),
        )
    }

    /// CA-85
    #[test]
    fn patches_and_tokens_are_read() {
        let text = format!("Cached.\n```diff\n{PATCH}```");
        for content in [json!(text), json!([{"type": "text", "text": text}])] {
            let answer = completed(&json!({
                "choices": [{"message": {"role": "assistant", "content": content}}],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5},
            }));
            let answer = answer.expect("an answer");
            assert_eq!(answer.tokens, Some(15));
            assert_eq!(answer.candidates[0].content, Content::Patch(PATCH.into()));
            assert_eq!(answer.candidates[0].note.as_deref(), Some("Cached."));
        }
    }

    /// CA-86
    #[test]
    fn what_is_no_completion_or_has_no_patch_is_malformed_and_may_have_cost() {
        let odd = [
            json!({}),
            json!([]),
            json!("text"),
            json!({"choices": []}),
            json!({"choices": [{"message": {"content": null}}], "usage": {"total_tokens": 9}}),
            json!({"choices": [{"message": {"content": "I cannot."}}], "usage": {"total_tokens": 9}}),
        ];
        let failures = odd.map(|body| completed(&body).expect_err("malformed"));
        assert!(
            failures
                .iter()
                .all(|failure| failure.kind == FailureKind::Malformed)
        );
        assert_eq!(
            failures[5].malformed.as_ref().expect("kept").excerpt,
            "I cannot."
        );
        assert_eq!((failures[4].tokens, failures[5].tokens), (Some(9), Some(9)));
    }

    /// CA-9
    #[test]
    fn a_key_that_comes_back_is_nowhere_kept() {
        let text = format!(
            "sk-12345678\n```diff\n{}```",
            PATCH.replace("new", "sk-12345678")
        );
        let answer = completed(&json!({"choices": [{"message": {"content": text}}]}));
        let kept = serde_json::to_string(&answer.expect("an answer")).expect("written");
        assert!(
            !kept.contains("sk-1") && kept.contains("[secret]"),
            "{kept}"
        );
    }
}
