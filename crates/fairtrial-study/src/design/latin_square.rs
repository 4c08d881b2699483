//! Latin squares: row-major, treatments rotated.

use super::table::{Column, Table};
use super::{Objection, objection};
use crate::fault::{short, suggestion};
use crate::study::Study;

pub(super) fn table(study: &Study) -> Result<Table, Objection> {
    let spec = &study.design;
    let roles = [
        ("row_factor", &spec.row_factor),
        ("column_factor", &spec.column_factor),
        ("treatment_factor", &spec.treatment_factor),
    ];
    let mut columns: Vec<Column> = Vec::new();
    for (key, name) in roles {
        let Some(name) = name else {
            let message = format!("a latin square needs `options.{key}`");
            return Err(objection(key, message, "name a factor"));
        };
        let Some(factor) = study.factors.iter().find(|factor| factor.name == *name) else {
            let message = format!("`{}` in `{key}` is no factor", short(name));
            let known = study.factors.iter().map(|factor| factor.name.as_str());
            return Err(objection(key, message, suggestion(name, known)));
        };
        if columns.iter().any(|column| column.name == *name) {
            let message = format!("factor `{}` has two places in the square", short(name));
            return Err(objection(key, message, "name three factors"));
        }
        columns.push(Column {
            name: name.clone(),
            values: factor.values(),
        });
    }
    let n = columns[0].values.len();
    if columns.iter().any(|column| column.values.len() != n) {
        let counts: Vec<_> = columns.iter().map(|c| c.values.len().to_string()).collect();
        let message = format!("the square's factors have {} levels", counts.join(", "));
        return Err(objection("kind", message, "give them equally many"));
    }
    let rows = n
        .checked_mul(n)
        .filter(|rows| *rows <= super::table::MOST_ROWS);
    let rows = rows.ok_or_else(super::table::too_many)?;
    let cell = |at: usize| {
        let (row, column) = (at / n, at % n);
        [row, column, (row + column) % n].map(|index| index as u32)
    };
    Ok(Table {
        cells: (0..rows).flat_map(cell).collect(),
        columns,
        rows,
    })
}
