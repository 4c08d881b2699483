//! When the engine itself could not do its work. A failing candidate is an `Outcome`, never one of these.

use std::io;
use std::path::PathBuf;

use crate::call::InvalidCall;

/// Why the engine could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The call was refused; nothing was started and no event fired.
    #[error("invalid call: {0}")]
    InvalidCall(#[from] InvalidCall),
    /// The backend no longer takes calls.
    #[error("the backend is shut down")]
    ShutDown,
    /// The launcher could not be started or does not speak our protocol.
    #[error("cannot start the launcher `{path}`: {problem}")]
    Launcher {
        /// Where it was looked for.
        path: String,
        /// What stood in the way.
        problem: String,
    },
    /// The launcher died while the call was running; the call may have had effects and is not run again.
    #[error("the launcher died while the call was running; what was found of the call was killed")]
    LauncherLost,
    /// The process that uses the engine closed its descriptors; the call may have had effects and is not run again.
    #[error(
        "the engine's descriptors were closed by this process (`os.closerange` or the like) while the call was waiting or \
         running; what was left of the call was killed"
    )]
    DescriptorsClosed,
    /// The host ran out of memory, and the kernel took some of the call's; the call was within its own limit.
    #[error("the host ran out of memory while the call was running, and the kernel ended it")]
    HostMemory,
    /// A process could not be started for want of a resource, after several tries.
    #[error("cannot start a process ({step}): {source}")]
    Spawn {
        /// What was attempted.
        step: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A process was killed by somebody else each time before it could serve.
    #[error("{what} was killed from outside {times} times in a row before it began")]
    Killed {
        /// Which process.
        what: String,
        /// How often it was tried.
        times: u32,
    },
    /// A call could not be given a scratch directory.
    #[error("cannot make a scratch directory in `{dir}`: {source}")]
    Scratch {
        /// The engine's directory for them.
        dir: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// No room for a large value.
    #[error("no room for a value of {needed} bytes in `{dir}`: {free} bytes are free")]
    Spill {
        /// Bytes wanted.
        needed: u64,
        /// Bytes left.
        free: u64,
        /// The spill directory.
        dir: PathBuf,
    },
    /// The spill directory is not safe or not usable.
    #[error("cannot use the spill directory `{dir}`: {problem}")]
    SpillDir {
        /// The directory.
        dir: PathBuf,
        /// What is wrong, and what would mend it.
        problem: String,
    },
    /// The user's cache directory is not safe or not usable.
    #[error("cannot use the cache directory `{dir}`: {problem}")]
    CacheDir {
        /// The directory.
        dir: PathBuf,
        /// What is wrong, and what would mend it.
        problem: String,
    },
    /// A variable or option of the engine does not parse.
    #[error("bad configuration: `{name}`: {problem}")]
    Config {
        /// The variable or option.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// The engine could not be brought up, as another call was told in full.
    #[error("{problem}")]
    Unavailable {
        /// What stood in the way.
        problem: String,
    },
    /// Whoever ran it elsewhere could not; it is not run again by itself.
    #[error("{problem} ({code})")]
    Elsewhere {
        /// For programs: `lost`, `invalid`, `blob_missing`, ….
        code: &'static str,
        /// What stood in the way.
        problem: String,
    },
    /// Another system call of the engine's own failed.
    #[error("{attempt}: {source}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl EngineError {
    /// For `map_err`: names what was attempted.
    pub fn io<E: Into<io::Error>>(attempt: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io {
            attempt,
            source: source.into(),
        }
    }
}

impl EngineError {
    /// Whether another try would come to the same, or might run what must not be run again.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::InvalidCall(_)
                | Self::ShutDown
                | Self::LauncherLost
                | Self::DescriptorsClosed
                | Self::Elsewhere { .. }
                | Self::SpillDir { .. }
                | Self::CacheDir { .. }
                | Self::Config { .. }
        )
    }

    /// Whether no other call would fare better: a server that denies or stays away, a store that takes nothing.
    #[must_use]
    pub fn is_of_backend(&self) -> bool {
        matches!(
            self,
            Self::Elsewhere {
                code: "server" | "store",
                ..
            }
        )
    }
}
