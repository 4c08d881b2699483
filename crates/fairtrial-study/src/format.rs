//! The formats that a study's tables are written in (ST-74).

use std::fmt;
use std::str::FromStr;

use crate::tables::PARQUET_IS_BUILT_IN;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// The canonical tables, with the study and its manifest beside them.
    Csv,
    /// One object per run, as lines.
    Json,
    /// The tables, a file each.
    Parquet,
    /// The tables, in one database.
    Sqlite,
    /// Checkpoints that DRE resumes from.
    Dre,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Csv,
        Self::Json,
        Self::Parquet,
        Self::Sqlite,
        Self::Dre,
    ];

    /// As files and flags name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Parquet => "parquet",
            Self::Sqlite => "sqlite",
            Self::Dre => "dre",
        }
    }

    /// Whether this build can write it.
    #[must_use]
    pub fn is_built_in(self) -> bool {
        self != Self::Parquet || PARQUET_IS_BUILT_IN
    }

    /// The files of a directory that follow from its journal alone. A manifest says when it was made, and checkpoints are
    /// DRE's.
    pub(crate) fn derived_files(self) -> &'static [&'static str] {
        match self {
            Self::Csv => &[
                "study.yaml",
                "study.input.yaml",
                "conditions.csv",
                "hypotheses.json",
                "analysis_plan.json",
                "runs.csv",
                "events.csv",
                "evaluations.csv",
                "attempts.csv",
            ],
            Self::Json => &["runs.jsonl"],
            Self::Parquet => &[
                "conditions.parquet",
                "runs.parquet",
                "events.parquet",
                "evaluations.parquet",
                "attempts.parquet",
            ],
            Self::Sqlite => &["study.sqlite"],
            Self::Dre => &[],
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of csv, json, parquet, sqlite and dre"))
    }
}
