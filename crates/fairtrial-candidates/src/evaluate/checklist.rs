//! What `--check` shows: what would be run, and what would not and why.

use serde_json::{Value, json};

use super::event::State;
use super::field::Field;
use crate::evaluation::BaseFacts;
use crate::spec::{Bench, Spec};

/// What an evaluation would do.
#[derive(Clone, Debug)]
pub struct Checklist {
    base: BaseFacts,
    /// Id, name, what becomes of it.
    candidates: Vec<(Option<String>, String, String)>,
    to_run: usize,
    tests: usize,
    benches: usize,
    spec: Value,
    warnings: Vec<String>,
}

impl Checklist {
    pub(crate) fn new(spec: &Spec, base: BaseFacts, field: &Field, warnings: Vec<String>) -> Self {
        let fate = |number: usize| {
            let entry = &field.entries[number];
            match (&entry.failure, entry.duplicate_of) {
                (Some(failure), _) => format!("{}: {}", failure.kind.name(), failure.message),
                (None, Some(of)) => {
                    let of = &field.entries[of];
                    format!("same as {} {}", of.staged_id(), of.name)
                }
                (None, None) => "to be tried".to_owned(),
            }
        };
        let numbers = 0..field.entries.len();
        let candidates = numbers.map(|number| {
            (
                field.entries[number].id(),
                field.entries[number].name.clone(),
                fate(number),
            )
        });
        Self {
            base,
            candidates: candidates.collect(),
            to_run: field
                .entries
                .iter()
                .filter(|entry| entry.state == State::Waiting)
                .count(),
            tests: spec.tests.len(),
            benches: match &spec.bench {
                Bench::None => 0,
                Bench::ReuseTests => spec.tests.len(),
                Bench::Commands(commands) => commands.len(),
            },
            spec: spec.to_json(),
            warnings,
        }
    }

    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let wide = |column: fn(&(Option<String>, String, String)) -> usize| {
            self.candidates.iter().map(column).max().unwrap_or(0)
        };
        let ids = wide(|one| one.0.as_deref().map_or(1, str::len));
        let names = wide(|one| one.1.chars().count());
        let head = format!(
            "base {} · {} · {}, {} to be tried · test commands: {} · bench commands: {}",
            self.base.label,
            counted(self.base.files, "file"),
            counted(self.candidates.len() as u64, "candidate"),
            self.to_run,
            self.tests,
            self.benches
        );
        let rows = self.candidates.iter().map(|(id, name, fate)| {
            format!(
                "{:ids$}  {name:names$}  {fate}",
                id.as_deref().unwrap_or("-")
            )
        });
        let warnings = self
            .warnings
            .iter()
            .map(|warning| format!("warning: {warning}"));
        std::iter::once(head).chain(rows).chain(warnings).collect()
    }

    /// For programs.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let candidates = self
            .candidates
            .iter()
            .map(|(id, name, fate)| json!({"id": id, "name": name, "plan": fate}));
        json!({
            "spec": self.spec,
            "base": self.base,
            "candidates": Value::from_iter(candidates),
            "to_run": self.to_run,
            "warnings": self.warnings,
        })
    }
}

fn counted(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}
