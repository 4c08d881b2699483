//! What results rest on: the base's own tests, the machine, what it cost, what was asked for.

use fairtrial_document::html::{count, counted, cut, put, short, table};

use super::figures::{block, duration};
use crate::cases::Unsteady;
use crate::evaluation::EvaluationReport;

/// Quarantined cases that are listed.
const MOST_LISTED: usize = 500;
/// Characters of the file as asked for.
const MOST_ASKED: usize = 60_000;

pub(super) fn section(out: &mut String, report: &EvaluationReport) {
    baseline(out, report);
    machine(out, report);
    costs(out, report);
    out.push_str("<h2 id=\"asked\">What was asked</h2>\n");
    let asked = serde_json::to_string_pretty(&report.spec).unwrap_or_default();
    out.push_str("<details><summary>The evaluation file with every default filled in</summary>\n");
    block(out, "", &cut(&asked, MOST_ASKED), MOST_ASKED + 1);
    out.push_str("</details>\n");
}

fn baseline(out: &mut String, report: &EvaluationReport) {
    let baseline = &report.baseline;
    put(
        out,
        format_args!(
            "<h2 id=\"baseline\">Baseline</h2>\n<p>The base’s tests ran {}: {}, of which {} are judged and {} pass.</p>\n",
            counted(baseline.runs.into(), "time"),
            counted(baseline.cases, "case"),
            count(baseline.judged),
            count(baseline.passing),
        ),
    );
    if baseline.quarantined.is_empty() {
        out.push_str("<p class=\"note\">None is quarantined.</p>\n");
        return;
    }
    let rows = baseline.quarantined.iter().take(MOST_LISTED).map(|case| {
        [
            format!("<code>{}</code>", short(&case.case, 300)),
            short(&case.test, 80),
            short(&unsteady(&case.why), 300),
        ]
    });
    let rows: Vec<_> = rows.collect();
    out.push_str("<p class=\"alert\">Cases that differ between runs of the base are quarantined: no candidate is judged by them.</p>\n");
    out.push_str(&table("", &["Case", "Of", "Why"], &rows));
    if baseline.quarantined.len() > MOST_LISTED {
        put(
            out,
            format_args!(
                "<p class=\"note\">The first {MOST_LISTED} of {}.</p>\n",
                baseline.quarantined.len()
            ),
        );
    }
}

fn unsteady(why: &Unsteady) -> String {
    match why {
        Unsteady::TimedOut => "it timed out".to_owned(),
        Unsteady::Absent { seen, runs } => format!("there in {seen} of {runs} runs"),
        Unsteady::Status(statuses) => {
            let statuses: Vec<String> = statuses.iter().map(ToString::to_string).collect();
            format!("now {}", statuses.join(", now "))
        }
        Unsteady::Value(value) => format!("a recorded value differs: {value}"),
    }
}

fn machine(out: &mut String, report: &EvaluationReport) {
    out.push_str("<h2 id=\"machine\">Machine and costs</h2>\n");
    let (machine, provider, base) = (&report.machine, &report.provider, &report.base);
    let code = |text: &str| format!("<code>{}</code>", short(text, 200));
    let path = match provider.same_path {
        true => "commands ran at the repository’s own path",
        false => "commands ran at another path than the repository’s",
    };
    let mut rows = vec![
        ["Base".to_owned(), code(&base.hash)],
        [
            "Processors".to_owned(),
            format!("{} × {}", machine.cpus, short(&machine.cpu, 120)),
        ],
        ["Kernel".to_owned(), code(&machine.kernel)],
        ["Node".to_owned(), code(&machine.node)],
        [
            "Workspaces".to_owned(),
            format!("{}: {path}", short(&provider.name, 80)),
        ],
    ];
    if let Some(commit) = &base.commit {
        let dirty = if base.dirty { ", with changes" } else { "" };
        rows.insert(1, ["Commit".to_owned(), code(commit) + dirty]);
    }
    for (name, why) in provider.skipped.iter().take(20) {
        rows.push([format!("Not {}", short(name, 80)), short(why, 400)]);
    }
    rows.push([
        "Fairtrial, of this report".to_owned(),
        code(env!("CARGO_PKG_VERSION")),
    ]);
    out.push_str(&table("pairs", &["", ""], &rows));
}

fn costs(out: &mut String, report: &EvaluationReport) {
    let costs = &report.costs;
    out.push_str("<h3>Costs</h3>\n");
    let rows = [
        ("Freezing the base", costs.snapshot_s),
        ("The base’s tests", costs.baseline_s),
        ("Candidates’ tests", costs.correctness_s),
        ("Measuring", costs.measurement_s),
        ("Waiting for other evaluations", costs.lock_wait_s),
    ];
    let mut rows: Vec<[String; 2]> = rows
        .map(|(what, seconds)| [what.to_owned(), duration(seconds)])
        .into();
    rows.push(["Processes".to_owned(), count(costs.processes)]);
    out.push_str(&table("pairs", &["", ""], &rows));
}
