//! `search`: how more candidates are asked for. What its numbers mean, and their defaults, is the search loop's.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::command::Command;
use super::field::Field;
use super::reader::Record;
use super::units::seconds;
use crate::search::{Adaptive, Budget, CommandSettings, HttpSettings, Refine, Repair, Settings};

/// How more candidates are asked for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Search {
    /// Who is asked; in Python a function may stand in.
    pub proposer: Option<Proposer>,
    /// How far it goes.
    pub settings: Settings,
}

/// Who is asked for candidates.
#[derive(Clone, Debug, PartialEq)]
pub enum Proposer {
    /// A process.
    Command(CommandProposer),
    /// A service.
    Http(HttpSettings),
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

impl CommandProposer {
    /// As whoever starts it takes them.
    pub(crate) fn settings(&self) -> CommandSettings {
        CommandSettings {
            argv: self.command.to_argv(),
            timeout: self.timeout,
            restarts: self.restarts,
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
        let mut settings = Settings::default();
        set(&mut settings.concurrency, &record, "concurrency", |field| {
            count(field, 1..=1024)
        });
        if let Some(field) = record.field("repair") {
            repair(&mut settings.repair, &field);
        }
        if let Some(field) = record.field("refine") {
            refine(&mut settings.refine, &field);
        }
        if let Some(field) = record.field("adaptive") {
            adaptive(&mut settings.adaptive, &field);
        }
        if let Some(field) = record.field("budget") {
            budget(&mut settings.budget, &field);
        }
        Self {
            proposer: record.read("proposer", |field| Proposer::read(&field)),
            settings,
        }
    }

    pub(super) fn to_json(&self) -> Json {
        let Settings {
            concurrency,
            repair,
            refine,
            adaptive,
            budget,
        } = &self.settings;
        json!({
            "proposer": self.proposer.as_ref().map(Proposer::to_json),
            "concurrency": concurrency,
            "repair": {
                "max": repair.max,
                "stop_at_correct": repair.stop_at_correct,
                "max_diff_share": repair.max_diff_share,
            },
            "refine": {"top": refine.top, "batch": refine.batch},
            "adaptive": {"per_lineage": adaptive.per_lineage, "total": adaptive.total},
            "budget": {
                "candidates": budget.candidates,
                "requests": budget.requests,
                "wall": budget.wall.map(seconds),
                "tokens": budget.tokens,
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

fn count(field: Field<'_, '_>, range: RangeInclusive<u32>) -> Option<usize> {
    field.count(range).map(|count| count as usize)
}

fn any_count(field: Field<'_, '_>) -> Option<usize> {
    count(field, 0..=u32::MAX)
}

fn some(field: Field<'_, '_>) -> Option<usize> {
    count(field, 1..=u32::MAX)
}

fn repair(repair: &mut Repair, field: &Field<'_, '_>) {
    let record = field.record(&["max", "stop_at_correct", "max_diff_share"]);
    set(&mut repair.max, &record, "max", any_count);
    set(
        &mut repair.stop_at_correct,
        &record,
        "stop_at_correct",
        any_count,
    );
    set(
        &mut repair.max_diff_share,
        &record,
        "max_diff_share",
        |field| field.share(|share| (0.0..=1.0).contains(&share), "from 0 to 1"),
    );
}

fn refine(refine: &mut Refine, field: &Field<'_, '_>) {
    let record = field.record(&["top", "batch"]);
    set(&mut refine.top, &record, "top", any_count);
    set(&mut refine.batch, &record, "batch", Field::flag);
}

fn adaptive(adaptive: &mut Adaptive, field: &Field<'_, '_>) {
    let record = field.record(&["per_lineage", "total"]);
    set(&mut adaptive.per_lineage, &record, "per_lineage", any_count);
    set(&mut adaptive.total, &record, "total", any_count);
}

fn budget(budget: &mut Budget, field: &Field<'_, '_>) {
    let record = field.record(&["candidates", "requests", "wall", "tokens"]);
    set(&mut budget.candidates, &record, "candidates", some);
    set(&mut budget.requests, &record, "requests", some);
    budget.wall = record.field_or_none("wall").and_then(Field::duration);
    let tokens = record.field_or_none("tokens");
    budget.tokens = tokens.and_then(|field| field.whole(1..=u64::MAX));
}
