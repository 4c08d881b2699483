use std::collections::BTreeMap;

use serde_json::json;

use crate::cases::{CallEnd, CallSummary, CaseStatus, Diff, Failure, FailureKind, Scope, Unsteady};
use crate::evaluate::State;
use crate::evaluation::{
    BenchFacts, CaseCounts, Evaluation, EvaluationReport, FunctionProfile, InstructionCount,
    LineProfile, Measurement, ProfileReport, QuarantinedCase, SideProfile, Tiebreak, fill,
    gross_startup,
};
use crate::measure::{Bench, Entrant, Measured, Race, Run, Settings, Side};
use crate::search::Ledger;
use crate::stage::Origin;

/// What nobody may be able to do to a page.
const HOSTILE: &str = "</script></title><script>alert(1)</script><img src=x onerror=alert(2)>'\"&\u{0}\u{202e}\u{1b}[2J";

/// A candidate of which nothing is known.
fn evaluation(name: &str) -> Evaluation {
    Evaluation {
        rank: None,
        id: Some(format!("c-{name}")),
        name: name.to_owned(),
        parent: None,
        origin: Origin::Given,
        generation: 1,
        state: State::Done,
        duplicate_of: None,
        failure: None,
        cases: None,
        judgement: None,
        confirmation: None,
        tiebreak: None,
        metrics: None,
        gross_startup: None,
        size: None,
        meta: None,
    }
}

/// A report with two measured candidates and their runs.
fn measured() -> (EvaluationReport, Vec<Run>) {
    let bench = Bench {
        name: "topo".to_owned(),
        weight: 1.0,
        ..Bench::default()
    };
    let names = ["memo", "slots"];
    let entrants = names.map(|name| Entrant {
        id: format!("c-{name}"),
        changed_lines: 3,
    });
    let mut race = Race::new(Settings::default(), 1, vec![bench], entrants.to_vec()).unwrap();
    let mut runs = Vec::new();
    while let Some(order) = race.next_run() {
        let wall_s = match &order.side {
            Side::Candidate(id) if id == "c-memo" => 0.071,
            _ => 0.1 + f64::from(order.block % 5) * 1e-4,
        };
        let wall_s = Some(wall_s);
        runs.push(
            race.record(Measured {
                wall_s,
                ..Measured::default()
            })
            .unwrap(),
        );
    }
    let raced = race.report();
    let mut evaluations = Vec::new();
    for (placing, rank) in raced.ranking.iter().zip(1..) {
        let name = placing.candidate.id.trim_start_matches("c-");
        evaluations.push(Evaluation {
            rank: Some(rank),
            cases: Some(CaseCounts {
                passed: 7,
                total: 7,
                ..CaseCounts::default()
            }),
            judgement: placing.judgement.clone(),
            confirmation: placing.confirmation.clone(),
            ..evaluation(name)
        });
    }
    let report = EvaluationReport {
        version: crate::REPORT_VERSION,
        spec: json!({
            "bench": [{"name": "topo", "weight": 1.0}],
            "measure": {"min_effect": 0.03, "alpha": 0.05},
        }),
        base: Default::default(),
        machine: Default::default(),
        provider: Default::default(),
        baseline: Default::default(),
        noise_floor: raced.noise_floor,
        aa_failed: raced.aa_failed,
        evaluations,
        winner: raced.winner,
        measurement: Some(Measurement::default()),
        profile: None,
        proposals: None,
        costs: Default::default(),
        warnings: Vec::new(),
    };
    (report, runs)
}

/// A failure that says `text` wherever it can.
fn failure(text: &str) -> Failure {
    let said = || Some(text.to_owned());
    Failure {
        diffs: vec![Diff {
            test: text.to_owned(),
            case: text.to_owned(),
            scope: Scope::Value,
            place: said(),
            base: said(),
            candidate: said(),
            base_status: Some(CaseStatus::Passed),
            candidate_status: Some(CaseStatus::TimedOut),
            base_error: said(),
            candidate_error: said(),
            source: said(),
        }],
        diffs_total: 80,
        outcome: Some(CallSummary {
            of: text.to_owned(),
            end: CallEnd {
                verdict: fairtrial_exec::Verdict::Exit,
                code: Some(1),
                signal: None,
                wall_s: Some(1.5),
                message: text.to_owned(),
            },
            stdout: text.to_owned(),
            stderr: text.to_owned(),
        }),
        ..Failure::new(FailureKind::Mismatch, text)
    }
}

/// A ledger that says `text` wherever it can.
fn ledger(text: &str) -> Ledger {
    let malformed = json!({"problem": text, "excerpt": text, "bytes": 1});
    let candidate =
        json!({"name": text, "parent": text, "note": text, "fate": {"not_run": {"why": text}}});
    let entry = json!({
        "id": "r-1", "kind": "repair", "n": 1, "parents": [text], "ancestry": [text], "state": "failed", "asked_s": 1.0,
        "ended_s": 2.0, "tokens": 5, "error": text, "malformed": [malformed], "candidates": [candidate],
    });
    Ledger {
        entries: vec![serde_json::from_value(entry).unwrap()],
        proposer_dead: Some(text.to_owned()),
        stopped: Some(text.to_owned()),
        ..Ledger::default()
    }
}

/// Everything that somebody else may have written, written by an enemy.
fn hostile(text: &str) -> EvaluationReport {
    let (mut report, _) = measured();
    let said = || text.to_owned();
    report.base.label = said();
    report.base.hash = said();
    report.base.commit = Some(said());
    report.machine.cpu = said();
    report.machine.node = said();
    report.provider.name = said();
    report.provider.skipped = vec![(said(), said())];
    report.spec["tests"] = json!([{ "name": text }]);
    report.warnings = vec![said()];
    report.proposals = Some(ledger(text));
    report.baseline.quarantined = vec![QuarantinedCase {
        test: said(),
        case: said(),
        why: Unsteady::Value(said()),
    }];
    let terms = report.measurement.as_mut().unwrap();
    terms.pinning = said();
    terms.counters = Some(said());
    terms.benches.insert(said(), Default::default());
    for one in &mut report.evaluations {
        one.name = said();
        one.parent = Some(said());
        one.tiebreak = Some(Tiebreak {
            by: said(),
            used: true,
            count: InstructionCount::failed(text),
        });
    }
    report.evaluations.push(Evaluation {
        id: Some(said()),
        state: State::Failed,
        failure: Some(failure(text)),
        duplicate_of: None,
        ..evaluation(text)
    });
    report.evaluations.push(Evaluation {
        duplicate_of: Some(said()),
        ..evaluation(text)
    });
    let line = LineProfile {
        text: said(),
        ..LineProfile::default()
    };
    let function = FunctionProfile {
        file: said(),
        name: said(),
        lines: vec![line],
        ..FunctionProfile::default()
    };
    report.profile = Some(ProfileReport {
        command: said(),
        sides: vec![SideProfile {
            side: said(),
            note: Some(said()),
            functions: vec![function],
            stdout: said(),
            stderr: said(),
        }],
    });
    report
}

/// CA-82
#[test]
fn whatever_others_wrote_is_inert_text() {
    let (_, runs) = measured();
    let page = hostile(HOSTILE).html(&runs);
    let body = &page[page.find("<body>").unwrap()..];
    for markup in ["<script", "<img", "</script"] {
        assert!(!body.contains(markup), "{markup}");
    }
    assert_eq!(
        page.matches("<title>").count(),
        page.matches("</title>").count()
    );
    for character in ['\u{0}', '\u{202e}', '\u{1b}'] {
        assert!(!page.contains(character), "{character:?}");
    }
    // In an attribute, too: no quote of theirs ends it.
    assert!(!body.contains("onerror=alert(2)>'"));
    let said = body.matches("&lt;/script&gt;").count();
    assert!(said > 30, "{said}: all of it is told");
    assert!(page.contains("default-src 'none'"));
}

/// CA-82: sections end where they say, whoever wrote the text.
#[test]
fn every_element_that_begins_ends() {
    let (_, runs) = measured();
    let page = hostile("<details><div>").html(&runs);
    for name in [
        "details", "div", "table", "tbody", "tr", "td", "svg", "g", "figure", "summary", "p",
        "pre", "code", "small", "span", "h3",
    ] {
        let begun =
            page.matches(&format!("<{name}>")).count() + page.matches(&format!("<{name} ")).count();
        let ended = page.matches(&format!("</{name}>")).count();
        assert_eq!(begun, ended, "{name}");
    }
}

/// CA-82
#[test]
fn a_line_of_a_megabyte_does_not_become_a_page_of_gigabytes() {
    let (_, runs) = measured();
    let page = hostile(&"<".repeat(1 << 20)).html(&runs);
    assert!(page.len() < 2_000_000, "{}", page.len());
}

/// CA-82
#[test]
fn failures_are_left_out_before_the_page_is_too_large() {
    let (mut report, runs) = measured();
    for number in 0..400 {
        report.evaluations.push(Evaluation {
            state: State::Failed,
            failure: Some(failure(&"\u{1}".repeat(9000))),
            ..evaluation(&format!("f{number}"))
        });
    }
    let page = report.html(&runs);
    assert!(page.len() < 9_000_000, "{}", page.len());
    assert!(page.contains("f399"), "each is named");
}

/// CA-82
#[test]
fn the_page_shows_what_was_measured() {
    let (report, runs) = measured();
    assert_eq!(report.winner.as_deref(), Some("c-memo"));
    let page = report.html(&runs);
    assert!(page.contains("<h1>memo is faster: 0.70"), "headline");
    for part in [
        "class=\"band\"",
        "class=\"reference\"",
        "faster, confirmed",
        "A/A control",
        "noise floor",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Both raced, and the winner was confirmed; the control ran in both series.
    assert_eq!(page.matches("<figure>").count(), 3 + 2);
    assert_eq!(
        page,
        report.html(&runs),
        "the same results give the same bytes"
    );
    let without = report.html(&[]);
    assert!(without.contains("faster, confirmed") && !without.contains("<figure>"));
}

/// CA-72: a count is shown as one, and only where it decided.
#[test]
fn what_broke_a_tie_is_not_to_be_taken_for_a_time() {
    let (mut report, runs) = measured();
    let count = InstructionCount {
        instructions: [("topo".to_owned(), 1_234_567)].into(),
        failed: None,
    };
    let label = "instructions by callgrind, not measured time";
    for (used, shown) in [(true, 1), (false, 0)] {
        report.evaluations[0].tiebreak = Some(Tiebreak::by_callgrind(count.clone(), used));
        assert_eq!(report.html(&runs).matches(label).count(), shown);
    }
    let failed = InstructionCount::failed("exit code 3");
    report.evaluations[0].tiebreak = Some(Tiebreak::by_callgrind(failed, false));
    let page = report.html(&runs);
    assert!(page.contains("not counted by callgrind: exit code 3"));
}

/// CA-82, CA-19
#[test]
fn lineage_puts_children_below_their_parents_and_ends() {
    let (mut report, _) = measured();
    let child = |name: &str, parent: &str| Evaluation {
        parent: Some(format!("c-{parent}")),
        origin: Origin::Refine,
        generation: 2,
        ..evaluation(name)
    };
    report.evaluations.extend([
        child("kid", "slots"),
        child("grandkid", "kid"),
        child("ring", "ring"),
        child("a", "b"),
        child("b", "a"),
    ]);
    let page = report.html(&[]);
    let tree = &page[page.find("id=\"lineage\"").unwrap()..page.find("id=\"baseline\"").unwrap()];
    let at = |text: &str| tree.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(at("> slots <") < at("> kid <") && at("> kid <") < at("> grandkid <"));
    assert!(tree.contains("--depth:2"));
    for name in ["ring", "a", "b"] {
        assert_eq!(tree.matches(&format!("> {name} <")).count(), 1);
    }
}

/// FA-20, FA-22: the base's own time, what a ratio means, and a mark on one that is of start-up too.
#[test]
fn the_base_has_a_row_and_a_ratio_of_start_up_is_marked() {
    let (mut report, runs) = measured();
    let mut benches = BTreeMap::from([(
        "topo".to_owned(),
        BenchFacts {
            startup_s: Some(0.074),
            ..BenchFacts::default()
        },
    )]);
    fill(&mut benches, &runs);
    let share = gross_startup(&benches).expect("three quarters");
    assert!((0.7..0.8).contains(&share), "{share}");
    if let Some(measured) = &mut report.measurement {
        measured.benches = benches;
    }
    let plain = report.html(&runs);
    assert!(plain.contains("Base<small>topo</small>"), "{plain}");
    assert!(plain.contains(" per run, spread "), "{plain}");
    assert!(plain.contains("1.4 times faster"), "{plain}");
    assert!(
        !plain.contains("of the base’s is start-up"),
        "nothing is marked"
    );
    for one in &mut report.evaluations {
        one.gross_startup = Some(share);
    }
    let marked = report
        .html(&runs)
        .matches("of the base’s is start-up")
        .count();
    // The title, the heading, the first figure and both rows.
    assert!(marked >= 5, "{marked}");
}
