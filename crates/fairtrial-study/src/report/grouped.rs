//! The section on conditions, agents and problems: a table and a chart per outcome.

use crate::html::{count, percent, put, short, table};
use crate::report::chart::{IntervalChart, Row};
use crate::report::figures::{brief, number};
use crate::report::gather::Gathered;
use crate::report::groups::{Group, Groups};
use crate::report::outcome::{Aggregation, Estimate, Missing, Outcome};
use crate::stats::wilson;

/// Writes the section.
pub(crate) fn section(out: &mut String, gathered: &Gathered) {
    let [conditions, agents, problems] = &gathered.groups;
    out.push_str("<h2 id=\"conditions\">Conditions</h2>\n");
    explain(out, &gathered.outcomes);
    part(out, conditions, &gathered.outcomes);
    for (groups, id, title) in [
        (agents, "agents", "Agents"),
        (problems, "problems", "Problems"),
    ] {
        if groups.groups.len() > 1 {
            put(out, format_args!("<h2 id=\"{id}\">{title}</h2>\n"));
            part(out, groups, &gathered.outcomes);
        }
        if let (Some(cross), "agents") = (&gathered.cross, id) {
            cross.part(
                out,
                conditions,
                agents,
                &gathered.outcomes,
                &gathered.binary,
            );
        }
    }
}

fn explain(out: &mut String, outcomes: &[Outcome]) {
    out.push_str(
        "<p class=\"note\">Failures, and outcomes that are 0 or 1 in every run, with Wilson’s 95 % interval; other means and \
         sums with Student’s t, medians with a bootstrap of fixed seed. Outcomes are those of runs that succeeded.</p>\n",
    );
    for outcome in outcomes {
        let mut said = Vec::new();
        if let Aggregation::Other(name) = &outcome.aggregation {
            said.push(format!(
                "the aggregation `{name}` is not known, the mean is shown"
            ));
        }
        if let Some(formula) = &outcome.derivation {
            said.push(format!(
                "it is derived (`{formula}`), which Fairtrial does not compute"
            ));
        }
        match &outcome.missing {
            Missing::Zero => put(
                out,
                format_args!(
                    "<p class=\"note\">{}: runs without a value count 0.</p>\n",
                    short(&outcome.name, 120)
                ),
            ),
            Missing::Other(policy) => said.push(format!(
                "the policy `{policy}` is not known, missing values are dropped"
            )),
            Missing::Drop | Missing::Refuse => {}
        }
        if !said.is_empty() {
            let text = format!("{}: {}.", outcome.name, said.join("; "));
            put(
                out,
                format_args!("<p class=\"alert\">{}</p>\n", short(&text, 600)),
            );
        }
    }
}

fn part(out: &mut String, groups: &Groups, outcomes: &[Outcome]) {
    for (place, outcome) in outcomes.iter().enumerate() {
        chart(out, groups, place, outcome);
    }
    let mut head = vec![
        format!("{}{}", groups.what[..1].to_uppercase(), &groups.what[1..]),
        "Runs".into(),
        "Failures".into(),
    ];
    head.extend(outcomes.iter().map(|outcome| {
        format!(
            "{} <small>{}</small>",
            short(&outcome.name, 60),
            outcome.aggregation.label()
        )
    }));
    let rows: Vec<_> = groups
        .groups
        .iter()
        .map(|group| cells(group, groups.what))
        .collect();
    out.push_str(&table("groups", &head, &rows));
    if groups.left_out > 0 {
        put(
            out,
            format_args!(
                "<p class=\"note\">The first {} {}s are shown; {} more are in <code>runs.csv</code>.</p>\n",
                count(groups.groups.len() as u64),
                groups.what,
                count(groups.left_out)
            ),
        );
    }
}

fn cells(group: &Group, what: &str) -> Vec<String> {
    let id = match what {
        "condition" => format!("<small>{}</small>", short(&group.id, 40)),
        _ => String::new(),
    };
    let runs = match group.ended == group.planned {
        true => count(group.ended),
        false => format!(
            "{}<small>of {}</small>",
            count(group.ended),
            count(group.planned)
        ),
    };
    let failures = match wilson(group.failed, group.ended) {
        None => "–".to_owned(),
        Some(interval) => format!(
            "{} · {}<small>[{}, {}]</small>",
            count(group.failed),
            percent(group.failed as f64 / group.ended as f64),
            percent(interval.low),
            percent(interval.high)
        ),
    };
    let mut cells = vec![format!("{}{id}", short(&group.label, 300)), runs, failures];
    cells.extend(
        group
            .estimates
            .iter()
            .map(|estimate| estimated(estimate, group)),
    );
    cells
}

fn estimated(estimate: &Estimate, group: &Group) -> String {
    let Some(value) = estimate.value else {
        return "–".to_owned();
    };
    let n = match estimate.n == group.ended {
        true => String::new(),
        false => format!(" · n = {}", count(estimate.n)),
    };
    let interval = estimate.interval.map_or(String::new(), |interval| {
        format!("[{}, {}]", brief(interval.low), brief(interval.high))
    });
    format!("{}<small>{interval}{n}</small>", number(value))
}

fn chart(out: &mut String, groups: &Groups, place: usize, outcome: &Outcome) {
    let rows = groups.groups.iter().map(|group| Row {
        label: group.label.clone(),
        value: group.estimates[place].value,
        interval: group.estimates[place].interval,
    });
    let points = &groups.points[place];
    let is_of_values = outcome.aggregation.is_of_values();
    let chart = IntervalChart {
        title: format!("{} by {}", outcome.name, groups.what),
        rows: rows.collect(),
        points: if is_of_values { &points.kept } else { &[] },
        reference: None,
    };
    let primary = if outcome.is_primary {
        " <span class=\"tag\">primary</span>"
    } else {
        ""
    };
    put(
        out,
        format_args!("<h3>{}{primary}</h3>\n", short(&outcome.name, 120)),
    );
    if !outcome.description.is_empty() {
        put(
            out,
            format_args!(
                "<p class=\"note\">{}</p>\n",
                short(&outcome.description, 600)
            ),
        );
    }
    let (drawn, left_out) = chart.draw();
    if drawn.is_empty() {
        out.push_str("<p class=\"note\">No run has a value of it.</p>\n");
        return;
    }
    out.push_str(&drawn);
    let mut said = format!("{} with 95 % interval", outcome.aggregation.label());
    if is_of_values {
        let shown = points.kept.len() as u64;
        said.push_str(&match shown == points.seen {
            true => ", over every run’s value".to_owned(),
            false => format!(
                ", over the values of {} runs drawn from {}",
                count(shown),
                count(points.seen)
            ),
        });
    }
    if left_out > 0 {
        said.push_str(&format!("; {left_out} more in the table"));
    }
    put(out, format_args!("<p class=\"note\">{said}</p>\n"));
}
