//! Failures by their errors, with what a few of them said. Bounded, however many there are and however much they wrote.

use std::collections::HashMap;

use crate::html::{cut, tail};
use crate::run_record::RunRecord;
use crate::value::Value;

/// Failures whose output is shown (ST-81).
pub(crate) const MOST_SHOWN: usize = 200;
/// Errors that are told apart; what comes later is one group.
const MOST_GROUPS: usize = 200;
/// Examples kept of each error, until it is known how many errors there are.
const MOST_KEPT: usize = 12;
/// Characters of each output.
const MOST_OUTPUT: usize = 2000;

/// Failures by error.
#[derive(Default)]
pub(crate) struct Failures {
    groups: Vec<ErrorGroup>,
    places: HashMap<String, usize>,
    pub(crate) total: u64,
}

/// Failures of one kind.
pub(crate) struct ErrorGroup {
    /// The first one's error.
    pub(crate) error: String,
    pub(crate) status: String,
    pub(crate) count: u64,
    pub(crate) examples: Vec<Example>,
}

/// One failure.
pub(crate) struct Example {
    pub(crate) run_id: String,
    /// Agent, problem, condition.
    pub(crate) whose: String,
    pub(crate) cause: String,
    pub(crate) latency_s: f64,
    pub(crate) error: String,
    /// Name and last characters, of those that are not empty, and whether there were more.
    pub(crate) outputs: Vec<(&'static str, String, bool)>,
}

impl Failures {
    /// A run that failed.
    pub(crate) fn add(&mut self, record: &RunRecord, whose: impl FnOnce() -> String) {
        let error = record.error_info.as_deref().unwrap_or_default();
        self.put(record.status.name(), error, || Example {
            run_id: record.run_id.clone(),
            whose: whose(),
            cause: record.cause(),
            latency_s: record.latency_s,
            error: cut(error, 600),
            outputs: outputs([
                ("traceback", traceback(&record.outcome)),
                ("stderr", &record.finish.stderr),
                ("stdout", &record.finish.stdout),
            ]),
        });
    }

    /// A run whose evaluation failed, if it did.
    pub(crate) fn add_evaluation(&mut self, record: &RunRecord, whose: impl FnOnce() -> String) {
        let Some(error) = record.evaluation_error() else {
            return;
        };
        let outcome = &record.evaluation_outcome;
        let metrics = outcome.get("metrics");
        let wall = metrics.and_then(|metrics| metrics.get("wall_s"));
        self.put(record.evaluation_name(), &error, || Example {
            run_id: record.run_id.clone(),
            whose: whose(),
            cause: format!("evaluation {}", record.evaluation_name()),
            latency_s: wall.and_then(Value::as_number).unwrap_or(0.0),
            error: cut(&error, 600),
            outputs: outputs([("traceback", traceback(outcome))]),
        });
    }

    fn put(&mut self, status: &str, error: &str, example: impl FnOnce() -> Example) {
        self.total += 1;
        let mut key = format!("{status} {}", sketch(error));
        if !self.places.contains_key(&key) && self.groups.len() + 1 >= MOST_GROUPS {
            key = String::new();
        }
        let next = self.groups.len();
        let is_other = key.is_empty();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.groups.push(ErrorGroup {
                error: match is_other {
                    true => "further errors".to_owned(),
                    false => cut(error, 400),
                },
                status: status.to_owned(),
                count: 0,
                examples: Vec::new(),
            });
        }
        let group = &mut self.groups[place];
        group.count += 1;
        if group.examples.len() < MOST_KEPT {
            group.examples.push(example());
        }
    }

    /// The most frequent first, with as many examples as may be shown.
    pub(crate) fn finish(self) -> Vec<ErrorGroup> {
        let mut groups = self.groups;
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        let mut left = MOST_SHOWN;
        let mut shown = vec![0; groups.len()];
        // One of each, then a second of each: rare errors are seen, too.
        for round in 0..MOST_KEPT {
            for (group, shown) in groups.iter().zip(&mut shown) {
                if left > 0 && group.examples.len() > round {
                    *shown += 1;
                    left -= 1;
                }
            }
        }
        for (group, shown) in groups.iter_mut().zip(shown) {
            group.examples.truncate(shown);
        }
        groups
    }
}

fn traceback(outcome: &Value) -> &str {
    let error = outcome.get("error");
    let traceback = error.and_then(|error| error.get("traceback"));
    traceback.and_then(Value::as_text).unwrap_or_default()
}

/// The ends of those that are not empty.
fn outputs<const N: usize>(parts: [(&'static str, &str); N]) -> Vec<(&'static str, String, bool)> {
    let said = parts
        .into_iter()
        .filter(|(_, text)| !text.trim().is_empty());
    said.map(|(name, text)| {
        let (text, is_cut) = tail(text.trim_end(), MOST_OUTPUT);
        (name, text.to_owned(), is_cut)
    })
    .collect()
}

/// The first line with its numbers left out: errors that differ in those alone are one.
fn sketch(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let mut out = String::new();
    for character in line.chars().take(200) {
        match character.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn errors_that_differ_in_numbers_are_one() {
        assert_eq!(sketch("KeyError: 'x12'\nmore"), sketch("KeyError: 'x7'"));
        assert_ne!(sketch("KeyError: 'x'"), sketch("KeyError: 'y'"));
    }

    /// ST-81
    #[test]
    fn rare_errors_are_shown_beside_frequent_ones() {
        let group = |count: u64| ErrorGroup {
            error: String::new(),
            status: "failed".into(),
            count,
            examples: (0..MOST_KEPT.min(count as usize))
                .map(|_| Example {
                    run_id: String::new(),
                    whose: String::new(),
                    cause: String::new(),
                    latency_s: 0.0,
                    error: String::new(),
                    outputs: Vec::new(),
                })
                .collect(),
        };
        let failures = Failures {
            groups: (1..=100).map(group).collect(),
            ..Failures::default()
        };
        let groups = failures.finish();
        assert_eq!((groups[0].count, groups[99].count), (100, 1));
        assert_eq!(groups[99].examples.len(), 1);
        let shown: usize = groups.iter().map(|group| group.examples.len()).sum();
        assert_eq!(shown, MOST_SHOWN);
    }
}
