//! Constraints that are functions of the user's (`callable_ref`): all conditions of a design in one call, in a worker
//! (ST-25, SF-39).

use std::path::{Path, PathBuf};
use std::time::Duration;

use fairtrial_exec::value::{Value as Data, decode_tree, encode};
use fairtrial_exec::{
    Backend, Call, LocalBackend, LocalConfig, Outcome, PythonTerms, Shutdown, Work,
};

use super::Design;
use crate::program::to_data;
use crate::study::{Constraint, Study};
use crate::value::Value;

const SOURCE: &str = include_str!("../contract/rule.py");
/// For all conditions of a design.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Whether each condition keeps a constraint; an error says why nobody knows.
pub(super) fn kept(
    study: &Study,
    constraint: &Constraint,
    design: &Design,
) -> Result<Vec<bool>, String> {
    let reference = constraint.callable_ref.as_deref().unwrap_or_default();
    let outcome = call(reference, design, &directory(study))?;
    let judged = answer(&outcome).ok_or_else(|| failure(reference, &outcome))?;
    let mut kept = Vec::with_capacity(design.len());
    for (condition, judged) in design.conditions().zip(judged) {
        match judged {
            Data::Bool(holds) => kept.push(holds),
            Data::Str(error) => {
                let (id, fingerprint) = (condition.id(), condition.fingerprint());
                return Err(format!(
                    "`{reference}` of condition {id} {fingerprint}: {error}"
                ));
            }
            _ => break,
        }
    }
    match kept.len() == design.len() {
        true => Ok(kept),
        false => Err(format!(
            "`{reference}` judged only {} conditions",
            kept.len()
        )),
    }
}

/// Modules are looked for beside the study file.
fn directory(study: &Study) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    let file = here.join(&*study.file);
    file.parent().map_or(here, Path::to_owned)
}

fn call(reference: &str, design: &Design, directory: &Path) -> Result<Outcome, String> {
    let names = |pairs: Vec<(&str, &Value)>| {
        let pairs = pairs.into_iter();
        Data::Dict(
            pairs
                .map(|(name, value)| (Data::Str(name.to_owned()), to_data(value)))
                .collect(),
        )
    };
    let conditions = design.conditions().map(|condition| {
        Data::List(vec![
            names(condition.factors().collect()),
            names(condition.blocks().collect()),
        ])
    });
    let arguments = Data::Tuple(vec![
        Data::Tuple(vec![
            Data::Str(reference.to_owned()),
            Data::List(conditions.collect()),
        ]),
        Data::Dict(Vec::new()),
    ]);
    let mut call = Call::source(SOURCE, "kept", encode(&arguments));
    call.timeout = Some(TIMEOUT);
    if let Work::Source(work) = &mut call.work {
        work.python = PythonTerms {
            python_path: vec![directory.to_owned()],
            ..PythonTerms::default()
        };
    }
    let mut config = LocalConfig::from_env().map_err(|error| error.to_string())?;
    config.max_workers = 1;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| format!("no event loop: {error}"))?;
    runtime.block_on(async {
        let backend = LocalBackend::new(config);
        let outcome = backend.execute(call).await;
        backend.shutdown(Shutdown::now()).await;
        outcome.map_err(|error| error.to_string())
    })
}

fn answer(outcome: &Outcome) -> Option<Vec<Data>> {
    let value = outcome.value.as_ref()?;
    match decode_tree(value.body.bytes(), usize::MAX) {
        Ok(Data::List(judged)) => Some(judged),
        _ => None,
    }
}

fn failure(reference: &str, outcome: &Outcome) -> String {
    let said = outcome.error.as_ref();
    let said = said.map(|error| format!("{}: {}", error.kind, error.message));
    let said = said.unwrap_or_else(|| "it gave no answer".into());
    format!(
        "`{reference}` cannot be called ({}): {said}",
        outcome.verdict.name()
    )
}
