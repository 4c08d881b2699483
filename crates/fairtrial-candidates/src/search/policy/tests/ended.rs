//! When nobody is asked any more: budgets spent (CA-92), proposers dead (CA-87).

use super::*;

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
