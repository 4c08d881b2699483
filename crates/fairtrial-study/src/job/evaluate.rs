//! The evaluation of a run's output, right after the run or later.

use std::sync::Arc;

use fairtrial_exec::Backend;

use super::answer::{Answer, answer};
use super::{Done, Job, JobEnd, Tools};
use crate::attempt::{self, Evaluated};
use crate::binding::Contract;
use crate::canonical::canonical_json;
use crate::evaluation;
use crate::journal::{Evaluation, JournalError, Record, StartId, Status};
use crate::json_text::parse_value;
use crate::ready::Evaluator;
use crate::value::Value;

impl Job {
    /// Evaluates an output. Tells how it went, and what to record of it: nothing if we stopped it.
    pub(super) async fn evaluate<B: Backend>(
        &self,
        tools: &mut Tools<B>,
        evaluator: &Evaluator,
        start: StartId,
        result: &Value,
        number: u32,
    ) -> (Status, Option<Record>) {
        let program = &evaluator.actor.program;
        let contract = program.contract();
        let output = result.get("output").cloned().unwrap_or(Value::Null);
        let input = evaluation::input(&output, self.value.clone(), contract);
        let mut call = match contract {
            Contract::Run => program.call(&input, self.seed),
            Contract::Dre => {
                program.dre_call([&input, &Value::Null, &Value::Null], true, self.seed)
            }
        };
        let run = (&self.run_id, &self.identity, self.attempts);
        let key = format!("{}/{}/{}/evaluation/{number}", run.0, run.1, run.2);
        call.key = Some(tools.journal.key(&key));
        let evaluated = match answer(tools, call).await {
            Answer::Came(outcome) => {
                attempt::judge_evaluation(&outcome, evaluator.actor.is_command(), contract)
            }
            Answer::Failed(error) => Evaluated {
                status: Status::Lost,
                rows: Value::List(Vec::new()),
                outcome: attempt::lost(&error, 0).outcome,
            },
            Answer::Stopped(_) | Answer::Unbegun => return (Status::Cancelled, None),
        };
        let record = Record::Evaluation(Evaluation {
            start,
            run_id: self.run_id.clone(),
            seq: self.starts,
            number,
            evaluator_sha256: evaluator.sha256.clone(),
            status: evaluated.status,
            rows: canonical_json(&evaluated.rows),
            outcome: evaluated.outcome,
        });
        (evaluated.status, Some(record))
    }

    /// The agent is not run again: its output is in the journal.
    pub(super) async fn evaluate_again<B: Backend>(
        &self,
        tools: &mut Tools<B>,
        start: StartId,
    ) -> Result<Done, Arc<JournalError>> {
        let reader = tools.journal.reader().map_err(Arc::new)?;
        let finish = reader.finish(start).map_err(Arc::new)?;
        let before = reader.evaluation(start).map_err(Arc::new)?;
        let result = finish.and_then(|finish| finish.result);
        let result = result.ok_or_else(|| "it is gone".to_owned());
        let result = result
            .and_then(|text| parse_value("result", &text).map_err(|fault| fault.to_string()))
            .map_err(|why| {
                let run_id = &self.run_id;
                // Whatever an evaluator would say of nothing would count as this run's.
                Arc::new(reader.damaged(format!("the result of {run_id} cannot be read: {why}")))
            })?;
        drop(reader);
        let number = before.map_or(1, |row| row.number + 1);
        let (status, record) = match &self.evaluator {
            None => (None, None),
            Some(evaluator) => {
                let (status, record) = self
                    .evaluate(tools, evaluator, start, &result, number)
                    .await;
                (Some(status), record)
            }
        };
        Ok(Done {
            end: JobEnd::new(Status::Success, 1, status),
            records: record.into_iter().collect(),
        })
    }
}
