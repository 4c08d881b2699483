//! The page: head, overview, sections.

use fairtrial_document::html::{begin, count, counted, end, percent, put, short};

use super::figures::{duration, ratio};
use super::words::{GROUPS, class, gross_mark, meaning};
use super::{Source, facts, failures, lineage, measured, profile, proposals, ranking};
use crate::evaluation::EvaluationReport;

/// The whole page.
pub(super) fn page(source: &Source<'_>) -> String {
    let report = source.report;
    let title = headline(report);
    let style = include_str!("style.css");
    let mut out = begin(&title, style, "Evaluation of rival changes", &title);
    overview(&mut out, report);
    navigation(&mut out, source);
    out.push_str("</header>\n<main>\n");
    ranking::section(&mut out, source);
    measured::section(&mut out, source);
    profile::section(&mut out, report);
    failures::section(&mut out, report);
    lineage::section(&mut out, report);
    proposals::section(&mut out, report);
    facts::section(&mut out, report);
    end(&mut out, "an evaluation’s record");
    out
}

/// What came of it, in a sentence.
fn headline(report: &EvaluationReport) -> String {
    match report.winner() {
        Some(winner) => {
            let name = short(&winner.name, 120);
            match &winner.judgement {
                Some(said) => {
                    let means = meaning(winner).map(|means| format!(" ({means})"));
                    let means = means.unwrap_or_default();
                    format!(
                        "{name} is faster: {} of the base’s time{means}",
                        ratio(said.ratio)
                    )
                }
                None => format!("{name} is faster"),
            }
        }
        None if !report.any_correct() => "No candidate is correct".to_owned(),
        None if report.measurement.is_none() => {
            let correct = report
                .evaluations
                .iter()
                .filter(|one| one.is_correct())
                .count();
            format!(
                "{} correct; nothing was measured",
                counted(correct as u64, "candidate")
            )
        }
        None => "No candidate is shown to be faster".to_owned(),
    }
}

fn overview(out: &mut String, report: &EvaluationReport) {
    let baseline = &report.baseline;
    let quarantined = match baseline.quarantined.len() {
        0 => String::new(),
        some => format!(", {some} quarantined"),
    };
    put(
        out,
        format_args!(
            "<p class=\"lead\">Base <code>{}</code> · {} · {} · {}{quarantined}</p>\n",
            short(&report.base.label, 100),
            counted(report.base.files, "file"),
            short(&report.provider.name, 100),
            counted(baseline.cases, "test"),
        ),
    );
    let correct = report
        .evaluations
        .iter()
        .filter(|one| one.is_correct())
        .count();
    let mut cards = vec![(
        format!(
            "{} <small>of {}</small>",
            count(correct as u64),
            count(report.evaluations.len() as u64)
        ),
        "candidates are correct".to_owned(),
    )];
    if let Some(winner) = report.winner()
        && let Some(said) = &winner.judgement
    {
        let mark = gross_mark(winner).map_or_else(String::new, |mark| format!("; {mark}"));
        cards.push((
            ratio(said.ratio),
            format!(
                "of the base’s time, {} [{}, {}]{mark}",
                percent(said.level),
                ratio(said.low),
                ratio(said.high)
            ),
        ));
    }
    if let Some(floor) = report.noise_floor {
        cards.push((
            format!("±{}", percent(floor)),
            "noise floor: the base beside itself".to_owned(),
        ));
    }
    let costs = &report.costs;
    let spent = costs.snapshot_s + costs.baseline_s + costs.correctness_s + costs.measurement_s;
    cards.push((
        duration(spent),
        format!("in {} processes", count(costs.processes)),
    ));
    out.push_str("<div class=\"facts\">");
    for (figure, what) in cards {
        put(
            out,
            format_args!("<div class=\"fact\"><b>{figure}</b><span>{what}</span></div>"),
        );
    }
    out.push_str("</div>\n");
    shares(out, report);
    if report.aa_failed {
        out.push_str("<p class=\"alert\">Twice, the base differed from itself: no verdict on speed holds.</p>\n");
    }
    for warning in report.warnings.iter().take(20) {
        put(
            out,
            format_args!("<p class=\"alert\">{}</p>\n", short(warning, 600)),
        );
    }
}

/// How many became what.
fn shares(out: &mut String, report: &EvaluationReport) {
    let of = |group: &str| {
        report
            .evaluations
            .iter()
            .filter(|one| class(one) == group)
            .count()
    };
    let groups = GROUPS.map(|(group, name)| (group, name, of(group)));
    let total = report.evaluations.len().max(1) as f64;
    out.push_str("<div class=\"share\">");
    for (group, _, some) in groups.iter().filter(|(.., some)| *some > 0) {
        let share = *some as f64 / total * 100.0;
        put(
            out,
            format_args!("<i class=\"{group}\" style=\"width:{share:.3}%\"></i>"),
        );
    }
    out.push_str("</div><p class=\"legend\">");
    for (group, name, some) in groups.iter().filter(|(.., some)| *some > 0) {
        put(
            out,
            format_args!("<span><i class=\"{group}\"></i>{some} {name}</span>"),
        );
    }
    out.push_str("</p>\n");
}

fn navigation(out: &mut String, source: &Source<'_>) {
    let report = source.report;
    out.push_str("<nav>");
    for (id, title, is_there) in [
        ("ranking", "Ranking", true),
        ("speed", "Speed", report.measurement.is_some()),
        ("profile", "Profile", report.profile.is_some()),
        ("failures", "Failures", true),
        ("lineage", "Lineage", lineage::is_told(report)),
        ("proposals", "Proposals", report.proposals.is_some()),
        ("baseline", "Baseline", true),
        ("machine", "Machine and costs", true),
        ("asked", "What was asked", true),
    ] {
        if is_there {
            put(out, format_args!("<a href=\"#{id}\">{title}</a>"));
        }
    }
    out.push_str("</nav>\n");
}
