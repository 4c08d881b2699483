//! What is made better: the best of a race, and what came of them (CA-89).

use super::*;
use crate::measure::Confirmation;

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
