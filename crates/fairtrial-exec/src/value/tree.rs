//! A value as a tree, for small things such as error records, and for what is known to be of bounded size.

use super::check::check;
use super::read::{Array, Reader, Sequence, Text, Token, words};
use super::{Malformed, read, scalar, to_json};

/// So many values, containers and keys counted, may a small value hold.
pub const MAX_SMALL_VALUES: usize = 4096;

/// A value as a tree. An array is a list, or a list of lists.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// A bool.
    Bool(bool),
    /// An int that fits.
    Int(i64),
    /// Any other int, in two's complement, little-endian.
    BigInt(Vec<u8>),
    /// A float.
    Float(f64),
    /// A complex number.
    Complex(f64, f64),
    /// A str.
    Str(String),
    /// A str with lone surrogates, as UTF-8 that lets them pass.
    SurrogateStr(Vec<u8>),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A bytearray.
    ByteArray(Vec<u8>),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A set.
    Set(Vec<Value>),
    /// A frozenset.
    FrozenSet(Vec<Value>),
    /// A dict, in order.
    Dict(Vec<(Value, Value)>),
}

impl Value {
    /// What a dict holds under a text key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Self::Dict(pairs) = self else {
            return None;
        };
        let found = pairs.iter().find(|(each, _)| each.as_str() == Some(key));
        found.map(|(_, value)| value)
    }

    /// The text of a str without lone surrogates.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The text of any str, lone surrogates replaced.
    #[must_use]
    pub fn to_text(&self) -> Option<String> {
        match self {
            Self::Str(text) => Some(text.clone()),
            Self::SurrogateStr(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        }
    }

    /// An int that fits.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// The items of a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Bytes or a bytearray.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) | Self::ByteArray(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// The tree of a small value: one without arrays, of at most [`MAX_SMALL_VALUES`] values. Text and bytes may be as
/// long as they are, so the tree takes no more than the bytes themselves and a fixed sum.
pub fn decode_small(bytes: &[u8]) -> Result<Value, Malformed> {
    check(bytes)?;
    Builder::new(bytes, MAX_SMALL_VALUES, Arrays::Refused).value()
}

/// The tree of a value of at most `most` values, in which arrays are lists of their items and numpy's scalars are the
/// numbers and texts that they hold.
pub fn decode_tree(bytes: &[u8], most: usize) -> Result<Value, Malformed> {
    check(bytes)?;
    Builder::new(bytes, most, Arrays::Lists).value()
}

#[derive(Clone, Copy, PartialEq)]
enum Arrays {
    Refused,
    Lists,
}

struct Builder<'a> {
    reader: Reader<'a>,
    /// Values that may still be made.
    left: usize,
    arrays: Arrays,
}

impl<'a> Builder<'a> {
    fn new(bytes: &'a [u8], most: usize, arrays: Arrays) -> Self {
        Self {
            reader: Reader::new(bytes),
            left: most,
            arrays,
        }
    }

    fn value(&mut self) -> Result<Value, Malformed> {
        Ok(match self.reader.token()? {
            Token::None => Value::None,
            Token::Bool(value) => Value::Bool(value),
            Token::Int(int) => Value::Int(int),
            Token::BigInt(bytes) => Value::BigInt(bytes.to_vec()),
            Token::Float(float) => Value::Float(float),
            Token::Complex(real, imaginary) => Value::Complex(real, imaginary),
            Token::Str(Text::Plain(text)) => Value::Str(text.to_owned()),
            Token::Str(Text::Surrogates(bytes)) => Value::SurrogateStr(bytes.to_vec()),
            Token::Bytes(bytes) => Value::Bytes(bytes.to_vec()),
            Token::ByteArray(bytes) => Value::ByteArray(bytes.to_vec()),
            Token::Ints(ints) => {
                self.promise(ints.len() / 8)?;
                Value::List(words(ints).map(|word| Value::Int(word as i64)).collect())
            }
            Token::Floats(floats) => {
                self.promise(floats.len() / 8)?;
                Value::List(
                    words(floats)
                        .map(f64::from_bits)
                        .map(Value::Float)
                        .collect(),
                )
            }
            Token::Items(sequence, count) => self.items(sequence, count)?,
            Token::Dict { count, .. } => self.dict(count)?,
            Token::Array(_) | Token::Scalar(_) if self.arrays == Arrays::Refused => {
                return Err(self.reader.fail("an array is no small value"));
            }
            Token::Array(array) => self.array(&array)?,
            Token::Scalar(scalar) => {
                let item = scalar::tree(scalar.dtype, scalar.data);
                item.ok_or_else(|| self.reader.fail("a numpy scalar that is no number or text"))?
            }
        })
    }

    fn items(&mut self, sequence: read::Sequence, count: usize) -> Result<Value, Malformed> {
        self.promise(count)?;
        let items = (0..count).map(|_| self.value()).collect::<Result<_, _>>()?;
        Ok(match sequence {
            Sequence::List => Value::List(items),
            Sequence::Tuple => Value::Tuple(items),
            Sequence::Set => Value::Set(items),
            Sequence::FrozenSet => Value::FrozenSet(items),
        })
    }

    fn dict(&mut self, count: usize) -> Result<Value, Malformed> {
        self.promise(2 * count)?;
        let keys: Vec<_> = (0..count).map(|_| self.value()).collect::<Result<_, _>>()?;
        keys.into_iter()
            .map(|key| Ok((key, self.value()?)))
            .collect::<Result<_, _>>()
            .map(Value::Dict)
    }

    fn array(&mut self, array: &Array<'_>) -> Result<Value, Malformed> {
        let shape: Vec<_> = words(array.shape).map(|n| n as usize).collect();
        // Each row is a value too: of an array without items there may be many.
        let rows = shape
            .iter()
            .scan(1, |items: &mut usize, n| {
                *items = items.saturating_mul(*n);
                Some(*items)
            })
            .fold(0, usize::saturating_add);
        self.promise(rows)?;
        let data = to_json::in_c_order(array);
        let mut items = data
            .chunks_exact(array.item_bytes.max(1))
            .map(|item| scalar::tree(array.dtype, item));
        nested(&shape, &mut items)
            .ok_or_else(|| self.reader.fail("an array of neither numbers nor texts"))
    }

    /// Counts values before they are made.
    fn promise(&mut self, more: usize) -> Result<(), Malformed> {
        self.left = self
            .left
            .checked_sub(more)
            .ok_or_else(|| self.reader.fail("too many values"))?;
        Ok(())
    }
}

fn nested(shape: &[usize], items: &mut impl Iterator<Item = Option<Value>>) -> Option<Value> {
    match shape {
        [] => items.next().flatten(),
        [count, inner @ ..] => (0..*count)
            .map(|_| nested(inner, items))
            .collect::<Option<_>>()
            .map(Value::List),
    }
}
