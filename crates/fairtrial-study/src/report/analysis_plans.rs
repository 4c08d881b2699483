//! The table of analysis plans as registered.

use crate::html::{short, table};
use crate::report::gather::Gathered;
use crate::report::tested::Tested;

/// Writes it; nothing where there is no plan.
pub(crate) fn part(out: &mut String, gathered: &Gathered, all: &[Tested<'_>]) {
    let register = &gathered.register;
    if register.plans.is_empty() {
        return;
    }
    out.push_str("<h3>Analysis plans</h3>\n");
    let list = |items: &[String]| short(&items.join(", "), 400);
    let rows = register.plans.iter().enumerate().map(|(place, plan)| {
        let family = all
            .iter()
            .find(|test| test.registered.plan == place && test.family > 0);
        let policy = match register.adjustment(place) {
            Some(_) => short(&plan.policy, 80),
            None => format!(
                "{} <small>not known: p is not adjusted</small>",
                short(&plan.policy, 80)
            ),
        };
        let mut terms = plan.terms.join(", ");
        if let Some(filters) = &plan.filters {
            terms.push_str(&format!(
                " filters {}",
                crate::canonical::canonical_json(filters)
            ));
        }
        vec![
            short(&plan.id, 80),
            list(&plan.hypotheses),
            list(&plan.tests),
            list(&plan.outcomes),
            policy,
            family.map_or(0, |test| test.family).to_string(),
            short(&terms, 400),
            short(&plan.notes, 1000),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head = [
        "Plan",
        "Hypotheses",
        "Tests",
        "Outcomes",
        "Multiple comparisons",
        "Comparisons",
        "Further terms",
        "Notes",
    ];
    // A column that says nothing takes room from those that do.
    let is_kept = |column: &usize| rows.iter().any(|row| !row[*column].is_empty());
    let kept: Vec<usize> = (0..head.len()).filter(is_kept).collect();
    let head: Vec<String> = kept.iter().map(|column| head[*column].to_owned()).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| kept.iter().map(|column| row[*column].clone()).collect())
        .collect();
    out.push_str(&table("plans", &head, &rows));
}
