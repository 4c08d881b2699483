//! Evaluation, with Python's meaning.

use num_bigint::BigInt;

use super::item::Item;
use super::{
    Arithmetic, Comparison, ErrorKind, ExpressionError, Node, Part, Scope, callee, comparable,
    error, format, unsupported,
};
use crate::compat::Compat;
use crate::fault::short;
use crate::value::{Amount, float_to_int};

/// Text and lists may be repeated, but not without bound.
const LONGEST: usize = 1 << 20;

type Evaluated = Result<Item, ExpressionError>;

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

fn type_error(column: usize, detail: impl Into<String>) -> ExpressionError {
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

fn sign(negative: bool, operand: &Item, column: usize) -> Evaluated {
    match operand.amount() {
        Some(Amount::Int(int)) => Ok(Item::Int(if negative { -int } else { int })),
        Some(Amount::Float(float)) => Ok(Item::Float(if negative { -float } else { float })),
        None => Err(type_error(
            column,
            format!("{} has no sign", operand.kind()),
        )),
    }
}

fn arithmetic(operator: Arithmetic, left: Item, right: Item, column: usize) -> Evaluated {
    if let (Some(a), Some(b)) = (left.amount(), right.amount()) {
        return numbers(operator, a, b, column);
    }
    let wrong = |left: &Item, right: &Item| {
        let detail = format!("{} and {} do not go together", left.kind(), right.kind());
        Err(type_error(column, detail))
    };
    match (operator, left, right) {
        (Arithmetic::Add, Item::Text(a), Item::Text(b)) => bounded(Item::Text(a + &b), column),
        (Arithmetic::Add, Item::List(mut a), Item::List(b)) => {
            a.extend(b);
            bounded(Item::List(a), column)
        }
        (Arithmetic::Add, Item::Tuple(mut a), Item::Tuple(b)) => {
            a.extend(b);
            bounded(Item::Tuple(a), column)
        }
        (
            Arithmetic::Multiply,
            repeated @ (Item::Text(_) | Item::List(_) | Item::Tuple(_)),
            times,
        )
        | (
            Arithmetic::Multiply,
            times,
            repeated @ (Item::Text(_) | Item::List(_) | Item::Tuple(_)),
        ) => match times.amount() {
            Some(Amount::Int(times)) => repeat(repeated, &times, column),
            _ => wrong(&repeated, &times),
        },
        (Arithmetic::Modulo, Item::Text(template), values) => {
            let formatted = format::percent(&template, &values);
            formatted
                .map_err(|detail| type_error(column, detail))
                .and_then(|text| bounded(Item::Text(text), column))
        }
        (_, left, right) => wrong(&left, &right),
    }
}

fn bounded(item: Item, column: usize) -> Evaluated {
    let length = match &item {
        Item::Text(text) => text.len(),
        Item::List(items) | Item::Tuple(items) => items.len(),
        _ => 0,
    };
    if length > LONGEST {
        return Err(type_error(column, "the result is too long"));
    }
    Ok(item)
}

fn repeat(item: Item, times: &BigInt, column: usize) -> Evaluated {
    let length = match &item {
        Item::Text(text) => text.len(),
        Item::List(items) | Item::Tuple(items) => items.len(),
        _ => 0,
    };
    let times = if *times < BigInt::ZERO {
        BigInt::ZERO
    } else {
        times.clone()
    };
    let times = usize::try_from(times).unwrap_or(usize::MAX);
    if length == 0 || times == 0 {
        return Ok(match item {
            Item::Text(_) => Item::Text(String::new()),
            Item::List(_) => Item::List(Vec::new()),
            _ => Item::Tuple(Vec::new()),
        });
    }
    if length.saturating_mul(times) > LONGEST {
        return Err(type_error(column, "the result is too long"));
    }
    let many = |items: Vec<Item>| items.iter().cycle().take(length * times).cloned().collect();
    Ok(match item {
        Item::Text(text) => Item::Text(text.repeat(times)),
        Item::List(items) => Item::List(many(items)),
        Item::Tuple(items) => Item::Tuple(many(items)),
        other => other,
    })
}

fn numbers(operator: Arithmetic, a: Amount, b: Amount, column: usize) -> Evaluated {
    use Arithmetic::{Add, Divide, Modulo, Multiply, Subtract};
    let is_zero = match &b {
        Amount::Int(int) => *int == BigInt::ZERO,
        Amount::Float(float) => *float == 0.0,
    };
    if is_zero && matches!(operator, Divide | Modulo) {
        return Err(error(ErrorKind::ZeroDivision, column, "division by zero"));
    }
    let ints = match (&a, &b) {
        (Amount::Int(a), Amount::Int(b)) if operator != Divide => Some((a, b)),
        _ => None,
    };
    if let Some((a, b)) = ints {
        return Ok(Item::Int(match operator {
            Add => a + b,
            Subtract => a - b,
            Multiply => a * b,
            _ => ((a % b) + b) % b, // Python's remainder has the divisor's sign
        }));
    }
    let (x, y) = (a.to_float(), b.to_float());
    if x.is_infinite() != matches!(a, Amount::Float(f) if f.is_infinite()) {
        return Err(type_error(column, "an integer is too large for a float"));
    }
    Ok(Item::Float(match operator {
        Add => x + y,
        Subtract => x - y,
        Multiply => x * y,
        Divide => x / y,
        Modulo => {
            let rest = x % y;
            if rest != 0.0 && (rest < 0.0) != (y < 0.0) {
                rest + y
            } else if rest == 0.0 {
                0.0_f64.copysign(y)
            } else {
                rest
            }
        }
    }))
}

fn call(name: &'static str, arguments: &[Item], column: usize) -> Evaluated {
    let wrong = || {
        let kinds: Vec<_> = arguments.iter().map(Item::kind).collect();
        let detail = format!("`{name}` cannot take ({})", kinds.join(", "));
        type_error(column, detail)
    };
    match (name, arguments) {
        ("len", [Item::Text(text)]) => Ok(Item::Int(text.chars().count().into())),
        ("len", [Item::List(items) | Item::Tuple(items)]) => Ok(Item::Int(items.len().into())),
        ("len", [Item::Map(entries)]) => Ok(Item::Int(entries.len().into())),
        ("bool", []) => Ok(Item::Bool(false)),
        ("bool", [item]) => Ok(Item::Bool(item.is_truthy())),
        ("str", []) => Ok(Item::Text(String::new())),
        ("str", [item]) => Ok(Item::Text(item.to_str())),
        ("int", []) => Ok(Item::Int(BigInt::ZERO)),
        ("int", [Item::Text(text)]) => int_of(text, 10).map(Item::Int).ok_or_else(wrong),
        ("int", [Item::Text(text), Item::Int(radix)]) => u32::try_from(radix.clone())
            .ok()
            .filter(|radix| (2..=36).contains(radix))
            .and_then(|radix| int_of(text, radix))
            .map(Item::Int)
            .ok_or_else(wrong),
        ("int", [item]) => match item.amount() {
            Some(Amount::Int(int)) => Ok(Item::Int(int)),
            Some(Amount::Float(float)) if float.is_finite() => Ok(Item::Int(float_to_int(float))),
            _ => Err(wrong()),
        },
        ("float", []) => Ok(Item::Float(0.0)),
        ("float", [Item::Text(text)]) => {
            let clean = text.trim().replace('_', "");
            clean.parse().map(Item::Float).map_err(|_| wrong())
        }
        ("float", [item]) => match item.amount() {
            Some(amount) => Ok(Item::Float(amount.to_float())),
            None => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

fn int_of(text: &str, radix: u32) -> Option<BigInt> {
    let clean = text.trim();
    if clean.starts_with('_') || clean.ends_with('_') || clean.contains("__") {
        return None;
    }
    let clean = clean.replace('_', "");
    BigInt::parse_bytes(clean.strip_prefix('+').unwrap_or(&clean).as_bytes(), radix)
}
