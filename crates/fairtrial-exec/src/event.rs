//! The one event stream. Owns what can be told; who listens is `observers.rs`'s business.

use std::collections::BTreeMap;

use crate::sandbox::Level;
use crate::verdict::Verdict;

/// Number of a submitted call, unique in its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// What a backend tells its observers.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A call was accepted.
    Submit {
        /// Which.
        call: CallId,
    },
    /// A worker acknowledged it, or its command runs.
    Start {
        /// Which.
        call: CallId,
        /// By whom.
        worker_id: String,
    },
    /// It is over; exactly one for each `Submit`. `verdict` is `None` when the engine failed.
    Complete {
        /// Which.
        call: CallId,
        /// What became of it.
        verdict: Option<Verdict>,
    },
    /// A worker process exists.
    WorkerStart {
        /// Its id.
        worker_id: String,
        /// Its process.
        pid: u32,
        /// Threads its zygote had after preloading: more than one can make a fork hang.
        /// `None` for a command, or if the zygote has ended meanwhile.
        zygote_threads: Option<u32>,
        /// Descriptors that preloads hold and that are not open in this worker: their numbers and targets. At most 100.
        closed_fds: BTreeMap<u32, String>,
    },
    /// A worker process is gone.
    WorkerExit {
        /// Its id.
        worker_id: String,
        /// Why.
        reason: ExitReason,
        /// How, as the kernel says; `None` if the launcher died first.
        status: Option<crate::outcome::Exit>,
        /// Messages it sent that belong to no dispatch it had then: late or forged, dropped (EX-26).
        stale_frames: u64,
    },
    /// A call runs without a mechanism that its level has, as it allowed; one for each mechanism.
    Degraded {
        /// The level asked for.
        requested: Level,
        /// What is missing, by its name in the contract.
        mechanism: &'static str,
        /// Why, in words.
        reason: String,
    },
    /// The backend is shut down; exactly one, and the last.
    Shutdown,
}

impl Event {
    /// The name in the public contract.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Submit { .. } => "submit",
            Self::Start { .. } => "start",
            Self::Complete { .. } => "complete",
            Self::WorkerStart { .. } => "worker_start",
            Self::WorkerExit { .. } => "worker_exit",
            Self::Degraded { .. } => "degraded",
            Self::Shutdown => "shutdown",
        }
    }
}

/// Why a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExitReason {
    /// A `fresh` worker or a command served its call.
    CallDone,
    /// The call's deadline passed; the call itself may have replied at the last moment.
    Timeout,
    /// The call was cancelled.
    Cancelled,
    /// The call passed a limit.
    Limit(Verdict),
    /// It ended by itself, broke the protocol, did not begin its call in time, or lost its launcher.
    Crashed,
    /// Unused for `idle_timeout`, or its slot was wanted for another key.
    Idle,
    /// It served `max_calls` calls.
    MaxCalls,
    /// It was older than `max_age`.
    MaxAge,
    /// It grew by more than `rss_growth`.
    RssGrowth,
    /// Its last verdict was not `ok`.
    AfterError,
    /// The backend was shut down.
    Shutdown,
}

impl ExitReason {
    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = [
            Self::CallDone,
            Self::Timeout,
            Self::Cancelled,
            Self::Crashed,
            Self::Idle,
            Self::MaxCalls,
            Self::MaxAge,
            Self::RssGrowth,
            Self::AfterError,
            Self::Shutdown,
        ];
        let limits = Verdict::ALL.into_iter().map(Self::Limit);
        let mut all = plain.into_iter().chain(limits);
        all.find(|reason| reason.name() == name)
    }

    /// The name in the public contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CallDone => "call_done",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Limit(verdict) => verdict.name(),
            Self::Crashed => "crashed",
            Self::Idle => "idle",
            Self::MaxCalls => "max_calls",
            Self::MaxAge => "max_age",
            Self::RssGrowth => "rss_growth",
            Self::AfterError => "after_error",
            Self::Shutdown => "shutdown",
        }
    }
}
