//! Evaluation, with Python's meaning.

use num_bigint::BigInt;

use super::arithmetic::{arithmetic, call, sign};
use super::item::Item;
use super::{
    Comparison, ErrorKind, ExpressionError, Node, Part, Scope, callee, comparable, error,
    unsupported,
};
use crate::compat::Compat;
use crate::fault::short;

pub(super) type Evaluated = Result<Item, ExpressionError>;

/// The value, which must be a boolean.
pub(super) fn truth(
    root: &Node,
    scope: &Scope<'_>,
    compat: Compat,
) -> Result<bool, ExpressionError> {
    match (Evaluation { scope, compat }).item(root)? {
        Item::Bool(truth) => Ok(truth),
        other => {
            let detail = format!(
                "the value is {}, not True or False",
                short(&other.to_repr())
            );
            Err(error(ErrorKind::NotBoolean, root.column, detail))
        }
    }
}

struct Evaluation<'e> {
    scope: &'e Scope<'e>,
    compat: Compat,
}

impl Evaluation<'_> {
    fn item(&self, node: &Node) -> Evaluated {
        let column = node.column;
        match &node.part {
            Part::Constant(item) => Ok(item.clone()),
            Part::Unsupported(name) => Err(unsupported(name, column)),
            Part::Name(name) => self.name(name, column),
            Part::List(items) => self.items(items).map(Item::List),
            Part::Tuple(items) => self.items(items).map(Item::Tuple),
            Part::Dict(entries) => self.dict(entries, column),
            Part::Attribute(base, name) => attribute(self.item(base)?, name, column),
            Part::Subscript(base, index) => {
                subscript(&self.item(base)?, &self.item(index)?, column)
            }
            Part::Logic(is_and, operands) => self.logic(*is_and, operands),
            Part::Not(operand) => Ok(Item::Bool(!self.item(operand)?.is_truthy())),
            Part::Sign(negative, operand) => sign(*negative, &self.item(operand)?, column),
            Part::Arithmetic(operator, left, right) => {
                arithmetic(*operator, self.item(left)?, self.item(right)?, column)
            }
            Part::Compare(first, links) => self.compare(first, links, column),
            Part::Call {
                function,
                arguments,
                has_keywords,
            } => {
                let name = callee(function, *has_keywords, column)?;
                call(name, &self.items(arguments)?, column)
            }
        }
    }

    fn items(&self, nodes: &[Node]) -> Result<Vec<Item>, ExpressionError> {
        nodes.iter().map(|node| self.item(node)).collect()
    }

    /// Blocks hide factors, and both hide the two mappings.
    fn name(&self, name: &str, column: usize) -> Evaluated {
        let Scope { factors, blocks } = self.scope;
        let found = blocks
            .iter()
            .chain(factors)
            .find(|(known, _)| *known == name);
        if let Some((_, value)) = found {
            return Ok((*value).into());
        }
        let mapping = |entries: &[(&str, &crate::value::Value)]| {
            let entry = |(name, value): &(&str, &crate::value::Value)| {
                (Item::Text((*name).into()), (*value).into())
            };
            Item::Map(entries.iter().map(entry).collect())
        };
        match name {
            "factors" => Ok(mapping(factors)),
            "blocks" => Ok(mapping(blocks)),
            _ => {
                let detail = format!("`{name}` is no factor or block");
                Err(error(ErrorKind::UnknownName, column, detail))
            }
        }
    }

    fn dict(&self, entries: &[(Option<Node>, Node)], column: usize) -> Evaluated {
        let mut map: Vec<(Item, Item)> = Vec::new();
        for (key, value) in entries {
            let Some(key) = key else {
                let detail = "a mapping cannot be unpacked here";
                return Err(error(ErrorKind::DictUnpacking, column, detail));
            };
            let (key, value) = (self.item(key)?, self.item(value)?);
            hashable(&key, column)?;
            match map.iter_mut().find(|(known, _)| known.equals(&key)) {
                Some(known) => known.1 = value,
                None => map.push((key, value)),
            }
        }
        Ok(Item::Map(map))
    }

    /// Natively the rest is not looked at once the result is known; DRE evaluates every operand.
    fn logic(&self, is_and: bool, operands: &[Node]) -> Evaluated {
        let mut result = is_and;
        for operand in operands {
            let truth = self.item(operand)?.is_truthy();
            result = if is_and {
                result && truth
            } else {
                result || truth
            };
            if self.compat == Compat::Native && result != is_and {
                break;
            }
        }
        Ok(Item::Bool(result))
    }

    fn compare(&self, first: &Node, links: &[(Comparison, Node)], column: usize) -> Evaluated {
        let mut left = self.item(first)?;
        for (comparison, operand) in links {
            let right = self.item(operand)?;
            if !compare(*comparison, &left, &right, column)? {
                return Ok(Item::Bool(false));
            }
            left = right;
        }
        Ok(Item::Bool(true))
    }
}

pub(super) fn type_error(column: usize, detail: impl Into<String>) -> ExpressionError {
    error(ErrorKind::TypeError, column, detail)
}

fn hashable(key: &Item, column: usize) -> Result<(), ExpressionError> {
    match key {
        Item::List(_) | Item::Map(_) => Err(type_error(
            column,
            format!("a {} cannot be a key", key.kind()),
        )),
        _ => Ok(()),
    }
}

fn compare(
    comparison: Comparison,
    left: &Item,
    right: &Item,
    column: usize,
) -> Result<bool, ExpressionError> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    comparable(comparison, column)?;
    let accepted: &[_] = match comparison {
        Comparison::Equal => return Ok(left.equals(right)),
        Comparison::Unequal => return Ok(!left.equals(right)),
        Comparison::In => return contains(right, left, column),
        Comparison::NotIn => return contains(right, left, column).map(|found| !found),
        Comparison::Less => &[Less],
        Comparison::LessOrEqual => &[Less, Equal],
        Comparison::Greater => &[Greater],
        _ => &[Greater, Equal],
    };
    let Some(order) = left.order(right) else {
        let detail = format!("{} and {} have no order", left.kind(), right.kind());
        return Err(type_error(column, detail));
    };
    Ok(order.is_some_and(|order| accepted.contains(&order)))
}

fn contains(container: &Item, item: &Item, column: usize) -> Result<bool, ExpressionError> {
    match (container, item) {
        (Item::Text(text), Item::Text(part)) => Ok(text.contains(part.as_str())),
        (Item::List(items) | Item::Tuple(items), item) => {
            Ok(items.iter().any(|known| known.equals(item)))
        }
        (Item::Map(entries), item) => {
            hashable(item, column)?;
            Ok(entries.iter().any(|(key, _)| key.equals(item)))
        }
        (container, item) => {
            let detail = format!(
                "`in` needs a container of {}, not {}",
                item.kind(),
                container.kind()
            );
            Err(type_error(column, detail))
        }
    }
}

/// A mapping's key, or one of the few attributes that Python's numbers have.
fn attribute(base: Item, name: &str, column: usize) -> Evaluated {
    match (&base, name) {
        (Item::Map(entries), name) => {
            let mut entries = entries.iter();
            let found = entries.find(|(key, _)| matches!(key, Item::Text(key) if key == name));
            Ok(found.map_or(Item::Null, |(_, value)| value.clone()))
        }
        (Item::Int(_) | Item::Float(_), "real") => Ok(base),
        (Item::Int(_), "numerator") => Ok(base),
        (Item::Int(_), "denominator") => Ok(Item::Int(1.into())),
        (Item::Int(_), "imag") => Ok(Item::Int(0.into())),
        (Item::Float(_), "imag") => Ok(Item::Float(0.0)),
        _ => Err(unsupported("Attribute", column)),
    }
}

fn subscript(base: &Item, index: &Item, column: usize) -> Evaluated {
    if let Item::Map(entries) = base {
        hashable(index, column)?;
        let mut entries = entries.iter();
        let found = entries.find(|(key, _)| key.equals(index));
        return found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let detail = format!("there is no {}", short(&index.to_repr()));
            error(ErrorKind::KeyError, column, detail)
        });
    }
    let items: Vec<Item> = match base {
        Item::List(items) | Item::Tuple(items) => items.clone(),
        Item::Text(text) => text.chars().map(|c| Item::Text(c.into())).collect(),
        other => {
            let detail = format!("{} has no items", other.kind());
            return Err(type_error(column, detail));
        }
    };
    let position = match index {
        Item::Int(int) => int.clone(),
        Item::Bool(truth) => BigInt::from(u8::from(*truth)),
        other => {
            let detail = format!("a position is an int, not {}", other.kind());
            return Err(type_error(column, detail));
        }
    };
    let from_end = position < BigInt::ZERO;
    let position = if from_end {
        position + items.len()
    } else {
        position
    };
    let found = usize::try_from(position)
        .ok()
        .and_then(|at| items.get(at).cloned());
    found.ok_or_else(|| error(ErrorKind::IndexError, column, "there is no such position"))
}
