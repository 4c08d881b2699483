//! The section on failures: what each did otherwise, both sides beside each other, and what it wrote.

use fairtrial_document::html::{counted, ending, put, short};

use super::figures::{block, duration};
use crate::cases::{CaseStatus, Diff, Failure, FailureKind, Scope};
use crate::evaluation::{Evaluation, EvaluationReport};

/// Bytes that the section may take: escaped, hostile output is up to six times as long as it was.
const MOST_BYTES: usize = 6_000_000;
/// Characters of an output or an error.
const MOST_OUTPUT: usize = 8000;
/// Characters of a value or a test's text.
const MOST_VALUE: usize = 2000;

pub(super) fn section(out: &mut String, report: &EvaluationReport) {
    out.push_str("<h2 id=\"failures\">Failures</h2>\n");
    let failed = report
        .evaluations
        .iter()
        .filter_map(|one| Some((one, one.failure.as_ref()?)));
    let failed: Vec<(&Evaluation, &Failure)> = failed.collect();
    if failed.is_empty() {
        out.push_str("<p>No candidate failed.</p>\n");
        return;
    }
    let limit = out.len() + MOST_BYTES;
    for (one, failure) in failed {
        let mut part = String::new();
        candidate(&mut part, one, failure);
        if out.len() + part.len() > limit {
            part.clear();
            summary(&mut part, one, failure);
            part.push_str("<p class=\"note\">left out, to keep this file small; it is in <code>evaluation.json</code></p></details>\n");
        }
        out.push_str(&part);
    }
}

fn summary(out: &mut String, one: &Evaluation, failure: &Failure) {
    let id = one
        .id
        .as_ref()
        .map_or_else(String::new, |id| format!(" <code>{}</code>", short(id, 40)));
    put(
        out,
        format_args!(
            "<details><summary><span class=\"verdict failed\">{}</span> <b>{}</b>{id} <span class=\"status\">{}</span></summary>\n",
            failure.kind.name().replace('_', " "),
            short(&one.name, 120),
            short(failure.message.lines().next().unwrap_or_default(), 200),
        ),
    );
}

fn candidate(out: &mut String, one: &Evaluation, failure: &Failure) {
    summary(out, one, failure);
    put(
        out,
        format_args!("<p>{}</p>\n", short(&failure.message, MOST_VALUE)),
    );
    if failure.kind == FailureKind::Infra {
        out.push_str(
            "<p class=\"note\">Nothing is known of the candidate: it was not its fault.</p>\n",
        );
    }
    for diff in &failure.diffs {
        difference(out, diff);
    }
    if failure.diffs_total > failure.diffs.len() {
        let more = failure.diffs_total - failure.diffs.len();
        put(
            out,
            format_args!(
                "<p class=\"note\">and {} more</p>\n",
                counted(more as u64, "difference")
            ),
        );
    }
    if let Some(call) = &failure.outcome {
        let took = call
            .end
            .wall_s
            .map_or_else(String::new, |wall_s| format!(" after {}", duration(wall_s)));
        put(
            out,
            format_args!(
                "<h3>Its call</h3><p><code>{}</code>: {}{took}</p>\n",
                short(&call.of, 120),
                short(&call.end.described(), 600)
            ),
        );
        block(out, "standard error", &call.stderr, MOST_OUTPUT);
        block(out, "standard output", &call.stdout, MOST_OUTPUT);
    }
    out.push_str("</details>\n");
}

fn difference(out: &mut String, diff: &Diff) {
    let scope = match diff.scope {
        Scope::Status => "status",
        Scope::Missing => "missing",
        Scope::Value => "value",
        Scope::Stdout => "output",
    };
    let place = diff.place.as_ref().map_or_else(String::new, |place| {
        format!(" at <code>{}</code>", short(place, 200))
    });
    put(
        out,
        format_args!(
            "<details><summary><code>{}</code> <span class=\"status\">{scope}{place}, in {}</span></summary>\n\
             <div class=\"sides\"><div><p class=\"note\">Base: {}</p>{}</div><div><p class=\"note\">Candidate: {}</p>{}</div></div>\n",
            short(&diff.case, 300),
            short(&diff.test, 80),
            status(diff.base_status),
            value(diff.base.as_deref(), diff.base_error.as_deref()),
            status(diff.candidate_status),
            value(diff.candidate.as_deref(), diff.candidate_error.as_deref()),
        ),
    );
    block(
        out,
        "the test",
        diff.source.as_deref().unwrap_or_default(),
        MOST_OUTPUT,
    );
    out.push_str("</details>\n");
}

fn status(status: Option<CaseStatus>) -> String {
    status.map_or_else(
        || "absent".to_owned(),
        |status| status.to_string().replace('_', " "),
    )
}

fn value(value: Option<&str>, error: Option<&str>) -> String {
    let mut out = String::new();
    match value {
        Some(value) => put(
            &mut out,
            format_args!("<pre>{}</pre>", short(value, MOST_VALUE)),
        ),
        None if error.is_none() => out.push_str("<p class=\"note\">nothing</p>"),
        None => {}
    }
    if let Some(error) = error {
        put(
            &mut out,
            format_args!("<pre>{}</pre>", ending(error, MOST_OUTPUT)),
        );
    }
    out
}
