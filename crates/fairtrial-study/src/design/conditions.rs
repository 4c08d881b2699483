//! The conditions of a study: built, numbered, described.

use std::fmt;

use super::judge::Judgement;
use super::table::{ABSENT, Column, MOST_ROWS, Source, Steps, Table, counterbalanced, too_many};
use super::{DesignKind, Objection, RuleCaller, factorial, latin_square, matrix, sampling};
use crate::canonical::{ShortHash, canonical_json, write_canonical, write_text};
use crate::compat::Compat;
use crate::fault::{Fault, Findings, Invalid};
use crate::study::{Factor, Study};
use crate::value::Value;

/// `cond-` and twelve hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConditionId(pub(crate) ShortHash);

impl fmt::Display for ConditionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cond-{}", self.0)
    }
}

/// Every condition of a study, in design order.
#[derive(Debug)]
pub struct Design {
    kind: DesignKind,
    /// Factors of which a level says how it is compared.
    compared: Vec<Factor>,
    rows: Rows,
    ids: Vec<ConditionId>,
    judgement: Judgement,
    /// What is odd about the design.
    pub warnings: Vec<Fault>,
}

/// One condition.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'d> {
    design: &'d Design,
    index: usize,
}

impl Design {
    /// Makes the study's conditions and judges them by its constraints. `caller` evaluates `callable_ref` rules; without
    /// one, a study that has them is refused.
    pub fn build(study: &Study, caller: Option<RuleCaller<'_>>) -> Result<Self, Invalid> {
        let mut findings = Findings::default();
        let rows = match rows(study, &mut findings) {
            Ok(rows) => rows,
            Err(objection) => {
                let place = study.design.place_of(objection.key).clone();
                findings.fault(&place, "design", objection.message, objection.hint);
                Rows::default()
            }
        };
        let ids = (0..rows.len())
            .map(|row| ConditionId(ShortHash::of(&rows.identity(row, study.design.kind))))
            .collect();
        let mut design = Self {
            kind: study.design.kind,
            compared: study
                .factors
                .iter()
                .filter(|f| is_compared(f))
                .cloned()
                .collect(),
            rows,
            ids,
            judgement: Judgement::default(),
            warnings: Vec::new(),
        };
        if findings.faults.is_empty() {
            design.judgement = Judgement::of(study, &design, caller, &mut findings);
        }
        design.warnings = findings.settle()?;
        Ok(design)
    }

    /// How many conditions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// A condition by its place in the design.
    #[must_use]
    pub fn condition(&self, index: usize) -> Condition<'_> {
        Condition {
            design: self,
            index,
        }
    }

    /// All of them, in order.
    pub fn conditions(&self) -> impl Iterator<Item = Condition<'_>> {
        (0..self.len()).map(|index| self.condition(index))
    }

    /// Names of the factors that conditions assign, in order.
    pub fn factor_names(&self) -> impl Iterator<Item = &str> {
        self.rows.factors.iter().map(|column| column.name.as_str())
    }

    /// Names of the blocks that conditions assign, in order.
    pub fn block_names(&self) -> impl Iterator<Item = &str> {
        self.rows.blocks.iter().map(|column| column.name.as_str())
    }
}

impl<'d> Condition<'d> {
    /// Its place in the design.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> ConditionId {
        self.design.ids[self.index]
    }

    /// Factors and their values.
    pub fn factors(&self) -> impl Iterator<Item = (&'d str, &'d Value)> + use<'d> {
        let design = self.design;
        design.rows.factor_values(self.index)
    }

    /// Blocks and their values.
    pub fn blocks(&self) -> impl Iterator<Item = (&'d str, &'d Value)> + use<'d> {
        let design = self.design;
        design.rows.block_values(self.index)
    }

    /// A factor's value.
    #[must_use]
    pub fn factor(&self, name: &str) -> Option<&'d Value> {
        self.factors()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    }

    /// Equal for conditions of one block, and only for those.
    pub(crate) fn block_cells(&self) -> &'d [u32] {
        self.design.rows.block_cells(self.index)
    }

    /// Blocks and their values, as a mapping.
    #[must_use]
    pub fn block_assignment(&self) -> Value {
        self.design.rows.block_assignment(self.index)
    }

    /// Whether it produces runs.
    #[must_use]
    pub fn is_admissible(&self) -> bool {
        !self.design.judgement.is_refused(self.index)
    }

    /// What its violated constraints say.
    #[must_use]
    pub fn messages(&self) -> Vec<&'d str> {
        self.design.judgement.messages(self.index)
    }

    /// Canonical JSON of its assignment.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.design.rows.identity(self.index, DesignKind::Full)
    }

    /// What is known of it beyond its assignment.
    #[must_use]
    pub fn metadata(&self) -> Value {
        let design = self.design;
        let mut entries = design.rows.origin(self.index, design.kind);
        entries.push(("fingerprint", Value::Text(self.fingerprint())));
        if design.kind.is_factorial() {
            entries.extend(self.comparison());
        }
        if design.kind == DesignKind::RepeatedMeasures {
            entries.push(("within_subject_order", count(self.index)));
            entries.push(("design_kind", design.kind.name().into()));
        }
        Value::map(entries)
    }

    /// SF-28: how it stands to the baseline, where levels say so.
    fn comparison(&self) -> Vec<(&'static str, Value)> {
        let mut axes = Vec::new();
        let mut labels = Vec::new();
        let mut baselines = Vec::new();
        for (name, value) in self.factors() {
            let mut compared = self.design.compared.iter();
            let factor = compared.find(|factor| factor.name == name);
            let level = factor.and_then(|f| f.levels.iter().find(|l| l.value.equals(value)));
            let Some(level) = level else { continue };
            let (flag, role) = (
                level.metadata.get("is_baseline"),
                level.metadata.get("role"),
            );
            if flag.is_none() && role.is_none() {
                continue;
            }
            let is_baseline = match flag {
                Some(flag) => flag.is_truthy(),
                None => role.and_then(Value::as_text) == Some("baseline"),
            };
            let default = if is_baseline { "baseline" } else { "treatment" };
            let axis = Value::map([
                ("value", value.clone()),
                ("level_name", Value::text(&level.name)),
                ("label", Value::text(&level.label)),
                ("role", role.cloned().unwrap_or_else(|| default.into())),
                ("is_baseline", is_baseline.into()),
            ]);
            axes.push((name, axis));
            labels.push(level.label.as_str());
            if is_baseline {
                baselines.push(name);
            }
        }
        if axes.is_empty() {
            return Vec::new();
        }
        let baseline = Value::map([
            (
                "is_baseline_condition",
                (baselines.len() == axes.len()).into(),
            ),
            ("axes", Value::texts(baselines)),
        ]);
        vec![
            ("condition_label", Value::Text(labels.join(" | "))),
            ("comparison_axes", Value::map(axes)),
            ("comparison_baseline", baseline),
        ]
    }
}

fn is_compared(factor: &Factor) -> bool {
    let says = |key: &str| {
        factor
            .levels
            .iter()
            .any(|level| level.metadata.get(key).is_some())
    };
    says("is_baseline") || says("role")
}

fn count(index: usize) -> Value {
    Value::Int(index.into())
}

/// The rows of every kind of design.
fn rows(study: &Study, findings: &mut Findings) -> Result<Rows, Objection> {
    let spec = &study.design;
    let source = Source {
        seed: study.seeds.base_seed.clone(),
        compat: study.compat,
    };
    let columns = || {
        study.factors.iter().map(|factor| Column {
            name: factor.name.clone(),
            values: factor.values(),
        })
    };
    let bounds = || match &spec.bounds {
        Some(bounds) => sampling::given_bounds(bounds),
        None => columns()
            .map(|c| sampling::spanned_bounds(&c.name, &c.values))
            .collect(),
    };
    let table = match spec.kind {
        kind if kind.is_factorial() => return factorial::rows(study, &source),
        DesignKind::LatinSquare => {
            let table = latin_square::table(study)?;
            unused_in_square(study, &table, findings);
            return Ok(Rows::plain(table));
        }
        DesignKind::CustomMatrix => return matrix::rows(study, findings),
        DesignKind::Fraction => {
            sampling::check_backend(spec.backend.as_deref(), &["pydoe", "pydoe3"])?;
            for factor in &study.factors {
                if factor.levels.len() != 2 {
                    let levels = factor.levels.len();
                    let message = format!("factor `{}` has {levels} levels", factor.name);
                    findings.fault(
                        &factor.place,
                        "design",
                        message,
                        "a two-level fraction needs two",
                    );
                }
            }
            sampling::fraction(columns().collect(), spec.resolution.as_deref())?
        }
        DesignKind::Sobol => {
            let n = sampling::sample_size(spec.n_samples)?;
            if !n.is_power_of_two() {
                let message = format!("{n} Sobol points are not balanced");
                let place = spec.place_of("n_samples").clone();
                findings.warn(&place, "sobol", message, "take a power of two");
            }
            sampling::sobol_points(&bounds()?, n, spec.scramble, &source)?
        }
        _ => {
            sampling::check_backend(spec.backend.as_deref(), &["scipy", "qmc"])?;
            let n = sampling::sample_size(spec.n_samples)?;
            sampling::latin_hypercube(&bounds()?, n, &source)
        }
    };
    let steps = Steps {
        replicates: spec.replicates,
        center_points: spec.center_points,
        randomize: spec.randomize,
        group_by: spec.block_randomization_key.as_deref(),
    };
    let mut rows = Rows::all(
        table.finish(&steps, &source)?,
        factorial::block_columns(study),
    )?;
    if spec.counterbalance {
        rows.reorder(&counterbalanced(rows.len()));
    }
    Ok(rows)
}

/// Factors and blocks that a latin square leaves out.
fn unused_in_square(study: &Study, table: &Table, findings: &mut Findings) {
    let unused_factors = study.factors.iter().filter(|factor| {
        !table
            .columns
            .iter()
            .any(|column| column.name == factor.name)
    });
    let unused = unused_factors.map(|factor| (&factor.name, &factor.place));
    for (name, place) in unused.chain(study.blocks.iter().map(|b| (&b.name, &b.place))) {
        let message = format!("`{name}` is not part of the latin square");
        let hint = "remove it, or use `full_factorial`";
        match study.compat {
            Compat::Native => findings.fault(place, "ignored_option", message, hint),
            Compat::Dre => findings.warn(place, "ignored_option", message, hint),
        }
    }
}

/// Conditions as rows of indexes into the values of factors and blocks.
#[derive(Debug, Default)]
pub(super) struct Rows {
    factors: Vec<Column>,
    blocks: Vec<Column>,
    /// Canonical text of each column's name and values, factors first.
    texts: Vec<(String, Vec<Box<str>>)>,
    /// Positions of factors, and of blocks, by name.
    sorted: (Vec<usize>, Vec<usize>),
    cells: Vec<u32>,
    /// Which row of the design's table each came from.
    origins: Vec<u32>,
    /// Rows of a latin square.
    side: usize,
}

impl Rows {
    pub(super) fn new(
        factors: Vec<Column>,
        blocks: Vec<Column>,
        cells: Vec<u32>,
        origins: Vec<u32>,
    ) -> Self {
        let text = |column: &Column| {
            let mut name = String::new();
            write_text(&column.name, &mut name);
            let values = column
                .values
                .iter()
                .map(|value| canonical_json(value).into());
            (name, values.collect())
        };
        let by_name = |columns: &[Column], offset: usize| {
            let mut order: Vec<usize> = (0..columns.len()).collect();
            order.sort_by_key(|index| columns[*index].name.clone());
            order.into_iter().map(|index| index + offset).collect()
        };
        Self {
            texts: factors.iter().chain(&blocks).map(text).collect(),
            sorted: (by_name(&factors, 0), by_name(&blocks, factors.len())),
            side: factors
                .first()
                .map_or(1, |column| column.values.len())
                .max(1),
            factors,
            blocks,
            cells,
            origins,
        }
    }

    /// A table's rows as they are, without blocks.
    fn plain(table: Table) -> Self {
        let origins = (0..table.rows as u32).collect();
        Self::new(table.columns, Vec::new(), table.cells, origins)
    }

    /// Each row of a table with all combinations of blocks, the last block fastest.
    pub(super) fn all(table: Table, blocks: Vec<Column>) -> Result<Self, Objection> {
        let blocks = Table::product(blocks)?;
        let total = table.rows.checked_mul(blocks.rows);
        let total = total
            .filter(|total| *total <= MOST_ROWS)
            .ok_or_else(too_many)?;
        let mut cells = Vec::with_capacity(total * (table.columns.len() + blocks.columns.len()));
        let mut origins = Vec::with_capacity(total);
        for row in 0..table.rows {
            for block in 0..blocks.rows {
                cells.extend_from_slice(table.row(row));
                cells.extend_from_slice(blocks.row(block));
                origins.push(row as u32);
            }
        }
        Ok(Self::new(table.columns, blocks.columns, cells, origins))
    }

    pub(super) fn len(&self) -> usize {
        self.origins.len()
    }

    fn row(&self, row: usize) -> &[u32] {
        let width = self.texts.len();
        &self.cells[row * width..(row + 1) * width]
    }

    pub(super) fn reorder(&mut self, order: &[usize]) {
        let mut cells = Vec::with_capacity(self.cells.len());
        for row in order {
            cells.extend_from_slice(self.row(*row));
        }
        self.origins = order.iter().map(|row| self.origins[*row]).collect();
        self.cells = cells;
    }

    pub(super) fn block_cells(&self, row: usize) -> &[u32] {
        &self.row(row)[self.factors.len()..]
    }

    pub(super) fn block_assignment(&self, row: usize) -> Value {
        Value::map(
            self.block_values(row)
                .map(|(name, value)| (name, value.clone())),
        )
    }

    fn factor_values(&self, row: usize) -> impl Iterator<Item = (&str, &Value)> {
        present(&self.factors, self.row(row))
    }

    fn block_values(&self, row: usize) -> impl Iterator<Item = (&str, &Value)> {
        present(&self.blocks, self.block_cells(row))
    }

    /// What an id is made of: the assignment, outside the factorial family with where it came from.
    fn identity(&self, row: usize, kind: DesignKind) -> String {
        let mut text = String::with_capacity(128);
        text += "{\"blocks\":";
        self.write_assignment(row, &self.sorted.1, &mut text);
        text += ",\"factors\":";
        self.write_assignment(row, &self.sorted.0, &mut text);
        if !kind.is_factorial() {
            text += ",\"metadata\":";
            write_canonical(&Value::map(self.origin(row, kind)), &mut text);
        }
        text.push('}');
        text
    }

    fn write_assignment(&self, row: usize, columns: &[usize], text: &mut String) {
        let cells = self.row(row);
        text.push('{');
        let mut separator = "";
        for column in columns {
            if cells[*column] == ABSENT {
                continue;
            }
            let (name, values) = &self.texts[*column];
            *text += separator;
            *text += name;
            text.push(':');
            *text += &values[cells[*column] as usize];
            separator = ",";
        }
        text.push('}');
    }

    /// Where a condition came from, outside the factorial family.
    fn origin(&self, row: usize, kind: DesignKind) -> Vec<(&'static str, Value)> {
        let origin = self.origins[row] as usize;
        let mut entries = match kind {
            kind if kind.is_factorial() => return Vec::new(),
            DesignKind::LatinSquare => vec![
                ("latin_square_row", count(origin / self.side)),
                ("latin_square_col", count(origin % self.side)),
            ],
            DesignKind::CustomMatrix => vec![("matrix_row", count(origin))],
            _ => vec![("row_index", count(origin))],
        };
        entries.push(("design_kind", kind.name().into()));
        entries
    }
}

fn present<'a>(
    columns: &'a [Column],
    cells: &'a [u32],
) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
    columns
        .iter()
        .zip(cells)
        .filter(|(_, cell)| **cell != ABSENT)
        .map(|(column, cell)| (column.name.as_str(), &column.values[*cell as usize]))
}
