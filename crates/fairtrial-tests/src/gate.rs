//! A call that says when it began and ends when it is told: what runs "meanwhile" needs no sleep.

use std::path::{Path, PathBuf};

use fairtrial_exec::Call;

use crate::host::wait_until;
use crate::story::Story;

/// Source of `f(begun, gate)`: waits, not for ever, until the gate is open.
const WAIT: &str = "
import os, time
def f(begun, gate):
    with open(begun, 'a') as file:
        file.write('%d\\n' % os.getpid())
    give_up = time.monotonic() + 30
    while not os.path.exists(gate):
        if time.monotonic() > give_up:
            raise TimeoutError(gate)
        time.sleep(0.005)
    return 'through'
";

/// A place where calls wait.
#[derive(Clone, Debug)]
pub struct Gate {
    begun: PathBuf,
    gate: PathBuf,
}

impl Gate {
    /// A shut gate in the story's directory.
    #[must_use]
    pub fn new(story: &Story, name: &str) -> Self {
        Self::at(story.path(), name)
    }

    /// A shut gate in a directory.
    #[must_use]
    pub fn at(dir: &Path, name: &str) -> Self {
        let path = |suffix: &str| dir.join(format!("{name}.{suffix}"));
        Self {
            begun: path("begun"),
            gate: path("gate"),
        }
    }

    /// A call that waits here in a fresh worker; its value is `"through"`.
    #[must_use]
    pub fn call(&self) -> Call {
        Story::call(WAIT, &self.arguments())
    }

    /// The same for a worker that is kept.
    #[must_use]
    pub fn reuse_call(&self) -> Call {
        Story::reuse_call(WAIT, &self.arguments())
    }

    fn arguments(&self) -> String {
        serde_json::json!([self.begun, self.gate]).to_string()
    }

    /// Processes that came here so far, one entry per call begun.
    #[must_use]
    pub fn arrived(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(&self.begun).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let pids = whole.lines().map(|line| line.parse());
        pids.collect::<Result<_, _>>().expect("pids are numbers")
    }

    /// Waits until so many calls wait here.
    pub async fn reached_by(&self, calls: usize) {
        wait_until("the calls are at the gate", || {
            self.arrived().len() >= calls
        })
        .await;
    }

    /// Lets everybody through.
    pub fn open(&self) {
        std::fs::write(&self.gate, "").expect("a file can be written");
    }
}
