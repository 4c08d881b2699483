//! The ranking: one row per candidate, best first.

use fairtrial_document::html::{count, counted, put, short, table};

use super::Source;
use super::figures::{duration, mebibytes, ratio};
use super::words::{class, doubt, meaning, word};
use crate::evaluation::{BenchFacts, Evaluation, EvaluationReport, Tiebreak};

/// Rows that are shown: beyond that nobody reads.
const MOST_ROWS: usize = 1000;

pub(super) fn section(out: &mut String, source: &Source<'_>) {
    let report = source.report;
    out.push_str("<h2 id=\"ranking\">Ranking</h2>\n");
    if report.evaluations.is_empty() {
        out.push_str("<p>There was no candidate.</p>\n");
        return;
    }
    let rows = report.evaluations.iter().take(MOST_ROWS).map(row);
    let rows: Vec<[String; 7]> = base(report).into_iter().chain(rows).collect();
    let head = [
        "",
        "Candidate",
        "Tests",
        "Time, the base’s is 1",
        "Verdict",
        "Change",
        "Median run",
    ];
    out.push_str(&table("ranking", &head, &rows));
    if report.evaluations.len() > MOST_ROWS {
        let more = report.evaluations.len() - MOST_ROWS;
        put(
            out,
            format_args!(
                "<p class=\"note\">and {more} more, in <code>evaluation.json</code></p>\n"
            ),
        );
    }
}

/// The base's own rows: one per bench command.
fn base(report: &EvaluationReport) -> Vec<[String; 7]> {
    let benches = report
        .measurement
        .iter()
        .flat_map(|measured| &measured.benches);
    let row = |(name, facts): (&String, &BenchFacts)| {
        let times = facts.base()?;
        let each = match times.low_loops {
            Some(_) => "per loop",
            None => "per run",
        };
        let spread = times.spread.map_or_else(String::new, |spread| {
            format!(", spread {:.1}%", spread * 100.0)
        });
        let loops = times
            .loops
            .map_or_else(String::new, |loops| counted(loops, "loop"));
        Some([
            "–".to_owned(),
            format!("Base<small>{}</small>", short(name, 80)),
            "–".to_owned(),
            format!(
                "<b>1</b><small>{} {each}{spread}</small>",
                duration(times.compared_s()?)
            ),
            String::new(),
            String::new(),
            format!(
                "{}<small>{loops}</small>",
                times.gross_s.map_or_else(String::new, duration)
            ),
        ])
    };
    benches.filter_map(row).collect()
}

fn row(one: &Evaluation) -> [String; 7] {
    let id = one.id.as_ref().map_or_else(String::new, |id| {
        format!("<small>{}</small>", short(id, 40))
    });
    [
        one.rank
            .map_or_else(|| "–".to_owned(), |rank| rank.to_string()),
        format!("{}{id}", short(&one.name, 120)),
        one.cases.map_or_else(
            || "–".to_owned(),
            |cases| {
                let more = match (cases.fixed, cases.new) {
                    (0, 0) => String::new(),
                    (fixed, 0) => format!("<small>{fixed} fixed</small>"),
                    (fixed, new) => format!("<small>{fixed} fixed, {new} new</small>"),
                };
                format!("{}/{}{more}", cases.passed, cases.total)
            },
        ),
        time(one),
        verdict(one),
        one.size.map_or_else(String::new, |size| {
            let binary = match size.binary_files {
                0 => String::new(),
                files => format!(
                    "<small>{} without lines</small>",
                    counted(files as u64, "file")
                ),
            };
            format!("+{} −{}{binary}", size.added, size.removed)
        }),
        one.metrics.map_or_else(String::new, |medians| {
            let wall = medians.wall_s.map(duration);
            let memory = medians.peak_rss_bytes.map(mebibytes);
            let memory = memory.map(|memory| format!("<small>{memory}</small>"));
            wall.unwrap_or_default() + &memory.unwrap_or_default()
        }),
    ]
}

fn time(one: &Evaluation) -> String {
    let Some(said) = &one.judgement else {
        return "–".to_owned();
    };
    let again = one
        .confirmation
        .as_ref()
        .and_then(|again| again.judgement.as_ref());
    let again = again.map_or_else(String::new, |again| {
        format!(
            "<small>again {} [{}, {}]</small>",
            ratio(again.ratio),
            ratio(again.low),
            ratio(again.high)
        )
    });
    let means = meaning(one).map_or_else(String::new, |means| format!("<small>{means}</small>"));
    format!(
        "<b>{}</b> [{}, {}]{means}{again}",
        ratio(said.ratio),
        ratio(said.low),
        ratio(said.high)
    )
}

/// By what it stands where it does among those that equal the leader.
fn tiebreak(tie: &Tiebreak) -> Option<String> {
    let by = short(&tie.by, 40);
    if let Some(why) = &tie.count.failed {
        return Some(format!("tie: not counted by {by}: {}", short(why, 110)));
    }
    let counts: Vec<String> = tie
        .count
        .instructions
        .values()
        .copied()
        .map(count)
        .collect();
    tie.used.then(|| {
        format!(
            "tie: {} instructions by {by}, not measured time",
            counts.join(" + ")
        )
    })
}

fn verdict(one: &Evaluation) -> String {
    let mut small = Vec::new();
    if let Some(said) = &one.judgement {
        small.push(counted(said.blocks.into(), "block"));
        small.extend(said.doubt.map(|why| doubt(why).to_owned()));
    }
    small.extend(one.tiebreak.as_ref().and_then(tiebreak));
    if let Some(failure) = &one.failure {
        small.push(short(
            failure.message.lines().next().unwrap_or_default(),
            110,
        ));
    }
    let small = match small.is_empty() {
        true => String::new(),
        false => format!("<small>{}</small>", small.join(" · ")),
    };
    format!(
        "<span class=\"verdict {}\">{}</span>{small}",
        class(one),
        short(&word(one), 120)
    )
}
