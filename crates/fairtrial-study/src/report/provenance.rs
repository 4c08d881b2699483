//! The section on where results come from: hashes, versions, hosts, isolation, order, and what was done to the record.

use std::collections::BTreeMap;

use crate::clock::{Precision, time_text};
use crate::html::{count, counted, put, short, table};
use crate::json_text::parse_value;
use crate::report::figures::duration;
use crate::report::gather::{Gathered, MOST_LISTED};
use crate::report::page::Source;
use crate::value::Value;

/// Writes the section.
pub(crate) fn section(out: &mut String, source: &Source<'_>, gathered: &Gathered) {
    out.push_str("<h2 id=\"provenance\">Provenance</h2>\n");
    facts(out, source, gathered);
    identities(out, source);
    invocations(out, source);
    isolation(out, gathered);
    accepted(out, source);
    retried(out, gathered);
    warnings(out, source, gathered);
}

fn facts(out: &mut String, source: &Source<'_>, gathered: &Gathered) {
    let plan = source.plan;
    let study = &plan.study;
    let code = |text: &str| format!("<code>{}</code>", short(text, 200));
    let order = format!(
        "{}, seed {}",
        study.order.policy.name(),
        study.order.seed.to_str()
    );
    let nodes: Vec<_> = gathered
        .nodes
        .iter()
        .filter(|(node, _)| !node.is_empty())
        .collect();
    let nodes: Vec<_> = nodes
        .iter()
        .map(|(node, runs)| format!("{node} ({})", counted(**runs, "run")))
        .collect();
    let mut rows = vec![
        ("Study", code(&plan.study_sha256)),
        ("Planned runs", code(&plan.digest_runs)),
        ("Conditions", code(&plan.digest_conditions)),
        ("Rules", code(study.compat.name())),
        ("Design", code(study.design.kind.name())),
        ("Run order", short(&order, 200)),
        ("Base seed", short(&study.base_seed().to_str(), 80)),
        (
            "Fairtrial, of the runs",
            code(&said(source.seal.get("version"))),
        ),
        ("Fairtrial, of this report", code(env!("CARGO_PKG_VERSION"))),
    ];
    if let Some(last) = source.invocations.last() {
        rows.insert(1, ("Study file, its bytes", code(&last.begun.study_blob)));
    }
    let captured = source.manifest.get("provenance");
    for (what, key) in [
        ("Platform", "platform"),
        ("Python", "python_version"),
        ("Commit", "git_sha"),
    ] {
        let found = captured.and_then(|captured| captured.get(key));
        if found.is_some_and(Value::is_truthy) {
            rows.push((what, code(&said(found))));
        }
    }
    if !nodes.is_empty() {
        rows.push(("Nodes", short(&nodes.join(", "), 400)));
    }
    let orphans = source.orphans();
    if orphans > 0 {
        rows.push(("No longer planned", counted(orphans, "recorded run")));
    }
    if source.history.lost > 0 {
        rows.push((
            "Lost",
            format!(
                "{}: begun, and no end recorded",
                counted(source.history.lost, "attempt")
            ),
        ));
    }
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(what, value)| vec![what.to_owned(), value])
        .collect();
    out.push_str(&table("pairs", &["", ""], &rows));
}

fn said(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "not recorded".to_owned(),
        Some(value) => value.to_str(),
    }
}

/// What agents, problems and evaluators were, by their hashes.
fn identities(out: &mut String, source: &Source<'_>) {
    let mut rows = Vec::new();
    for (kind, what) in [("agents", "agent"), ("problems", "problem")] {
        let all = source.seal.get("identities").and_then(|all| all.get(kind));
        let Some(Value::Map(all)) = all else { continue };
        for (id, parts) in all.iter().take(MOST_LISTED) {
            let Value::Map(parts) = parts else { continue };
            let parts = parts.iter().filter(|(_, hash)| *hash != Value::Null);
            let parts = parts.map(|(name, hash)| format!("{} {}", name.to_str(), hash.to_str()));
            let parts: Vec<_> = parts.collect();
            rows.push(vec![
                format!("{what} {}", short(&id.to_str(), 120)),
                format!("<code>{}</code>", short(&parts.join(", "), 300)),
            ]);
        }
    }
    if !rows.is_empty() {
        put(
            out,
            format_args!(
                "<details><summary>Agents and problems by their hashes</summary>{}</details>\n",
                table("pairs", &["Which", "SHA-256"], &rows)
            ),
        );
    }
}

fn invocations(out: &mut String, source: &Source<'_>) {
    out.push_str("<h3>Invocations</h3>\n");
    let all = source.invocations;
    let rows = all.iter().rev().take(MOST_LISTED).rev().map(|one| {
        let ended = one
            .end
            .as_ref()
            .map_or("no end recorded".to_owned(), |(at, reason)| {
                let took = (at - one.begun.started_at_ns) as f64 / 1e9;
                format!("{reason} after {}", duration(took))
            });
        let argv = match parse_value("argv", &one.begun.argv) {
            Ok(Value::List(words)) => words
                .iter()
                .map(Value::to_str)
                .collect::<Vec<_>>()
                .join(" "),
            _ => one.begun.argv.clone(),
        };
        let changed = one.begun.study_sha256 != source.plan.study_sha256;
        let changed = if changed {
            "<small>of another version of the study</small>"
        } else {
            ""
        };
        vec![
            one.begun.id.to_string(),
            time_text(one.begun.started_at_ns, Precision::Seconds),
            short(&one.begun.host, 80),
            format!("{} × {}", one.begun.workers, short(&one.begun.backend, 80)),
            format!("{}{changed}", short(&ended, 80)),
            format!("<code>{}</code>", short(&argv, 300)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let head = ["", "Began", "Host", "Workers", "Ended", "Command"];
    out.push_str(&table("", &head, &rows));
    if all.len() > MOST_LISTED {
        put(
            out,
            format_args!(
                "<p class=\"note\">The last {MOST_LISTED} of {}.</p>\n",
                all.len()
            ),
        );
    }
}

fn isolation(out: &mut String, gathered: &Gathered) {
    out.push_str("<h3>Isolation in force</h3>\n");
    let name = |text: &str| match text {
        "" => "not recorded".to_owned(),
        text => short(text, 80),
    };
    let mut all: Vec<_> = gathered.isolation.iter().collect();
    all.sort_by_key(|(_, runs)| std::cmp::Reverse(**runs));
    let rows = all
        .into_iter()
        .take(MOST_LISTED)
        .map(|((level, digest), runs)| {
            vec![
                name(level),
                format!("<code>{}</code>", name(digest)),
                count(*runs),
            ]
        });
    let rows: Vec<_> = rows.collect();
    let head = ["Level", "Digest of its mechanisms", "Runs"];
    out.push_str(&table("", &head, &rows));
    if gathered.isolation.len() > 1 {
        out.push_str("<p class=\"alert\">Not all runs were isolated alike.</p>\n");
    }
}

/// ST-67
fn accepted(out: &mut String, source: &Source<'_>) {
    // Of several decisions on one run the last holds.
    let last: BTreeMap<_, _> = source
        .accepted
        .iter()
        .map(|(run, reason)| (run, reason))
        .collect();
    let mut reasons = BTreeMap::<&str, u64>::new();
    for reason in last.into_values() {
        *reasons.entry(reason).or_default() += 1;
    }
    out.push_str("<h3>Accepted changes</h3>\n");
    if reasons.is_empty() {
        out.push_str(
            "<p class=\"note\">None: no finished run was kept although something changed.</p>\n",
        );
        return;
    }
    let rows = reasons.into_iter().take(MOST_LISTED);
    let rows: Vec<_> = rows
        .map(|(reason, runs)| vec![short(reason, 300), count(runs)])
        .collect();
    out.push_str(&table("", &["Change", "Runs kept"], &rows));
}

/// ST-49
fn retried(out: &mut String, gathered: &Gathered) {
    out.push_str("<h3>Runs of more than one attempt</h3>\n");
    if gathered.retried_runs == 0 {
        out.push_str("<p class=\"note\">None.</p>\n");
        return;
    }
    put(
        out,
        format_args!(
            "<p class=\"alert\">{} took more than one attempt; {} succeeded only after one that failed. All attempts are \
         in <code>attempts.csv</code>.</p>\n",
            counted(gathered.retried_runs, "run"),
            count(gathered.retried_successes)
        ),
    );
    let rows = gathered.retried.iter().map(|(run, attempts, status)| {
        vec![
            format!("<code>{}</code>", short(run, 40)),
            attempts.to_string(),
            status.to_string(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    put(
        out,
        format_args!(
            "<details><summary>{}</summary>{}</details>\n",
            counted(rows.len() as u64, "run"),
            table("", &["Run", "Attempts", "Ended"], &rows)
        ),
    );
}

fn warnings(out: &mut String, source: &Source<'_>, gathered: &Gathered) {
    out.push_str("<h3>Warnings</h3>\n");
    let plan = &source.plan.warnings;
    if plan.is_empty() && gathered.warnings.is_empty() {
        out.push_str("<p class=\"note\">None.</p>\n");
        return;
    }
    let faults = plan.iter().take(MOST_LISTED).map(|fault| {
        let place = format!("line {}, column {}", fault.place.line, fault.place.column);
        let hint = if fault.hint.is_empty() {
            String::new()
        } else {
            format!("; {}", fault.hint)
        };
        vec![place, short(&format!("{}{hint}", fault.message), 400)]
    });
    let results = gathered.warnings.iter().take(MOST_LISTED);
    let results =
        results.map(|(warning, runs)| vec![counted(*runs, "result"), short(warning, 400)]);
    let rows: Vec<_> = faults.chain(results).collect();
    out.push_str(&table("", &["Where", "What"], &rows));
}
