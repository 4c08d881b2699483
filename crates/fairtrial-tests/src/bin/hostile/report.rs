//! The table that is printed, row by row, and what it amounts to.

use std::process::ExitCode;

use fairtrial_exec::Level;
use serde_json::json;

use crate::cage::Plan;
use crate::expect::{Expected, Judgement};
use crate::show::line;

/// One cell of the table.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) level: Level,
    pub(crate) expected: Expected,
    pub(crate) got: String,
    pub(crate) seconds: f64,
    pub(crate) judgement: Judgement,
}

/// What was printed so far.
pub(crate) struct Report {
    json: bool,
    held: usize,
    failed: Vec<String>,
    skipped: usize,
    known: usize,
}

impl Report {
    pub(crate) fn new(plan: &Plan) -> Self {
        if !plan.options.json {
            line(format_args!("hostile programs as uid {}", plan.options.uid));
        }
        Self {
            json: plan.options.json,
            held: 0,
            failed: Vec::new(),
            skipped: 0,
            known: 0,
        }
    }

    pub(crate) fn add(&mut self, cell: Line) {
        match self.json {
            true => line(as_json(&cell)),
            false => line(as_text(&cell)),
        }
        match cell.judgement {
            Judgement::Held => self.held += 1,
            Judgement::Skipped(_) => self.skipped += 1,
            Judgement::Known(..) => self.known += 1,
            Judgement::Failed(_) => self.failed.push(format!("{} at {}", cell.name, cell.level)),
        }
    }

    /// Exit code 1 if anything failed; what was skipped is not counted as passed (SB-74).
    pub(crate) fn end(self) -> ExitCode {
        let (held, failed, skipped, known) =
            (self.held, self.failed.len(), self.skipped, self.known);
        if self.json {
            line(json!({"held": held, "failed": self.failed, "skipped": skipped, "known": known}));
        } else {
            line(format_args!(
                "{held} ok, {failed} failed, {known} known defects, {skipped} skipped"
            ));
            self.failed
                .iter()
                .for_each(|name| line(format_args!("FAILED: {name}")));
        }
        ExitCode::from(u8::from(failed > 0))
    }
}

fn as_text(cell: &Line) -> String {
    let (expected, got) = (cell.expected.to_string(), &cell.got);
    let head = format!(
        "{:<28} {:<6} {expected:<24} {got:<24} {:>5.1} s  ",
        cell.name,
        cell.level.to_string(),
        cell.seconds
    );
    match &cell.judgement {
        Judgement::Held => head + "ok",
        Judgement::Skipped(reason) => head + "skipped: " + reason,
        Judgement::Known(defect, _) => head + "known: " + defect,
        Judgement::Failed(reasons) => head + "FAIL\n    " + &reasons.join("\n    "),
    }
}

fn as_json(cell: &Line) -> serde_json::Value {
    let (state, reasons) = match &cell.judgement {
        Judgement::Held => ("ok", Vec::new()),
        Judgement::Skipped(reason) => ("skipped", vec![reason.clone()]),
        Judgement::Known(defect, reasons) => (
            "known",
            [&[(*defect).to_owned()], reasons.as_slice()].concat(),
        ),
        Judgement::Failed(reasons) => ("failed", reasons.clone()),
    };
    json!({
        "program": cell.name, "level": cell.level.to_string(), "expected": cell.expected.to_string(),
        "got": cell.got, "seconds": cell.seconds, "state": state, "reasons": reasons,
    })
}
