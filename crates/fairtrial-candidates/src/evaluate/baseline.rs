//! The base's own results: what candidates are compared with.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::correctness::Tested;
use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::event::Event;
use super::ground::Tree;
use super::record::Record;
use super::scene::Scene;
use crate::cases::{Baseline, Failure, FailureKind, MustPass, TestRuns};

/// What is known of the base once it was tested.
#[derive(Debug)]
pub(crate) struct BaseRuns {
    pub(crate) baseline: Baseline,
    /// Built.
    pub(crate) tree: Tree,
    /// Protected paths that its own tests write to.
    pub(crate) touched: BTreeSet<String>,
    /// The codes with which each test command ended.
    pub(crate) codes: HashMap<String, BTreeSet<i32>>,
}

impl Evaluator {
    /// The base's own results: each command first alone, then again beside others (CA-46).
    pub(super) async fn baseline(&self, scene: &mut Scene) -> Result<BaseRuns, EvaluateError> {
        let begun = Instant::now();
        let tree = scene
            .checking
            .base_tree()
            .await
            .map_err(|failure| unusable(&failure))?;
        let runs = self.spec.baseline.runs;
        let mut tested = HashMap::new();
        for (key, recorded) in std::mem::take(&mut scene.past.baseline) {
            tested.insert(key, recorded);
        }
        let keep = |scene: &mut Scene, test: &str, run: u32, found: &Tested| {
            scene.telling.keep(&Record::Baseline {
                test: test.to_owned(),
                run,
                tested: found.clone(),
            })?;
            let cases = found.results.cases.len() as u64;
            scene.telling.tell(Event::Baseline {
                test: test.to_owned(),
                run,
                runs,
                cases,
            });
            Ok::<(), EvaluateError>(())
        };
        for test in &self.spec.tests {
            if tested.contains_key(&(test.name.clone(), 1)) {
                continue;
            }
            let found = scene
                .checking
                .test(&tree, test)
                .await
                .map_err(|failure| unusable(&failure))?;
            keep(scene, &test.name, 1, &found)?;
            tested.insert((test.name.clone(), 1), found);
        }
        let mut running = JoinSet::new();
        for run in 2..=runs {
            for (number, test) in self.spec.tests.iter().enumerate() {
                if !tested.contains_key(&(test.name.clone(), run)) {
                    let (checking, tree) = (Arc::clone(&scene.checking), tree.clone());
                    running.spawn(async move {
                        let test = &checking.tests[number];
                        (test.name.clone(), run, checking.test(&tree, test).await)
                    });
                }
            }
        }
        while let Some(joined) = running.join_next().await {
            let (test, run, found) =
                joined.map_err(EvaluateError::attempting("testing the base"))?;
            let found = found.map_err(|failure| unusable(&failure))?;
            keep(scene, &test, run, &found)?;
            tested.insert((test, run), found);
        }
        let touched = tested
            .values()
            .flat_map(|found| found.touched.iter().cloned())
            .collect();
        let mut codes: HashMap<String, BTreeSet<i32>> = HashMap::new();
        for ((test, _), found) in &tested {
            let known = codes.entry(test.clone()).or_default();
            known.extend(found.results.end.code);
        }
        let tests = self.spec.tests.iter().map(|test| TestRuns {
            name: test.name.clone(),
            output: test.output,
            runs: (1..=runs)
                .filter_map(|run| Some(tested.get(&(test.name.clone(), run))?.results.clone()))
                .collect(),
        });
        let must_pass = MustPass::new(self.spec.baseline.must_pass.iter().cloned());
        let baseline = Baseline::fold(tests.collect(), must_pass).map_err(|unusable| {
            EvaluateError::Baseline(match unusable.output.is_empty() {
                true => unusable.message,
                false => format!("{}\n{}", unusable.message, unusable.output),
            })
        })?;
        scene.costs.baseline_s = begun.elapsed().as_secs_f64();
        Ok(BaseRuns {
            baseline,
            tree,
            touched,
            codes,
        })
    }
}

/// What failed on the base, as an end of the whole.
pub(super) fn unusable(failure: &Failure) -> EvaluateError {
    let output = failure
        .outcome
        .as_ref()
        .map_or("", |call| match call.stderr.is_empty() {
            true => call.stdout.as_str(),
            false => call.stderr.as_str(),
        });
    let message = format!("{}\n{output}", failure.message);
    match failure.kind {
        FailureKind::Infra => EvaluateError::Failed(message.trim_end().to_owned()),
        _ => EvaluateError::Baseline(message.trim_end().to_owned()),
    }
}
