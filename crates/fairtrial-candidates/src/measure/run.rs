//! One run of one side: where it stands in a race, and what was measured. The lines of `runs.jsonl`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::contamination::Cause;

/// Who runs: the base, the base once more as the A/A control, or a candidate by its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Side {
    /// What candidates change.
    Base,
    /// The base again, under another name.
    Control,
    /// A candidate.
    Candidate(String),
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Base => "base",
            Self::Control => "control",
            Self::Candidate(id) => id,
        })
    }
}

impl From<Side> for String {
    fn from(side: Side) -> Self {
        side.to_string()
    }
}

impl From<String> for Side {
    fn from(text: String) -> Self {
        match text.as_str() {
            "base" => Self::Base,
            "control" => Self::Control,
            _ => Self::Candidate(text),
        }
    }
}

/// What a series is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Shows how quiet the machine is.
    Calibration,
    /// Compares all candidates.
    Race,
    /// Measures this would-be winner again.
    Confirmation(String),
}

/// Names a series: `1/race/1`. The same series has the same name whatever else was run, so that records can be judged
/// again under other settings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SeriesId {
    /// Which race of the evaluation.
    pub round: u32,
    /// What for.
    pub purpose: Purpose,
    /// 2 when the A/A control of the first missed 1.
    pub attempt: u32,
}

impl fmt::Display for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { round, attempt, .. } = self;
        match &self.purpose {
            Purpose::Calibration => write!(f, "{round}/calibration/{attempt}"),
            Purpose::Race => write!(f, "{round}/race/{attempt}"),
            Purpose::Confirmation(id) => write!(f, "{round}/confirm/{id}/{attempt}"),
        }
    }
}

impl From<SeriesId> for String {
    fn from(series: SeriesId) -> Self {
        series.to_string()
    }
}

/// Not the name of a series.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not the name of a series")]
pub struct NotASeries(String);

impl FromStr for SeriesId {
    type Err = NotASeries;

    fn from_str(text: &str) -> Result<Self, NotASeries> {
        let wrong = || NotASeries(text.to_owned());
        let number = |part: &str| part.parse().map_err(|_| wrong());
        let (round, rest) = text.split_once('/').ok_or_else(wrong)?;
        let (purpose, attempt) = rest.rsplit_once('/').ok_or_else(wrong)?;
        Ok(Self {
            round: number(round)?,
            attempt: number(attempt)?,
            purpose: match (purpose, purpose.strip_prefix("confirm/")) {
                ("calibration", _) => Purpose::Calibration,
                ("race", _) => Purpose::Race,
                (_, Some(id)) if !id.is_empty() => Purpose::Confirmation(id.to_owned()),
                _ => return Err(wrong()),
            },
        })
    }
}

impl TryFrom<String> for SeriesId {
    type Error = NotASeries;

    fn try_from(text: String) -> Result<Self, NotASeries> {
        text.parse()
    }
}

/// What to run next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrder {
    /// The series it belongs to.
    pub series: SeriesId,
    /// Its block, from 1.
    pub block: u32,
    /// Its place among the runs of the block, repeats included, from 0.
    pub position: u32,
    /// Who runs.
    pub side: Side,
    /// The bench command, by name.
    pub bench: String,
    /// The same for a whole block.
    pub hash_seed: u32,
    /// How often this run was repeated before.
    pub repeat: u32,
    /// For a run of the base beside the repeat of another side: that side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner_of: Option<Side>,
    /// How often the command loops in this run; none where whole runs are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loops: Option<u32>,
}

/// What was measured of a run, all of it from outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Wall time.
    pub wall_s: Option<f64>,
    /// Processor time in user mode.
    pub user_s: Option<f64>,
    /// Processor time in the kernel.
    pub system_s: Option<f64>,
    /// Largest resident size.
    pub peak_rss_bytes: Option<u64>,
    /// Instructions, where counters exist.
    pub instructions: Option<u64>,
    /// Cycles, where counters exist.
    pub cycles: Option<u64>,
    /// Why there is no count of these, though counters exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted: Option<String>,
    /// How often it had to leave its CPU.
    pub involuntary_switches: Option<u64>,
    /// Time the hypervisor took.
    pub steal_s: Option<f64>,
    /// Time it waited for a CPU.
    pub pressure_s: Option<f64>,
    /// Of the tree it ran.
    pub tree_hash: Option<String>,
    /// Of the isolation in force.
    pub isolation: Option<String>,
    /// Why it counts as failed; none if it ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// It failed for a reason that is not its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub infra: bool,
}

/// By what sides are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Wall time.
    #[default]
    Wall,
    /// User and system time.
    Cpu,
    /// Instructions.
    Instructions,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wall => "wall",
            Self::Cpu => "cpu",
            Self::Instructions => "instructions",
        })
    }
}

/// Nothing that was asked for can be measured here.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no metric of `{}` can be measured here", .0.iter().map(Metric::to_string).collect::<Vec<_>>().join(", "))]
pub struct NoMetric(pub Vec<Metric>);

impl Metric {
    /// The first that is wanted and can be had.
    ///
    /// # Errors
    /// None can be had.
    pub fn choose(wanted: &[Self], offered: &[Self]) -> Result<Self, NoMetric> {
        let found = wanted.iter().find(|metric| offered.contains(metric));
        found.copied().ok_or_else(|| NoMetric(wanted.to_vec()))
    }
}

impl Measured {
    /// The cost by one metric; none if it was not measured or cannot be, as a time of zero.
    #[must_use]
    pub fn value(&self, metric: Metric) -> Option<f64> {
        let value = match metric {
            Metric::Wall => self.wall_s?,
            Metric::Cpu => self.cpu_s()?,
            Metric::Instructions => self.instructions? as f64,
        };
        (value.is_finite() && value > 0.0).then_some(value)
    }

    /// User and system time.
    #[must_use]
    pub fn cpu_s(&self) -> Option<f64> {
        Some(self.user_s? + self.system_s?)
    }
}

/// A line of `runs.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Where it stands.
    #[serde(flatten)]
    pub order: RunOrder,
    /// What was measured.
    #[serde(flatten)]
    pub measured: Measured,
    /// What was over its limit. Such a run is repeated, or kept and flagged.
    #[serde(default)]
    pub contamination: Vec<Cause>,
}

impl Run {
    /// Whether this is the end of a candidate that did nothing wrong.
    pub(crate) fn is_misfortune_of(&self, candidate: &str) -> bool {
        let is_its_own = matches!(&self.order.side, Side::Candidate(id) if id == candidate);
        is_its_own && self.measured.infra
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-72
    #[test]
    fn the_first_metric_that_can_be_had_is_taken() {
        let wanted = [Metric::Instructions, Metric::Cpu];
        let offered = [Metric::Wall, Metric::Cpu];
        assert_eq!(Metric::choose(&wanted, &offered), Ok(Metric::Cpu));
        assert_eq!(
            Metric::choose(&wanted, &[]).unwrap_err().to_string(),
            "no metric of `instructions, cpu` can be measured here"
        );
    }

    /// CA-76
    #[test]
    fn a_vanished_or_zero_time_is_no_value() {
        let timed = |wall_s| Measured {
            wall_s,
            ..Measured::default()
        };
        for wall_s in [None, Some(0.0), Some(-1.0), Some(f64::NAN)] {
            assert_eq!(timed(wall_s).value(Metric::Wall), None);
        }
        assert_eq!(timed(Some(0.5)).value(Metric::Wall), Some(0.5));
    }

    /// CA-78
    #[test]
    fn a_run_is_one_flat_line_and_reads_back() {
        let run = Run {
            order: RunOrder {
                series: "1/confirm/c-91ab03/2".parse().unwrap(),
                block: 3,
                position: 7,
                side: Side::Base,
                bench: "topo".to_owned(),
                hash_seed: 17,
                repeat: 1,
                partner_of: Some(Side::Control),
                loops: Some(24),
            },
            measured: Measured {
                wall_s: Some(0.1),
                involuntary_switches: Some(12),
                tree_hash: Some("ab".to_owned()),
                ..Measured::default()
            },
            contamination: vec![Cause::Switches],
        };
        let line = serde_json::to_string(&run).unwrap();
        assert!(
            line.starts_with(
                r#"{"series":"1/confirm/c-91ab03/2","block":3,"position":7,"side":"base","#
            ),
            "{line}"
        );
        assert!(line.contains(r#""contamination":["switches"]"#), "{line}");
        assert_eq!(serde_json::from_str::<Run>(&line).unwrap(), run);
    }

    /// CA-78
    #[test]
    fn names_of_series_read_back_and_others_are_refused() {
        for text in ["1/race/1", "2/confirm/c-1/2", "1/calibration/1"] {
            assert_eq!(text.parse::<SeriesId>().unwrap().to_string(), text);
        }
        for text in ["", "race", "1/race", "1/confirm//1", "x/race/1", "1/dash/1"] {
            assert!(text.parse::<SeriesId>().is_err(), "{text}");
        }
    }
}
