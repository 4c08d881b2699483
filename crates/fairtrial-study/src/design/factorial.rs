//! The factorial family: all combinations of factors and blocks, in an order.

use super::rows::Rows;
use super::table::{Column, Source, Table, counterbalanced};
use super::{DesignKind, Objection};
use crate::compat::Compat;
use crate::study::Study;
use crate::value::Value;

pub(super) fn rows(study: &Study, source: &Source) -> Result<Rows, Objection> {
    let mut rows = Rows::all(factor_table(study)?, block_columns(study))?;
    let kind = study.design.kind;
    if study.design.counterbalance || kind == DesignKind::RepeatedMeasures {
        rows.reorder(&counterbalanced(rows.len()));
    }
    if kind == DesignKind::RandomizedBlock && study.compat == Compat::Native {
        let order = shuffled_blocks(&rows, source);
        rows.reorder(&order);
    } else if study.design.randomize || kind == DesignKind::RandomizedBlock {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        source.random().shuffle(&mut order);
        rows.reorder(&order);
    }
    Ok(rows)
}

fn factor_table(study: &Study) -> Result<Table, Objection> {
    let column = |factor: &crate::study::Factor| Column {
        name: factor.name.clone(),
        values: factor.values(),
    };
    Table::product(study.factors.iter().map(column).collect())
}

pub(super) fn block_columns(study: &Study) -> Vec<Column> {
    let column = |block: &crate::study::Block| Column {
        name: block.name.clone(),
        values: block.levels.clone(),
    };
    study.blocks.iter().map(column).collect()
}

/// Conditions grouped by block assignment, first seen first, each group shuffled by a stream of its own.
fn shuffled_blocks(rows: &Rows, source: &Source) -> Vec<usize> {
    let mut groups: Vec<(&[u32], Vec<usize>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for row in 0..rows.len() {
        let key = rows.block_cells(row);
        let group = *places.entry(key).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(row);
    }
    for (_, group) in &mut groups {
        let assignment: Value = rows.block_assignment(group[0]);
        source.group(&assignment).shuffle(group);
    }
    groups.into_iter().flat_map(|(_, group)| group).collect()
}
