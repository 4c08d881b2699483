//! A function of the caller's that proposes (CA-84). It cannot be killed or started again: once it hangs, it is not asked
//! any more, and whoever still runs it is left alone (CA-87).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::answer::{Failure, FailureKind};
use super::proposer::Asking;
use super::wire::{Request, said_by};

/// A function of the caller's that answers with the JSON of an answer, without its id; an error is a refusal.
pub type Callable = Box<
    dyn Fn(Request) -> Pin<Box<dyn Future<Output = Result<Value, String>> + Send>> + Send + Sync,
>;

/// Such a function, and how long it may be asked something and answer nothing.
pub struct FunctionProposer {
    function: Callable,
    timeout: Duration,
    heard: Arc<Mutex<Heard>>,
}

#[derive(Clone, Debug, Default)]
struct Heard {
    /// When it last answered.
    last: Option<Instant>,
    /// Why it is not asked any more.
    dead: Option<String>,
}

impl FunctionProposer {
    /// A function that was not asked anything yet.
    #[must_use]
    pub fn new(function: Callable, timeout: Duration) -> Self {
        Self {
            function,
            timeout,
            heard: Arc::default(),
        }
    }

    pub(super) fn ask(&self, request: Request) -> Asking {
        let (heard, timeout) = (Arc::clone(&self.heard), self.timeout);
        if let Some(why) = look(&heard).dead {
            return Box::pin(async move { Err(Failure::new(FailureKind::ProposerDead, why)) });
        }
        let mut answer = (self.function)(request);
        Box::pin(async move {
            let asked = Instant::now();
            loop {
                // Who answers does not hang: it may take one request after the other.
                let since = look(&heard).last.map_or(asked, |last| last.max(asked));
                let Some(deadline) = since.checked_add(timeout) else {
                    return said(answer.await);
                };
                if let Ok(answer) = timeout_at(deadline, &mut answer).await {
                    heard.lock().expect("nothing panics under the lock").last =
                        Some(Instant::now());
                    return said(answer);
                }
                if look(&heard).last.is_none_or(|last| last <= since) {
                    let seconds = timeout.as_secs_f64();
                    let why = format!("the proposer did not answer within {seconds} s");
                    let mut heard = heard.lock().expect("nothing panics under the lock");
                    let why = heard.dead.get_or_insert(why).clone();
                    return Err(Failure::new(FailureKind::ProposerDead, why));
                }
            }
        })
    }
}

fn look(heard: &Mutex<Heard>) -> Heard {
    heard.lock().expect("nothing panics under the lock").clone()
}

fn said(answer: Result<Value, String>) -> Result<super::answer::Answer, Failure> {
    match answer {
        Ok(answer) => said_by(answer),
        Err(error) => Err(Failure::new(FailureKind::Declined, error)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use tokio::sync::oneshot;

    use super::*;
    use crate::search::{Ask, BaseFacts, Kind, Parent, RequestId};

    const TIMEOUT: Duration = Duration::from_secs(10);

    type Answers = Arc<Mutex<BTreeMap<String, oneshot::Sender<Value>>>>;

    /// A function that answers when the test does.
    fn proposer() -> (FunctionProposer, Answers) {
        let answers = Answers::default();
        let kept = Arc::clone(&answers);
        let function = move |request: Request| -> Pin<Box<dyn Future<Output = _> + Send>> {
            let (answer, answered) = oneshot::channel();
            kept.lock().unwrap().insert(request.id.to_string(), answer);
            Box::pin(async move { answered.await.map_err(|_| "nobody answered".to_owned()) })
        };
        (FunctionProposer::new(Box::new(function), TIMEOUT), answers)
    }

    fn request(number: usize) -> Request {
        let ask = Ask {
            id: RequestId::numbered(number),
            kind: Kind::Repair,
            n: 1,
            parents: Vec::new(),
            ancestry: Vec::new(),
        };
        Request::new(&ask, BaseFacts::default(), |_| Parent::default())
    }

    fn answer(answers: &Answers, id: &str) {
        let answer = answers.lock().unwrap().remove(id).expect("it was asked");
        answer.send(json!({"candidates": []})).unwrap();
    }

    /// CA-84, CA-87
    #[tokio::test(start_paused = true)]
    async fn a_function_that_hangs_is_not_asked_again() {
        let (proposer, answers) = proposer();
        let hung = proposer.ask(request(1)).await.unwrap_err();
        assert_eq!(hung.kind, FailureKind::ProposerDead);
        assert_eq!(hung.message, "the proposer did not answer within 10 s");
        let again = proposer.ask(request(2)).await.unwrap_err();
        assert_eq!(again.kind, FailureKind::ProposerDead);
        assert!(
            !answers.lock().unwrap().contains_key("r-2"),
            "it is left alone"
        );
    }

    /// CA-87
    #[tokio::test(start_paused = true)]
    async fn a_function_that_answers_one_request_after_the_other_does_not_hang() {
        let (proposer, answers) = proposer();
        let (first, second) = (proposer.ask(request(1)), proposer.ask(request(2)));
        let (first, second) = (tokio::spawn(first), tokio::spawn(second));
        tokio::time::sleep(TIMEOUT * 9 / 10).await;
        answer(&answers, "r-1");
        first.await.unwrap().unwrap();
        tokio::time::sleep(TIMEOUT * 9 / 10).await;
        answer(&answers, "r-2");
        second.await.unwrap().unwrap();
    }
}
