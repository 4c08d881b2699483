//! A request as the search makes it: whom it is about, not what is known of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stage::Origin;

/// A request's number, counted from 1. Shown and sent as `r-1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RequestId(u32);

impl RequestId {
    pub(crate) fn numbered(number: usize) -> Self {
        Self(u32::try_from(number).expect("a search has fewer requests"))
    }

    /// Its place among requests, counted from 0.
    pub(crate) fn index(self) -> usize {
        self.0 as usize - 1
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "r-{}", self.0)
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for RequestId {
    type Error = String;

    /// Only as it is shown: `r-01` is nobody's id.
    fn try_from(text: String) -> Result<Self, String> {
        let number = text
            .strip_prefix("r-")
            .and_then(|digits| digits.parse().ok());
        number
            .filter(|number| *number > 0)
            .map(Self)
            .filter(|id| id.to_string() == text)
            .ok_or_else(|| format!("`{text}` is no id of a request"))
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// To mend a candidate that differs from the base.
    Repair,
    /// To vary candidates that proved faster.
    Refine,
    /// To vary a descendant of a refined candidate, knowing the whole ancestry.
    Adaptive,
}

impl Kind {
    /// How candidates of such an answer came to be.
    #[must_use]
    pub fn origin(self) -> Origin {
        match self {
            Self::Repair => Origin::Repair,
            Self::Refine => Origin::Refine,
            Self::Adaptive => Origin::Adaptive,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.origin())
    }
}

/// A request to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Its number.
    pub id: RequestId,
    /// What for.
    pub kind: Kind,
    /// How many candidates are wanted.
    pub n: usize,
    /// The candidates it is about, by id, best first.
    pub parents: Vec<String>,
    /// Of an adaptive request: the ancestors of its parent, oldest first.
    pub ancestry: Vec<String>,
}

/// A proposed candidate: which of which answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProposalId {
    /// The request.
    pub request: RequestId,
    /// Its place in the answer, counted from 0.
    pub index: usize,
}

/// As the candidate is called: `r-3.1` is the first of the third request.
impl fmt::Display for ProposalId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.request, self.index + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_only_as_it_is_shown() {
        let id = RequestId::numbered(12);
        assert_eq!(RequestId::try_from(id.to_string()), Ok(id));
        for text in [
            "",
            "r-",
            "r-0",
            "r-01",
            "r-+1",
            "12",
            "R-12",
            "r-99999999999",
        ] {
            assert!(RequestId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
