//! The call a worker has, and what is known of it so far.

use std::time::Duration;

use tokio::time::Instant;

use super::call_frame::CallFrame;
use crate::call::{Call, Time};
use crate::dispatch::Dispatch;
use crate::error::EngineError;
use crate::linux::monotonic::now_ns;
use crate::linux::run_delay::processors;
use crate::scratch::ScratchDir;
use crate::spill::ResultFile;
use crate::workspace::UpperDir;

/// The call a worker has.
pub(crate) struct Current {
    pub(crate) dispatch: Dispatch,
    pub(crate) generation: u32,
    pub(crate) frame: Option<CallFrame>,
    pub(crate) scratch: Option<ScratchDir>,
    /// It was sent while another ran.
    pub(crate) ahead: bool,
    /// Processor time as the worker read it.
    pub(crate) usage: Option<(u64, u64)>,
    pub(crate) ack_by: Instant,
    /// When its frame, or the wish for its process, was sent.
    pub(crate) sent_ns: u64,
    pub(crate) began_ns: Option<u64>,
    pub(crate) finished_ns: Option<u64>,
    /// Processor time that its process had used when it began.
    pub(crate) cpu_before_ns: Option<u64>,
    /// How long its process had waited for a processor by then.
    pub(crate) waited_before_ns: Option<u64>,
    /// It can be run again.
    pub(crate) can_run_again: bool,
    /// Nobody would notice another run.
    pub(crate) unseen: bool,
    pub(crate) base_rss_bytes: Option<u64>,
    pub(crate) file: Option<ResultFile>,
    pub(crate) failure: Option<EngineError>,
    pub(crate) stacks: Vec<u8>,
    pub(crate) armed: bool,
    /// What it changed in its workspace.
    pub(crate) upper: Option<UpperDir>,
}

impl Current {
    pub(crate) fn new(dispatch: Dispatch, generation: u32, ack_timeout: Duration) -> Self {
        let can_run_again = dispatch.can_run_again();
        let unseen = dispatch.is_unseen();
        Self {
            dispatch,
            generation,
            frame: None,
            scratch: None,
            ahead: false,
            usage: None,
            ack_by: Instant::now() + ack_timeout,
            sent_ns: now_ns(),
            began_ns: None,
            finished_ns: None,
            cpu_before_ns: None,
            waited_before_ns: None,
            can_run_again,
            unseen,
            base_rss_bytes: None,
            file: None,
            failure: None,
            stacks: Vec::new(),
            armed: false,
            upper: None,
        }
    }

    pub(crate) fn call(&self) -> &Call {
        &self.dispatch.call
    }

    /// It began: by its own clock, which is right however late its word is read on a busy machine.
    pub(crate) fn began(&mut self, stamp_ns: u64) {
        self.began_ns = Some(believed(stamp_ns, self.sent_ns, now_ns()));
    }

    /// Past its deadline: the launcher stops it, if it has not yet. How much processor time it used only the launcher
    /// knows, so that counts from when all processors together can have given it so much.
    pub(crate) fn is_overdue(&self) -> bool {
        let timeout = self.call().timeout.map(|timeout| match self.call().time {
            Time::Wall => timeout,
            Time::Cpu => timeout / u32::try_from(processors()).unwrap_or(u32::MAX),
        });
        let began = timeout.zip(self.began_ns);
        began.is_some_and(|(timeout, began_ns)| {
            u128::from(now_ns().saturating_sub(began_ns)) >= timeout.as_nanos()
        })
    }
}

/// A reading of somebody else's clock: believed only as far as it lies between when we asked and when we heard.
fn believed(stamp_ns: u64, asked_ns: u64, heard_ns: u64) -> u64 {
    stamp_ns.max(asked_ns).min(heard_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-81, EX-86: an honest stamp counts, a forged one matters only between the sending and the reading.
    #[test]
    fn a_stamp_is_believed_only_within_what_is_possible() {
        assert_eq!(believed(15, 10, 20), 15);
        for (forged, counts) in [(0, 10), (9, 10), (21, 20), (u64::MAX, 20)] {
            assert_eq!(believed(forged, 10, 20), counts);
        }
    }
}
