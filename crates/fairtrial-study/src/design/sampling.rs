//! Latin hypercubes, two-level fractions and Sobol points: rows of factor values.

use super::table::{Column, MOST_ROWS, Source, Table, too_many};
use super::{Objection, objection, sobol};
use crate::fault::short;
use crate::value::Value;

/// A factor's range.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) name: String,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The ranges of `options.bounds`.
pub(super) fn given_bounds(bounds: &Value) -> Result<Vec<Bounds>, Objection> {
    let wrong = |what: String| objection("bounds", what, "write `name: [low, high]`");
    let Value::Map(entries) = bounds else {
        return Err(wrong(format!(
            "`bounds` must be a mapping, not {}",
            bounds.kind()
        )));
    };
    let bound = |(name, range): &(Value, Value)| {
        let name = name.to_str();
        match range {
            Value::List(ends) => match &ends[..] {
                [low, high] => match (low.as_number(), high.as_number()) {
                    (Some(low), Some(high)) => checked(name, low, high),
                    _ => Err(wrong(format!(
                        "the bounds of `{}` are no numbers",
                        short(&name)
                    ))),
                },
                _ => Err(wrong(format!("`{}` needs two bounds", short(&name)))),
            },
            _ => Err(wrong(format!("`{}` needs two bounds", short(&name)))),
        }
    };
    entries.iter().map(bound).collect()
}

/// The range that a factor's values span.
pub(super) fn spanned_bounds(name: &str, values: &[Value]) -> Result<Bounds, Objection> {
    let hint = "give it numbers as levels, or `options.bounds`";
    let numbers: Option<Vec<f64>> = values.iter().map(Value::as_number).collect();
    let Some(numbers) = numbers.filter(|numbers| numbers.len() >= 2) else {
        let message = format!(
            "factor `{}` has no range: it needs two numbers or more",
            short(name)
        );
        return Err(objection("bounds", message, hint));
    };
    let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    checked(name.into(), low, high)
}

fn checked(name: String, low: f64, high: f64) -> Result<Bounds, Objection> {
    if high > low && (high - low).is_finite() {
        return Ok(Bounds { name, low, high });
    }
    let message = format!(
        "the upper bound of `{}` must be above the lower",
        short(&name)
    );
    Err(objection("bounds", message, ""))
}

pub(super) fn sample_size(n_samples: Option<u64>) -> Result<usize, Objection> {
    let Some(samples) = n_samples else {
        let message = "`n_samples` is missing: a sampled design needs it";
        return Err(objection("n_samples", message, "add `n_samples`"));
    };
    let samples = usize::try_from(samples).unwrap_or(usize::MAX);
    if samples > MOST_ROWS {
        return Err(too_many());
    }
    Ok(samples)
}

/// One point in each of `n` slices of every factor's range, slices paired at random.
pub(super) fn latin_hypercube(bounds: &[Bounds], n: usize, source: &Source) -> Table {
    let mut random = source.random();
    let columns = bounds.iter().map(|bounds| {
        let mut values: Vec<f64> = (0..n)
            .map(|i| {
                // In this order of operations, so that the last bit is DRE's.
                let start = i as f64 / n as f64;
                let end = (i + 1) as f64 / n as f64;
                let point = start + random.unit() * (end - start);
                bounds.low + point * (bounds.high - bounds.low)
            })
            .collect();
        random.shuffle(&mut values);
        column(bounds, values)
    });
    Table::of_columns(columns.collect(), n)
}

pub(super) fn sobol_points(
    bounds: &[Bounds],
    n: usize,
    scramble: bool,
    source: &Source,
) -> Result<Table, Objection> {
    let mut random = source.random();
    let points = sobol::points(bounds.len(), n).ok_or_else(|| {
        let message = format!(
            "Sobol points have at most {} factors",
            sobol::MOST_DIMENSIONS
        );
        objection("kind", message, "use `latin_hypercube`")
    })?;
    let columns = bounds.iter().zip(points).map(|(bounds, integers)| {
        let mask = if scramble { random.u32() } else { 0 };
        let value = |integer: u32| {
            let point = f64::from(integer ^ mask) / 4_294_967_296.0;
            bounds.low + point * (bounds.high - bounds.low)
        };
        column(bounds, integers.into_iter().map(value).collect())
    });
    Ok(Table::of_columns(columns.collect(), n))
}

fn column(bounds: &Bounds, values: Vec<f64>) -> Column {
    Column {
        name: bounds.name.clone(),
        values: values.into_iter().map(Value::Float).collect(),
    }
}

/// A two-level fraction of resolution III; cells are 0 for the low and 1 for the high level.
pub(super) fn fraction(columns: Vec<Column>, resolution: Option<&str>) -> Result<Table, Objection> {
    if let Some(other) = resolution.filter(|resolution| *resolution != "III") {
        let message = format!("resolution `{}` is not made here", short(other));
        return Err(objection(
            "resolution",
            message,
            "write `III`, or leave it out",
        ));
    }
    let width = columns.len();
    if !(2..=6).contains(&width) {
        let message = format!("a two-level fraction has 2 to 6 factors, not {width}");
        return Err(objection(
            "kind",
            message,
            "drop factors, or use `full_factorial`",
        ));
    }
    let signs = |row: usize, factors: usize| -> Vec<i8> {
        (0..factors)
            .map(|factor| {
                if row >> (factors - 1 - factor) & 1 == 1 {
                    1
                } else {
                    -1
                }
            })
            .collect()
    };
    let rows: Vec<Vec<i8>> = if width <= 3 {
        (0..1 << width).map(|row| signs(row, width)).collect()
    } else {
        let generated = |row| {
            let [a, b, c] = signs(row, 3)[..] else {
                unreachable!("three factors were asked for");
            };
            let all = [a, b, c, a * b * c, a * c, b * c];
            all[..width].to_vec()
        };
        (0..8).map(generated).collect()
    };
    let cells = rows.iter().flatten().map(|sign| u32::from(*sign > 0));
    Ok(Table {
        cells: cells.collect(),
        rows: rows.len(),
        columns,
    })
}

/// Whose numbers are wanted: only our own can be had.
pub(super) fn check_backend(backend: Option<&str>, elsewhere: &[&str]) -> Result<(), Objection> {
    match backend {
        None | Some("stdlib" | "") => Ok(()),
        Some(other) if elsewhere.contains(&other) => {
            let message =
                format!("the backend `{other}` is unavailable: its numbers are another stream");
            Err(objection(
                "backend",
                message,
                "write `stdlib`, or leave it out",
            ))
        }
        Some(other) => {
            let message = format!("unknown backend `{}`", short(other));
            Err(objection(
                "backend",
                message,
                "write `stdlib`, or leave it out",
            ))
        }
    }
}
