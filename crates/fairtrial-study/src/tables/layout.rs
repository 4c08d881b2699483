//! The tables and their columns: names, order, types (SF-52 to SF-54, ST-75).

use crate::compat::Compat;
use crate::plan::Plan;
use crate::read::checks::CONDITION_COLUMNS;
use crate::value::Value;

/// What a column holds. What an agent said may be anything, whatever it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Real,
    Boolean,
    /// Values of several kinds.
    Mixed,
}

impl Kind {
    /// A value's; null is of none.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Bool(_) => Some(Self::Boolean),
            Value::Int(int) if i64::try_from(int).is_ok() => Some(Self::Integer),
            Value::Int(_) => Some(Self::Mixed),
            Value::Float(_) => Some(Self::Real),
            Value::Text(_) | Value::Moment(_) | Value::List(_) | Value::Map(_) => Some(Self::Text),
        }
    }

    /// What holds values of both.
    fn join(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let Some(one) = one else { return other };
        match (one, other) {
            (one, None) => Some(one),
            (one, Some(other)) if one == other => Some(one),
            (Self::Integer | Self::Real, Some(Self::Integer | Self::Real)) => Some(Self::Real),
            _ => Some(Self::Mixed),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// A table, by its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Conditions,
    Runs,
    Events,
    Evaluations,
    Attempts,
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) which: Which,
    pub(super) name: &'static str,
    pub(super) columns: Vec<Column>,
    /// How many of them DRE writes where there is no row.
    pub(super) required: usize,
}

/// The tables of a plan, in the order of [`Which`]; under `dre-0.2` without attempts.
pub(super) fn tables(plan: &Plan<'_>) -> Vec<Table> {
    let is_dre = plan.study.compat == Compat::Dre;
    let table = |which, name, columns: Columns, required| Table {
        which,
        name,
        columns: columns
            .iter()
            .map(|(name, kind)| column(name, *kind))
            .collect(),
        required,
    };
    let runs = match is_dre {
        true => &RUN_COLUMNS[..DRE_RUN_COLUMNS],
        false => RUN_COLUMNS,
    };
    let conditions = conditions(plan);
    let mut tables = vec![
        Table {
            which: Which::Conditions,
            name: "conditions",
            required: conditions.len(),
            columns: conditions,
        },
        table(Which::Runs, "runs", runs, DRE_RUN_COLUMNS - 1),
        table(Which::Events, "events", EVENT_COLUMNS, 7),
        table(
            Which::Evaluations,
            "evaluations",
            EVALUATION_COLUMNS,
            EVALUATION_COLUMNS.len(),
        ),
    ];
    if !is_dre {
        let all = ATTEMPT_COLUMNS.len();
        tables.push(table(Which::Attempts, "attempts", ATTEMPT_COLUMNS, all));
    }
    tables
}

/// Factors and blocks are of the kind that their levels are.
fn conditions(plan: &Plan<'_>) -> Vec<Column> {
    let names = plan.condition_columns();
    let mut kinds = vec![None; names.len()];
    kinds[..CONDITION_COLUMNS.len()].fill(Some(Kind::Text));
    for row in plan.condition_rows() {
        for (kind, value) in kinds.iter_mut().zip(&row) {
            *kind = Kind::join(*kind, Kind::of(value));
        }
    }
    let named = names.iter().zip(kinds);
    named
        .map(|(name, kind)| match name.as_str() {
            "admissible" => column(name, Kind::Boolean),
            name => column(name, kind.unwrap_or(Kind::Text)),
        })
        .collect()
}

fn column(name: &str, kind: Kind) -> Column {
    Column {
        name: name.to_owned(),
        kind,
    }
}

/// Columns of a table.
type Columns = &'static [(&'static str, Kind)];

/// Of `runs.csv`, those that DRE knows.
const DRE_RUN_COLUMNS: usize = 22;

pub(super) const RUN_COLUMNS: Columns = &[
    ("study_id", Kind::Text),
    ("condition_id", Kind::Text),
    ("run_id", Kind::Text),
    ("problem_id", Kind::Text),
    ("problem_family", Kind::Text),
    ("agent_id", Kind::Text),
    ("agent_kind", Kind::Text),
    ("pattern_name", Kind::Text),
    ("model_name", Kind::Text),
    ("seed", Kind::Integer),
    ("replicate", Kind::Integer),
    ("status", Kind::Text),
    ("start_time", Kind::Text),
    ("end_time", Kind::Text),
    ("latency_s", Kind::Real),
    ("input_tokens", Kind::Real),
    ("output_tokens", Kind::Real),
    ("cost_usd", Kind::Real),
    ("primary_outcome", Kind::Real),
    ("trace_path", Kind::Text),
    ("manifest_path", Kind::Text),
    ("error_info", Kind::Text),
    ("attempts", Kind::Integer),
    ("verdict", Kind::Text),
    ("stage", Kind::Text),
    ("evaluation_status", Kind::Text),
    ("order_index", Kind::Integer),
    ("seed64", Kind::Text),
    ("identity", Kind::Text),
    ("warnings", Kind::Integer),
    ("queue_s", Kind::Real),
    ("start_s", Kind::Real),
    ("evaluate_s", Kind::Real),
    ("user_s", Kind::Real),
    ("system_s", Kind::Real),
    ("peak_rss_bytes", Kind::Integer),
    ("exit_code", Kind::Integer),
    ("signal", Kind::Integer),
    ("node_id", Kind::Text),
];

pub(super) const EVENT_COLUMNS: Columns = &[
    ("timestamp", Kind::Text),
    ("record_id", Kind::Text),
    ("text", Kind::Text),
    ("session_id", Kind::Text),
    ("actor_id", Kind::Text),
    ("event_type", Kind::Text),
    ("meta_json", Kind::Text),
    ("level", Kind::Text),
    ("study_id", Kind::Text),
    ("run_id", Kind::Text),
    ("condition_id", Kind::Text),
    ("trial_id", Kind::Text),
    ("step_id", Kind::Text),
    ("tool_name", Kind::Text),
    ("evaluation_id", Kind::Text),
];

pub(super) const EVALUATION_COLUMNS: Columns = &[
    ("run_id", Kind::Text),
    ("evaluator_id", Kind::Text),
    ("metric_name", Kind::Text),
    ("metric_value", Kind::Real),
    ("metric_unit", Kind::Text),
    ("aggregation_level", Kind::Text),
    ("notes_json", Kind::Text),
];

pub(super) const ATTEMPT_COLUMNS: Columns = &[
    ("run_id", Kind::Text),
    ("seq", Kind::Integer),
    ("attempt", Kind::Integer),
    ("status", Kind::Text),
    ("verdict", Kind::Text),
    ("stage", Kind::Text),
    ("started_at", Kind::Text),
    ("finished_at", Kind::Text),
    ("error_type", Kind::Text),
    ("error_message", Kind::Text),
    ("output_json", Kind::Text),
];

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;

    use super::*;

    /// ST-74
    #[test]
    fn a_column_is_of_the_kind_that_holds_its_values() {
        let int = |int: i128| Value::Int(BigInt::from(int));
        for (values, expected) in [
            (vec![], None),
            (vec![Value::Null, int(1)], Some(Kind::Integer)),
            (vec![int(1), Value::Null], Some(Kind::Integer)),
            (vec![int(1), Value::Float(0.5), int(2)], Some(Kind::Real)),
            (vec![int(1), int(i128::MAX)], Some(Kind::Mixed)),
            (vec![Value::Bool(true), int(1)], Some(Kind::Mixed)),
            (
                vec![Value::text("a"), Value::List(vec![])],
                Some(Kind::Text),
            ),
        ] {
            let kinds = values.iter().map(Kind::of);
            assert_eq!(kinds.fold(None, Kind::join), expected, "{values:?}");
        }
    }
}
