//! How measuring is done.

use fairtrial_document::node::Content;
use serde_json::{Value as Json, json};

use super::field::Field;
use super::worded::{Worded, worded};
use crate::measure::{Metric, Settings, looks};

/// How measuring is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// By what sides are compared: the first that the machine can measure. At least one.
    pub metrics: Vec<Metric>,
    /// The least difference that counts, as a share.
    pub min_effect: f64,
    /// The chance of a wrong verdict.
    pub alpha: f64,
    /// The longest a series gets.
    pub max_blocks: u32,
    /// Where measured processes run.
    pub pin: Pin,
    /// Whether candidates leave when they cannot win.
    pub racing: bool,
    /// Whether the winner is measured again.
    pub confirm: bool,
    /// How often a disturbed run is made again.
    pub repeats: u32,
    /// What decides between equals.
    pub tiebreak: Tiebreak,
    /// Of orders and hash seeds.
    pub seed: u64,
}

/// Where measured processes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// On a processor of their own, where that does good.
    Auto,
    /// Anywhere.
    Off,
    /// On these processors.
    Cpus(Vec<u32>),
}

/// What decides between equals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tiebreak {
    /// Nothing.
    #[default]
    None,
    /// Instructions that callgrind counts.
    Callgrind,
}

worded!(Tiebreak { None => "none", Callgrind => "callgrind" });

impl Worded for Metric {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("wall", Self::Wall),
        ("cpu", Self::Cpu),
        ("instructions", Self::Instructions),
    ];
}

/// No more blocks than people wait for could show less.
const LEAST_ALPHA: f64 = 1e-9;
/// More blocks than anybody waits for.
const MOST_BLOCKS: u32 = 100_000;
/// More processors than any kernel has.
const MOST_CPUS: u32 = 8192;

impl Default for Measure {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            metrics: vec![settings.metric],
            min_effect: settings.min_effect,
            alpha: settings.alpha,
            max_blocks: settings.max_blocks,
            pin: Pin::Auto,
            racing: settings.racing,
            confirm: settings.confirm,
            repeats: settings.repeats,
            tiebreak: Tiebreak::default(),
            seed: settings.seed,
        }
    }
}

impl Measure {
    pub(super) const KEYS: &[&str] = &[
        "metric",
        "min_effect",
        "alpha",
        "max_blocks",
        "pin",
        "racing",
        "confirm",
        "repeats",
        "tiebreak",
        "seed",
    ];

    /// What a race is held to, by the metric that was chosen.
    #[must_use]
    pub fn settings(&self, metric: Metric) -> Settings {
        Settings {
            metric,
            min_effect: self.min_effect,
            alpha: self.alpha,
            max_blocks: self.max_blocks,
            racing: self.racing,
            confirm: self.confirm,
            repeats: self.repeats,
            seed: self.seed,
        }
    }

    pub(super) fn read(field: &Field<'_, '_>) -> Self {
        let record = field.record(Self::KEYS);
        let default = Self::default();
        let effect =
            |field: Field<'_, '_>| field.share(|share| (0.0..=1.0).contains(&share), "from 0 to 1");
        let alpha = |field: Field<'_, '_>| {
            field.share(
                |share| (LEAST_ALPHA..1.0).contains(&share),
                "from 1e-9 to below 1",
            )
        };
        let flag = |key, default| record.read(key, Field::flag).unwrap_or(default);
        let measure = Self {
            metrics: record.read("metric", metrics).unwrap_or(default.metrics),
            min_effect: record
                .read("min_effect", effect)
                .unwrap_or(default.min_effect),
            alpha: record.read("alpha", alpha).unwrap_or(default.alpha),
            max_blocks: record
                .read("max_blocks", |field| field.count(1..=MOST_BLOCKS))
                .unwrap_or(default.max_blocks),
            pin: record.read("pin", Pin::read).unwrap_or(default.pin),
            racing: flag("racing", default.racing),
            confirm: flag("confirm", default.confirm),
            repeats: record
                .read("repeats", |field| field.count(0..=1000))
                .unwrap_or(default.repeats),
            tiebreak: record.read("tiebreak", Field::word).unwrap_or_default(),
            seed: record
                .read("seed", |field| field.whole(0..=u64::MAX))
                .unwrap_or(default.seed),
        };
        if let Err(none) = looks(measure.alpha, measure.max_blocks)
            && record.is_sound()
        {
            let hint = "raise `max_blocks` or `alpha`";
            record.contradiction(&["alpha", "max_blocks"], &none.to_string(), hint);
        }
        measure
    }

    pub(super) fn to_json(&self) -> Json {
        let metrics: Vec<_> = self.metrics.iter().map(Metric::to_string).collect();
        json!({
            "metric": metrics,
            "min_effect": self.min_effect,
            "alpha": self.alpha,
            "max_blocks": self.max_blocks,
            "pin": self.pin.to_json(),
            "racing": self.racing,
            "confirm": self.confirm,
            "repeats": self.repeats,
            "tiebreak": self.tiebreak.to_string(),
            "seed": self.seed,
        })
    }
}

/// One metric or several, the dearest first.
fn metrics(field: Field<'_, '_>) -> Option<Vec<Metric>> {
    let mut metrics = Vec::new();
    for item in field.one_or_many() {
        let place = item.node;
        match item.word() {
            Some(metric) if metrics.contains(&metric) => {
                let message = format!("`{metric}` is given twice");
                field
                    .reader
                    .fault(&place.place, "repeated", message, "keep one");
            }
            Some(metric) => metrics.push(metric),
            None => {}
        }
    }
    match &field.node.content {
        Content::List(items) if items.is_empty() => field.refuse(
            "empty",
            "must not be empty",
            "name a metric, or leave it out",
        ),
        _ => Some(metrics),
    }
}

impl Pin {
    fn read(field: Field<'_, '_>) -> Option<Self> {
        if field.is_off() {
            return Some(Self::Off);
        }
        match (field.written(), &field.node.content) {
            (Some("auto"), _) => Some(Self::Auto),
            (Some(word), _) => {
                field.unknown_word(word, ["auto", "off"]);
                None
            }
            (None, Content::List(_)) => Self::cpus(&field),
            (None, _) => {
                field.wrong_type("`auto`, `off` or a list of processors", "as in `[0, 2]`")
            }
        }
    }

    fn cpus(field: &Field<'_, '_>) -> Option<Self> {
        let items = field.items()?;
        if items.is_empty() {
            return field.refuse("empty", "names no processor", "write `off` to pin nothing");
        }
        let cpu = |item: Field<'_, '_>| item.count(0..=MOST_CPUS - 1);
        Some(Self::Cpus(items.into_iter().filter_map(cpu).collect()))
    }

    fn to_json(&self) -> Json {
        match self {
            Self::Auto => json!("auto"),
            Self::Off => json!("off"),
            Self::Cpus(cpus) => json!(cpus),
        }
    }
}
