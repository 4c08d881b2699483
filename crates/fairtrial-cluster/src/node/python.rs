//! Which Python an interpreter here is: what was pickled is read by the same minor version only (CL-41).

use std::time::Duration;

use fairtrial_exec::{Backend as _, Call, Sandbox, Verdict};

use super::NodeAgent;
use super::trial::NotRun;
use crate::dispatch::Dispatch;
use crate::envelope::TaskEnvelope;

/// What an interpreter is asked.
const ASK: &str = "import sys; print('%d.%d' % sys.version_info[:2])";
/// One that does not answer so long is left to the engine.
const PATIENCE: Duration = Duration::from_secs(30);

impl<D: Dispatch + 'static> NodeAgent<D> {
    /// Refuses what another version pickled. Of an interpreter that cannot be asked the engine says why.
    pub(super) async fn check_python(&self, envelope: &TaskEnvelope) -> Result<(), NotRun> {
        let (Some(wanted), Some(python)) = (&envelope.needs.python, envelope.interpreter()) else {
            return Ok(());
        };
        match self.version_of(python).await {
            Some(found) if found != *wanted => Err(NotRun::OtherPython {
                python: python.to_owned(),
                wanted: wanted.clone(),
                found,
            }),
            _ => Ok(()),
        }
    }

    async fn version_of(&self, python: &str) -> Option<String> {
        let known = self.pythons.borrow().get(python).cloned();
        if known.is_some() {
            return known;
        }
        let mut ask = Call::command([python, "-I", "-S", "-c", ASK]);
        ask.sandbox = Sandbox::new(self.config.floor);
        ask.timeout = Some(PATIENCE);
        let told = self.engine.execute(ask).await.ok()?;
        if told.verdict != Verdict::Ok {
            return None;
        }
        let version = told.stdout.text().trim().to_owned();
        let mut pythons = self.pythons.borrow_mut();
        pythons.insert(python.to_owned(), version.clone());
        Some(version)
    }
}
