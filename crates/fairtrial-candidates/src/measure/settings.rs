//! What a race is held to.

use serde::{Deserialize, Serialize};

use super::loops::Slopes;
use super::run::{Measured, Metric};

/// The `measure` part of an evaluation file, with the metric chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// By what sides are compared.
    pub metric: Metric,
    /// The least difference that counts, as a share.
    pub min_effect: f64,
    /// The chance of a wrong verdict.
    pub alpha: f64,
    /// The longest a series gets.
    pub max_blocks: u32,
    /// Whether candidates leave when they cannot win.
    pub racing: bool,
    /// Whether the winner is measured again.
    pub confirm: bool,
    /// How often a disturbed run is made again.
    pub repeats: u32,
    /// Of orders and hash seeds.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            metric: Metric::Wall,
            min_effect: 0.03,
            alpha: 0.05,
            max_blocks: 40,
            racing: true,
            confirm: true,
            repeats: 2,
            seed: 0,
        }
    }
}

/// A bench command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bench {
    /// Its name, unlike any other's.
    pub name: String,
    /// How much it counts; above 0.
    pub weight: f64,
    /// The loop counts of each side, where the time per loop is compared; empty where whole runs are.
    #[serde(default)]
    pub slopes: Slopes,
}

impl Default for Bench {
    /// One of weight 1, compared by whole runs.
    fn default() -> Self {
        Self {
            name: String::new(),
            weight: 1.0,
            slopes: Slopes::default(),
        }
    }
}

/// A correct candidate that enters a race.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entrant {
    /// Its id.
    pub id: String,
    /// How much it changes; of equals the smaller change wins.
    pub changed_lines: u64,
}

/// What a block needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) metric: Metric,
    pub(crate) repeats: u32,
    pub(crate) seed: u64,
    pub(crate) benches: Vec<Bench>,
}

impl Terms {
    pub(crate) fn new(settings: &Settings, benches: Vec<Bench>) -> Self {
        Self {
            metric: settings.metric,
            repeats: settings.repeats,
            seed: settings.seed,
            benches,
        }
    }

    /// Why a run counts as failed: it says so, or there is nothing to compare.
    pub(crate) fn failure(&self, measured: &Measured) -> Option<String> {
        let metric = self.metric;
        measured.failed.clone().or_else(|| {
            let vanished = measured.value(metric).is_none();
            vanished.then(|| {
                let why = measured.uncounted.as_ref().map(|why| format!(": {why}"));
                format!("no `{metric}` was measured{}", why.unwrap_or_default())
            })
        })
    }
}
