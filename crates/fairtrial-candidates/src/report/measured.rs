//! The section on speed: intervals, then block by block, then the base beside itself.

use fairtrial_document::html::{count, counted, percent, put, short, table};

use super::Source;
use super::blocks::Point;
use super::chart::{IntervalChart, Row, multiple};
use super::times;
use super::words::class;
use crate::evaluation::Evaluation;
use crate::measure::{Metric, Purpose, SeriesId, Side};

/// Candidates that are drawn.
const MOST_DRAWN: usize = 60;

pub(super) fn section(out: &mut String, source: &Source<'_>) {
    let report = source.report;
    let Some(measured) = &report.measurement else {
        return;
    };
    out.push_str("<h2 id=\"speed\">Speed</h2>\n");
    let measure = &report.spec["measure"];
    let min_effect = measure["min_effect"].as_f64().unwrap_or(0.0);
    put(
        out,
        format_args!(
            "<p>Each candidate’s {} over the base’s of the same block: the median, and the interval that holds it at the \
             level of its last look (together a wrong verdict in at most {} of evaluations). Left of 1 is faster; less than \
             {}, the shaded band, does not count.</p>\n",
            match measured.metric {
                Metric::Wall => "wall time",
                Metric::Cpu => "processor time",
                Metric::Instructions => "instructions",
            },
            percent(measure["alpha"].as_f64().unwrap_or(0.0)),
            percent(min_effect),
        ),
    );
    let drawn: Vec<&Evaluation> = report
        .evaluations
        .iter()
        .filter(|one| one.judgement.is_some())
        .take(MOST_DRAWN)
        .collect();
    let chart = IntervalChart {
        title: "Time of each candidate over the base’s, with its interval".to_owned(),
        rows: drawn.iter().filter_map(|one| row(source, one)).collect(),
        band: source.band,
    };
    out.push_str(&chart.draw());
    let all = report
        .evaluations
        .iter()
        .filter(|one| one.judgement.is_some())
        .count();
    if all > drawn.len() {
        put(
            out,
            format_args!(
                "<p class=\"note\">The first {} of {all}.</p>\n",
                drawn.len()
            ),
        );
    }
    blocks(out, source, &drawn);
    control(out, source);
    times::section(out, source.report);
    terms(out, source);
}

fn row(source: &Source<'_>, one: &Evaluation) -> Option<Row> {
    let said = one.judgement.as_ref()?;
    let points = side(source, one);
    let points = points.as_ref().and_then(|side| source.blocks.race(side));
    Some(Row {
        label: one.name.clone(),
        ratio: said.ratio,
        low: said.low,
        high: said.high,
        class: class(one),
        points: points.map_or_else(Vec::new, |(_, points)| {
            points.iter().map(|point| point.ratio).collect()
        }),
    })
}

/// Its name in the record: that of an equal, where it stands for one that was measured (CA-18).
fn side(source: &Source<'_>, one: &Evaluation) -> Option<Side> {
    let copies = source
        .report
        .evaluations
        .iter()
        .filter(|other| other.duplicate_of.is_some() && other.duplicate_of == one.id);
    let mut sides = std::iter::once(one)
        .chain(copies)
        .filter_map(|one| one.id.clone().map(Side::Candidate));
    sides.find(|side| source.blocks.race(side).is_some())
}

/// Small multiples.
fn blocks(out: &mut String, source: &Source<'_>, drawn: &[&Evaluation]) {
    out.push_str(
        "<h3>Block by block</h3>\n<p class=\"note\">Each on a scale of its own, blocks in the order they were run. The line \
         is the median; a hollow point was disturbed and kept.</p>\n<div class=\"multiples\">",
    );
    for one in drawn {
        let Some(side) = side(source, one) else {
            continue;
        };
        let raced = source.blocks.race(&side);
        let again = source.blocks.confirmation(&side);
        for (series, points) in raced.into_iter().chain(again) {
            small(out, source, (&one.name, class(one)), series, points);
        }
    }
    out.push_str("</div>\n");
}

fn control(out: &mut String, source: &Source<'_>) {
    out.push_str("<h3>The base beside itself</h3>\n");
    let floor = source.report.noise_floor.map_or_else(String::new, |floor| {
        format!(
            " Half the width of its interval is the noise floor, ±{}.",
            percent(floor)
        )
    });
    put(
        out,
        format_args!(
            "<p class=\"note\">In every series the base also runs as if it were a candidate. Whatever differs here is the \
             machine.{floor}</p>\n<div class=\"multiples\">"
        ),
    );
    for (series, points) in source.blocks.controls() {
        small(out, source, ("A/A control", "control"), series, points);
    }
    out.push_str("</div>\n");
}

fn small(
    out: &mut String,
    source: &Source<'_>,
    (name, class): (&str, &str),
    series: &SeriesId,
    points: &[Point],
) {
    let what = match &series.purpose {
        Purpose::Confirmation(_) => "confirmation",
        _ => "race",
    };
    let again = if series.attempt > 1 {
        ", made anew"
    } else {
        ""
    };
    let round = if series.round > 1 {
        format!(" {}", series.round)
    } else {
        String::new()
    };
    let flagged = points.iter().filter(|point| point.flagged).count();
    let flagged = if flagged > 0 {
        format!(", {flagged} disturbed")
    } else {
        String::new()
    };
    put(
        out,
        format_args!(
            "<figure><figcaption>{}<small>{what}{round}{again}, {}{flagged}</small></figcaption>{}</figure>\n",
            short(name, 60),
            counted(points.len() as u64, "block"),
            multiple(&format!("Blocks of {name}"), class, points, source.band)
        ),
    );
}

fn terms(out: &mut String, source: &Source<'_>) {
    let Some(measured) = &source.report.measurement else {
        return;
    };
    let cpus: Vec<String> = measured.pinned_to.iter().map(ToString::to_string).collect();
    let pinned = match cpus.is_empty() {
        true => short(&measured.pinning, 300),
        false => format!(
            "processor {}: {}",
            cpus.join(", "),
            short(&measured.pinning, 300)
        ),
    };
    let mut rows = vec![
        [
            "Runs".to_owned(),
            format!(
                "{} in {}",
                count(measured.runs),
                counted(measured.blocks, "block")
            ),
        ],
        [
            "Disturbed".to_owned(),
            format!(
                "{} repeated, {} kept",
                count(measured.repeated),
                count(measured.flagged)
            ),
        ],
        ["Where".to_owned(), pinned],
    ];
    if let Some(why) = &measured.counters {
        rows.push([
            "Instructions".to_owned(),
            format!("not counted: {}", short(why, 300)),
        ]);
    }
    out.push_str("<h3>How it was measured</h3>\n");
    out.push_str(&table("pairs", &["", ""], &rows));
}
