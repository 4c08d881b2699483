//! The output directory: what an earlier process left in it, and the record that is begun or gone on with.

use std::fs;
use std::path::Path;

use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::journal::{JOURNAL, Journal, read_journal};
use super::prepare::Places;
use super::provider::Provided;
use super::record::{JOURNAL_VERSION, Past, Record};
use super::telling::{Audience, Telling};
use crate::evaluation::{BaseFacts, Machine};
use crate::spec::Spec;

/// Keeps what is in the output directory out of the user's repository.
const IGNORE: &str = ".gitignore";
const IGNORE_ALL: &str = "*\n";

impl Evaluator {
    /// What an earlier process left on record; checked before anything is made (CA-96).
    pub(super) fn past(&self, output: &Path, resume: bool) -> Result<Past, EvaluateError> {
        let holds = fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_some());
        let journal = output.join(JOURNAL);
        match (resume, holds) {
            (false, true) => return Err(EvaluateError::NotEmpty(output.to_owned())),
            (true, true) if journal.exists() => {}
            (true, true) if !is_hardly_begun(output) => {
                let problem = format!(
                    "`{}` is not empty, and no evaluation was begun in it: there is nothing to go on with",
                    output.display()
                );
                return Err(EvaluateError::Invalid(problem));
            }
            _ => return Ok(Past::default()),
        }
        let past: Past = read_journal::<Record>(&journal)?.into_iter().collect();
        let Some(begun) = &past.begun else {
            return Ok(past);
        };
        if begun.version != JOURNAL_VERSION {
            let problem = format!(
                "`{}` was written by another version of Fairtrial",
                journal.display()
            );
            return Err(EvaluateError::Invalid(problem));
        }
        let before = Spec::from_json(begun.spec.clone(), self.spec.places.directory())?;
        let changed = self.spec.changed_keys(&before);
        match changed.is_empty() {
            true => Ok(past),
            false => Err(EvaluateError::Invalid(format!(
                "the evaluation file has changed since it began: `{}` (put it back, or begin anew: remove `{}`, or name another directory)",
                changed.join("`, `"),
                output.display()
            ))),
        }
    }

    /// Opens the record, and writes down what is begun or gone on with.
    pub(super) fn record(
        &self,
        places: &Places,
        past: &Past,
        base: &BaseFacts,
        provided: &Provided,
        machine: &Machine,
        audience: Audience,
    ) -> Result<Telling, EvaluateError> {
        let output = &places.output;
        let failed = || EvaluateError::attempting(format!("making `{}`", output.display()));
        fs::create_dir_all(output).map_err(failed())?;
        fs::write(output.join(IGNORE), IGNORE_ALL).map_err(failed())?;
        let (journal, _) = Journal::open::<Record>(&output.join(JOURNAL))?;
        let mut telling = Telling::new(journal, output, audience)?;
        let (base, machine) = (base.clone(), machine.clone());
        telling.keep(&match past.begun {
            Some(_) => Record::WentOn { machine },
            None => Record::Begun {
                version: JOURNAL_VERSION,
                spec: self.spec.to_json(),
                base,
                provider: provided.facts.clone(),
                machine,
            },
        })?;
        Ok(telling)
    }
}

/// Whether a directory has nothing but what comes before the journal: somebody was killed in between.
fn is_hardly_begun(output: &Path) -> bool {
    let ours = |entry: std::io::Result<fs::DirEntry>| {
        let place = entry.map(|entry| entry.path());
        place.is_ok_and(|place| {
            place.ends_with(IGNORE)
                && fs::read(place).is_ok_and(|text| IGNORE_ALL.as_bytes().starts_with(&text))
        })
    };
    fs::read_dir(output).is_ok_and(|mut entries| entries.all(ours))
}
