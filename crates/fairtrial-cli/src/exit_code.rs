//! The five ways the command ends, as the public contract numbers them.

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitCode {
    /// Everything asked for was done, and every verdict was `ok`.
    AllWell,
    /// The engine itself failed.
    EngineFailed,
    /// Bad usage or an invalid file.
    BadUsage,
    /// Finished, but a call failed.
    CallFailed,
    /// SIGINT, SIGTERM or SIGHUP.
    Interrupted,
}

impl ExitCode {
    /// The number the shell sees.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::AllWell => 0,
            Self::EngineFailed => 1,
            Self::BadUsage => 2,
            Self::CallFailed => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}
