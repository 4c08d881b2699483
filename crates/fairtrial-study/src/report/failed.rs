//! The section on failures: by error, with what some of them said.

use crate::html::{count, counted, escape, put, short};
use crate::report::failures::{ErrorGroup, Example, Failures, MOST_SHOWN};
use crate::report::figures::duration;

/// Bytes that the section may take: escaped, hostile output is up to six times as long as it was.
const MOST_BYTES: usize = 2_000_000;

/// Writes the section: failed runs, then failed evaluations of runs that went well.
pub(crate) fn section(out: &mut String, failures: Failures, evaluations: Failures) {
    out.push_str("<h2 id=\"failures\">Failures</h2>\n");
    let limit = out.len() + MOST_BYTES;
    match failures.total {
        0 => out.push_str("<p>No run failed.</p>\n"),
        _ => part(out, failures, "failure", limit),
    }
    if evaluations.total > 0 {
        out.push_str("<h3>Evaluations</h3>\n");
        part(out, evaluations, "failed evaluation", limit);
    }
}

fn part(out: &mut String, failures: Failures, what: &str, limit: usize) {
    let total = failures.total;
    let groups = failures.finish();
    let shown: usize = groups.iter().map(|group| group.examples.len()).sum();
    put(
        out,
        format_args!(
            "<p class=\"note\">{} by error; errors that differ in numbers alone are one. Output of {}{}.</p>\n",
            counted(total, what),
            counted(shown as u64, "run"),
            if shown == MOST_SHOWN {
                ", the most that is shown"
            } else {
                ""
            }
        ),
    );
    for group in &groups {
        group_of(out, group, limit);
    }
}

fn group_of(out: &mut String, group: &ErrorGroup, limit: usize) {
    let error = match group.error.is_empty() {
        true => "no message",
        false => &group.error,
    };
    put(
        out,
        format_args!(
            "<details><summary><b>{}</b> × {} <span class=\"status\">{}</span></summary>\n",
            count(group.count),
            short(error.lines().next().unwrap_or_default(), 240),
            escape(&group.status)
        ),
    );
    for example in &group.examples {
        example_of(out, example, limit);
    }
    let left_out = group.count - group.examples.len() as u64;
    if left_out > 0 {
        put(
            out,
            format_args!("<p class=\"note\">and {} more</p>\n", count(left_out)),
        );
    }
    out.push_str("</details>\n");
}

fn example_of(out: &mut String, example: &Example, limit: usize) {
    put(
        out,
        format_args!(
            "<details><summary><code>{}</code> {} <span class=\"status\">{}, after {}</span></summary>\n<pre>{}</pre>\n",
            escape(&example.run_id),
            short(&example.whose, 300),
            escape(&example.cause),
            duration(example.latency_s),
            escape(&example.error)
        ),
    );
    for (name, text, is_cut) in &example.outputs {
        let text = escape(text);
        if out.len() + text.len() > limit {
            put(
                out,
                format_args!("<p class=\"note\">{name} is left out, to keep this file small</p>\n"),
            );
            continue;
        }
        let which = if *is_cut { ", its end" } else { "" };
        put(
            out,
            format_args!("<p class=\"note\">{name}{which}</p><pre>{text}</pre>\n"),
        );
    }
    out.push_str("</details>\n");
}
