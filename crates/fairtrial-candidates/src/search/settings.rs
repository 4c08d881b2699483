//! The `search` part of an evaluation file, with its defaults; `spec` reads it.

use std::time::Duration;

/// How far a search goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Requests that may be open at once.
    pub concurrency: usize,
    /// When failures are sent back.
    pub repair: Repair,
    /// How gains are varied.
    pub refine: Refine,
    /// How descendants of gains are varied.
    pub adaptive: Adaptive,
    /// When to stop asking.
    pub budget: Budget,
}

/// When a failure is sent back to be repaired.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// Repairs in all.
    pub max: usize,
    /// With so many correct candidates nothing is repaired any more.
    pub stop_at_correct: usize,
    /// The largest share of differing cases that seems worth repairing.
    pub max_diff_share: f64,
}

/// How candidates that proved faster are varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refine {
    /// So many of a race.
    pub top: usize,
    /// All in one request.
    pub batch: bool,
}

/// How descendants of a refined candidate are varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// Requests for a candidate and its ancestors.
    pub per_lineage: usize,
    /// Requests in all.
    pub total: usize,
}

/// When to stop asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Proposed candidates that are tried; those given do not count.
    pub candidates: usize,
    /// Requests.
    pub requests: usize,
    /// Time.
    pub wall: Option<Duration>,
    /// Tokens, as far as proposers tell.
    pub tokens: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 4,
            repair: Repair {
                max: 3,
                stop_at_correct: 2,
                max_diff_share: 0.30,
            },
            refine: Refine {
                top: 3,
                batch: true,
            },
            adaptive: Adaptive {
                per_lineage: 2,
                total: 4,
            },
            budget: Budget {
                candidates: 50,
                requests: 100,
                wall: None,
                tokens: None,
            },
        }
    }
}

/// A program that proposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSettings {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The longest it may be asked something and answer nothing.
    pub timeout: Duration,
    /// How often it is started again.
    pub restarts: u32,
}

/// A server with OpenAI-compatible chat completions.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpSettings {
    /// What `/chat/completions` is appended to.
    pub base_url: String,
    /// Which model.
    pub model: String,
    /// The variable that holds the key; the key itself is nowhere in here.
    pub api_key_env: String,
    /// The longest one try may take.
    pub timeout: Duration,
    /// Tries after the first.
    pub retries: u32,
    /// The longest answer, if it is to be limited.
    pub max_tokens: Option<u64>,
    /// As the server understands it.
    pub temperature: Option<f64>,
}

/// How long an answer may take, whoever gives it.
pub(crate) const PROPOSER_TIMEOUT: Duration = Duration::from_secs(120);

/// How often a program is started again.
pub(crate) const PROPOSER_RESTARTS: u32 = 3;

impl CommandSettings {
    /// A program on default terms.
    #[must_use]
    pub fn new(argv: Vec<String>) -> Self {
        Self {
            argv,
            timeout: PROPOSER_TIMEOUT,
            restarts: PROPOSER_RESTARTS,
        }
    }
}

impl HttpSettings {
    /// A server on default terms.
    #[must_use]
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api_key_env: "OPENAI_API_KEY".to_owned(),
            timeout: PROPOSER_TIMEOUT,
            retries: 4,
            max_tokens: None,
            temperature: None,
        }
    }
}
