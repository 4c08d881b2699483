//! The proposer, and what is asked of it and not yet answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::course::Course;
use super::event::Event;
use super::field::Field;
use crate::search::{
    Answer, BaseFacts, Failure, News, Parent, Proposer, Request, RequestId, sources,
};
use crate::stage::{Base, Content, PostImages, unified};

/// Who is asked for more candidates, if anybody.
#[derive(Default)]
pub(crate) struct Asking {
    proposer: Option<Arc<Proposer>>,
    open: JoinSet<(RequestId, Result<Answer, Failure>)>,
    news: Option<mpsc::UnboundedReceiver<News>>,
    /// When nothing more is begun.
    wall: Option<Duration>,
}

/// What a proposer said.
pub(crate) enum Heard {
    /// A request has ended.
    Ended(RequestId, Result<Answer, Failure>),
    /// Something else.
    News(News),
}

impl Asking {
    pub(crate) fn new(mut proposer: Proposer, wall: Option<Duration>) -> Self {
        Self {
            news: proposer.take_news(),
            proposer: Some(Arc::new(proposer)),
            open: JoinSet::new(),
            wall,
        }
    }

    /// The next thing that is said; never, if nothing can be.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        let news = async {
            match &mut self.news {
                Some(news) => news.recv().await,
                None => None,
            }
        };
        tokio::select! {
            Some(joined) = self.open.join_next() => {
                let (request, answer) = joined.ok()?; // a task of ours that panicked
                Some(Heard::Ended(request, answer))
            }
            Some(news) = news => Some(Heard::News(news)),
            else => std::future::pending().await,
        }
    }

    /// Ends when the time for the evaluation is spent, once.
    pub(crate) fn time_is_up(&self, begun: Instant) -> impl Future<Output = ()> + use<> {
        let at = self.wall.and_then(|wall| begun.checked_add(wall));
        let at = at.filter(|at| *at > Instant::now());
        async move {
            match at {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        }
    }

    fn send(&mut self, request: Request) {
        if let Some(proposer) = &self.proposer {
            let (id, asking) = (request.id, proposer.ask(request));
            self.open.spawn(async move { (id, asking.await) });
        }
    }

    /// Gives up what is open, and ends the proposer.
    pub(crate) async fn close(&mut self) {
        self.open.shutdown().await;
        if let Some(proposer) = self.proposer.take().and_then(Arc::into_inner) {
            proposer.close().await;
        }
    }
}

impl Course<'_> {
    /// Sends what is to be asked.
    pub(super) fn ask(&mut self) {
        while let Some(ask) = self.search.next_ask() {
            let base = BaseFacts {
                hash: self.reception.terms.base_hash.clone(),
                sources: base_sources(&self.field, self.reception.base, &ask.parents),
            };
            let request = Request::new(&ask, base, |id| self.facts(id));
            self.scene.telling.tell(proposal(ask.id, "asked", 0));
            self.asking.send(request);
        }
    }

    /// What a proposer is told of a candidate.
    fn facts(&self, id: &str) -> Parent {
        let mut parent = Parent {
            id: id.to_owned(),
            ..Parent::default()
        };
        let Some(entry) = self
            .field
            .find(id)
            .map(|number| &self.field.entries[number])
        else {
            return parent;
        };
        if let Some(staged) = &entry.staged {
            parent.sources = sources(&staged.images);
            parent.patch = unified(&staged.images, self.reception.base);
        }
        // As it was given, where it was given as one.
        if let Some(Content::Patch(text)) = &entry.content {
            parent.patch = String::from_utf8(text.clone()).ok().or(parent.patch);
        }
        let placing = self.races.as_ref().and_then(|races| races.placings.get(id));
        parent.result = placing
            .and_then(|placing| placing.judgement.as_ref())
            .map(json);
        if let Some(failure) = &entry.failure {
            parent.diffs = failure.diffs.iter().map(json).collect();
            parent.failure = Some(json(failure));
        }
        parent
    }

    /// Takes what a proposer said.
    pub(super) fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::News(News::Stray(malformed)) => self.search.stray(malformed),
            Heard::News(News::Restarted(why)) => self
                .scene
                .warn(Some(format!("the proposer was started again: {why}"))),
            Heard::Ended(request, Ok(answer)) => {
                let candidates = answer.candidates.len() as u64;
                self.scene
                    .telling
                    .tell(proposal(request, "answered", candidates));
                self.search.answered(request, answer);
            }
            Heard::Ended(request, Err(failure)) => {
                self.scene.telling.tell(proposal(request, "failed", 0));
                self.search.failed(request, failure);
            }
        }
    }
}

fn proposal(request: RequestId, what: &str, candidates: u64) -> Event {
    Event::Proposal {
        request: request.to_string(),
        what: what.to_owned(),
        candidates,
    }
}

/// The files that these candidates change, as the base has them.
fn base_sources(
    field: &Field,
    base: &dyn Base,
    ids: &[String],
) -> serde_json::Map<String, serde_json::Value> {
    let numbers = ids.iter().filter_map(|id| field.find(id));
    let changed = numbers.filter_map(|number| field.entries[number].staged.as_ref());
    let paths = changed.flat_map(|staged| staged.images.iter().map(|(path, _)| path.clone()));
    sources(&PostImages::of_base(base, paths))
}

fn json<T: serde::Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).expect("plain data")
}
