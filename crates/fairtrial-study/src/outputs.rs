//! What a study leaves in its directory: which formats, and the tables in them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::clock::now_ns;
use crate::compat::Compat;
use crate::execute::Request;
use crate::format::Format;
use crate::journal::{History, Journal, Reader};
use crate::plan::Plan;
use crate::ready::Ready;
use crate::seal;
use crate::tables::{Export, ExportError, ExportOptions};
use crate::value::Value;

/// Everything that tables are made of but the record; may go to another thread.
#[derive(Clone)]
pub(crate) struct Outputs {
    plan: Arc<Plan<'static>>,
    directory: PathBuf,
    provenance: Option<Value>,
    input: Arc<[u8]>,
    /// What is written at the end.
    pub(crate) formats: BTreeSet<Format>,
}

impl Outputs {
    /// The tables; what file and command ask for; and what is there already, so that no format falls behind the others.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let study = &request.plan.study;
        let asked = study.export.iter().map(|(format, _)| *format);
        let asked = asked.chain(request.formats.iter().copied());
        let there = Format::ALL
            .into_iter()
            .filter(|format| is_there(*format, request));
        let own = match study.compat {
            Compat::Native => Format::Csv,
            Compat::Dre => Format::Dre,
        };
        let formats = [Format::Csv, own].into_iter().chain(asked).chain(there);
        Self {
            plan: Arc::clone(request.plan),
            directory: request.directory.to_owned(),
            provenance: request.provenance.clone(),
            input: request.input.as_slice().into(),
            formats: formats.filter(|format| format.is_built_in()).collect(),
        }
    }

    /// Those of its formats of which the directory lacks a file.
    pub(crate) fn missing(&self) -> BTreeSet<Format> {
        let lacks = |format: &&Format| {
            let mut files = format.derived_files().iter();
            **format != Format::Csv && files.any(|name| !self.directory.join(name).exists())
        };
        self.formats.iter().filter(lacks).copied().collect()
    }

    /// Writes the files of some formats, each whole.
    pub(crate) fn write(
        &self,
        reader: &Reader,
        history: &History,
        formats: BTreeSet<Format>,
        given_up: &Arc<AtomicBool>,
    ) -> Result<(), ExportError> {
        let options = ExportOptions {
            output_dir: self.directory.clone(),
            formats,
            mask_volatile: false,
            provenance: self.provenance.clone(),
            generated_at_ns: now_ns(),
            input: Arc::clone(&self.input),
            given_up: Arc::clone(given_up),
        };
        let export = Export {
            plan: &self.plan,
            reader,
            history,
            options: &options,
        };
        export.write(&self.directory)
    }

    /// Writes what they were made of, and their hashes (ST-78).
    pub(crate) fn seal(&self, ready: &Ready, reader: &Reader) -> Result<(), ExportError> {
        seal::write(&self.plan, ready, reader, &self.directory, &self.formats)
    }

    /// Writes the tables as they stand while runs go on. They mention nothing that a dying machine could forget (ST-60).
    pub(crate) fn write_meanwhile(
        &self,
        journal: &Journal,
        given_up: &Arc<AtomicBool>,
    ) -> Result<(), ExportError> {
        let reader = journal.reader()?;
        reader.hold_still()?;
        let history = reader.history()?;
        if journal.sync().is_err() {
            return Err(ExportError::GivenUp); // whoever runs the study is told why
        }
        self.write(&reader, &history, BTreeSet::from([Format::Csv]), given_up)
    }
}

fn is_there(format: Format, request: &Request<'_>) -> bool {
    let mut files = format.derived_files().iter();
    files.any(|name| request.directory.join(name).exists())
}
