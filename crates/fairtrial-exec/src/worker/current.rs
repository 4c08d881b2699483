//! The call a worker has, and what is known of it so far.

use std::time::Duration;

use tokio::time::Instant;

use super::call_frame::CallFrame;
use crate::call::Call;
use crate::dispatch::Dispatch;
use crate::error::EngineError;
use crate::linux::monotonic::now_ns;
use crate::scratch::ScratchDir;
use crate::spill::ResultFile;

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
    pub(crate) began_ns: Option<u64>,
    pub(crate) finished_ns: Option<u64>,
    pub(crate) cpu_before_ns: Option<u64>,
    pub(crate) base_rss_bytes: Option<u64>,
    pub(crate) file: Option<ResultFile>,
    pub(crate) failure: Option<EngineError>,
    pub(crate) stacks: Vec<u8>,
    pub(crate) armed: bool,
}

impl Current {
    pub(crate) fn new(dispatch: Dispatch, generation: u32, ack_timeout: Duration) -> Self {
        Self {
            dispatch,
            generation,
            frame: None,
            scratch: None,
            ahead: false,
            usage: None,
            ack_by: Instant::now() + ack_timeout,
            began_ns: None,
            finished_ns: None,
            cpu_before_ns: None,
            base_rss_bytes: None,
            file: None,
            failure: None,
            stacks: Vec::new(),
            armed: false,
        }
    }

    pub(crate) fn call(&self) -> &Call {
        &self.dispatch.call
    }

    /// Past its deadline: the launcher stops it, if it has not yet.
    pub(crate) fn is_overdue(&self) -> bool {
        let began = self.call().timeout.zip(self.began_ns);
        began.is_some_and(|(timeout, began_ns)| {
            u128::from(now_ns().saturating_sub(began_ns)) >= timeout.as_nanos()
        })
    }
}
