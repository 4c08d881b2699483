//! What is refused before any condition is looked at (native).

use super::{ErrorKind, ExpressionError, Node, Part, callee, comparable, error, unsupported};
use crate::fault::suggestion;

/// Walks every part, also those that no condition would reach.
pub(super) fn check(node: &Node, factors: &[&str], blocks: &[&str]) -> Result<(), ExpressionError> {
    let below = |node: &Node| check(node, factors, blocks);
    let known = || factors.iter().chain(blocks).copied();
    match &node.part {
        Part::Constant(_) => Ok(()),
        Part::Unsupported(name) => Err(unsupported(name, node.column)),
        Part::Name(name) => {
            if name == "factors" || name == "blocks" || known().any(|known| known == name) {
                return Ok(());
            }
            Err(unknown(name, node.column, known()))
        }
        Part::Attribute(base, name) => match &base.part {
            Part::Name(mapping) if mapping == "factors" => declared(name, factors, node.column),
            Part::Name(mapping) if mapping == "blocks" => declared(name, blocks, node.column),
            _ => {
                let detail = format!(
                    "only `factors` and `blocks` have attributes, so `.{name}` means nothing"
                );
                Err(error(ErrorKind::UnknownName, node.column, detail))
            }
        },
        Part::List(items) | Part::Tuple(items) | Part::Logic(_, items) => {
            items.iter().try_for_each(below)
        }
        Part::Dict(entries) => entries.iter().try_for_each(|(key, value)| {
            let Some(key) = key else {
                let detail = "a mapping cannot be unpacked here";
                return Err(error(ErrorKind::DictUnpacking, node.column, detail));
            };
            below(key)?;
            below(value)
        }),
        Part::Subscript(base, index) | Part::Arithmetic(_, base, index) => {
            below(base)?;
            below(index)
        }
        Part::Not(operand) | Part::Sign(_, operand) => below(operand),
        Part::Compare(first, links) => {
            below(first)?;
            links.iter().try_for_each(|(comparison, operand)| {
                comparable(*comparison, node.column)?;
                below(operand)
            })
        }
        Part::Call {
            function,
            arguments,
            has_keywords,
        } => {
            callee(function, *has_keywords, node.column)?;
            arguments.iter().try_for_each(below)
        }
    }
}

fn declared(name: &str, known: &[&str], column: usize) -> Result<(), ExpressionError> {
    if known.contains(&name) {
        return Ok(());
    }
    Err(unknown(name, column, known.iter().copied()))
}

fn unknown<'a>(name: &str, column: usize, known: impl Iterator<Item = &'a str>) -> ExpressionError {
    let hint = suggestion(name, known);
    let detail = format!("`{name}` is no factor or block ({hint})");
    error(ErrorKind::UnknownName, column, detail)
}
