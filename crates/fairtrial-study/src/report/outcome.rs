//! The outcomes that a study registered: where their values are, how they are put together (SF-15, ST-83).

use crate::journal::Status;
use crate::plan::RunSpec;
use crate::result::number_of;
use crate::run_record::RunRecord;
use crate::stats::{Interval, Moments, mean_interval, median, median_interval, wilson};
use crate::tables::Export;
use crate::value::Value;

/// An outcome.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) column: String,
    pub(crate) aggregation: Aggregation,
    pub(crate) is_primary: bool,
    pub(crate) missing: Missing,
    /// A formula that nobody computes.
    pub(crate) derivation: Option<String>,
    /// Only rows of evaluations count.
    from_evaluations: bool,
}

/// How values of runs become one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Aggregation {
    Mean,
    Median,
    Sum,
    Rate,
    Min,
    Max,
    Count,
    /// Not known: the mean is shown.
    Other(String),
}

/// Names of aggregations that are known, of several for one the first.
pub(crate) const AGGREGATIONS: [&str; 7] = ["mean", "median", "sum", "rate", "min", "max", "count"];

/// Whether an outcome's aggregation is computed as it says.
pub(crate) fn is_aggregation(name: &str) -> bool {
    !matches!(Aggregation::from_name(name), Aggregation::Other(_))
}

/// What becomes of runs without a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Missing {
    Drop,
    Zero,
    /// Without all values there is no test.
    Refuse,
    /// Not known.
    Other(String),
}

/// What is known of an outcome in a group of runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Estimate {
    pub(crate) n: u64,
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<Interval>,
}

/// All outcomes of a study; without any, latency and what an evaluator or agent gives as the primary one.
pub(crate) fn outcomes(study: &Value) -> Vec<Outcome> {
    let Some(Value::List(items)) = study.get("outcomes") else {
        return Vec::new();
    };
    items.iter().map(Outcome::new).collect()
}

impl Outcome {
    fn new(item: &Value) -> Self {
        let text = |key: &str| item.get(key).and_then(Value::as_text).unwrap_or_default();
        Self {
            name: text("name").to_owned(),
            description: text("description").to_owned(),
            column: text("column").to_owned(),
            aggregation: Aggregation::from_name(text("aggregation")),
            is_primary: item.get("primary").is_some_and(Value::is_truthy),
            missing: Missing::from_name(text("missing_data_policy")),
            derivation: item
                .get("derivation")
                .and_then(Value::as_text)
                .map(str::to_owned),
            from_evaluations: text("source_table").trim_end_matches(".csv") == "evaluations",
        }
    }

    /// An outcome that nobody registered.
    pub(crate) fn unregistered(name: &str, description: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            column: name.to_owned(),
            aggregation: Aggregation::Mean,
            is_primary: false,
            missing: Missing::Drop,
            derivation: None,
            from_evaluations: false,
        }
    }

    /// Its value in a run; none if the run failed, gave none, or gave none that is finite.
    pub(crate) fn of(
        &self,
        export: &Export<'_>,
        run: &RunSpec<'_>,
        record: &RunRecord,
    ) -> Option<f64> {
        if record.status != Status::Success || self.derivation.is_some() {
            return None; // what a failed run cost is no outcome
        }
        let evaluated = || {
            let mut rows = record.evaluations.iter();
            let row = rows.find(|row| {
                row.get("metric_name").and_then(Value::as_text) == Some(&self.column)
            })?;
            row.get("metric_value").and_then(number_of)
        };
        let found = if self.from_evaluations {
            // Never what the agent says of itself under that name.
            match self.column.as_str() {
                "metric_value" => record
                    .evaluations
                    .first()?
                    .get("metric_value")
                    .and_then(number_of),
                _ => evaluated(),
            }
        } else if let Some(value) = export.run_cell(run, record, &self.column) {
            number_of(&value)
        } else if let Some(value) = record.metric(&self.column) {
            number_of(value)
        } else {
            match record.outputs.get(&self.column) {
                Some(Value::Text(_)) => None,
                Some(value) => number_of(value),
                None => evaluated(),
            }
        };
        found.filter(|number| number.is_finite())
    }
}

impl Aggregation {
    fn from_name(name: &str) -> Self {
        match name.trim().to_lowercase().as_str() {
            "mean" | "average" | "avg" => Self::Mean,
            "median" => Self::Median,
            "sum" | "total" => Self::Sum,
            "rate" | "proportion" | "fraction" => Self::Rate,
            "min" | "minimum" => Self::Min,
            "max" | "maximum" => Self::Max,
            "count" | "n" => Self::Count,
            _ => Self::Other(name.to_owned()),
        }
    }

    /// As the report calls it.
    pub(crate) fn label(&self) -> &str {
        match self {
            Self::Mean | Self::Other(_) => "mean",
            Self::Median => "median",
            Self::Sum => "sum",
            Self::Rate => "rate",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
        }
    }

    /// Whether every value has to be held.
    pub(crate) fn needs_all(&self) -> bool {
        *self == Self::Median
    }

    /// Whether it is on the scale of single values, so that both fit one axis.
    pub(crate) fn is_of_values(&self) -> bool {
        !matches!(self, Self::Sum | Self::Count)
    }

    /// One value of many. `all` are the values where they are needed; `is_binary` says that the outcome is 0 or 1 in all
    /// runs of the study.
    pub(crate) fn estimate(&self, moments: &Moments, all: &mut [f64], is_binary: bool) -> Estimate {
        let n = moments.n;
        if n == 0 {
            return Estimate::default();
        }
        let (value, interval) = match self {
            Self::Mean | Self::Other(_) => (moments.mean, interval_of_mean(moments, is_binary)),
            Self::Median => {
                all.sort_unstable_by(f64::total_cmp);
                (median(all).unwrap_or(f64::NAN), median_interval(all))
            }
            Self::Sum => {
                let scaled = |interval: Interval| Interval {
                    low: interval.low * n as f64,
                    high: interval.high * n as f64,
                };
                let interval = interval_of_mean(moments, is_binary);
                (moments.sum(), interval.map(scaled))
            }
            Self::Rate => {
                let is_binary = is_binary || moments.hits().is_some();
                (moments.mean, interval_of_mean(moments, is_binary))
            }
            Self::Min => (moments.min(), None),
            Self::Max => (moments.max(), None),
            Self::Count => (n as f64, None),
        };
        Estimate {
            n,
            value: Some(value),
            interval,
        }
    }
}

/// Wilson's of an outcome that is 0 or 1; else Student's.
pub(crate) fn interval_of_mean(moments: &Moments, is_binary: bool) -> Option<Interval> {
    match moments.hits().filter(|_| is_binary) {
        Some(hits) => wilson(hits, moments.n),
        None => mean_interval(moments),
    }
}

impl Missing {
    fn from_name(name: &str) -> Self {
        match name.trim().to_lowercase().as_str() {
            "" | "drop" | "exclude" | "omit" => Self::Drop,
            "zero" => Self::Zero,
            "error" | "fail" | "refuse" => Self::Refuse,
            _ => Self::Other(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn an_aggregate_is_what_the_outcome_says() {
        let values = [1.0, 0.0, 1.0, 1.0];
        let moments = Moments::from_iter(&values);
        let mut all = values;
        let mut of = |name: &str| Aggregation::from_name(name).estimate(&moments, &mut all, false);
        assert_eq!((of("mean").value, of("sum").value), (Some(0.75), Some(3.0)));
        assert_eq!(
            (of("median").value, of("min").value),
            (Some(1.0), Some(0.0))
        );
        assert_eq!((of("count").value, of("count").interval), (Some(4.0), None));
        assert_eq!(of("rate").interval, wilson(3, 4));
        assert_ne!(of("mean").interval, wilson(3, 4));
        let sum = of("sum").interval.unwrap();
        let mean = of("mean").interval.unwrap();
        assert!((sum.high - 4.0 * mean.high).abs() < 1e-12);
        for (hits, name) in [(3, "mean"), (3, "rate")] {
            let found = Aggregation::from_name(name).estimate(&moments, &mut all, true);
            assert_eq!(found.interval, wilson(hits, 4), "{name}");
        }
        assert!(AGGREGATIONS.into_iter().all(is_aggregation));
        assert_eq!(
            Aggregation::from_name("p99"),
            Aggregation::Other("p99".into())
        );
    }
}
