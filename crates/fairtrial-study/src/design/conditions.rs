//! The conditions of a study: built, numbered, described.

use std::fmt;

use super::judge::Judgement;
use super::rows::Rows;
use super::table::{Column, Source, Steps, Table, counterbalanced};
use super::{DesignKind, Objection, RuleCaller, factorial, latin_square, matrix, sampling};
use crate::canonical::ShortHash;
use crate::compat::Compat;
use crate::fault::{Fault, Findings, Invalid};
use crate::study::{Constraint, Factor, Study};
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
    /// one they are called in a worker.
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

    /// As [`Design::build`] of a study that is not run anyway: rules that are functions are not called, for that would start
    /// the engine.
    pub(crate) fn unjudged(study: &Study) -> Result<Self, Invalid> {
        let mut kept = |_: &Constraint, design: &Self| Ok(vec![true; design.len()]);
        Self::build(study, Some(&mut kept))
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
