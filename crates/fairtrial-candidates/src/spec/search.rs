//! How more candidates are asked for.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::command::Command;
use super::field::Field;
use super::reader::Record;
use super::units::seconds;
use crate::search;

/// How more candidates are asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Who is asked; in Python a function may stand in.
    pub proposer: Option<Proposer>,
    /// How many requests are open at once.
    pub concurrency: u32,
    /// When wrong candidates are sent back.
    pub repair: Repair,
    /// When good ones are.
    pub refine: Refine,
    /// When those that were refined are.
    pub adaptive: Adaptive,
    /// When there is an end to it.
    pub budget: Budget,
}

/// Who is asked for candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposer {
    /// A process.
    Command(CommandProposer),
    /// A service.
    Http(HttpProposer),
    /// A function of whoever calls, who has to give it.
    Function {
        /// How long an answer may take.
        timeout: Duration,
    },
}

/// A process that is asked, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandProposer {
    /// What is run.
    pub command: Command,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How often it is started again.
    pub restarts: u32,
}

/// A service that completes chats as OpenAI's does.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpProposer {
    /// What comes before `/chat/completions`.
    pub base_url: String,
    /// The model.
    pub model: String,
    /// The variable that holds the API key, which is never in a file.
    pub api_key_env: String,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How often a request is made again.
    pub retries: u32,
    /// The longest answer.
    pub max_tokens: Option<u32>,
    /// How wild the answers are.
    pub temperature: Option<f64>,
}

/// When wrong candidates are sent back.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// How many are, at most.
    pub max: u32,
    /// Not once so many are correct.
    pub stop_at_correct: u32,
    /// Not if a larger share of cases differs.
    pub max_diff_share: f64,
}

/// When good candidates are sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refine {
    /// The best so many.
    pub top: u32,
    /// Whether in one request.
    pub batch: bool,
}

/// When candidates of a refined lineage are sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// How often per lineage.
    pub per_lineage: u32,
    /// How often in all.
    pub total: u32,
}

/// When there is an end to asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Candidates.
    pub candidates: u32,
    /// Requests.
    pub requests: u32,
    /// Time.
    pub wall: Option<Duration>,
    /// Tokens, as answers count them.
    pub tokens: Option<u64>,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            proposer: None,
            concurrency: 4,
            repair: Repair {
                max: 3,
                stop_at_correct: 2,
                max_diff_share: 0.3,
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

impl Search {
    /// As the search loop takes them.
    pub(crate) fn settings(&self) -> search::Settings {
        let Self {
            repair,
            refine,
            adaptive,
            budget,
            ..
        } = self;
        search::Settings {
            concurrency: self.concurrency as usize,
            repair: search::Repair {
                max: repair.max as usize,
                stop_at_correct: repair.stop_at_correct as usize,
                max_diff_share: repair.max_diff_share,
            },
            refine: search::Refine {
                top: refine.top as usize,
                batch: refine.batch,
            },
            adaptive: search::Adaptive {
                per_lineage: adaptive.per_lineage as usize,
                total: adaptive.total as usize,
            },
            budget: search::Budget {
                candidates: budget.candidates as usize,
                requests: budget.requests as usize,
                wall: budget.wall,
                tokens: budget.tokens,
            },
        }
    }
}

impl CommandProposer {
    pub(crate) fn settings(&self) -> search::CommandSettings {
        search::CommandSettings {
            argv: self.command.to_argv(),
            timeout: self.timeout,
            restarts: self.restarts,
        }
    }
}

impl HttpProposer {
    pub(crate) fn settings(&self) -> search::HttpSettings {
        search::HttpSettings {
            base_url: self.base_url.clone(),
            model: self.model.clone(),
            api_key_env: self.api_key_env.clone(),
            timeout: self.timeout,
            retries: self.retries,
            max_tokens: self.max_tokens.map(u64::from),
            temperature: self.temperature,
        }
    }
}

impl Search {
    pub(super) const KEYS: &[&str] = &[
        "proposer",
        "concurrency",
        "repair",
        "refine",
        "adaptive",
        "budget",
    ];

    pub(super) fn read(field: &Field<'_, '_>) -> Self {
        let record = field.record(Self::KEYS);
        let mut search = Self {
            proposer: record.read("proposer", |field| Proposer::read(&field)),
            ..Self::default()
        };
        set(&mut search.concurrency, &record, "concurrency", |field| {
            field.count(1..=1024)
        });
        if let Some(repair) = record.field("repair") {
            search.repair.read(&repair);
        }
        if let Some(refine) = record.field("refine") {
            search.refine.read(&refine);
        }
        if let Some(adaptive) = record.field("adaptive") {
            search.adaptive.read(&adaptive);
        }
        if let Some(budget) = record.field("budget") {
            search.budget.read(&budget);
        }
        search
    }

    pub(super) fn to_json(&self) -> Json {
        json!({
            "proposer": self.proposer.as_ref().map(Proposer::to_json),
            "concurrency": self.concurrency,
            "repair": {
                "max": self.repair.max,
                "stop_at_correct": self.repair.stop_at_correct,
                "max_diff_share": self.repair.max_diff_share,
            },
            "refine": {"top": self.refine.top, "batch": self.refine.batch},
            "adaptive": {"per_lineage": self.adaptive.per_lineage, "total": self.adaptive.total},
            "budget": {
                "candidates": self.budget.candidates,
                "requests": self.budget.requests,
                "wall": self.budget.wall.map(seconds),
                "tokens": self.budget.tokens,
            },
        })
    }
}

/// Puts what a key says in the place of its default.
fn set<'n, 'r, T>(
    place: &mut T,
    record: &Record<'n, 'r>,
    key: &'static str,
    read: impl FnOnce(Field<'n, 'r>) -> Option<T>,
) {
    if let Some(given) = record.read(key, read) {
        *place = given;
    }
}

fn any_count(field: Field<'_, '_>) -> Option<u32> {
    field.count(0..=u32::MAX)
}

fn some(field: Field<'_, '_>) -> Option<u32> {
    field.count(1..=u32::MAX)
}

impl Repair {
    fn read(&mut self, field: &Field<'_, '_>) {
        let record = field.record(&["max", "stop_at_correct", "max_diff_share"]);
        set(&mut self.max, &record, "max", any_count);
        set(
            &mut self.stop_at_correct,
            &record,
            "stop_at_correct",
            any_count,
        );
        set(
            &mut self.max_diff_share,
            &record,
            "max_diff_share",
            |field| field.share(|share| (0.0..=1.0).contains(&share), "from 0 to 1"),
        );
    }
}

impl Refine {
    fn read(&mut self, field: &Field<'_, '_>) {
        let record = field.record(&["top", "batch"]);
        set(&mut self.top, &record, "top", any_count);
        set(&mut self.batch, &record, "batch", Field::flag);
    }
}

impl Adaptive {
    fn read(&mut self, field: &Field<'_, '_>) {
        let record = field.record(&["per_lineage", "total"]);
        set(&mut self.per_lineage, &record, "per_lineage", any_count);
        set(&mut self.total, &record, "total", any_count);
    }
}

impl Budget {
    fn read(&mut self, field: &Field<'_, '_>) {
        let record = field.record(&["candidates", "requests", "wall", "tokens"]);
        set(&mut self.candidates, &record, "candidates", some);
        set(&mut self.requests, &record, "requests", some);
        self.wall = record.field_or_none("wall").and_then(Field::duration);
        let tokens = record.field_or_none("tokens");
        self.tokens = tokens.and_then(|field| field.whole(1..=u64::MAX));
    }
}
