//! The record of an evaluation: what an earlier process left in the output directory, begun or gone on with.

use std::path::Path;

use super::directory::{self, Holds, Onset};
use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::journal::{JOURNAL, Journal};
use super::prepare::Places;
use super::provider::Provided;
use super::record::{JOURNAL_VERSION, Past, Record};
use super::telling::{Audience, Telling};
use crate::evaluation::{BaseFacts, Machine};
use crate::spec::Spec;

/// The record that is to be opened.
#[derive(Clone, Copy)]
pub(super) struct Opening<'a> {
    pub(super) places: &'a Places,
    pub(super) past: &'a Past,
    pub(super) onset: Onset,
}

impl Evaluator {
    /// What an earlier process left on record; checked before anything is made (CA-96).
    pub(super) fn past(&self, output: &Path, onset: Onset) -> Result<Past, EvaluateError> {
        directory::check(output)?;
        let place = || output.to_owned();
        match (onset, directory::look(output)) {
            (Onset::Begin, Holds::Evaluation(_)) => Err(EvaluateError::NotEmpty(place())),
            (Onset::Begin | Onset::Fresh, Holds::Others) => Err(EvaluateError::Occupied(place())),
            (Onset::Resume, Holds::Nothing | Holds::Others) => {
                Err(EvaluateError::NothingToResume(place()))
            }
            (Onset::Resume, Holds::Evaluation(past)) => self.same(*past?, output),
            (_, Holds::Nothing | Holds::Forgotten) | (Onset::Fresh, Holds::Evaluation(_)) => {
                Ok(Past::default())
            }
        }
    }

    /// What is on record, if it is of the same evaluation.
    fn same(&self, past: Past, output: &Path) -> Result<Past, EvaluateError> {
        let Some(begun) = &past.begun else {
            return Ok(past);
        };
        if begun.version != JOURNAL_VERSION {
            let problem = format!(
                "`{}` was written by another version of Fairtrial",
                output.join(JOURNAL).display()
            );
            return Err(EvaluateError::Invalid(problem));
        }
        let before = Spec::from_json(begun.spec.clone(), self.spec.places.directory())?;
        let changed = self.spec.changed_keys(&before);
        match changed.is_empty() {
            true => Ok(past),
            false => Err(EvaluateError::Invalid(format!(
                "the evaluation file has changed since it began: `{}` (put it back, or begin anew with `fresh`, or name another directory than `{}`)",
                changed.join("`, `"),
                output.display()
            ))),
        }
    }

    /// Opens the record, and writes down what is begun or gone on with.
    pub(super) fn record(
        &self,
        opening: &Opening<'_>,
        base: &BaseFacts,
        provided: &Provided,
        machine: &Machine,
        audience: Audience,
    ) -> Result<Telling, EvaluateError> {
        let Opening {
            places,
            past,
            onset,
        } = *opening;
        let output = &places.output;
        directory::make(output)?;
        let journal = match past.begun {
            Some(_) => Journal::open::<Record>(&output.join(JOURNAL))?.0,
            None => {
                let mut journal = Journal::hold(&output.join(JOURNAL))?;
                // Another may have begun, and ended, while the base was being frozen.
                self.past(output, onset)?;
                directory::clear(output, &mut journal)?;
                journal
            }
        };
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
