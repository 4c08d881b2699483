//! Candidates tested, several at a time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::task::JoinSet;

use super::correctness::Checked;
use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::event::{Event, State};
use super::field::{Field, Number};
use super::ground::Tree;
use super::record::Record;
use super::scene::Scene;
use crate::cases::{Baseline, FailureKind};
use crate::measure::Side;

impl Evaluator {
    /// Tests candidates, as many at once as there are slots (CA-37). None waits for another.
    pub(super) async fn check_all(
        &self,
        scene: &mut Scene,
        field: &mut Field,
        todo: Vec<Number>,
        baseline: &Arc<Baseline>,
        allowed: &Arc<BTreeSet<String>>,
        trees: &mut HashMap<Side, Tree>,
    ) -> Result<(), EvaluateError> {
        let slots = self.spec.parallel.unwrap_or(1).max(1) as usize;
        let mut waiting = todo.into_iter();
        let mut running: JoinSet<(Number, Checked, Option<Tree>)> = JoinSet::new();
        loop {
            while running.len() < slots {
                let Some(number) = waiting.next() else { break };
                field.begin(number);
                let staged = field.entries[number]
                    .staged
                    .clone()
                    .expect("only staged candidates are tried");
                let id = staged.id.to_string();
                let name = field.entries[number].name.clone();
                let told = |state| Event::Candidate {
                    id: Some(id.clone()),
                    name: name.clone(),
                    state,
                };
                if let Some(checked) = scene
                    .past
                    .checked
                    .get(&id)
                    .filter(|checked| !is_infra(checked))
                    .cloned()
                {
                    settle(field, number, checked);
                    scene.telling.tell(told(field.entries[number].state));
                    continue;
                }
                scene.telling.tell(told(State::Checking));
                let (checking, baseline, allowed) = (
                    Arc::clone(&scene.checking),
                    Arc::clone(baseline),
                    Arc::clone(allowed),
                );
                running.spawn(async move {
                    let (checked, tree) = checking.check(&staged, &baseline, &allowed).await;
                    (number, checked, tree)
                });
            }
            let Some(joined) = running.join_next().await else {
                break;
            };
            let (number, checked, tree) =
                joined.map_err(EvaluateError::attempting("testing candidates"))?;
            let id = field.entries[number].id().unwrap_or_default();
            scene.telling.keep(&Record::Checked {
                id: id.clone(),
                checked: checked.clone(),
            })?;
            settle(field, number, checked);
            if let Some(tree) = tree.filter(|_| field.entries[number].is_correct()) {
                trees.insert(Side::Candidate(id.clone()), tree);
            }
            let entry = &field.entries[number];
            scene.telling.tell(Event::Candidate {
                id: Some(id),
                name: entry.name.clone(),
                state: entry.state,
            });
        }
        Ok(())
    }
}

/// Nothing was learnt of the candidate: its turn comes again.
fn is_infra(checked: &Checked) -> bool {
    checked
        .failure
        .as_ref()
        .is_some_and(|failure| failure.kind == FailureKind::Infra)
}

fn settle(field: &mut Field, number: Number, checked: Checked) {
    let entry = &mut field.entries[number];
    entry.state = match checked.failure {
        Some(_) => State::Failed,
        None => State::Correct,
    };
    entry.failure = checked.failure;
    entry.cases = checked.cases;
}
