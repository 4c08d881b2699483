//! The verdict on a call, and which of several facts decides it.

use std::fmt;

/// What became of a call. The order of the variants is the order of precedence: of several facts, the first decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The candidate could not be started as asked.
    SetupFailed,
    /// The caller gave up, or the queue did.
    Cancelled,
    /// The deadline passed.
    Timeout,
    /// It used more processor time than allowed.
    CpuLimit,
    /// It used more memory than allowed.
    MemoryLimit,
    /// It wrote more output than allowed.
    OutputLimit,
    /// It wrote a larger file or result than allowed.
    DiskLimit,
    /// It had more processes than allowed.
    ProcessLimit,
    /// The sandbox stopped a forbidden act.
    Forbidden,
    /// A signal ended it.
    Signal,
    /// It exited without answering, or with a failing code.
    Exit,
    /// The function raised.
    Exception,
    /// The answer could not be understood or may not travel.
    BadResult,
    /// It ended well but gave no answer.
    NoResult,
    /// It answered.
    Ok,
}

impl Verdict {
    /// Every verdict, by precedence.
    pub const ALL: [Self; 15] = [
        Self::SetupFailed,
        Self::Cancelled,
        Self::Timeout,
        Self::CpuLimit,
        Self::MemoryLimit,
        Self::OutputLimit,
        Self::DiskLimit,
        Self::ProcessLimit,
        Self::Forbidden,
        Self::Signal,
        Self::Exit,
        Self::Exception,
        Self::BadResult,
        Self::NoResult,
        Self::Ok,
    ];

    /// The name in the public contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SetupFailed => "setup_failed",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::CpuLimit => "cpu_limit",
            Self::MemoryLimit => "memory_limit",
            Self::OutputLimit => "output_limit",
            Self::DiskLimit => "disk_limit",
            Self::ProcessLimit => "process_limit",
            Self::Forbidden => "forbidden",
            Self::Signal => "signal",
            Self::Exit => "exit",
            Self::Exception => "exception",
            Self::BadResult => "bad_result",
            Self::NoResult => "no_result",
            Self::Ok => "ok",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-70
    #[test]
    fn precedence_is_the_order_of_the_contract() {
        assert!(Verdict::ALL.is_sorted());
        let names: Vec<_> = Verdict::ALL.iter().map(|verdict| verdict.name()).collect();
        assert_eq!(
            names.join(" "),
            "setup_failed cancelled timeout cpu_limit memory_limit output_limit disk_limit process_limit forbidden \
             signal exit exception bad_result no_result ok"
        );
    }
}
