//! The facts that the journal keeps, and what a resumed evaluation knows from them (CA-95 to CA-97).

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::correctness::{Checked, Tested};
use crate::evaluation::{BaseFacts, BenchFacts, InstructionCount, Machine, ProviderFacts};
use crate::measure::{LoopCounts, Metric};
use crate::search;

/// Of the journal's layout.
pub(crate) const JOURNAL_VERSION: u32 = 1;

/// A fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The first.
    Begun {
        version: u32,
        spec: Value,
        base: BaseFacts,
        provider: ProviderFacts,
        machine: Machine,
    },
    /// Another process took over.
    WentOn { machine: Machine },
    /// A test command ran on the base.
    Baseline {
        test: String,
        run: u32,
        tested: Tested,
    },
    /// A candidate's tests ran.
    Checked { id: String, checked: Checked },
    /// A bench command's loops were found.
    Calibrated { bench: String, facts: BenchFacts },
    /// How often a candidate loops in a bench command was found.
    Looped {
        bench: String,
        id: String,
        counts: LoopCounts,
    },
    /// A race begins: its runs are in another file.
    Race {
        round: u32,
        entrants: Vec<String>,
        /// By what it is judged.
        metric: Metric,
        machine: Machine,
        /// Runs that were on record before: they are not this race's, even if they have its name.
        runs_before: u64,
    },
    /// A candidate's instructions were counted, to break a tie.
    Counted { id: String, count: InstructionCount },
    /// It has ended.
    Raced { round: u32 },
    /// What the search was told or decided.
    Search { record: search::Record },
    /// All of it counts for nothing: the base cannot be used, or somebody begins anew. The next evaluation here clears it away.
    Forgotten,
}

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) begun: Option<Begun>,
    pub(crate) baseline: HashMap<(String, u32), Tested>,
    pub(crate) checked: HashMap<String, Checked>,
    pub(crate) benches: BTreeMap<String, BenchFacts>,
    /// By round.
    pub(crate) races: BTreeMap<u32, PastRace>,
    /// By candidate.
    pub(crate) counted: BTreeMap<String, InstructionCount>,
    pub(crate) search: Vec<search::Record>,
    pub(crate) forgotten: bool,
}

/// A race that was begun.
#[derive(Debug)]
pub(crate) struct PastRace {
    pub(crate) entrants: Vec<String>,
    pub(crate) metric: Metric,
    pub(crate) machine: Machine,
    pub(crate) runs_before: u64,
    pub(crate) ended: bool,
}

/// How it began.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) version: u32,
    pub(crate) spec: Value,
    pub(crate) base: BaseFacts,
}

impl FromIterator<Record> for Past {
    fn from_iter<I: IntoIterator<Item = Record>>(records: I) -> Self {
        let mut past = Self::default();
        for record in records {
            match record {
                Record::Begun {
                    version,
                    spec,
                    base,
                    ..
                } => {
                    past.begun = Some(Begun {
                        version,
                        spec,
                        base,
                    });
                }
                Record::WentOn { .. } => {}
                Record::Baseline { test, run, tested } => {
                    past.baseline.insert((test, run), tested);
                }
                Record::Checked { id, checked } => {
                    past.checked.insert(id, checked);
                }
                Record::Calibrated { bench, facts } => {
                    past.benches.insert(bench, facts);
                }
                Record::Looped { bench, id, counts } => {
                    let facts = past.benches.entry(bench).or_default();
                    facts.sides.entry(id).or_default().set_counts(counts);
                }
                Record::Race {
                    round,
                    entrants,
                    metric,
                    machine,
                    runs_before,
                } => {
                    let ended = false;
                    past.races.insert(
                        round,
                        PastRace {
                            entrants,
                            metric,
                            machine,
                            runs_before,
                            ended,
                        },
                    );
                }
                Record::Counted { id, count } => {
                    past.counted.insert(id, count);
                }
                Record::Raced { round } => {
                    if let Some(race) = past.races.get_mut(&round) {
                        race.ended = true;
                    }
                }
                Record::Search { record } => past.search.push(record),
                Record::Forgotten => past.forgotten = true,
            }
        }
        past
    }
}
