//! One run: attempt after attempt, each recorded as it begins and as it ends, then its evaluation.

mod answer;
mod evaluate;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fairtrial_exec::{Backend, Call, EngineError};
use num_bigint::BigInt;
use tokio::sync::{mpsc, oneshot, watch};

use self::answer::{Answer, answer};
use crate::attempt::{self, Ended};
use crate::binding::Contract;
use crate::canonical::canonical_json;
use crate::clock::now_ns;
use crate::journal::{
    Decision as DecisionRecord, Finish, Journal, JournalError, Past, Record, Start, StartId, Status,
};
use crate::plan::{Action, Decision, RunSpec};
use crate::ready::{Actor, Evaluator, Ready};
use crate::runner::Stop;
use crate::value::Value;

/// An engine that fails is asked again so often (ST-50).
const ENGINE_TRIES: u32 = 3;

/// Shorter runs cost more to hand over than to run.
const SHORT: Duration = Duration::from_millis(20);

/// What jobs share.
pub(crate) struct Tools<B> {
    pub(crate) backend: Arc<B>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) invocation: i64,
    /// Between TERM and KILL when a run is stopped (ST-52).
    pub(crate) grace: Duration,
    pub(crate) stop: watch::Receiver<Stop>,
    /// Hears of ends that are in the journal.
    pub(crate) recorded: mpsc::UnboundedSender<JobEnd>,
    /// Why the backend can run nothing any more (CL-57).
    pub(crate) broken: Arc<OnceLock<EngineError>>,
}

impl<B> Clone for Tools<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            journal: Arc::clone(&self.journal),
            invocation: self.invocation,
            grace: self.grace,
            stop: self.stop.clone(),
            recorded: self.recorded.clone(),
            broken: Arc::clone(&self.broken),
        }
    }
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(crate) status: Status,
    pub(crate) tries: u32,
    pub(crate) evaluation_failed: bool,
    /// The agent took little time.
    pub(crate) was_short: bool,
}

impl JobEnd {
    fn new(status: Status, tries: u32, evaluation: Option<Status>) -> Self {
        Self {
            status,
            tries,
            was_short: false,
            evaluation_failed: evaluation.is_some_and(|status| status != Status::Success),
        }
    }
}

/// A job that ended, with what is not in the journal yet. It goes there together with the start of the next one: half as
/// many commits.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) end: JobEnd,
    records: Vec<Record>,
}

impl Done {
    /// Has it committed alone, where nothing follows.
    pub(crate) async fn commit(self, journal: &Journal) -> Result<JobEnd, Arc<JournalError>> {
        commit(journal, self.records).await?;
        Ok(self.end)
    }
}

/// A run that is to be run, and all it needs.
#[derive(Debug)]
pub(crate) struct Job {
    run_id: String,
    plan_index: u64,
    order_index: u64,
    seed: u64,
    identity: String,
    /// The last start, once there is one.
    start_id: StartId,
    /// Starts so far.
    starts: u32,
    /// Attempts before that ended of their own.
    attempts: u32,
    /// Of those, the ones that count against its retries.
    spent: u32,
    agent: Arc<Actor>,
    evaluator: Option<Evaluator>,
    /// The run as a worker gets it.
    value: Value,
    /// The run as DRE's agents get it, if it is one.
    dre: Option<[Value; 3]>,
    /// Evaluated only: the output is that of this start.
    evaluates: Option<StartId>,
}

impl Job {
    /// None if nobody runs it, which [`Ready::load`] refused.
    pub(crate) fn new(
        ready: &Ready,
        run: &RunSpec<'_>,
        past: Option<&Past>,
        action: Action,
    ) -> Option<Self> {
        let agent = Arc::clone(ready.agent(run)?);
        let shown = past.and_then(Past::shown).map(|(start, _)| start);
        Some(Self {
            run_id: run.run_id.to_string(),
            plan_index: run.index as u64,
            order_index: run.order().into(),
            seed: run.seed.into(),
            identity: ready.identity(run)?.text().to_owned(),
            start_id: StartId(0),
            starts: past.map_or(0, |past| past.starts.into()),
            attempts: past.map_or(0, |past| past.attempts.into()),
            spent: match action {
                Action::Run => past.map_or(0, |past| past.attempts.into()),
                _ => 0, // it begins anew
            },
            evaluator: ready.problem(run).evaluator.clone(),
            value: ready.run_value(run, 1),
            dre: (ready.contract(run) == Contract::Dre).then(|| ready.dre_parts(run)),
            evaluates: shown.filter(|_| action == Action::Evaluate),
            agent,
        })
    }

    /// Runs it to its end. First what is left of the job `before` is recorded.
    pub(crate) async fn perform<B: Backend>(
        mut self,
        mut tools: Tools<B>,
        decision: Decision,
        before: Option<Done>,
    ) -> Result<Done, Arc<JournalError>> {
        self.begin(&tools, &decision, before).await?;
        match self.evaluates {
            Some(start) => self.evaluate_again(&mut tools, start).await,
            None => self.run(&mut tools).await,
        }
    }

    /// Records what is left of the job before, why this one is done, and its start.
    async fn begin<B>(
        &mut self,
        tools: &Tools<B>,
        decision: &Decision,
        before: Option<Done>,
    ) -> Result<(), Arc<JournalError>> {
        let (mut records, before) = match before {
            Some(done) => (done.records, Some(done.end)),
            None => (Vec::new(), None),
        };
        records.push(Record::Decision(DecisionRecord {
            invocation: tools.invocation,
            run_id: self.run_id.clone(),
            action: decision.action.name(),
            reason: decision.reason.to_string(),
        }));
        if self.evaluates.is_none() {
            records.push(self.start(tools));
        }
        commit(&tools.journal, records).await?;
        if let Some(end) = before {
            _ = tools.recorded.send(end); // who counts outlives the jobs
        }
        Ok(())
    }

    /// Attempt after attempt, as long as another is due.
    async fn run<B: Backend>(&mut self, tools: &mut Tools<B>) -> Result<Done, Arc<JournalError>> {
        let delay = self.agent.program.binding.terms.retry_delay;
        let mut tries = Tries::of(self);
        loop {
            let ended = self.attempt(tools).await;
            let finish = self.finish(&ended);
            if !tries.leave_another(&ended) {
                return Ok(self.conclude(tools, &ended, finish, tries.all).await);
            }
            commit(&tools.journal, vec![finish]).await?;
            if !sleep(delay, &mut tools.stop).await {
                return Ok(Done {
                    end: JobEnd::new(ended.status, tries.all, None),
                    records: Vec::new(),
                });
            }
            let start = self.start(tools);
            commit(&tools.journal, vec![start]).await?;
        }
    }

    /// After the last attempt: its output is evaluated, if there is one and somebody who does.
    async fn conclude<B: Backend>(
        &self,
        tools: &mut Tools<B>,
        ended: &Ended,
        finish: Record,
        tries: u32,
    ) -> Done {
        let (mut records, mut evaluation) = (vec![finish], None);
        if let (Some(result), Some(evaluator)) = (&ended.result, &self.evaluator) {
            // In the journal by the time that the evaluator has come to its end, whatever becomes of that.
            tools.journal.append(std::mem::take(&mut records), |_| ());
            let (status, record) = self
                .evaluate(tools, evaluator, self.start_id, &result.value, 1)
                .await;
            evaluation = Some(status);
            records.extend(record);
        }
        let mut end = JobEnd::new(ended.status, tries, evaluation);
        end.was_short = ended.wall.is_some_and(|wall| wall < SHORT);
        Done { end, records }
    }

    /// The start of the next attempt, which is recorded before it begins.
    fn start<B>(&mut self, tools: &Tools<B>) -> Record {
        self.start_id = tools.journal.next_start();
        self.starts += 1;
        Record::Start(Start {
            id: self.start_id,
            run_id: self.run_id.clone(),
            seq: self.starts,
            attempt: self.attempts + 1,
            invocation: tools.invocation,
            plan_index: self.plan_index,
            order_index: self.order_index,
            seed: self.seed,
            identity: self.identity.clone(),
            started_at_ns: now_ns(),
        })
    }

    async fn attempt<B: Backend>(&mut self, tools: &mut Tools<B>) -> Ended {
        let attempt = self.attempts + 1;
        let mut call = self.call(attempt);
        let key = format!("{}/{}/{attempt}", self.run_id, self.identity);
        call.key = Some(tools.journal.key(&key));
        let ended = match answer(tools, call).await {
            Answer::Came(outcome) | Answer::Stopped(Some(outcome)) => attempt::judge(
                &outcome,
                self.agent.is_command(),
                self.agent.program.contract(),
            ),
            Answer::Failed(error) => attempt::lost(&error, now_ns()),
            Answer::Stopped(None) => attempt::stopped(now_ns()),
            Answer::Unbegun => attempt::skipped(now_ns()),
        };
        self.attempts += u32::from(ended.status.is_its_own());
        ended
    }

    fn call(&mut self, attempt: u32) -> Call {
        let program = &self.agent.program;
        if let Some([packet, condition, run]) = &self.dre {
            return program.dre_call([packet, condition, run], false, self.seed);
        }
        if let Value::Map(entries) = &mut self.value
            && let Some((_, value)) = entries
                .iter_mut()
                .find(|(key, _)| key.as_text() == Some("attempt"))
        {
            *value = Value::Int(BigInt::from(attempt));
        }
        program.call(&self.value, self.seed)
    }

    fn finish(&self, ended: &Ended) -> Record {
        let warnings = ended.result.iter().flat_map(|result| &result.warnings);
        let warnings = warnings.map(|warning| {
            Value::map([
                ("path", Value::text(&warning.path)),
                ("message", Value::text(&warning.message)),
            ])
        });
        Record::Finish(Box::new(Finish {
            id: self.start_id,
            run_id: self.run_id.clone(),
            seq: self.starts,
            status: ended.status,
            verdict: ended.verdict.map(str::to_owned),
            stage: ended.stage,
            finished_at_ns: ended.finished_at_ns,
            outcome: ended.outcome.clone(),
            result: ended
                .result
                .as_ref()
                .map(|result| canonical_json(&result.value)),
            stdout: ended.stdout.clone(),
            stderr: ended.stderr.clone(),
            warnings: canonical_json(&Value::List(warnings.collect())),
        }))
    }
}

/// Attempts of a job, counted by whom they are charged to (ST-49, ST-50).
struct Tries {
    all: u32,
    /// Those that ended of their own, with those of earlier invocations that count.
    own: u64,
    /// Those that the engine lost.
    lost: u32,
    retries: u64,
    retry_on: Vec<String>,
}

impl Tries {
    fn of(job: &Job) -> Self {
        let terms = &job.agent.program.binding.terms;
        Self {
            all: 0,
            own: job.spent.into(),
            lost: 0,
            retries: terms.retries,
            retry_on: terms.retry_on.clone(),
        }
    }

    /// Counts one that ended; whether another is due.
    fn leave_another(&mut self, ended: &Ended) -> bool {
        self.all += 1;
        self.own += u64::from(ended.status.is_its_own());
        self.lost += u32::from(ended.status == Status::Lost);
        match ended.status {
            Status::Lost => self.lost < ENGINE_TRIES && !ended.is_final,
            status => {
                let is_named = self.retry_on.iter().any(|name| name == status.name());
                is_named && self.own <= self.retries
            }
        }
    }
}

/// Waits before another try; false if there is to be none.
async fn sleep(delay: Duration, stop: &mut watch::Receiver<Stop>) -> bool {
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop != Stop::No) => false,
        () = tokio::time::sleep(delay) => true,
    }
}

/// Has records committed.
async fn commit(journal: &Journal, records: Vec<Record>) -> Result<(), Arc<JournalError>> {
    let (sender, committed) = oneshot::channel();
    journal.append(records, move |result| {
        _ = sender.send(result); // whoever waited may be gone
    });
    committed.await.unwrap_or_else(|_| journal.sync())
}
