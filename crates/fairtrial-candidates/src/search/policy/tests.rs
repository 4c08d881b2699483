//! The rules, one by one; that every answer is consumed, whatever the order, is in `consumed.rs`.

mod consumed;

use super::super::answer::Proposed;
use super::super::ask::Kind;
use super::super::ledger::State;
use super::*;
use crate::measure::{Confirmation, Entrant, Judgement, Placing, Tally, Verdict};
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
        kind: "mismatch".to_owned(),
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

fn placing(id: &str, verdict: Verdict, ratio: f64) -> Placing {
    Placing {
        candidate: Entrant {
            id: id.to_owned(),
            changed_lines: 1,
        },
        judgement: Some(Judgement {
            verdict,
            against_base: verdict,
            leaning: None,
            doubt: None,
            ratio,
            low: ratio,
            high: ratio,
            hodges_lehmann: ratio,
            level: 0.99,
            blocks: 8,
        }),
        confirmation: None,
        equals_leader: false,
        instructions: None,
        failure: None,
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
    let failed = |kind: &str, differing, cases| Found::Failed {
        kind: kind.to_owned(),
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
            given("c-1", failed("timeout", 0, 10)),
        ),
        (
            "no case was judged",
            given("c-1", failed("no_results", 0, 0)),
        ),
        (
            "the engine is at fault",
            given("c-1", failed("infra", 1, 10)),
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

/// CA-89
#[test]
fn the_best_of_a_race_are_refined_in_one_request() {
    let mut search = search();
    for id in ["c-1", "c-2", "c-3", "c-4"] {
        search.checked(given(id, Found::Correct));
    }
    search.raced(1, &faster(&["c-3", "c-1", "c-4", "c-2"]));
    let [ask] = &asks(&mut search)[..] else {
        panic!("one request")
    };
    assert_eq!((ask.kind, ask.n), (Kind::Refine, 3));
    assert_eq!(ask.parents, ["c-3", "c-1", "c-4"]);
    search.raced(1, &faster(&["c-2"]));
    assert!(
        asks(&mut search).is_empty(),
        "a race is told twice and counts once"
    );
}

/// CA-89
#[test]
fn only_gains_beyond_the_noise_floor_that_did_not_vanish_are_refined() {
    let mut vanished = placing("c-2", Verdict::Faster, 0.5);
    vanished.confirmation = Some(Confirmation {
        confirmed: false,
        judgement: None,
        failure: None,
    });
    let mut failed = placing("c-3", Verdict::Faster, 0.5);
    failed.failure = Some("timeout".to_owned());
    let mut search = search();
    search.raced(
        1,
        &report(vec![
            placing("c-1", Verdict::Faster, 0.995),
            vanished,
            failed,
            placing("c-4", Verdict::Eliminated, 0.8),
            placing("c-5", Verdict::Equal, 0.99),
            placing("c-6", Verdict::Faster, 0.9),
        ]),
    );
    assert_eq!(asked(&mut search), [(Kind::Refine, "c-6".to_owned())]);
}

/// CA-89
#[test]
fn a_batch_that_is_declined_is_asked_one_by_one() {
    let mut search = search();
    search.raced(1, &faster(&["c-1", "c-2"]));
    let ask = search.next_ask().expect("a batch");
    search.failed(ask.id, Failure::new(FailureKind::Declined, "one at a time"));
    let singly = ["c-1", "c-2"].map(|id| (Kind::Refine, id.to_owned()));
    let asks = asks(&mut search);
    assert_eq!(
        asks.iter()
            .map(|ask| (ask.kind, ask.parents.join(" ")))
            .collect::<Vec<_>>(),
        singly
    );
    search.failed(
        asks[0].id,
        Failure::new(FailureKind::Declined, "not that one"),
    );
    assert!(
        search.next_ask().is_none(),
        "who declines one is not asked again"
    );
}

/// CA-89
#[test]
fn without_batches_each_is_asked_for_itself() {
    let mut settings = Settings::default();
    settings.refine.batch = false;
    let mut search = Search::new(settings, TERMS);
    search.raced(1, &faster(&["c-1", "c-2"]));
    assert_eq!(asked(&mut search).len(), 2);
}

/// CA-89
#[test]
fn descendants_of_the_refined_are_adapted_with_their_whole_ancestry() {
    let mut search = search();
    search.checked(given("c-1", Found::Correct));
    search.raced(1, &faster(&["c-1"]));
    let mut last = "c-1";
    for (round, child) in [(2, "c-2"), (3, "c-3"), (4, "c-4")] {
        let ask = search.next_ask().expect("a request");
        assert_eq!(ask.parents, [last]);
        search.answered(ask.id, answer(1));
        evaluate(&mut search, &[child]);
        search.raced(round, &faster(&[child, "c-1"]));
        last = child;
    }
    let entries = search.ledger().entries;
    assert_eq!(entries[0].kind, Kind::Refine);
    assert_eq!(
        (entries[1].kind, &entries[1].ancestry[..]),
        (Kind::Adaptive, &["c-1".to_owned()][..])
    );
    assert_eq!(entries[2].ancestry, ["c-1", "c-2"]);
    assert_eq!(search.next_ask(), None, "two in a lineage are enough");
}

/// CA-89
#[test]
fn adaptive_requests_end_at_their_total() {
    let mut settings = Settings::default();
    settings.adaptive.total = 2;
    let mut search = Search::new(settings, TERMS);
    for id in ["c-1", "c-2", "c-3"] {
        search.checked(given(id, Found::Correct));
    }
    search.raced(1, &faster(&["c-1", "c-2", "c-3"]));
    let ask = search.next_ask().expect("a batch");
    search.answered(ask.id, answer(3));
    evaluate(&mut search, &["c-4", "c-5", "c-6"]);
    search.raced(2, &faster(&["c-4", "c-5", "c-6"]));
    assert_eq!(asked(&mut search).len(), 2);
}

/// CA-84: of a batch, the answer says which parent each is from, or goes parent by parent.
#[test]
fn candidates_of_a_batch_know_their_parents() {
    let mut search = search();
    search.raced(1, &faster(&["c-1", "c-2", "c-3"]));
    let ask = search.next_ask().expect("a batch");
    let mut answer = answer(3);
    answer.candidates[0].parent = Some("c-3".to_owned());
    answer.candidates[2].parent = Some("stranger".to_owned());
    search.answered(ask.id, answer);
    let parents =
        std::iter::from_fn(|| search.next_proposal()).map(|proposal| proposal.given.parent);
    let parents: Vec<_> = parents.flatten().collect();
    assert_eq!(parents, ["c-3", "c-2", "c-3"]);
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

/// CA-92
#[test]
fn a_spent_budget_stops_asking_and_says_so() {
    let spent = |change: fn(&mut Settings), tokens| {
        let mut settings = Settings::default();
        settings.refine.batch = false;
        change(&mut settings);
        let mut search = Search::new(settings, TERMS);
        search.raced(1, &faster(&["c-1", "c-2", "c-3"]));
        while let Some(ask) = search.next_ask() {
            search.answered(
                ask.id,
                Answer {
                    tokens,
                    ..answer(1)
                },
            );
        }
        while let Some(proposal) = search.next_proposal() {
            search.duplicate(proposal.id, "c-1".to_owned());
        }
        assert_eq!(search.step(false), Step::Over);
        let ledger = search.ledger();
        (ledger.requests, ledger.duplicates, ledger.stopped)
    };
    let because = |what: &str| Some(format!("budget spent: {what}"));
    assert_eq!(spent(|_| {}, None), (3, 3, None));
    assert_eq!(
        spent(|s| s.budget.requests = 2, None),
        (2, 2, because("requests"))
    );
    assert_eq!(
        spent(|s| s.budget.candidates = 1, None),
        (1, 1, because("candidates"))
    );
    assert_eq!(
        spent(|s| s.budget.tokens = Some(20), Some(10)),
        (2, 2, because("tokens"))
    );
}

/// CA-92
#[test]
fn when_time_is_up_open_requests_are_cancelled_and_what_waits_is_not_run() {
    let mut settings = Settings::default();
    settings.budget.wall = Some(Duration::from_secs(60));
    settings.refine.batch = false;
    let mut search = Search::new(settings, TERMS);
    search.raced(1, &faster(&["c-1", "c-2"]));
    let [first, second] = &asks(&mut search)[..] else {
        panic!("two requests")
    };
    search.answered(first.id, answer(1));
    let running = search.next_proposal().expect("a proposal");
    search.now(Duration::from_secs(59));
    assert!(!search.out_of_time() && search.is_open(second.id));
    search.now(Duration::from_secs(60));
    assert!(search.out_of_time() && !search.is_open(second.id));
    search.answered(second.id, answer(1));
    assert_eq!(search.step(false), Step::Evaluate, "what runs goes on");
    search.evaluated(running.id, Some("c-3".to_owned()), Found::Correct);
    assert_eq!(
        search.step(false),
        Step::Race(vec!["c-1".to_owned(), "c-3".to_owned()])
    );
    search.raced(2, &faster(&["c-3"]));
    assert_eq!((search.next_ask(), search.step(false)), (None, Step::Over));
    let ledger = search.ledger();
    assert_eq!(
        (ledger.answered, ledger.cancelled, ledger.proposed),
        (1, 1, 1)
    );
    assert_eq!(ledger.stopped.as_deref(), Some("budget spent: wall"));
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

/// CA-87
#[test]
fn when_the_proposer_is_dead_what_is_at_hand_is_still_tried() {
    let mut search = search();
    search.raced(1, &faster(&["c-1"]));
    let ask = search.next_ask().expect("a request");
    search.answered(ask.id, answer(1));
    search.checked(given("c-2", mismatch(1, 10)));
    let lost = search.next_ask().expect("a repair");
    search.checked(given("c-3", mismatch(1, 10)));
    let dead = Failure::new(FailureKind::ProposerDead, "exited 4 times");
    search.failed(lost.id, dead);
    assert_eq!(search.next_ask(), None);
    evaluate(&mut search, &["c-4"]);
    assert_eq!(
        search.step(false),
        Step::Race(vec!["c-1".to_owned(), "c-4".to_owned()])
    );
    let ledger = search.ledger();
    assert_eq!((ledger.answered, ledger.failed), (1, 1));
    assert_eq!(ledger.proposer_dead.as_deref(), Some("exited 4 times"));
    assert_eq!(
        ledger.entries[1].error.as_deref(),
        Some("proposer_dead: exited 4 times")
    );
}

/// CA-87
#[test]
fn a_proposer_that_is_closed_when_all_is_over_did_not_die() {
    let mut search = search();
    search.checked(given("c-1", mismatch(1, 10)));
    let ask = search.next_ask().expect("a repair");
    search.stop("interrupted");
    search.failed(
        ask.id,
        Failure::new(FailureKind::ProposerDead, "the proposer was closed"),
    );
    let ledger = search.ledger();
    assert_eq!((ledger.cancelled, ledger.proposer_dead), (1, None));
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
