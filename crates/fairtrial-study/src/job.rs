//! One run: attempt after attempt, each recorded as it begins and as it ends, then its evaluation.

use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{Backend, Call, EngineError, Outcome};
use num_bigint::BigInt;
use tokio::sync::{oneshot, watch};

use crate::attempt::{self, Ended, Evaluated};
use crate::binding::Contract;
use crate::canonical::canonical_json;
use crate::clock::now_ns;
use crate::evaluation;
use crate::journal::{
    Decision as DecisionRecord, Evaluation, Finish, Journal, JournalError, Past, Record, Start,
    StartId, Status,
};
use crate::json_text::parse_value;
use crate::plan::{Action, Decision, RunSpec};
use crate::ready::{Actor, Evaluator, Ready};
use crate::runner::Stop;
use crate::value::Value;

/// An engine that fails is asked again so often (ST-50).
const ENGINE_TRIES: u32 = 3;

/// What jobs share.
pub(crate) struct Tools<B> {
    pub(crate) backend: Arc<B>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) invocation: i64,
    pub(crate) stop: watch::Receiver<Stop>,
}

impl<B> Clone for Tools<B> {
    fn clone(&self) -> Self {
        Self {
            backend: Arc::clone(&self.backend),
            journal: Arc::clone(&self.journal),
            invocation: self.invocation,
            stop: self.stop.clone(),
        }
    }
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(crate) status: Status,
    pub(crate) tries: u32,
    pub(crate) evaluation_failed: bool,
}

/// A run that is to be run, and all it needs.
#[derive(Debug)]
pub(crate) struct Job {
    run_id: String,
    plan_index: u64,
    order_index: u64,
    seed: u64,
    identity: String,
    /// Starts before.
    starts: u32,
    /// Attempts before that ended of their own.
    attempts: u32,
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
            order_index: run.order.into(),
            seed: run.seed.into(),
            identity: ready.identity(run)?.text().to_owned(),
            starts: past.map_or(0, |past| past.starts.into()),
            attempts: past.map_or(0, |past| past.attempts.into()),
            evaluator: ready.problem(run).evaluator.clone(),
            value: ready.run_value(run, 1),
            dre: (ready.contract(run) == Contract::Dre).then(|| ready.dre_parts(run)),
            evaluates: shown.filter(|_| action == Action::Evaluate),
            agent,
        })
    }

    /// Runs it to its end.
    pub(crate) async fn perform<B: Backend>(
        mut self,
        mut tools: Tools<B>,
        decision: Decision,
    ) -> Result<JobEnd, Arc<JournalError>> {
        let mut said = Some(Record::Decision(DecisionRecord {
            invocation: tools.invocation,
            run_id: self.run_id.clone(),
            action: decision.action.name().into(),
            reason: decision.reason,
        }));
        if let Some(start) = self.evaluates {
            commit(&tools.journal, said.into_iter().collect()).await?;
            return self.evaluate_again(&mut tools, start).await;
        }
        let terms = &self.agent.program.binding.terms;
        let (retries, delay) = (terms.retries, terms.retry_delay);
        let retry_on = terms.retry_on.clone();
        let (mut tries, mut engine_tries) = (0, 0);
        loop {
            let (start, ended) = self.attempt(&mut tools, said.take()).await?;
            tries += 1;
            engine_tries += u32::from(ended.status == Status::Lost);
            let again = match ended.status {
                Status::Lost => engine_tries < ENGINE_TRIES,
                status => {
                    u64::from(tries) <= retries && retry_on.iter().any(|name| name == status.name())
                }
            };
            if !again || !sleep(delay, &mut tools.stop).await {
                let evaluation = match &ended.result {
                    Some(result) => self.evaluate(&mut tools, start, &result.value, 1).await?,
                    None => None,
                };
                return Ok(JobEnd {
                    status: ended.status,
                    tries,
                    evaluation_failed: evaluation.is_some_and(|status| status != "ok"),
                });
            }
        }
    }

    /// One attempt, recorded before it begins and when it has ended.
    async fn attempt<B: Backend>(
        &mut self,
        tools: &mut Tools<B>,
        said: Option<Record>,
    ) -> Result<(StartId, Ended), Arc<JournalError>> {
        let id = tools.journal.next_start();
        self.starts += 1;
        let (seq, attempt) = (self.starts, self.attempts + 1);
        let start = Record::Start(Start {
            id,
            run_id: self.run_id.clone(),
            seq,
            attempt,
            invocation: tools.invocation,
            plan_index: self.plan_index,
            order_index: self.order_index,
            seed: self.seed,
            identity: self.identity.clone(),
            started_at_ns: now_ns(),
        });
        commit(&tools.journal, said.into_iter().chain([start]).collect()).await?;
        let call = self.call(attempt);
        let ended = match answer(tools, call).await {
            Answer::Came(outcome) => attempt::judge(
                &outcome,
                self.agent.is_command(),
                self.agent.program.contract(),
                &self.agent.program.secrets,
            ),
            Answer::Failed(error) => attempt::lost(&error, now_ns()),
            Answer::Stopped => attempt::cancelled(now_ns()),
        };
        self.attempts += u32::from(ended.status.is_its_own());
        let finish = self.finish(id, seq, &ended);
        commit(&tools.journal, vec![finish]).await?;
        Ok((id, ended))
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

    fn finish(&self, id: StartId, seq: u32, ended: &Ended) -> Record {
        let warnings = ended.result.iter().flat_map(|result| &result.warnings);
        let warnings = warnings.map(|warning| {
            Value::map([
                ("path", Value::text(&warning.path)),
                ("message", Value::text(&warning.message)),
            ])
        });
        Record::Finish(Box::new(Finish {
            id,
            run_id: self.run_id.clone(),
            seq,
            status: ended.status,
            verdict: ended.verdict.map(str::to_owned),
            stage: ended.stage.into(),
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

    /// Evaluates an output, if there is somebody to do it. Tells how it went.
    async fn evaluate<B: Backend>(
        &self,
        tools: &mut Tools<B>,
        start: StartId,
        result: &Value,
        number: u32,
    ) -> Result<Option<String>, Arc<JournalError>> {
        let Some(evaluator) = &self.evaluator else {
            return Ok(None);
        };
        let program = &evaluator.actor.program;
        let contract = program.contract();
        let output = result.get("output").cloned().unwrap_or(Value::Null);
        let input = evaluation::input(&output, self.value.clone(), contract);
        let call = match contract {
            Contract::Run => program.call(&input, self.seed),
            Contract::Dre => {
                program.dre_call([&input, &Value::Null, &Value::Null], true, self.seed)
            }
        };
        let evaluated = match answer(tools, call).await {
            Answer::Came(outcome) => attempt::judge_evaluation(
                &outcome,
                evaluator.actor.is_command(),
                contract,
                &program.secrets,
            ),
            Answer::Failed(error) => Evaluated {
                status: Status::Lost.to_string(),
                rows: Value::List(Vec::new()),
                outcome: attempt::lost(&error, 0).outcome,
            },
            Answer::Stopped => return Ok(Some(Status::Cancelled.to_string())),
        };
        let record = Record::Evaluation(Evaluation {
            start,
            run_id: self.run_id.clone(),
            seq: self.starts,
            number,
            evaluator_sha256: evaluator.sha256.clone(),
            status: evaluated.status.clone(),
            rows: canonical_json(&evaluated.rows),
            outcome: evaluated.outcome,
        });
        commit(&tools.journal, vec![record]).await?;
        Ok(Some(evaluated.status))
    }

    /// The agent is not run again: its output is in the journal.
    async fn evaluate_again<B: Backend>(
        &self,
        tools: &mut Tools<B>,
        start: StartId,
    ) -> Result<JobEnd, Arc<JournalError>> {
        let reader = tools.journal.reader().map_err(Arc::new)?;
        let finish = reader.finish(start).map_err(Arc::new)?;
        let before = reader.evaluation(start).map_err(Arc::new)?;
        let result = finish
            .and_then(|finish| finish.result)
            .and_then(|text| parse_value("result", &text).ok())
            .unwrap_or(Value::Null);
        drop(reader);
        let number = before.map_or(1, |row| row.number + 1);
        let status = self.evaluate(tools, start, &result, number).await?;
        Ok(JobEnd {
            status: Status::Success,
            tries: 1,
            evaluation_failed: status.is_some_and(|status| status != "ok"),
        })
    }
}

enum Answer {
    Came(Box<Outcome>),
    Failed(EngineError),
    /// By us.
    Stopped,
}

/// Runs a call, unless it is stopped; then it is killed.
async fn answer<B: Backend>(tools: &mut Tools<B>, call: Call) -> Answer {
    let cancelled = async {
        // An error is that nobody can stop us any more.
        if tools
            .stop
            .wait_for(|stop| *stop == Stop::Cancel)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        answer = tools.backend.execute(call) => match answer {
            Ok(outcome) => Answer::Came(Box::new(outcome)),
            Err(error) => Answer::Failed(error),
        },
        () = cancelled => Answer::Stopped,
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
