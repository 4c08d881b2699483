//! Rows of factor values before they become conditions: made, repeated, centred, shuffled.

use std::collections::HashMap;

use num_bigint::BigInt;

use super::{Objection, objection};
use crate::compat::Compat;
use crate::random::Random;
use crate::value::Value;

/// A cell that a row does not have.
pub(super) const ABSENT: u32 = u32::MAX;
/// More conditions than this exhaust memory before they exhaust patience.
pub(super) const MOST_ROWS: usize = 10_000_000;

/// A column's name and every value that occurs in it.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) values: Vec<Value>,
}

/// Rows of indexes into the columns' values.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) cells: Vec<u32>,
    pub(super) rows: usize,
}

/// Where randomness comes from; no seed is entropy.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) seed: Option<BigInt>,
    pub(super) compat: Compat,
}

impl Source {
    pub(super) fn random(&self) -> Random {
        match &self.seed {
            Some(seed) => Random::new(seed),
            None => Random::from_entropy(),
        }
    }

    /// A stream for one group of a shuffle. DRE begins the same one for each.
    pub(super) fn group(&self, key: &Value) -> Random {
        match (&self.seed, self.compat) {
            (Some(seed), Compat::Native) => {
                Random::stream(&Value::Int(seed.clone()), "block-shuffle", key)
            }
            _ => self.random(),
        }
    }
}

/// What is done to a table's rows, in this order.
#[derive(Clone, Debug)]
pub(super) struct Steps<'a> {
    pub(super) replicates: u64,
    pub(super) center_points: u64,
    pub(super) randomize: bool,
    pub(super) group_by: Option<&'a str>,
}

impl Table {
    pub(super) fn row(&self, row: usize) -> &[u32] {
        let width = self.columns.len();
        &self.cells[row * width..(row + 1) * width]
    }

    pub(super) fn value(&self, row: usize, column: usize) -> &Value {
        &self.columns[column].values[self.row(row)[column] as usize]
    }

    /// All combinations, the last column fastest.
    pub(super) fn product(columns: Vec<Column>) -> Result<Self, Objection> {
        let rows = columns
            .iter()
            .try_fold(1_usize, |rows, column| {
                rows.checked_mul(column.values.len())
            })
            .filter(|rows| *rows <= MOST_ROWS)
            .ok_or_else(too_many)?;
        let mut cells = Vec::with_capacity(rows * columns.len());
        for row in 0..rows {
            let mut rest = row;
            let start = cells.len();
            for column in columns.iter().rev() {
                cells.push((rest % column.values.len()) as u32);
                rest /= column.values.len();
            }
            cells[start..].reverse();
        }
        Ok(Self {
            columns,
            cells,
            rows,
        })
    }

    /// Rows whose every cell is a value of its own.
    pub(super) fn of_columns(columns: Vec<Column>, rows: usize) -> Self {
        let width = columns.len();
        let cells = (0..rows).flat_map(|row| std::iter::repeat_n(row as u32, width));
        Self {
            cells: cells.collect(),
            columns,
            rows,
        }
    }

    pub(super) fn finish(mut self, steps: &Steps<'_>, source: &Source) -> Result<Self, Objection> {
        self.repeat(steps.replicates)?;
        self.add_centre(steps.center_points)?;
        if steps.randomize {
            let order = match steps.group_by {
                None => {
                    let mut order: Vec<usize> = (0..self.rows).collect();
                    source.random().shuffle(&mut order);
                    order
                }
                Some(key) => self.shuffled_groups(key, source)?,
            };
            self.reorder(&order);
        }
        Ok(self)
    }

    fn repeat(&mut self, times: u64) -> Result<(), Objection> {
        let times = usize::try_from(times).unwrap_or(usize::MAX);
        let rows = self
            .rows
            .checked_mul(times)
            .filter(|rows| *rows <= MOST_ROWS);
        self.rows = rows.ok_or_else(too_many)?;
        self.cells = self.cells.repeat(times);
        Ok(())
    }

    fn add_centre(&mut self, points: u64) -> Result<(), Objection> {
        if points == 0 {
            return Ok(());
        }
        if self.rows == 0 {
            return Err(objection(
                "center_points",
                "a table without rows has no centre",
                "remove `center_points`",
            ));
        }
        let points = usize::try_from(points).unwrap_or(usize::MAX);
        if points > MOST_ROWS - self.rows {
            return Err(too_many());
        }
        let centre: Vec<u32> = (0..self.columns.len())
            .map(|column| self.centre_of(column))
            .collect();
        self.cells.extend(centre.repeat(points));
        self.rows += points;
        Ok(())
    }

    /// The middle of a column of numbers, of any other the most frequent value, of several the first.
    fn centre_of(&mut self, column: usize) -> u32 {
        let numbers: Option<Vec<f64>> = (0..self.rows)
            .map(|row| self.value(row, column).as_number())
            .collect();
        if let Some(numbers) = numbers {
            let low = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let high = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let values = &mut self.columns[column].values;
            values.push(Value::Float((low + high) / 2.0));
            return (values.len() - 1) as u32;
        }
        // The first of the largest: `max_by_key` would give the last.
        let groups = self.groups(column);
        let best = groups.iter().rev().max_by_key(|rows| rows.len());
        best.map_or(0, |rows| self.row(rows[0])[column])
    }

    /// Rows by what Python finds an equal value, first seen first.
    pub(super) fn groups(&self, column: usize) -> Vec<Vec<usize>> {
        let mut places = HashMap::new();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for row in 0..self.rows {
            let key = self.value(row, column).equality_key();
            let group = *places.entry(key).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[group].push(row);
        }
        groups
    }

    fn shuffled_groups(&self, key: &str, source: &Source) -> Result<Vec<usize>, Objection> {
        let Some(column) = self.columns.iter().position(|column| column.name == key) else {
            let message = format!("no row has the column `{key}` to shuffle by");
            return Err(objection(
                "block_randomization_key",
                message,
                "name a factor",
            ));
        };
        let mut groups = self.groups(column);
        for rows in &mut groups {
            source.group(self.value(rows[0], column)).shuffle(rows);
        }
        Ok(groups.into_iter().flatten().collect())
    }

    pub(super) fn reorder(&mut self, order: &[usize]) {
        let cells = order.iter().flat_map(|row| self.row(*row).to_vec());
        self.cells = cells.collect();
    }
}

pub(super) fn too_many() -> Objection {
    let message = format!("the design has more than {MOST_ROWS} rows");
    objection("kind", message, "sample instead, or drop levels")
}

/// Even positions in order, then odd ones reversed.
pub(super) fn counterbalanced(rows: usize) -> Vec<usize> {
    if rows < 3 {
        return (0..rows).collect();
    }
    let even = (0..rows).step_by(2);
    let odd = (1..rows).step_by(2);
    even.chain(odd.rev()).collect()
}
