//! Values while an expression is evaluated: as in study files, and tuples.

use std::cmp::Ordering;

use num_bigint::BigInt;

use crate::moment::Moment;
use crate::value::{Amount, Value};

#[derive(Clone, Debug)]
pub(super) enum Item {
    Null,
    Bool(bool),
    Int(BigInt),
    Float(f64),
    Text(String),
    Moment(Moment),
    List(Vec<Item>),
    Tuple(Vec<Item>),
    Map(Vec<(Item, Item)>),
}

impl From<&Value> for Item {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Int(int) => Self::Int(int.clone()),
            Value::Float(float) => Self::Float(*float),
            Value::Text(text) => Self::Text(text.clone()),
            Value::Moment(moment) => Self::Moment(moment.clone()),
            Value::List(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Map(entries) => Self::Map(
                entries
                    .iter()
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect(),
            ),
        }
    }
}

impl Item {
    pub(super) fn amount(&self) -> Option<Amount> {
        match self {
            Self::Bool(truth) => Some(Amount::Int(BigInt::from(u8::from(*truth)))),
            Self::Int(int) => Some(Amount::Int(int.clone())),
            Self::Float(float) => Some(Amount::Float(*float)),
            _ => None,
        }
    }

    pub(super) fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(truth) => *truth,
            Self::Int(int) => *int != BigInt::ZERO,
            Self::Float(float) => *float != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Moment(_) => true,
            Self::List(items) | Self::Tuple(items) => !items.is_empty(),
            Self::Map(entries) => !entries.is_empty(),
        }
    }

    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Moment(a), Self::Moment(b)) => a == b,
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.equals(b))
            }
            (Self::Map(a), Self::Map(b)) => {
                let holds = |(key, value): &(Item, Item)| {
                    let mut entries = b.iter();
                    entries.any(|(k, v)| k.equals(key) && v.equals(value))
                };
                a.len() == b.len() && a.iter().all(holds)
            }
            _ => match (self.amount(), other.amount()) {
                (Some(a), Some(b)) => a.compare(&b) == Some(Ordering::Equal),
                _ => false,
            },
        }
    }

    /// Python's order; the outer none is a type error, the inner one a comparison with NaN.
    pub(super) fn order(&self, other: &Self) -> Option<Option<Ordering>> {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => Some(Some(a.cmp(b))),
            (Self::Moment(a), Self::Moment(b)) => Some(Some(a.to_string().cmp(&b.to_string()))),
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
                match a.iter().zip(b).find(|(a, b)| !a.equals(b)) {
                    Some((a, b)) => a.order(b),
                    None => Some(Some(a.len().cmp(&b.len()))),
                }
            }
            _ => Some(self.amount()?.compare(&other.amount()?)),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::Moment(_) => "date",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Map(_) => "dict",
        }
    }

    pub(super) fn to_str(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Moment(moment) => moment.to_string(),
            other => other.to_repr(),
        }
    }

    pub(super) fn to_repr(&self) -> String {
        let all = |items: &[Item]| {
            let items: Vec<_> = items.iter().map(Self::to_repr).collect();
            items.join(", ")
        };
        match self {
            Self::Null => "None".into(),
            Self::Bool(truth) => Value::Bool(*truth).to_repr(),
            Self::Int(int) => int.to_string(),
            Self::Float(float) => Value::Float(*float).to_repr(),
            Self::Text(text) => Value::text(text).to_repr(),
            Self::Moment(moment) => moment.to_repr(),
            Self::List(items) => format!("[{}]", all(items)),
            Self::Tuple(items) if items.len() == 1 => format!("({},)", all(items)),
            Self::Tuple(items) => format!("({})", all(items)),
            Self::Map(entries) => {
                let entry =
                    |(key, value): &(Item, Item)| format!("{}: {}", key.to_repr(), value.to_repr());
                let entries: Vec<_> = entries.iter().map(entry).collect();
                format!("{{{}}}", entries.join(", "))
            }
        }
    }
}
