//! What proposers were asked, and what they answered.

use serde_json::Value;

use super::html::{duration, put, short, table};
use crate::evaluation::EvaluationReport;

/// Requests that are shown.
const MOST_ROWS: usize = 500;

pub(super) fn section(out: &mut String, report: &EvaluationReport) {
    if report.proposals.is_empty() {
        return;
    }
    out.push_str("<h2 id=\"proposals\">Proposals</h2>\n");
    let rows: Vec<[String; 6]> = report.proposals.iter().take(MOST_ROWS).map(row).collect();
    out.push_str(&table(
        "",
        ["Request", "For", "Parents", "Became", "Took", "Brought"],
        &rows,
    ));
    if report.proposals.len() > MOST_ROWS {
        put(
            out,
            format_args!(
                "<p class=\"note\">The first {MOST_ROWS} of {}.</p>\n",
                report.proposals.len()
            ),
        );
    }
}

fn row(entry: &Value) -> [String; 6] {
    let text = |key: &str| match &entry[key] {
        Value::Null => String::new(),
        Value::String(text) => short(text, 200),
        other => short(&other.to_string(), 200),
    };
    let names = |key: &str| {
        let list = entry[key].as_array().into_iter().flatten();
        let names: Vec<&str> = list
            .filter_map(|one| one.as_str().or_else(|| one["name"].as_str()))
            .collect();
        short(&names.join(", "), 300)
    };
    let took = entry["asked_s"].as_f64().zip(entry["ended_s"].as_f64());
    let error = text("error");
    let small = if error.is_empty() {
        String::new()
    } else {
        format!("<small>{error}</small>")
    };
    [
        text("id"),
        text("kind"),
        names("parents"),
        text("state") + &small,
        took.map_or_else(String::new, |(asked, ended)| duration(ended - asked)),
        names("candidates"),
    ]
}
