//! Design tables by themselves, without a study.

use num_bigint::BigInt;

use super::sampling::{self, Bounds};
use super::table::{Column, Source, Steps, Table};
use super::{DesignKind, Objection, objection};
use crate::compat::Compat;
use crate::fault::short;
use crate::json_text;
use crate::value::Value;

/// What table is wanted.
#[derive(Clone, Debug)]
pub struct TableRequest {
    /// Full, Latin hypercube, two-level fraction or Sobol.
    pub kind: DesignKind,
    /// Name to levels, or to a range.
    pub factors: Value,
    /// Rows of a sampled design.
    pub n_samples: Option<u64>,
    /// Where randomness begins.
    pub seed: BigInt,
    /// Rows appended at the centre.
    pub center_points: u64,
    /// Repeats of the whole table.
    pub replicates: u64,
    /// Column whose values are shuffled apart.
    pub block_randomization_key: Option<String>,
    /// Which implementation's numbers are wanted.
    pub backend: Option<String>,
    /// Whether rows are shuffled.
    pub randomize: bool,
    /// Whether Sobol points are scrambled.
    pub scramble: bool,
    /// Whose rules hold.
    pub compat: Compat,
}

impl TableRequest {
    /// With DRE's defaults: shuffled, seed 0.
    #[must_use]
    pub fn new(kind: DesignKind, factors: Value) -> Self {
        Self {
            kind,
            factors,
            n_samples: None,
            seed: BigInt::ZERO,
            center_points: 0,
            replicates: 1,
            block_randomization_key: None,
            backend: None,
            randomize: true,
            scramble: false,
            compat: Compat::Dre,
        }
    }

    /// Factors from JSON text; an error is one line.
    pub fn factors_from_json(name: &str, text: &str) -> Result<Value, String> {
        json_text::parse_value(name, text).map_err(|fault| fault.to_string())
    }
}

/// A design table.
#[derive(Debug)]
pub struct DesignTable {
    table: Table,
    /// What the table is like.
    pub summary: TableSummary,
}

/// What a table is like.
#[derive(Debug)]
pub struct TableSummary {
    /// As a mapping: counts, ranges, balance.
    pub value: Value,
    /// Columns whose values are more than twice as frequent as others.
    pub imbalanced: Vec<String>,
}

impl DesignTable {
    /// Makes the table, or says which option stands in the way.
    pub fn build(request: &TableRequest) -> Result<Self, String> {
        let table = table(request).map_err(|objection| {
            let hint = match objection.hint.as_str() {
                "" => String::new(),
                hint => format!("; {hint}"),
            };
            format!("{}: {}{hint}", objection.key, objection.message)
        })?;
        let summary = summary(&table, request.kind);
        Ok(Self { table, summary })
    }

    /// The columns' names.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.table.columns.iter().map(|column| column.name.as_str())
    }

    /// The rows' values, in the columns' order.
    pub fn rows(&self) -> impl Iterator<Item = Vec<&Value>> {
        let width = self.table.columns.len();
        (0..self.table.rows).map(move |row| (0..width).map(|c| self.table.value(row, c)).collect())
    }

    /// Rows and summary as one value.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let row = |values: Vec<&Value>| {
            Value::map(
                self.columns()
                    .zip(values)
                    .map(|(name, value)| (name, value.clone())),
            )
        };
        Value::map([
            ("design", Value::List(self.rows().map(row).collect())),
            ("summary", self.summary.value.clone()),
        ])
    }
}

fn table(request: &TableRequest) -> Result<Table, Objection> {
    let Value::Map(factors) = &request.factors else {
        let message = format!("the factors are {}, not a mapping", request.factors.kind());
        return Err(objection("factors", message, "write `{\"name\": [...]}`"));
    };
    if factors.is_empty() {
        return Err(objection("factors", "there are no factors", "name one"));
    }
    if request.replicates == 0 {
        return Err(objection("replicates", "must be at least 1", ""));
    }
    let named = factors.iter().map(|(name, value)| (name.to_str(), value));
    let source = Source {
        seed: Some(request.seed.clone()),
        compat: request.compat,
    };
    let table = match request.kind {
        DesignKind::Full => {
            sampling::check_backend(request.backend.as_deref(), &[])?;
            let columns: Result<Vec<_>, _> = named.map(levels).collect();
            Table::product(columns?)?
        }
        DesignKind::LatinHypercube | DesignKind::Sobol => {
            sampling::check_backend(request.backend.as_deref(), &["scipy", "qmc"])?;
            let bounds: Result<Vec<Bounds>, _> = named.map(range).collect();
            let n = sampling::sample_size(request.n_samples)?;
            match request.kind {
                DesignKind::Sobol => {
                    sampling::sobol_points(&bounds?, n, request.scramble, &source)?
                }
                _ => sampling::latin_hypercube(&bounds?, n, &source),
            }
        }
        DesignKind::Fraction => {
            sampling::check_backend(request.backend.as_deref(), &["pydoe", "pydoe3"])?;
            let coded = |name| Column {
                name,
                values: vec![Value::Float(-1.0), Value::Float(1.0)],
            };
            sampling::fraction(named.map(|(name, _)| coded(name)).collect(), None)?
        }
        other => {
            let message = format!("`{}` needs a study", other.name());
            return Err(objection("kind", message, "use full, lhs, frac2 or sobol"));
        }
    };
    let steps = Steps {
        replicates: request.replicates,
        center_points: request.center_points,
        randomize: request.randomize,
        group_by: request.block_randomization_key.as_deref(),
    };
    table.finish(&steps, &source)
}

fn levels((name, value): (String, &Value)) -> Result<Column, Objection> {
    match value {
        Value::List(levels) if !levels.is_empty() => Ok(Column {
            name,
            values: levels.clone(),
        }),
        _ => {
            let message = format!("`{}` needs a list of levels", short(&name));
            Err(objection("factors", message, "as in `[0, 1]`"))
        }
    }
}

fn range((name, value): (String, &Value)) -> Result<Bounds, Objection> {
    let bounds = sampling::given_bounds(&Value::Map(vec![(Value::Text(name), value.clone())]))?;
    let [bounds] = &bounds[..] else {
        unreachable!("one name has one range");
    };
    Ok(bounds.clone())
}

fn summary(table: &Table, kind: DesignKind) -> TableSummary {
    let mut ranges = Vec::new();
    let mut balance = Vec::new();
    let mut imbalanced = Vec::new();
    for (column, name) in table
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .enumerate()
    {
        let numbers: Option<Vec<f64>> = (0..table.rows)
            .map(|row| table.value(row, column).as_number())
            .collect();
        if let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) {
            let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let ends = [low, high].map(Value::Float).to_vec();
            ranges.push((name, Value::List(ends)));
        }
        let groups = table.groups(column);
        let sizes = || groups.iter().map(Vec::len);
        let least = sizes().min().unwrap_or(1);
        let ratio = sizes().max().unwrap_or(1) as f64 / least as f64;
        if ratio > 2.0 {
            imbalanced.push(name.into());
        }
        let entry = Value::map([
            ("n_levels", Value::Float(groups.len() as f64)),
            ("max_to_min_ratio", Value::Float(ratio)),
        ]);
        balance.push((name, entry));
    }
    let names = table.columns.iter().map(|column| &column.name);
    let value = Value::map([
        ("n_runs", Value::Int(table.rows.into())),
        ("factors", Value::texts(names)),
        ("ranges", Value::map(ranges)),
        ("design_kind", kind.name().into()),
        ("backend", "stdlib".into()),
        ("balance", Value::map(balance)),
    ]);
    TableSummary { value, imbalanced }
}
