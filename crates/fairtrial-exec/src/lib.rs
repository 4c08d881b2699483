//! Runs calls that nobody vouches for, each in its own process, and says what happened.
//!
//! Owns calls and outcomes, the launcher protocol, workers, spill files and every system call; never git, studies or
//! printing.

#[cfg(feature = "engine")]
mod aside;
#[cfg(feature = "engine")]
mod backend;
#[cfg(feature = "engine")]
mod call;
#[cfg(feature = "engine")]
mod capture;
#[cfg(feature = "engine")]
mod clock;
#[cfg(feature = "engine")]
mod config;
#[cfg(feature = "engine")]
mod copies;
#[cfg(feature = "engine")]
mod dispatch;
#[cfg(feature = "engine")]
mod environment;
#[cfg(feature = "engine")]
mod error;
#[cfg(feature = "engine")]
mod event;
#[cfg(feature = "engine")]
pub mod event_loop;
#[cfg(feature = "engine")]
mod foreign_host;
#[cfg(feature = "engine")]
mod hint;
#[cfg(feature = "engine")]
mod launcher;
#[cfg(feature = "engine")]
mod limits;
pub mod linux;
#[cfg(feature = "engine")]
mod listener;
#[cfg(feature = "engine")]
mod local;
#[cfg(feature = "engine")]
mod locked_dir;
#[cfg(feature = "engine")]
mod machine_lock;
#[cfg(feature = "engine")]
mod marshal;
#[cfg(feature = "engine")]
mod measuring;
#[cfg(feature = "engine")]
mod metrics;
#[cfg(feature = "engine")]
mod observers;
#[cfg(feature = "engine")]
mod outcome;
#[cfg(feature = "engine")]
mod passed;
pub mod protocol;
#[cfg(feature = "engine")]
mod reach;
#[cfg(feature = "engine")]
mod sandbox;
#[cfg(feature = "engine")]
mod scratch;
#[cfg(test)]
mod skipped;
#[cfg(feature = "engine")]
mod snapshot;
#[cfg(feature = "engine")]
mod spill;
#[cfg(feature = "engine")]
mod store;
#[cfg(feature = "engine")]
#[doc(hidden)]
pub mod strangers;
#[cfg(feature = "engine")]
pub mod value;
#[cfg(feature = "engine")]
mod verdict;
#[cfg(feature = "engine")]
mod worker;
#[cfg(feature = "engine")]
mod workspace;
#[cfg(feature = "engine")]
mod zygote;

#[cfg(feature = "engine")]
pub use {
    backend::{Backend, Shutdown},
    call::{
        Arguments, Beginning, Call, CommandWork, DEFAULT_CAPTURE_BYTES, HostTerms, InvalidCall,
        Isolation, PickledWork, PythonTerms, ResultFormat, SourceWork, Time, Work, seconds,
    },
    capture::{Capture, Captured},
    config::{LocalConfig, Recycle, available_cpus},
    copies::{
        CopySlot, Deletions, Provider, Reset, Unavailable, UnknownProvider, Written, probe_copy,
        write_changes,
    },
    dispatch::Answer,
    error::EngineError,
    event::{CallId, Event, ExitReason},
    hint::unknown_key,
    limits::{DEFAULT_OUTPUT_BYTES, Limits, Resource, Size, parse_duration, parse_size},
    linux::{perf::Counted, process::adopt_orphans, remove::remove_path as remove_tree},
    listener::{Listener, Stream, Streams, Tap, TapReader},
    local::{ADVICE, CallHandle, Cancels, Execution, LocalBackend},
    machine_lock::{Held, Holder, LockError, MachineLock},
    measuring::{
        Count, Disturbance, KeptOff, NoCounters, Pin, Pinning, Reading, Surroundings, UnusableCpu,
        Usable, WhyNotPinned, keep_off, probe_counters,
    },
    metrics::{CpuSource, Margin, MeasuredBy, Metrics, PeakSource, WaitSource},
    observers::{Observer, Observers, Onlooker},
    outcome::{EncodedValue, ErrorReport, Exit, FirstRun, KilledBy, Outcome},
    reach::out_of_reach,
    sandbox::{
        Attempts, Counters, DEFAULT_LEVEL, Facility, InForce, Level, Mechanism, Network, OnMissing,
        Proof, SANDBOX_KEYS, SANDBOX_VARIABLE, Sandbox, SandboxReport, State,
    },
    scratch::{DeadRoot, ScratchDir, ScratchRoot, sweep_dead_roots},
    snapshot::{
        Damaged, Digest, Entry, EntryKind, FrozenTree, Snapshot, SnapshotError, TreeWatch, list,
    },
    spill::{
        ArgumentFile, Body, ResultFile, SettleError, SpillDir, SpillPolicy, Writers,
        sealed_argument,
    },
    store::{Keep, Store},
    verdict::Verdict,
    workspace::{
        Change, ChangeKind, Changes, LayerEntry, MOST_CHANGES, ProviderReport, Shared, SharedMode,
        Upper, UpperDir, Workspace, WorkspaceNamespace, probe_workspaces, write_layer,
    },
};
