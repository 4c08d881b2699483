//! The table of section 10: programs, the terms they run on, and what each should end as at each level.

mod answers;
mod bombs;
mod engine;
mod files;
mod processes;
mod reach;

use std::time::Duration;

use fairtrial_exec::{Level, Limits, ResultFormat, Verdict};

use crate::expect::Expected;
use crate::stories::Story;

/// One program, one way of it, on its terms.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// `H14`.
    pub(crate) row: &'static str,
    /// Which of the row's programs.
    pub(crate) variant: &'static str,
    pub(crate) attack: Attack,
    pub(crate) timeout: Duration,
    pub(crate) limits: Limits,
    pub(crate) result: ResultFormat,
    expected: [Expected; 4],
    /// Mechanisms without which nothing is claimed above `none`.
    pub(crate) needs: &'static [&'static str],
    pub(crate) checks: Vec<Check>,
    /// Whether `--fast` takes it.
    pub(crate) fast: bool,
    /// Whether the sibling call must end well at `none` too.
    pub(crate) spares_sibling: bool,
    /// What the engine finds itself in.
    pub(crate) setting: Setting,
    pub(crate) known: Option<Known>,
}

/// A defect of the engine's: the trial fails, and says so, until somebody mends it and takes this away.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) defect: &'static str,
    /// Where it shows: at which level, as which uid.
    pub(crate) shows: fn(Level, u32) -> bool,
}

/// What the engine of a trial finds itself in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// All that the cage has.
    Plain,
    /// A spill directory of a few mebibytes.
    SmallDisk,
    /// Room for so many tasks, or the trial is skipped.
    FewTasks(u64),
    /// Room for so many tasks, where that can be had: a bomb that is not stopped need not fill the cage.
    Contained(u64),
}

/// What is run.
#[derive(Clone, Debug)]
pub(crate) enum Attack {
    /// `attack(places, what)` of a source text.
    Python { source: Source, what: &'static str },
    /// A compiled program with words.
    C {
        source: Source,
        words: &'static [&'static str],
    },
    /// Several calls, or the engine's own death.
    Story(Story),
}

/// A file of `hostile/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// What must hold besides the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// So many processes were alive at the reply.
    Leaked(u64),
    /// It did not wait for what would have taken minutes.
    AtOnce,
    /// It used next to no processor time.
    Idle,
    /// Wall time, processor time and peak are what `h21` is known to use.
    TrueMetrics,
    /// The program's euid is what it was.
    EuidUnchanged,
    /// The signal that ended it.
    Signal(i32),
    /// The type of its error.
    ErrorType(&'static str),
    /// Its value, as JSON.
    Value(&'static str),
    /// H29: no canary where the level hides them.
    NothingFound,
}

/// Every trial, in the order of the specification.
pub(crate) fn all() -> Vec<Trial> {
    [
        processes::rows(),
        bombs::rows(),
        files::rows(),
        reach::rows(),
        answers::rows(),
        engine::rows(),
    ]
    .concat()
}

/// The first trial of that name: `H14`, or `H14 one process`.
pub(crate) fn find(name: &str) -> Option<Trial> {
    let mut trials = std::iter::once(probe()).chain(all());
    trials.find(|trial| trial.is_called(name))
}

/// No attack: shows whether a level can be had.
pub(crate) fn probe() -> Trial {
    python("probe", "", PROBE, "").everywhere(ok())
}

const PROBE: Source = Source {
    name: "probe.py",
    text: "def attack(places, what):\n    return 1\n",
};

/// As long as a program that should end by itself may take on a busy machine.
const LONG: Duration = Duration::from_secs(30);
/// The deadline of a program that never ends.
const SHORT: Duration = Duration::from_millis(600);

fn python(row: &'static str, variant: &'static str, source: Source, what: &'static str) -> Trial {
    trial(row, variant, Attack::Python { source, what })
}

fn c(
    row: &'static str,
    variant: &'static str,
    source: Source,
    words: &'static [&'static str],
) -> Trial {
    trial(row, variant, Attack::C { source, words })
}

fn story(row: &'static str, variant: &'static str, story: Story) -> Trial {
    trial(row, variant, Attack::Story(story)).everywhere(Expected::Held)
}

fn trial(row: &'static str, variant: &'static str, attack: Attack) -> Trial {
    Trial {
        row,
        variant,
        attack,
        timeout: LONG,
        limits: Limits::default(),
        result: ResultFormat::Data,
        expected: [Expected::NotClaimed; 4],
        needs: &[],
        checks: Vec::new(),
        fast: false,
        spares_sibling: true,
        setting: Setting::Plain,
        known: None,
    }
}

fn ok() -> Expected {
    Expected::Verdict(Verdict::Ok)
}

impl Trial {
    /// How it is told from the others.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.row, self.variant)
            .trim_end()
            .to_owned()
    }

    /// Whether people mean it by this name: its row, or its own.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        name.eq_ignore_ascii_case(self.row) || name.eq_ignore_ascii_case(&self.name())
    }

    /// Whether it attacks nothing.
    pub(crate) fn is_probe(&self) -> bool {
        self.row == "probe"
    }

    pub(crate) fn expected(&self, level: Level) -> Expected {
        self.expected[match level {
            Level::None => 0,
            Level::Limits => 1,
            Level::Confined => 2,
            Level::Strict => 3,
        }]
    }

    /// Whether it is among the fast ones: above `none`, if more is claimed there, and if no known defect is to be
    /// waited for.
    pub(crate) fn is_fast_at(&self, level: Level, uid: u32) -> bool {
        let claims_more = self.expected(level) != self.expected(Level::None);
        let fails = self.known.is_some_and(|known| (known.shows)(level, uid));
        self.fast && (level == Level::None || (claims_more && !fails))
    }

    /// The same at every level.
    fn everywhere(self, expected: Expected) -> Self {
        self.levels(expected, expected, expected)
    }

    /// Claimed from `limits` on.
    fn above_none(self, expected: Expected) -> Self {
        self.levels(Expected::NotClaimed, expected, expected)
    }

    /// Claimed at `strict` only.
    fn at_strict(self, expected: Expected) -> Self {
        self.levels(Expected::NotClaimed, Expected::NotClaimed, expected)
    }

    fn levels(mut self, none: Expected, limits: Expected, strict: Expected) -> Self {
        self.expected = [none, limits, limits, strict];
        self
    }

    /// What `strict` claims, `confined` claims, too.
    fn confined_as_strict(mut self) -> Self {
        self.expected[2] = self.expected[3];
        self
    }

    fn needs(mut self, mechanisms: &'static [&'static str]) -> Self {
        self.needs = mechanisms;
        self
    }

    /// Never ends by itself.
    fn endless(mut self) -> Self {
        self.timeout = SHORT;
        self
    }

    fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    fn setting(mut self, setting: Setting) -> Self {
        self.setting = setting;
        self
    }

    fn known(mut self, shows: fn(Level, u32) -> bool, defect: &'static str) -> Self {
        self.known = Some(Known { defect, shows });
        self
    }

    fn fast(mut self) -> Self {
        self.fast = true;
        self
    }
}

/// A file of `hostile/`, compiled in.
macro_rules! source {
    ($name:literal) => {
        crate::table::Source {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/hostile/", $name)),
        }
    };
}
pub(crate) use source;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// SB-71: the whole table is there.
    #[test]
    fn every_row_of_the_specification_has_a_trial() {
        let rows: BTreeSet<_> = all().iter().map(|trial| trial.row).collect();
        let missing: Vec<_> = (1..=45)
            .map(|number| format!("H{number}"))
            .filter(|row| !rows.contains(row.as_str()))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn every_trial_has_a_name_of_its_own_and_claims_something() {
        let trials = all();
        let names: BTreeSet<_> = trials.iter().map(Trial::name).collect();
        assert_eq!(names.len(), trials.len());
        for trial in trials {
            assert_ne!(
                trial.expected(Level::Strict),
                Expected::NotClaimed,
                "{}",
                trial.name()
            );
        }
    }

    #[test]
    fn every_file_of_the_directory_is_used() {
        let used: BTreeSet<_> = all()
            .into_iter()
            .filter_map(|trial| match trial.attack {
                Attack::Python { source, .. } | Attack::C { source, .. } => {
                    Some(source.name.to_owned())
                }
                Attack::Story(_) => None,
            })
            .collect();
        let helpers = [
            "prelude.py",
            "sibling.py",
            "plant_canaries.py",
            "raise_network.py",
            "h35_terminal.py",
            "h42_outlive.py",
        ];
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/hostile");
        for entry in std::fs::read_dir(dir).expect("it is there") {
            let name = entry
                .expect("readable")
                .file_name()
                .into_string()
                .expect("plain names");
            assert!(used.contains(&name) || helpers.contains(&&*name), "{name}");
        }
    }
}
