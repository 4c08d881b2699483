//! Operators and functions on values, with Python's meaning.

use num_bigint::BigInt;

use super::eval::{Evaluated, type_error};
use super::item::Item;
use super::{Arithmetic, ErrorKind, error, format};
use crate::value::{Amount, float_to_int};

/// Text and lists may be repeated, but not without bound.
const LONGEST: usize = 1 << 20;

pub(super) fn sign(negative: bool, operand: &Item, column: usize) -> Evaluated {
    match operand.amount() {
        Some(Amount::Int(int)) => Ok(Item::Int(if negative { -int } else { int })),
        Some(Amount::Float(float)) => Ok(Item::Float(if negative { -float } else { float })),
        None => Err(type_error(
            column,
            format!("{} has no sign", operand.kind()),
        )),
    }
}

pub(super) fn arithmetic(
    operator: Arithmetic,
    left: Item,
    right: Item,
    column: usize,
) -> Evaluated {
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

pub(super) fn call(name: &'static str, arguments: &[Item], column: usize) -> Evaluated {
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
