//! Conditions as rows of indexes into the values of factors and blocks.

use super::table::{ABSENT, Column, MOST_ROWS, Table, too_many};
use super::{DesignKind, Objection};
use crate::canonical::{canonical_json, write_canonical, write_text};
use crate::value::Value;

/// The conditions of a design, without their judgement.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) factors: Vec<Column>,
    pub(super) blocks: Vec<Column>,
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
    pub(super) fn plain(table: Table) -> Self {
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

    pub(super) fn row(&self, row: usize) -> &[u32] {
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

    pub(super) fn factor_values(&self, row: usize) -> impl Iterator<Item = (&str, &Value)> {
        present(&self.factors, self.row(row))
    }

    pub(super) fn block_values(&self, row: usize) -> impl Iterator<Item = (&str, &Value)> {
        present(&self.blocks, self.block_cells(row))
    }

    /// What an id is made of: the assignment, outside the factorial family with where it came from.
    pub(super) fn identity(&self, row: usize, kind: DesignKind) -> String {
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
    pub(super) fn origin(&self, row: usize, kind: DesignKind) -> Vec<(&'static str, Value)> {
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

fn count(index: usize) -> Value {
    Value::Int(index.into())
}
