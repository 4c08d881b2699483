//! The table of times: loops, start-up, whole runs and the loops' own time of each side.

use fairtrial_document::html::{count, percent, put, short, table};

use super::figures::duration;
use crate::evaluation::{BenchFacts, Compared, EvaluationReport, SideTimes, StartupSource};

/// Sides that are shown of each bench command.
const MOST_SIDES: usize = 200;

pub(super) fn section(out: &mut String, report: &EvaluationReport) {
    let Some(measured) = &report.measurement else {
        return;
    };
    let known = measured
        .benches
        .iter()
        .filter(|(_, facts)| !facts.sides.is_empty());
    for (name, facts) in known {
        put(
            out,
            format_args!(
                "<h3>Times of {}</h3>\n<p class=\"note\">Medians of wall times. {}{}</p>\n",
                short(name, 80),
                compared(facts),
                startup(facts),
            ),
        );
        let base = facts.sides.get_key_value("base");
        let others = facts.sides.iter().filter(|(side, _)| *side != "base");
        let rows = base.into_iter().chain(others).take(MOST_SIDES);
        let rows: Vec<[String; 7]> = rows.map(|(side, times)| row(report, side, times)).collect();
        let head = [
            "",
            "Loops",
            "Start-up",
            "Whole run",
            "Loops’ own time",
            "Per loop",
            "Spread",
        ];
        out.push_str(&table("ranking", &head, &rows));
    }
}

fn compared(facts: &BenchFacts) -> &'static str {
    match facts.compared {
        Compared::Net => {
            "Ratios are of the time per loop: the difference of a run of many loops and one of few, so that start-up is not \
             in it."
        }
        Compared::Gross => "Ratios are of whole runs, start-up included.",
    }
}

fn startup(facts: &BenchFacts) -> String {
    let (Some(startup_s), Some(share)) = (facts.startup_s, facts.startup_share) else {
        return " How much of a run is start-up is not known.".to_owned();
    };
    let source = match facts.startup_source {
        Some(StartupSource::Interpreter) => ", the imports of the program not counted",
        _ => "",
    };
    let least = match facts.startup_source {
        Some(StartupSource::Interpreter) => "at least ",
        _ => "",
    };
    format!(
        " Of the base’s run {least}{} is start-up ({}{source}).",
        percent(share),
        duration(startup_s)
    )
}

fn row(report: &EvaluationReport, side: &str, times: &SideTimes) -> [String; 7] {
    let one = report
        .evaluations
        .iter()
        .find(|one| one.id.as_deref() == Some(side));
    let name = one.map_or_else(
        || short(side, 40),
        |one| {
            format!(
                "{}<small>{}</small>",
                short(&one.name, 120),
                short(side, 40)
            )
        },
    );
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "–".to_owned(), duration);
    let loops = times.loops.map(count);
    let low = times
        .low_loops
        .map(|low| format!("<small>and {}</small>", count(low)));
    [
        name,
        loops.unwrap_or_else(|| "–".to_owned()) + &low.unwrap_or_default(),
        time(times.startup_s),
        time(times.gross_s),
        time(times.net_s),
        time(times.per_loop_s),
        times.spread.map_or_else(|| "–".to_owned(), percent),
    ]
}
