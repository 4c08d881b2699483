//! What proposers were asked, and what they answered.

use fairtrial_document::html::{counted, put, short, table};

use super::figures::{block, duration};
use crate::evaluation::EvaluationReport;
use crate::search::{Entry, EntryCandidate, Fate, Found, Ledger, Malformed};

/// Requests that are shown.
const MOST_ROWS: usize = 500;
/// Answers that were not understood and are shown.
const MOST_STRAYS: usize = 50;

pub(super) fn section(out: &mut String, report: &EvaluationReport) {
    let Some(ledger) = &report.proposals else {
        return;
    };
    out.push_str("<h2 id=\"proposals\">Proposals</h2>\n");
    let tokens = match ledger.tokens {
        0 => String::new(),
        tokens => format!(" They cost {}.", counted(tokens, "token")),
    };
    put(
        out,
        format_args!(
            "<p>{}: {} answered, {} failed, {} cancelled. They brought {}: {} evaluated, {} the same as another, {} not \
             run.{tokens}</p>\n",
            counted(ledger.requests as u64, "request"),
            ledger.answered,
            ledger.failed,
            ledger.cancelled,
            counted(ledger.proposed as u64, "candidate"),
            ledger.evaluated,
            ledger.duplicates,
            ledger.not_run,
        ),
    );
    for why in ledger.proposer_dead.iter().chain(&ledger.stopped) {
        put(
            out,
            format_args!("<p class=\"alert\">{}</p>\n", short(why, 600)),
        );
    }
    let rows: Vec<[String; 6]> = ledger.entries.iter().take(MOST_ROWS).map(row).collect();
    let head = ["Request", "For", "Parents", "Became", "Took", "Brought"];
    out.push_str(&table("", &head, &rows));
    if ledger.entries.len() > MOST_ROWS {
        let all = ledger.entries.len();
        put(
            out,
            format_args!("<p class=\"note\">The first {MOST_ROWS} of {all}.</p>\n"),
        );
    }
    strays(out, ledger);
}

/// What was not understood, whether it belongs to a request or to none.
fn strays(out: &mut String, ledger: &Ledger) {
    let of_requests = ledger.entries.iter().flat_map(|entry| &entry.malformed);
    let strays = ledger.strays.iter().map(|stray| &stray.malformed);
    let all: Vec<&Malformed> = of_requests.chain(strays).collect();
    if all.is_empty() {
        return;
    }
    put(
        out,
        format_args!(
            "<details><summary>{} not understood</summary>\n",
            counted(all.len() as u64, "answer")
        ),
    );
    for malformed in all.into_iter().take(MOST_STRAYS) {
        block(
            out,
            &short(&malformed.problem, 300),
            &malformed.excerpt,
            2100,
        );
    }
    out.push_str("</details>\n");
}

fn row(entry: &Entry) -> [String; 6] {
    let error = entry.error.as_ref().map_or_else(String::new, |error| {
        format!("<small>{}</small>", short(error, 300))
    });
    let brought: Vec<String> = entry.candidates.iter().take(50).map(brought).collect();
    [
        entry.id.to_string(),
        word(&entry.kind),
        short(&entry.parents.join(", "), 300),
        word(&entry.state) + &error,
        entry
            .ended_s
            .map_or_else(String::new, |ended_s| duration(ended_s - entry.asked_s)),
        brought.join("<br>"),
    ]
}

/// The word that reports have for it.
fn word(of: &impl serde::Serialize) -> String {
    let word = serde_json::to_value(of).unwrap_or_default();
    short(word.as_str().unwrap_or_default(), 40)
}

fn brought(candidate: &EntryCandidate) -> String {
    let fate = match &candidate.fate {
        Fate::Waiting | Fate::Running => "not settled".to_owned(),
        Fate::Evaluated {
            found: Found::Correct,
            ..
        } => "correct".to_owned(),
        Fate::Evaluated {
            found: Found::Failed { kind, .. },
            ..
        } => kind.to_string(),
        Fate::Duplicate { of } => format!("same as {}", short(of, 40)),
        Fate::NotRun { why } => format!("not run: {}", short(why, 120)),
    };
    let note = candidate.note.as_ref().map_or_else(String::new, |note| {
        format!("<small>{}</small>", short(note, 300))
    });
    format!("{} <small>{fate}</small>{note}", short(&candidate.name, 80))
}
