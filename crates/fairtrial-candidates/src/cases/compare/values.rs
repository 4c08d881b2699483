//! Recorded values of a case on both sides.

use std::collections::{BTreeMap, BTreeSet};

use super::super::case::CaseResult;
use super::super::recorded::{Recorded, difference};
use super::super::text::{clipped, parting};

/// A recorded value that is not the same.
pub(in crate::cases) struct DifferingValue<'a> {
    pub(in crate::cases) name: String,
    base: Option<&'a Recorded>,
    candidate: Option<&'a Recorded>,
}

impl DifferingValue<'_> {
    /// Place, and what is there on either side.
    pub(super) fn shown(&self) -> (String, Option<String>, Option<String>) {
        let shown = |value: &Recorded| clipped(&value.shown());
        let (Some(base), Some(candidate)) = (self.base, self.candidate) else {
            return (
                clipped(&self.name),
                self.base.map(shown),
                self.candidate.map(shown),
            );
        };
        let found = difference(base, candidate).expect("it was found to differ");
        let (base, candidate) = parting(&found.base.shown(), &found.candidate.shown());
        let place = clipped(&format!("{}{}", self.name, found.place));
        (place, Some(base), Some(candidate))
    }
}

/// The first recorded value that differs: by name, and of several of one name in order.
pub(in crate::cases) fn differing_value<'a>(
    base: &'a CaseResult,
    candidate: &'a CaseResult,
) -> Option<DifferingValue<'a>> {
    let (by_name, other) = (named(base), named(candidate));
    let names = base
        .values
        .iter()
        .chain(&candidate.values)
        .map(|(name, _)| name.as_str());
    let mut seen = BTreeSet::new();
    let mut names = names.filter(|name| seen.insert(*name));
    names.find_map(|name| {
        let of = |values: &BTreeMap<&str, Vec<&'a Recorded>>| {
            values.get(name).cloned().unwrap_or_default()
        };
        let (base, candidate) = (of(&by_name), of(&other));
        let mut each =
            (0..base.len().max(candidate.len())).map(|at| (base.get(at), candidate.get(at)));
        let (base, candidate) = each.find(|(base, candidate)| match (base, candidate) {
            (Some(base), Some(candidate)) => difference(base, candidate).is_some(),
            _ => true,
        })?;
        Some(DifferingValue {
            name: name.to_owned(),
            base: base.copied(),
            candidate: candidate.copied(),
        })
    })
}

fn named(case: &CaseResult) -> BTreeMap<&str, Vec<&Recorded>> {
    let mut by_name = BTreeMap::<_, Vec<_>>::new();
    for (name, value) in &case.values {
        by_name.entry(name.as_str()).or_default().push(value);
    }
    by_name
}
