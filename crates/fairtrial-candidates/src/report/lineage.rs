//! Who was made from whom.

use std::collections::{BTreeSet, HashMap};

use fairtrial_document::html::{put, short};

use super::figures::ratio;
use super::words::{class, word};
use crate::evaluation::{Evaluation, EvaluationReport};

/// Steps to the right that still fit a page.
const MOST_STEPS: usize = 12;

/// Whether there is anything to tell.
pub(super) fn is_told(report: &EvaluationReport) -> bool {
    report.evaluations.iter().any(|one| one.parent.is_some())
}

pub(super) fn section(out: &mut String, report: &EvaluationReport) {
    if !is_told(report) {
        return;
    }
    out.push_str("<h2 id=\"lineage\">Lineage</h2>\n<p class=\"note\">Below each candidate those that were made from it.</p>\n<div class=\"tree\">");
    for (depth, one) in in_order(&report.evaluations) {
        let time = one
            .judgement
            .as_ref()
            .map_or_else(String::new, |said| format!(" <b>{}</b>", ratio(said.ratio)));
        let unknown = match (&one.parent, depth) {
            (Some(parent), 0) => format!(", from {}, which is not here", short(parent, 60)),
            _ => String::new(),
        };
        let id = one.id.as_deref().unwrap_or_default();
        put(
            out,
            format_args!(
                "<p style=\"--depth:{}\"><span class=\"verdict {}\">{}</span>{time} {} <code>{}</code> <small>{}, generation {}{unknown}</small></p>\n",
                depth.min(MOST_STEPS),
                class(one),
                short(&word(one), 120),
                short(&one.name, 100),
                short(id, 40),
                one.origin,
                one.generation,
            ),
        );
    }
    out.push_str("</div>\n");
}

/// Every candidate once, after its parent, with its depth. Those whose ancestry leads back to themselves come last.
fn in_order(all: &[Evaluation]) -> Vec<(usize, &Evaluation)> {
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    for (at, one) in all.iter().enumerate() {
        if let Some(id) = &one.id {
            by_id.entry(id).or_insert(at);
        }
    }
    let parent = |at: usize| {
        let parent = by_id.get(all[at].parent.as_deref()?).copied()?;
        (parent != at).then_some(parent)
    };
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    for at in 0..all.len() {
        if let Some(parent) = parent(at) {
            children.entry(parent).or_default().push(at);
        }
    }
    let mut left: BTreeSet<usize> = (0..all.len()).collect();
    let mut order = Vec::new();
    let roots: Vec<usize> = (0..all.len()).filter(|at| parent(*at).is_none()).collect();
    for root in roots.into_iter().chain(0..all.len()) {
        let mut next = vec![(0, root)];
        while let Some((depth, at)) = next.pop() {
            if left.remove(&at) {
                order.push((depth, &all[at]));
                let below = children.get(&at).into_iter().flatten().rev();
                next.extend(below.map(|child| (depth + 1, *child)));
            }
        }
    }
    order
}
