//! How a call ended, and what that says of the candidate. Facts of the engine, never a process's own words.

use fairtrial_exec::{Exit, Outcome, Verdict};
use serde::{Deserialize, Serialize};

/// The facts of a call's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallEnd {
    /// What became of the call.
    #[serde(with = "verdict_name")]
    pub verdict: Verdict,
    /// The exit code, if it exited.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Wall time, measured from outside.
    pub wall_s: Option<f64>,
    /// What the engine says went wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What an end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It exited, with whatever code: its results say more.
    Finished,
    /// It took too long.
    Timeout,
    /// A signal ended it, or it ended before its work did.
    Crash,
    /// It wanted more than it may have.
    Limit,
    /// It could not be started. The engine's misfortune, and trying again would not help (CA-56).
    SetupFailed,
    /// Whoever asked for it gave up.
    Cancelled,
}

impl CallEnd {
    /// The facts of an outcome.
    #[must_use]
    pub fn of(outcome: &Outcome) -> Self {
        let (code, signal) = match outcome.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        Self {
            verdict: outcome.verdict,
            code,
            signal,
            wall_s: outcome.metrics.wall_ns.map(|ns| ns as f64 / 1e9),
            message: outcome
                .error
                .as_ref()
                .map_or(String::new(), |error| error.message.clone()),
        }
    }

    /// What it means.
    #[must_use]
    pub fn ended(&self) -> Ended {
        match self.verdict {
            Verdict::SetupFailed => Ended::SetupFailed,
            Verdict::Cancelled => Ended::Cancelled,
            Verdict::Timeout => Ended::Timeout,
            Verdict::CpuLimit
            | Verdict::MemoryLimit
            | Verdict::OutputLimit
            | Verdict::DiskLimit
            | Verdict::ProcessLimit
            | Verdict::Forbidden => Ended::Limit,
            Verdict::Signal => Ended::Crash,
            // The last four are no ends of commands; were they, their results would say more.
            Verdict::Exit
            | Verdict::Ok
            | Verdict::Exception
            | Verdict::BadResult
            | Verdict::NoResult => Ended::Finished,
        }
    }

    /// In words.
    #[must_use]
    pub fn described(&self) -> String {
        let fact = match (self.ended(), self.code, self.signal) {
            (Ended::Finished, Some(code), _) => format!("exit code {code}"),
            (Ended::Crash, _, Some(signal)) => format!("signal {signal}"),
            _ => self.verdict.name().replace('_', " "),
        };
        // The engine's words for an exit begin with what was just said.
        let said = self.code.map(|code| format!("exited with code {code}"));
        let message = said
            .and_then(|said| self.message.strip_prefix(&said))
            .unwrap_or(&self.message);
        match message.trim_start_matches([':', ' ']) {
            "" => fact,
            message => format!("{fact}: {message}"),
        }
    }
}

mod verdict_name {
    use fairtrial_exec::Verdict;
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(verdict: &Verdict, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(verdict.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Verdict, D::Error> {
        let name = String::deserialize(from)?;
        let mut all = Verdict::ALL.into_iter();
        all.find(|verdict| verdict.name() == name)
            .ok_or_else(|| D::Error::custom(format!("`{name}` is no verdict")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::end;
    use super::*;

    /// CA-54, CA-56
    #[test]
    fn every_verdict_has_its_meaning() {
        use Ended as E;
        use Verdict as V;
        let table = [
            (V::SetupFailed, E::SetupFailed),
            (V::Cancelled, E::Cancelled),
            (V::Timeout, E::Timeout),
            (V::CpuLimit, E::Limit),
            (V::MemoryLimit, E::Limit),
            (V::OutputLimit, E::Limit),
            (V::DiskLimit, E::Limit),
            (V::ProcessLimit, E::Limit),
            (V::Forbidden, E::Limit),
            (V::Signal, E::Crash),
            (V::Exit, E::Finished),
            (V::Exception, E::Finished),
            (V::BadResult, E::Finished),
            (V::NoResult, E::Finished),
            (V::Ok, E::Finished),
        ];
        assert_eq!(table.map(|(verdict, _)| verdict), V::ALL);
        for (verdict, ended) in table {
            assert_eq!(end(verdict).ended(), ended, "{verdict}");
        }
    }

    /// CA-54
    #[test]
    fn an_end_is_described_and_reads_back() {
        let exited = CallEnd {
            code: Some(3),
            ..end(Verdict::Exit)
        };
        assert_eq!(exited.described(), "exit code 3");
        let killed = CallEnd {
            signal: Some(11),
            message: "segmentation fault".to_owned(),
            ..end(Verdict::Signal)
        };
        assert_eq!(killed.described(), "signal 11: segmentation fault");
        assert_eq!(end(Verdict::MemoryLimit).described(), "memory limit");
        for verdict in Verdict::ALL {
            let text = serde_json::to_string(&end(verdict)).expect("written");
            assert!(
                text.contains(&format!(r#""verdict":"{verdict}""#)),
                "{text}"
            );
            assert_eq!(
                serde_json::from_str::<CallEnd>(&text).expect("read"),
                end(verdict)
            );
        }
        assert!(serde_json::from_str::<CallEnd>(r#"{"verdict":"fine"}"#).is_err());
    }
}
