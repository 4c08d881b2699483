//! Winner and base, line by line (CA-83).

use fairtrial_document::html::{count, put, short};

use super::figures::{block, duration};
use crate::evaluation::{EvaluationReport, FunctionProfile, LineProfile, SideProfile};

/// Functions that are shown of a side.
const MOST_FUNCTIONS: usize = 50;
/// Lines that are shown of a function.
const MOST_LINES: usize = 400;

pub(super) fn section(out: &mut String, report: &EvaluationReport) {
    let Some(profile) = &report.profile else {
        return;
    };
    put(
        out,
        format_args!(
            "<h2 id=\"profile\">Profile</h2>\n<p class=\"note\">By <code>{}</code>, in workspaces of their own, after all was \
             measured. Tracing slows programs down: compare lines with each other, not with the times above.</p>\n",
            short(&profile.command, 120)
        ),
    );
    for side in &profile.sides {
        let name = report
            .evaluations
            .iter()
            .find(|one| one.id.as_ref() == Some(&side.side));
        let name = name.map_or(&side.side, |one| &one.name);
        put(out, format_args!("<h3>{}</h3>\n", short(name, 120)));
        of_side(out, side);
    }
}

fn of_side(out: &mut String, side: &SideProfile) {
    if let Some(note) = &side.note {
        put(
            out,
            format_args!("<p class=\"alert\">{}</p>\n", short(note, 1000)),
        );
    }
    for function in side.functions.iter().take(MOST_FUNCTIONS) {
        of_function(out, function);
    }
    block(out, "standard output", &side.stdout, 20_000);
    block(out, "standard error", &side.stderr, 8000);
}

fn of_function(out: &mut String, function: &FunctionProfile) {
    put(
        out,
        format_args!(
            "<div class=\"wide\"><table class=\"profile\"><caption><code>{}</code> in {}, {} calls, {}</caption>\
             <thead><tr><th>Line</th><th>Hits</th><th>Time</th><th></th><th></th></tr></thead><tbody>",
            short(&function.name, 120),
            short(&function.file, 200),
            count(function.calls),
            duration(function.total_s),
        ),
    );
    let most = function
        .lines
        .iter()
        .map(|line| line.total_s)
        .fold(0.0, f64::max);
    for line in function.lines.iter().take(MOST_LINES) {
        of_line(out, line, most);
    }
    out.push_str("</tbody></table></div>\n");
}

fn of_line(out: &mut String, line: &LineProfile, most: f64) {
    let (hits, time) = match line.hits {
        0 => (String::new(), String::new()),
        hits => (count(hits), duration(line.total_s)),
    };
    let share = if most > 0.0 {
        line.total_s / most * 100.0
    } else {
        0.0
    };
    put(
        out,
        format_args!(
            "<tr><td>{}</td><td>{hits}</td><td>{time}</td><td><i style=\"width:{share:.1}%\"></i></td><td><code>{}</code></td></tr>\n",
            line.line,
            short(&line.text, 200),
        ),
    );
}
