//! A study's report: one HTML file that needs nothing else (ST-81). A fold over the journal; the same journal gives the
//! same bytes.

mod analysis_plans;
mod arms;
mod chart;
mod cross;
mod failed;
mod failures;
mod figures;
mod gather;
mod grouped;
mod groups;
mod hypotheses;
mod outcome;
mod page;
mod provenance;
mod registered;
mod reservoir;
mod tested;
#[cfg(test)]
mod tests;
mod timeline;

pub(crate) use outcome::{AGGREGATIONS, is_aggregation};
pub(crate) use registered::TESTS;

use std::path::Path;

use crate::files::write_whole;
use crate::journal::{History, JournalError, Reader};
use crate::json_text::parse_value;
use crate::plan::Plan;
use crate::tables::{Export, ExportError, ExportOptions};
use crate::value::Value;

/// Everything that a report is made of.
pub struct Report<'r> {
    /// The plan.
    pub plan: &'r Plan<'r>,
    /// The record.
    pub reader: &'r Reader,
    /// What became of its runs.
    pub history: &'r History,
    /// The study's directory, where what its last orderly end left says by which version and on what.
    pub directory: &'r Path,
}

impl Report<'_> {
    /// Writes the report, whole or not at all.
    pub fn write(&self, place: &Path) -> Result<(), ExportError> {
        let page = self.html()?;
        write_whole(place, page.as_bytes()).map_err(|source| ExportError::File {
            path: place.to_owned(),
            source,
        })
    }

    /// The report.
    pub fn html(&self) -> Result<String, JournalError> {
        let options = ExportOptions::default();
        let export = Export {
            plan: self.plan,
            reader: self.reader,
            history: self.history,
            options: &options,
        };
        let gathered = gather::Gathered::read(&export)?;
        let invocations = self.reader.invocations()?;
        let accepted = self.reader.accepted()?;
        let source = page::Source {
            plan: self.plan,
            history: self.history,
            invocations: &invocations,
            accepted: &accepted,
            seal: &self.left("fairtrial.json"),
            manifest: &self.left("manifest.json"),
        };
        Ok(page::page(&source, gathered))
    }

    /// A JSON file of the directory; null where it is not there or is none, as after a kill.
    fn left(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        parse_value(name, &text).unwrap_or(Value::Null)
    }
}
