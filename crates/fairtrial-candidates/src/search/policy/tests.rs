//! The rules, one by one. That every answer is consumed, whatever the order, is in `consumed.rs`.

mod consumed;
mod ended;
mod refined;

use super::super::answer::Proposed;
use super::super::ask::Kind;
use super::super::ledger::State;
use super::*;
use crate::cases;
use crate::measure::simulation::placing;
use crate::measure::{Placing, Tally, Verdict};
use crate::stage::Content;

const TERMS: Terms = Terms {
    races: true,
    shares_cpus: false,
};

fn search() -> Search {
    Search::new(Settings::default(), TERMS)
}

fn given(id: &str, found: Found) -> Checked {
    Checked {
        id: id.to_owned(),
        parent: None,
        generation: 1,
        found,
    }
}

fn mismatch(differing: usize, cases: usize) -> Found {
    Found::Failed {
        kind: cases::FailureKind::Mismatch,
        differing,
        cases,
    }
}

fn proposed(text: &str) -> Proposed {
    Proposed {
        content: Content::Patch(text.into()),
        note: None,
        parent: None,
    }
}

fn answer(count: usize) -> Answer {
    Answer {
        candidates: (0..count)
            .map(|number| proposed(&number.to_string()))
            .collect(),
        ..Answer::default()
    }
}

fn report(ranking: Vec<Placing>) -> Report {
    Report {
        winner: None,
        noise_floor: Some(0.01),
        aa_failed: false,
        tally: Tally::default(),
        ranking,
    }
}

fn faster(ids: &[&str]) -> Report {
    let ratios = (0_u8..).map(|place| 0.5 + 0.01 * f64::from(place));
    let placings = ids
        .iter()
        .zip(ratios)
        .map(|(id, ratio)| placing(id, Verdict::Faster, ratio));
    report(placings.collect())
}

fn asks(search: &mut Search) -> Vec<Ask> {
    std::iter::from_fn(|| search.next_ask()).collect()
}

/// Kind and parents of what is asked now.
fn asked(search: &mut Search) -> Vec<(Kind, String)> {
    let asks = asks(search).into_iter();
    asks.map(|ask| (ask.kind, ask.parents.join(" "))).collect()
}

/// All proposals of an answer, evaluated under these ids.
fn evaluate(search: &mut Search, ids: &[&str]) {
    for id in ids {
        let proposal = search.next_proposal().expect("a proposal waits");
        search.evaluated(proposal.id, Some((*id).to_owned()), Found::Correct);
    }
}

/// CA-88
#[test]
fn a_first_failure_with_few_differences_is_repaired_at_once() {
    let mut search = search();
    search.checked(given("c-1", mismatch(3, 10)));
    assert_eq!(asked(&mut search), [(Kind::Repair, "c-1".to_owned())]);
    search.checked(given("c-1", mismatch(3, 10)));
    assert!(
        asked(&mut search).is_empty(),
        "it is told twice and repaired once"
    );
}

/// CA-88
#[test]
fn what_is_not_worth_repairing_is_not() {
    let failed = |kind, differing, cases| Found::Failed {
        kind,
        differing,
        cases,
    };
    let cases = [
        (
            "more than the share differs",
            given("c-1", mismatch(31, 100)),
        ),
        (
            "nothing is known to differ",
            given("c-1", failed(cases::FailureKind::Timeout, 0, 10)),
        ),
        (
            "no case was judged",
            given("c-1", failed(cases::FailureKind::NoResults, 0, 0)),
        ),
        (
            "the engine is at fault",
            given("c-1", failed(cases::FailureKind::Infra, 1, 10)),
        ),
        ("it is right", given("c-1", Found::Correct)),
        (
            "it is a child",
            Checked {
                generation: 2,
                ..given("c-1", mismatch(1, 10))
            },
        ),
    ];
    for (why, checked) in cases {
        let mut search = search();
        search.checked(checked);
        assert!(asked(&mut search).is_empty(), "{why}");
    }
}

/// CA-88
#[test]
fn repairs_end_at_their_maximum_and_when_enough_are_correct() {
    let mut search = search();
    for number in 0..5 {
        search.checked(given(&format!("c-{number}"), mismatch(1, 10)));
    }
    assert_eq!(asked(&mut search).len(), 3);
    let mut search = self::search();
    search.checked(given("c-1", Found::Correct));
    search.checked(given("c-2", mismatch(1, 10)));
    search.checked(given("c-3", Found::Correct));
    assert!(
        asked(&mut search).is_empty(),
        "it waited until it was needless"
    );
    search.checked(given("c-4", mismatch(1, 10)));
    assert!(asked(&mut search).is_empty());
}

/// CA-19, CA-84
#[test]
fn a_proposal_has_parent_origin_generation_and_a_place_after_all_that_were_given() {
    let mut search = search();
    search.checked(given("c-1", mismatch(1, 10)));
    let ask = search.next_ask().expect("a repair");
    let mut answer = answer(1);
    answer.candidates[0].note = Some("sorted".to_owned());
    search.answered(ask.id, answer);
    let proposal = search.next_proposal().expect("it waits");
    assert_eq!((proposal.origin, proposal.generation), (Origin::Repair, 2));
    assert_eq!(proposal.given.parent.as_deref(), Some("c-1"));
    assert_eq!(proposal.given.name, "r-1.1");
    assert_eq!(proposal.given.meta.expect("a note")["note"], "sorted");
    assert!(proposal.given.place > Given::patch(9, b"z.patch", Vec::new()).place);
    assert_eq!(search.step(false), Step::Evaluate);
    assert_eq!(search.next_proposal(), None);
}

/// CA-91
#[test]
fn a_race_waits_for_a_proposer_that_shares_the_cpus_and_for_no_other() {
    for shares_cpus in [true, false] {
        let terms = Terms {
            races: true,
            shares_cpus,
        };
        let mut search = Search::new(Settings::default(), terms);
        search.checked(given("c-1", Found::Correct));
        search.checked(given("c-2", mismatch(1, 10)));
        let ask = search.next_ask().expect("a repair");
        assert_eq!(
            search.step(true),
            Step::Evaluate,
            "phase 1 waits for nobody"
        );
        let race = Step::Race(vec!["c-1".to_owned()]);
        let expected = if shares_cpus {
            Step::Await
        } else {
            race.clone()
        };
        assert_eq!(search.step(false), expected);
        search.failed(ask.id, Failure::new(FailureKind::Lost, "no answer"));
        assert_eq!(search.step(false), race);
        search.race_began();
        search.checked(given("c-3", mismatch(1, 10)));
        assert_eq!(search.next_ask().is_none(), shares_cpus, "while it races");
        search.raced(1, &faster(&["c-1"]));
        assert!(search.next_ask().is_some());
    }
}

/// CA-92
#[test]
fn each_race_has_the_best_so_far_and_all_that_are_new() {
    let mut search = search();
    for id in ["c-1", "c-2"] {
        search.checked(given(id, Found::Correct));
    }
    assert_eq!(
        search.step(false),
        Step::Race(vec!["c-1".to_owned(), "c-2".to_owned()])
    );
    search.raced(1, &faster(&["c-2", "c-1"]));
    let ask = search.next_ask().expect("a refinement");
    search.answered(ask.id, answer(2));
    evaluate(&mut search, &["c-3", "c-4"]);
    let entrants = ["c-2", "c-3", "c-4"].map(str::to_owned).to_vec();
    assert_eq!(search.step(false), Step::Race(entrants));
}

#[test]
fn without_races_there_is_nothing_to_wait_for() {
    let terms = Terms {
        races: false,
        shares_cpus: true,
    };
    let mut search = Search::new(Settings::default(), terms);
    search.checked(given("c-1", Found::Correct));
    assert_eq!(search.step(false), Step::Over);
}

/// CA-84, CA-90
#[test]
fn more_candidates_than_were_asked_for_are_not_run() {
    let mut search = search();
    search.raced(1, &faster(&["c-1"]));
    let ask = search.next_ask().expect("a request");
    search.answered(ask.id, answer(3));
    evaluate(&mut search, &["c-2"]);
    let ledger = search.ledger();
    assert_eq!(
        (ledger.proposed, ledger.evaluated, ledger.not_run),
        (3, 1, 2)
    );
}

/// CA-96: what was tried under a larger budget stays tried.
#[test]
fn a_resumed_search_may_have_another_budget() {
    let mut search = search();
    search.raced(1, &faster(&["c-1", "c-2"]));
    let ask = search.next_ask().expect("a batch");
    search.answered(ask.id, answer(2));
    let last = std::iter::from_fn(|| search.next_proposal())
        .last()
        .expect("two proposals");
    search.evaluated(last.id, Some("c-3".to_owned()), Found::Correct);
    let mut settings = Settings::default();
    settings.budget.candidates = 0;
    let mut resumed = Search::replay(settings, TERMS, search.take_records());
    assert_eq!(resumed.next_proposal(), None);
    let ledger = resumed.ledger();
    assert_eq!((ledger.evaluated, ledger.not_run), (1, 1));
}

/// CA-97
#[test]
fn a_resumed_search_uses_recorded_answers_and_sends_open_requests_again() {
    let mut search = search();
    search.checked(given("c-1", mismatch(1, 10)));
    search.checked(given("c-2", mismatch(1, 10)));
    let [first, second] = &asks(&mut search)[..] else {
        panic!("two requests")
    };
    search.answered(first.id, answer(1));
    search
        .next_proposal()
        .expect("being tried when the engine was killed");
    let text = serde_json::to_string(&search.take_records()).expect("written");
    let records: Vec<Record> = serde_json::from_str(&text).expect("read");
    let mut resumed = Search::replay(Settings::default(), TERMS, records);
    resumed.checked(given("c-1", mismatch(1, 10)));
    assert_eq!(asks(&mut resumed), std::slice::from_ref(second));
    assert_eq!(
        resumed.next_proposal().expect("tried again").id.request,
        first.id
    );
    assert!(
        resumed.take_records().is_empty(),
        "nothing is written twice"
    );
}

/// CA-79
#[test]
fn the_ledger_is_plain_data() {
    let mut search = search();
    search.now(Duration::from_millis(1500));
    search.checked(given("c-1", mismatch(1, 10)));
    let ask = search.next_ask().expect("a repair");
    search.now(Duration::from_millis(2500));
    let secrets = crate::search::secrets::Secrets::none();
    search.failed(
        ask.id,
        Malformed::new("has no patch", b"{}", &secrets).into(),
    );
    search.stray(Malformed::new("is not JSON", b"hello", &secrets));
    let ledger = search.ledger();
    let entry = &ledger.entries[0];
    assert_eq!(
        (entry.asked_s, entry.ended_s, entry.state),
        (1.5, Some(2.5), State::Failed)
    );
    assert_eq!(entry.malformed[0].excerpt, "{}");
    assert_eq!(ledger.strays[0].malformed.excerpt, "hello");
    let text = serde_json::to_string(&ledger).expect("written");
    assert_eq!(serde_json::from_str::<Ledger>(&text).expect("read"), ledger);
}
