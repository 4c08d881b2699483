//! The search and a proposer together, as an engine drives them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fairtrial_candidates::measure::{Entrant, Judgement, Placing, Report, Tally, Verdict};
use fairtrial_candidates::search::{
    Answer, BaseFacts, Callable, Checked, Failure, FailureKind, Found, FunctionProposer, Ledger,
    Parent, Proposer, Request, RequestId, Search, Settings, Step, Terms,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(3600);

/// A function that answers the later the lower the id, and counts how many questions are open.
fn late_answers(open: Arc<AtomicUsize>, most: Arc<AtomicUsize>) -> Proposer {
    let function: Callable = Box::new(move |request: Request| {
        let (open, most) = (open.clone(), most.clone());
        Box::pin(async move {
            most.fetch_max(open.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            let request = request.to_json();
            let number: u64 = request["id"].as_str().expect("an id")[2..]
                .parse()
                .expect("a number");
            tokio::time::sleep(Duration::from_secs(100_u64.saturating_sub(7 * number))).await;
            open.fetch_sub(1, Ordering::AcqRel);
            let patch = |n: u64| format!("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+{number}.{n}\n");
            let n = request["n"].as_u64().expect("a number");
            match number % 5 {
                4 => Err("out of ideas".to_owned()),
                3 => Ok(json!({"candidates": [{"note": "no patch"}]})),
                _ => {
                    let candidates: Vec<Value> =
                        (0..n).map(|n| json!({"patch": patch(n)})).collect();
                    Ok(json!({"candidates": candidates, "tokens": 10}))
                }
            }
        })
    });
    Proposer::Function(FunctionProposer::new(function, HOUR))
}

/// Phase 1 and races that take no time: everything is right, and the newer the faster.
struct Engine {
    search: Search,
    proposer: Proposer,
    asking: JoinSet<(RequestId, Result<Answer, Failure>)>,
    rounds: u32,
}

impl Engine {
    fn send(&mut self) {
        while let Some(ask) = self.search.next_ask() {
            let facts = |id: &str| Parent {
                id: id.to_owned(),
                ..Parent::default()
            };
            let asking = self
                .proposer
                .ask(Request::new(&ask, BaseFacts::default(), facts));
            self.asking.spawn(async move { (ask.id, asking.await) });
        }
    }

    async fn run(mut self) -> Ledger {
        loop {
            self.send();
            match self.search.step(false) {
                Step::Evaluate => {
                    while let Some(proposal) = self.search.next_proposal() {
                        let id = format!("c-{}", proposal.id);
                        self.search.evaluated(proposal.id, Some(id), Found::Correct);
                    }
                }
                Step::Race(entrants) => {
                    self.search.race_began();
                    self.rounds += 1;
                    self.search.raced(self.rounds, &all_faster(entrants));
                }
                Step::Await => match self
                    .asking
                    .join_next()
                    .await
                    .expect("somebody is asked")
                    .expect("no panic")
                {
                    (id, Ok(answer)) => self.search.answered(id, answer),
                    (id, Err(failure)) => self.search.failed(id, failure),
                },
                Step::Over => return self.search.ledger(),
            }
        }
    }
}

fn all_faster(mut entrants: Vec<String>) -> Report {
    entrants.reverse();
    let placing = |id: String| Placing {
        candidate: Entrant {
            id,
            changed_lines: 1,
        },
        judgement: Some(Judgement {
            verdict: Verdict::Faster,
            against_base: Verdict::Faster,
            leaning: None,
            doubt: None,
            ratio: 0.8,
            low: 0.7,
            high: 0.9,
            hodges_lehmann: 0.8,
            level: 0.99,
            blocks: 8,
        }),
        confirmation: None,
        equals_leader: false,
        instructions: None,
        failure: None,
    };
    Report {
        ranking: entrants.into_iter().map(placing).collect(),
        winner: None,
        noise_floor: Some(0.01),
        aa_failed: false,
        tally: Tally::default(),
    }
}

/// CA-84, CA-90
#[tokio::test(start_paused = true)]
async fn every_answer_of_a_function_is_consumed_in_whatever_order_it_comes() {
    let most = Arc::new(AtomicUsize::new(0));
    let mut settings = Settings::default();
    settings.refine.batch = false;
    settings.adaptive.total = 8;
    let terms = Terms {
        races: true,
        shares_cpus: true,
    };
    let mut search = Search::new(settings, terms);
    for number in 0..6 {
        search.checked(Checked {
            id: format!("g-{number}"),
            parent: None,
            generation: 1,
            found: Found::Correct,
        });
    }
    let engine = Engine {
        search,
        proposer: late_answers(Arc::default(), most.clone()),
        asking: JoinSet::new(),
        rounds: 0,
    };
    let patience = Duration::from_secs(100_000);
    let ledger = tokio::time::timeout(patience, engine.run())
        .await
        .expect("it ends");
    assert!(ledger.requests >= 5, "{ledger:#?}");
    assert_eq!(ledger.requests, ledger.answered + ledger.failed);
    assert!(ledger.answered > 0 && ledger.failed >= 2, "{ledger:#?}");
    assert_eq!(ledger.proposed, ledger.evaluated);
    assert_eq!(ledger.tokens, 10 * ledger.answered as u64);
    assert!(
        (2..=4).contains(&most.load(Ordering::Acquire)),
        "several at once, within `concurrency`"
    );
}

/// CA-84, CA-86
#[tokio::test]
async fn a_function_is_held_to_what_programs_are_held_to() {
    let said = |answer: Result<Value, String>| {
        let function: Callable = Box::new(move |_| {
            let answer = answer.clone();
            Box::pin(async move { answer })
        });
        let proposer = Proposer::Function(FunctionProposer::new(function, HOUR));
        let mut search = Search::new(
            Settings::default(),
            Terms {
                races: false,
                shares_cpus: true,
            },
        );
        let found = Found::Failed {
            kind: fairtrial_candidates::FailureKind::Mismatch,
            differing: 1,
            cases: 10,
        };
        search.checked(Checked {
            id: "c-1".to_owned(),
            parent: None,
            generation: 1,
            found,
        });
        let ask = search.next_ask().expect("a repair");
        proposer.ask(Request::new(&ask, BaseFacts::default(), |_| {
            Parent::default()
        }))
    };
    let kind = |answer: Result<Answer, Failure>| answer.expect_err("no answer").kind;
    assert!(said(Ok(json!({"candidates": []}))).await.is_ok());
    assert_eq!(
        kind(said(Err("no".to_owned())).await),
        FailureKind::Declined
    );
    assert_eq!(
        kind(said(Ok(json!({"error": "no"}))).await),
        FailureKind::Declined
    );
    assert_eq!(kind(said(Ok(json!([1]))).await), FailureKind::Malformed);
    assert_eq!(
        kind(said(Ok(json!({"candidates": [{}]}))).await),
        FailureKind::Malformed
    );
}
