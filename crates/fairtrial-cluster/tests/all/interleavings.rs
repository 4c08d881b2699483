//! Whatever agents and a coordinator do, in whatever order: the server answers as the model in memory does, and each
//! task has one result.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fairtrial_cluster::{
    Class, Committed, Dispatch, Lease, Leased, MemoryDispatch, NewEvent, Place, Refusal, Release,
    StreamId, Task, TaskId, Terms,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::stage::{RedisStage, Stage};
use crate::words::*;

const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const AGENTS: [&str; 3] = ["n1", "n2", "n3"];
const MAX_DELIVER: u32 = 3;
/// Long, so that the time a slow machine takes does not matter.
const LONG_LEASE: Duration = Duration::from_secs(1_000);
const PAST: Duration = Duration::from_secs(1_100);

/// Something that somebody does. Numbers name a task, an agent, or one of the leases there ever were.
#[derive(Clone, Debug)]
enum Step {
    Submit(usize),
    Lease(usize),
    Renew(usize),
    Commit(usize),
    CommitAndLease(usize),
    Release(usize, u8),
    Reap(u8),
    Cancel(usize),
    CancelQueue,
    Open,
    Pause(bool),
    /// A lease's time passes.
    Pass,
    /// The same, and the entry of a lease is deleted.
    Delete(usize),
    Keep(usize),
}

/// What a queue is like.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Few may run at a time, and some wait for so long only.
    Bounded,
    /// As most are: a commit may go the short way (`plain.lua`).
    Plain,
}

fn steps() -> impl Strategy<Value = (Manner, Vec<Step>)> {
    let key = || 0..KEYS.len();
    let lease = || 0..64_usize;
    let step = prop_oneof![
        8 => key().prop_map(Step::Submit),
        10 => (0..AGENTS.len()).prop_map(Step::Lease),
        2 => lease().prop_map(Step::Renew),
        5 => lease().prop_map(Step::Commit),
        5 => lease().prop_map(Step::CommitAndLease),
        4 => (lease(), 0..4_u8).prop_map(|(at, how)| Step::Release(at, how)),
        4 => (0..8_u8).prop_map(Step::Reap),
        2 => key().prop_map(Step::Cancel),
        1 => Just(Step::CancelQueue),
        2 => Just(Step::Open),
        1 => any::<bool>().prop_map(Step::Pause),
        3 => Just(Step::Pass),
        1 => lease().prop_map(Step::Delete),
        1 => key().prop_map(Step::Keep),
    ];
    let manner = prop_oneof![Just(Manner::Bounded), Just(Manner::Plain)];
    (manner, proptest::collection::vec(step, 1..60))
}

/// A stage, and the leases there ever were on it.
struct Course<'a, S> {
    stage: &'a S,
    manner: Manner,
    leases: Vec<Lease>,
    results: HashMap<TaskId, Vec<u8>>,
    /// Tasks whose results were dropped, which no event tells.
    dropped: HashSet<TaskId>,
    /// Whether an entry was deleted behind everybody's back.
    is_damaged: bool,
}

impl<'a, S: Stage> Course<'a, S> {
    async fn begin(stage: &'a S, manner: Manner) -> Self {
        stage.flush().await;
        open(stage.dispatch(), &manner.terms()).await;
        Self {
            stage,
            manner,
            leases: Vec::new(),
            results: HashMap::new(),
            dropped: HashSet::new(),
            is_damaged: false,
        }
    }

    /// Does it; what was answered, without what differs between servers.
    async fn take(&mut self, step: &Step) -> String {
        let dispatch = self.stage.dispatch();
        let lease = |at: usize| self.leases.get(at % self.leases.len().max(1)).cloned();
        match step {
            Step::Submit(key) => format!(
                "{:?}",
                dispatch
                    .submit(&queue(), &self.manner.task(*key))
                    .await
                    .unwrap()
            ),
            Step::Lease(agent) => {
                let leased = try_lease(dispatch, &slot(AGENTS[*agent])).await;
                self.note(leased)
            }
            Step::Renew(at) => match lease(*at) {
                Some(lease) => format!("{:?}", dispatch.renew(&lease).await.unwrap()),
                None => String::new(),
            },
            Step::Commit(at) => match lease(*at) {
                Some(lease) => shown(&dispatch.commit(&commit(&lease)).await.unwrap()),
                None => String::new(),
            },
            Step::CommitAndLease(at) => match lease(*at) {
                Some(lease) => {
                    let both = dispatch
                        .commit_and_lease(&commit(&lease), &queue(), Class::Cpu)
                        .await
                        .unwrap();
                    format!("{} {}", shown(&both.0), self.note(both.1.unwrap()))
                }
                None => String::new(),
            },
            Step::Release(at, how) => match lease(*at) {
                Some(lease) => format!(
                    "{:?}",
                    dispatch.release(&lease, &release(*how)).await.unwrap()
                ),
                None => String::new(),
            },
            Step::Reap(mask) => {
                let alive = AGENTS
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| mask & (1 << n) != 0);
                let live: Vec<_> = alive.map(|(_, name)| agent(name)).collect();
                format!("{:?}", reap(dispatch, &live).await)
            }
            Step::Cancel(key) => {
                let id = self.manner.task(*key).id;
                format!("{:?}", dispatch.cancel(&queue(), &id).await.unwrap())
            }
            Step::CancelQueue => format!("{:?}", dispatch.cancel_queue(&queue()).await.unwrap()),
            Step::Open => {
                open(dispatch, &self.manner.terms()).await;
                String::new()
            }
            Step::Pause(paused) => dispatch.pause(&queue(), *paused).await.unwrap().to_string(),
            Step::Pass => {
                self.stage.pass(PAST).await;
                dispatch.keep(&queue(), &owner("here")).await.unwrap();
                String::new()
            }
            Step::Delete(at) => {
                self.stage.pass(PAST).await;
                dispatch.keep(&queue(), &owner("here")).await.unwrap();
                if let Some(lease) = lease(*at) {
                    self.is_damaged = true;
                    self.stage
                        .delete_entry(&queue(), Class::Cpu, lease.token.entry)
                        .await;
                }
                String::new()
            }
            Step::Keep(key) => {
                let id = self.manner.task(*key).id;
                self.results.remove(&id);
                self.dropped.insert(id.clone());
                let found = dispatch
                    .collect(
                        &queue(),
                        std::slice::from_ref(&id),
                        std::slice::from_ref(&id),
                    )
                    .await;
                found.unwrap().len().to_string()
            }
        }
    }

    fn note(&mut self, leased: Leased) -> String {
        match leased {
            Leased::Task {
                lease, envelope, ..
            } => {
                let shown = format!("{} {} {}", lease.task, lease.token.delivery, envelope.len());
                self.leases.push(lease);
                shown
            }
            other => format!("{other:?}"),
        }
    }

    /// Where each task is, which its events say too; and that no result changes while nobody drops it.
    async fn look(&mut self) -> Result<Vec<Place>, TestCaseError> {
        let dispatch = self.stage.dispatch();
        let ids: Vec<TaskId> = (0..KEYS.len())
            .map(|key| self.manner.task(key).id)
            .collect();
        for (id, result) in dispatch.collect(&queue(), &ids, &[]).await.unwrap() {
            let before = self.results.entry(id).or_insert_with(|| result.clone());
            prop_assert_eq!(&*before, &result, "a result changed");
        }
        let greatest = self.leases.iter().map(|lease| lease.token.delivery).max();
        prop_assert!(greatest.is_none_or(|number| number <= MAX_DELIVER));
        let places = dispatch.check(&queue(), &ids).await.unwrap();
        let fold = folded(dispatch).await;
        for (id, place) in ids.iter().zip(&places) {
            match (fold.place(id), place) {
                (Place::Done, Place::Missing) => prop_assert!(self.dropped.contains(id)),
                (Place::Queued, Place::Missing) => prop_assert!(self.is_damaged),
                (folded, place) => prop_assert_eq!(folded, *place, "by events, and by check"),
            }
        }
        Ok(places)
    }

    /// All events; what they say as JSON, in which the order of names does not matter.
    async fn told(&self) -> Vec<(String, Option<TaskId>, Option<String>, serde_json::Value)> {
        let events = self.events().await.into_iter();
        let shown = events.map(
            |NewEvent {
                 name,
                 task,
                 agent,
                 data,
             }| {
                let data = serde_json::from_str(&data).unwrap_or_default();
                (name, task, agent, data)
            },
        );
        shown.collect()
    }

    async fn events(&self) -> Vec<NewEvent> {
        let (dispatch, queue) = (self.stage.dispatch(), queue());
        let all = dispatch.events(&queue, StreamId::START, Duration::ZERO);
        let stored = all.await.unwrap().events.into_iter();
        stored.map(|stored| stored.event).collect()
    }

    /// One agent does all that is left; then nothing is, and each submission has one end.
    async fn finish(&mut self) -> Result<(), TestCaseError> {
        let dispatch = self.stage.dispatch();
        let roomy = Terms {
            max_queue: 100,
            ..self.manner.terms()
        };
        open(dispatch, &roomy).await;
        self.stage.pass(PAST).await;
        open(dispatch, &roomy).await;
        let fresh = slot("last");
        for _ in 0..4 {
            reap(dispatch, &[]).await;
            while let Leased::Task { lease, .. } = try_lease(dispatch, &fresh).await {
                prop_assert_eq!(
                    dispatch.commit(&commit(&lease)).await.unwrap(),
                    Committed::Committed
                );
            }
        }
        let places = self.look().await?;
        // What was deleted while it was queued is found missing, and only that.
        let queued_again = places
            .iter()
            .enumerate()
            .filter(|(_, place)| **place == Place::Missing);
        for (key, _) in queued_again {
            dispatch
                .submit(&queue(), &self.manner.task(key))
                .await
                .unwrap();
            if let Leased::Task { lease, .. } = try_lease(dispatch, &fresh).await {
                dispatch.commit(&commit(&lease)).await.unwrap();
            }
        }
        prop_assert_eq!(self.look().await?, vec![Place::Done; KEYS.len()]);
        let status = dispatch.queue_status(&queue()).await.unwrap().unwrap();
        prop_assert_eq!((status.queued, status.leased, status.parked), (0, 0, 0));
        let told = self.events().await;
        let count = |name: &str| told.iter().filter(|event| event.name == name).count();
        prop_assert_eq!(count("submit"), count("complete"));
        prop_assert_eq!(status.recorded as usize, count("complete"));
        Ok(())
    }
}

impl Manner {
    fn terms(self) -> Terms {
        Terms {
            max_queue: 5,
            max_deliver: MAX_DELIVER,
            max_inflight: matches!(self, Self::Bounded).then_some(2),
            lease: LONG_LEASE,
            ..terms()
        }
    }

    fn task(self, key: usize) -> Task {
        let hurries = matches!(self, Self::Bounded) && key.is_multiple_of(3);
        Task {
            queue_timeout: hurries.then_some(Duration::from_secs(1_900)),
            ..task(KEYS[key])
        }
    }
}

fn release(how: u8) -> Release {
    let reason = "because".to_owned();
    match how {
        0 => Release::Uncounted { reason },
        1 => Release::Counted { reason },
        2 => Release::Refused {
            refusal: Refusal::Setup,
            reason,
        },
        _ => Release::Refused {
            refusal: Refusal::Protocol,
            reason,
        },
    }
}

/// Tokens differ between servers; whether one is the caller's own does not.
fn shown(committed: &Committed) -> String {
    match committed {
        Committed::Duplicate { stored } => {
            let stored: serde_json::Value = serde_json::from_slice(stored).unwrap();
            format!(
                "Duplicate {} {} {}",
                stored["verdict"], stored["agent"], stored["token"][1]
            )
        }
        other => format!("{other:?}"),
    }
}

fn run(cases: u32, one: impl Fn((Manner, Vec<Step>)) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    TestRunner::new(config).run(&steps(), one).unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// CL-15, CL-31, CL-63
#[test]
fn in_memory_each_task_has_one_result_whatever_happens() {
    let (runtime, stage) = (runtime(), MemoryDispatch::new());
    run(400, |(manner, steps)| {
        runtime.block_on(async {
            let mut course = Course::begin(&stage, manner).await;
            for step in &steps {
                course.take(step).await;
                course.look().await?;
            }
            course.finish().await
        })
    });
}

/// CL-2, CL-15, CL-31, CL-63
#[test]
fn the_server_answers_as_the_model_does() {
    let runtime = runtime();
    let Some(stage) = runtime.block_on(async { RedisStage::start() }) else {
        return;
    };
    run(60, |(manner, steps)| {
        let model = MemoryDispatch::new();
        runtime.block_on(async {
            let mut expected = Course::begin(&model, manner).await;
            let mut real = Course::begin(&stage, manner).await;
            for step in &steps {
                prop_assert_eq!(
                    real.take(step).await,
                    expected.take(step).await,
                    "{:?}",
                    step
                );
                prop_assert_eq!(
                    real.look().await?,
                    expected.look().await?,
                    "after {:?}",
                    step
                );
            }
            prop_assert_eq!(real.told().await, expected.told().await);
            expected.finish().await?;
            real.finish().await
        })
    });
}
