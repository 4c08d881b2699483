//! What a proposer said, as far as it could be understood.

use serde::{Deserialize, Serialize};

use super::secrets::Secrets;
use crate::stage::Content;

/// No answer is longer.
pub const LONGEST_ANSWER: usize = 16 << 20;

/// So much is kept of what was not understood.
const KEPT_BYTES: usize = 2 << 10;

/// Candidates that somebody proposed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// In the order of the answer.
    pub candidates: Vec<Proposed>,
    /// Parts of it that were no candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub malformed: Vec<Malformed>,
    /// What it cost, if the proposer says.
    #[serde(default)]
    pub tokens: Option<u64>,
}

/// A candidate of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposed {
    /// Its change of the base.
    pub content: Content,
    /// What its maker says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Which of the request's parents it was made from, if the answer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// Something that was not understood (CA-86).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Malformed {
    /// What is wrong with it.
    pub problem: String,
    /// Its first 2 KiB, as text.
    pub excerpt: String,
    /// How long it is.
    pub bytes: u64,
}

impl Malformed {
    /// Keeps the beginning of `text`, without secrets.
    pub(crate) fn new(problem: impl Into<String>, text: &[u8], secrets: &Secrets) -> Self {
        Self::of_part(problem, text, text.len() as u64, secrets)
    }

    /// As [`Malformed::new`], of something that is longer than what is at hand.
    pub(crate) fn of_part(
        problem: impl Into<String>,
        beginning: &[u8],
        bytes: u64,
        secrets: &Secrets,
    ) -> Self {
        // Scrubbed before it is cut: half a secret would not be found.
        let beginning = &beginning[..beginning.len().min(KEPT_BYTES + secrets.longest())];
        let mut excerpt = secrets.scrubbed(&String::from_utf8_lossy(beginning));
        while excerpt.len() > KEPT_BYTES {
            excerpt.pop();
        }
        Self {
            problem: secrets.scrubbed(&problem.into()),
            excerpt,
            bytes,
        }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// In short.
    pub kind: FailureKind,
    /// In full, without secrets.
    pub message: String,
    /// Of an answer that was not understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<Malformed>,
    /// What it cost all the same, if the proposer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// Why there is no answer, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The proposer said so.
    Declined,
    /// It said something that was not understood.
    Malformed,
    /// It said nothing: it took too long, broke off, or could not be reached.
    Lost,
    /// There is no proposer any more, and there will be none.
    ProposerDead,
}

impl Failure {
    /// A failure without more to it.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            malformed: None,
            tokens: None,
        }
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self {
            kind: FailureKind::Malformed,
            message: malformed.problem.clone(),
            malformed: Some(malformed),
            tokens: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-86
    #[test]
    fn two_kibibytes_are_kept_in_whole_characters() {
        let text = "é".repeat(5000);
        let malformed = Malformed::new(
            "is not JSON",
            format!("x{text}").as_bytes(),
            &Secrets::none(),
        );
        assert_eq!(malformed.excerpt.len(), 2047);
        assert_eq!(malformed.bytes, 10_001);
        assert!(malformed.excerpt.ends_with('é'));
    }

    /// CA-9
    #[test]
    fn a_secret_across_the_cut_is_not_kept_in_part() {
        let secrets = Secrets::new(["sk-0123456789abcdef".to_owned()]);
        let text = format!(
            "{}sk-0123456789abcdef and more",
            "x".repeat(KEPT_BYTES - 10)
        );
        let malformed = Malformed::new("no", text.as_bytes(), &secrets);
        assert!(!malformed.excerpt.contains("sk-0"), "{}", malformed.excerpt);
    }
}
