//! The section on what was claimed beforehand: every hypothesis and plan as registered, with tests or reasons.

use crate::html::{count, cut, put, short};
use crate::plan::Plan;
use crate::report::analysis_plans;
use crate::report::arms::Found;
use crate::report::chart::{IntervalChart, Row};
use crate::report::figures::{brief, number, p_value};
use crate::report::gather::Gathered;
use crate::report::outcome::Missing;
use crate::report::registered::Hypothesis;
use crate::report::tested::{Tested, tested};
use crate::stats::{Comparison, Direction, Interval, MeanTest, Method};

/// Tests that are shown; a factor may have very many levels.
const MOST_TESTS: usize = 500;
const HEAD: &str = "<div class=\"wide\"><table class=\"tests\"><thead><tr><th>Compared</th><th>Test</th><th>n</th>\
    <th>Difference <small>95 % interval</small></th><th>Hedges’ g <small>95 % interval</small></th>\
    <th>p</th><th>p adjusted</th></tr></thead><tbody>";

/// Writes the section; nothing where nothing was registered.
pub(crate) fn section(out: &mut String, plan: &Plan<'_>, gathered: &Gathered) {
    let register = &gathered.register;
    if register.hypotheses.is_empty() && register.plans.is_empty() {
        return;
    }
    let all = tested(gathered);
    out.push_str("<h2 id=\"hypotheses\">Hypotheses</h2>\n");
    out.push_str("<p class=\"note\">As registered in the study file. Which runs are compared, and whether in pairs, \
                  follows from the plan and never from the results.</p>\n");
    effects(out, plan, gathered, &all);
    let mut shown = 0;
    for (place, hypothesis) in register.hypotheses.iter().enumerate() {
        card(out, hypothesis);
        let own: Vec<_> = all
            .iter()
            .filter(|test| test.registered.hypothesis == place)
            .collect();
        let room = MOST_TESTS - shown;
        results(out, plan, gathered, &own[..own.len().min(room)]);
        shown += own.len().min(room);
        if own.is_empty() {
            out.push_str("<p class=\"note\">Not tested: no analysis plan lists it.</p>\n");
        } else if own.len() > room {
            let left_out = own.len() - room;
            put(
                out,
                format_args!("<p class=\"note\">{left_out} further tests are not shown.</p>\n"),
            );
        }
        out.push_str("</div>\n");
    }
    analysis_plans::part(out, gathered, &all);
}

/// All effects on one axis.
fn effects(out: &mut String, plan: &Plan<'_>, gathered: &Gathered, all: &[Tested<'_>]) {
    let rows: Vec<Row> = all
        .iter()
        .filter_map(|test| {
            let comparison = test.found.as_ref()?.comparison.as_ref().ok()?;
            let hypothesis = &gathered.register.hypotheses[test.registered.hypothesis];
            let (outcome, contrast) = names(plan, gathered, test)?;
            let means = comparison.means?;
            Some(Row {
                label: format!("{}: {outcome}, {contrast}", hypothesis.id),
                value: Some(means.effect),
                interval: Some(means.effect_interval),
            })
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let chart = IntervalChart {
        title: "Effect sizes of tests of means".into(),
        rows,
        points: &[],
        reference: Some(0.0),
    };
    put(
        out,
        format_args!("<h3>Effects at a glance</h3>{}", chart.draw().0),
    );
    out.push_str("<p class=\"note\">Hedges’ g, left minus right in units of spread, with its 95 % interval. The spread is that of what is compared: of runs in Welch’s test, of cell means in a paired one, which is smaller the more runs a cell has.</p>\n");
}

fn card(out: &mut String, hypothesis: &Hypothesis) {
    put(
        out,
        format_args!(
            "<div class=\"card\"><p class=\"eyebrow\">{}</p><h3>{}</h3><p>{}</p><p>",
            short(&hypothesis.id, 80),
            short(&hypothesis.label, 200),
            short(&hypothesis.statement, 4000)
        ),
    );
    let mut tags = vec![
        hypothesis.kind.clone(),
        format!(
            "{} → {}",
            hypothesis.independent.join(", "),
            hypothesis.dependent.join(", ")
        ),
        format!("direction: {}", hypothesis.direction),
    ];
    if let Some(contrast) = &hypothesis.contrast {
        let part = |key: &str| {
            contrast
                .get(key)
                .map(crate::value::Value::to_str)
                .unwrap_or_default()
        };
        let label = match part("label").as_str() {
            "contrast" => "contrast".to_owned(),
            label => format!("contrast {label}"),
        };
        tags.push(format!("{label}: {} − {}", part("left"), part("right")));
    }
    if let Some(minimum) = hypothesis.minimum {
        tags.push(format!("smallest effect of interest: {}", number(minimum)));
    }
    if !hypothesis.third.is_empty() {
        tags.push(format!("with {}", hypothesis.third.join(", ")));
    }
    for tag in tags {
        put(
            out,
            format_args!("<span class=\"tag\">{}</span>", short(&tag, 300)),
        );
    }
    out.push_str("</p>\n");
    if !hypothesis.notes.is_empty() {
        put(
            out,
            format_args!("<p class=\"note\">{}</p>\n", short(&hypothesis.notes, 4000)),
        );
    }
}

/// The outcome's name, and left − right.
fn names(plan: &Plan<'_>, gathered: &Gathered, test: &Tested<'_>) -> Option<(String, String)> {
    let compares = test.registered.compares.as_ref().ok()?;
    let contrast = &gathered.register.contrasts[compares.contrast];
    let factor = &plan.study.factors[contrast.factor];
    let level = |place: usize| cut(&factor.levels[place].label, 60);
    let outcome = gathered.outcomes[compares.outcome].name.clone();
    Some((
        outcome,
        format!("{} − {}", level(contrast.left), level(contrast.right)),
    ))
}

/// What was computed as a table; reasons and notes below it, each once.
fn results(out: &mut String, plan: &Plan<'_>, gathered: &Gathered, tests: &[&Tested<'_>]) {
    let computed: Vec<_> = tests.iter().filter(|test| test.p().is_some()).collect();
    if !computed.is_empty() {
        out.push_str(HEAD);
        for test in &computed {
            row(out, plan, gathered, test);
        }
        out.push_str("</tbody></table></div>\n");
    }
    let mut said: Vec<String> = Vec::new();
    for test in tests {
        let what = names(plan, gathered, test);
        let reason = match (&test.registered.compares, &test.found) {
            (Err(reason), _) => Some(reason),
            (_, Some(found)) => found.comparison.as_ref().err(),
            _ => None,
        };
        if let Some(reason) = reason {
            let what = what.as_ref().map_or(String::new(), |(outcome, contrast)| {
                format!(" of {outcome}, {contrast}")
            });
            let plan = &gathered.register.plans[test.registered.plan].id;
            let test = &test.registered.test;
            said.push(format!(
                "Not computed: {test}{what} (plan {plan}): {reason}."
            ));
        }
        for note in &test.notes {
            let contrast = what.as_ref().map_or("", |(_, contrast)| contrast);
            said.push(format!("{contrast}: {note}."));
        }
    }
    let mut before = std::collections::HashSet::new();
    for text in said.iter().filter(|text| before.insert(text.as_str())) {
        put(
            out,
            format_args!("<p class=\"alert\">{}</p>\n", short(text, 900)),
        );
    }
}

fn row(out: &mut String, plan: &Plan<'_>, gathered: &Gathered, test: &Tested<'_>) {
    let (Some((outcome, contrast)), Some(found)) = (names(plan, gathered, test), &test.found)
    else {
        return;
    };
    let Ok(comparison) = &found.comparison else {
        return;
    };
    let is_equivalence = test
        .registered
        .compares
        .as_ref()
        .is_ok_and(|compares| matches!(compares.direction, Direction::Equivalent(_)));
    let twice = if is_equivalence {
        ", two one-sided"
    } else {
        ""
    };
    let name = match (comparison.method, is_equivalence) {
        (Method::Welch, _) => "Welch t",
        (Method::Paired, _) => "paired t",
        (Method::Fisher, false) => "Fisher’s exact",
        (Method::McNemar, false) => "McNemar’s exact",
        (Method::Fisher | Method::McNemar, true) => "Newcombe’s score",
    };
    let method = match found.is_paired {
        true => format!(
            "{name}{twice}<small>{} cells, {} dropped</small>",
            found.cells - found.dropped,
            found.dropped
        ),
        false => format!(
            "{name}{twice}<small>over runs; {} of 6 cells to pair</small>",
            found.cells
        ),
    };
    put(
        out,
        format_args!(
            "<tr><td>{}<small>{}</small></td><td>{method}<small>plan {}</small></td>{}{}</tr>\n",
            short(&outcome, 80),
            short(&contrast, 160),
            short(&gathered.register.plans[test.registered.plan].id, 80),
            size(gathered, test, found),
            numbers(test, found, comparison)
        ),
    );
}

fn size(gathered: &Gathered, test: &Tested<'_>, found: &Found) -> String {
    let [left, right] = found.n.map(count);
    let missing = match found.missing {
        [0, 0] => String::new(),
        [left, right] => {
            let zero =
                test.registered.compares.as_ref().is_ok_and(|compares| {
                    gathered.outcomes[compares.outcome].missing == Missing::Zero
                });
            let became = if zero { "counted 0" } else { "missing" };
            format!("<small>{left} + {right} {became}</small>")
        }
    };
    format!("<td>{left} + {right}{missing}</td>")
}

fn numbers(test: &Tested<'_>, found: &Found, comparison: &Comparison) -> String {
    let interval = |interval: Interval| {
        format!(
            "<small>[{}, {}]</small>",
            brief(interval.low),
            brief(interval.high)
        )
    };
    let [left, right] = found.means.map(brief);
    let adjusted = match test.adjusted {
        Some(adjusted) => format!("{}<small>of {}</small>", p_value(adjusted), test.family),
        None => "policy not known".to_owned(),
    };
    let (effect, statistic) = match comparison.means {
        Some(MeanTest {
            effect,
            effect_interval,
            t,
            df,
        }) => (
            format!("{}{}", brief(effect), interval(effect_interval)),
            format!("<small>t = {}, df {}</small>", brief(t), brief(df)),
        ),
        None => ("–".to_owned(), String::new()),
    };
    format!(
        "<td>{}{}<small>{left} against {right}</small></td><td>{effect}</td><td>{}{statistic}</td><td>{adjusted}</td>",
        brief(comparison.difference),
        interval(comparison.interval),
        p_value(comparison.p),
    )
}
