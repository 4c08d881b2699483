//! Reads one token at a time from bytes that nobody vouches for. Borrows, never allocates.

use super::{ALIGNMENT, Malformed, dtype};

/// What numpy allows.
pub(super) const MAX_DIMENSIONS: u8 = 64;

/// A place in a payload.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// A leaf, or the head of a container whose parts follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    None,
    Bool(bool),
    Int(i64),
    /// Two's complement.
    BigInt(&'a [u8]),
    Float(f64),
    Complex(f64, f64),
    Str(Text<'a>),
    Bytes(&'a [u8]),
    ByteArray(&'a [u8]),
    /// Eight bytes each.
    Ints(&'a [u8]),
    /// Eight bytes each.
    Floats(&'a [u8]),
    Items(Sequence, usize),
    /// `plain`: the keys could be a JSON object's.
    Dict {
        plain: bool,
        count: usize,
    },
    Array(Array<'a>),
    Scalar(Scalar<'a>),
}

/// The containers of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    List,
    Tuple,
    Set,
    FrozenSet,
}

/// A string, which Rust can hold only if it has no lone surrogates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Text<'a> {
    Plain(&'a str),
    Surrogates(&'a [u8]),
}

/// A numpy array whose data is as long as its shape says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Array<'a> {
    pub(super) fortran: bool,
    /// An encoded value.
    pub(super) dtype: &'a [u8],
    pub(super) item_bytes: usize,
    /// Eight bytes each.
    pub(super) shape: &'a [u8],
    pub(super) data: &'a [u8],
}

/// A numpy scalar whose data is as long as its type says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scalar<'a> {
    /// An encoded value.
    pub(super) dtype: &'a [u8],
    pub(super) data: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self::starting_at(bytes, 0)
    }

    pub(super) fn starting_at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The next token.
    pub(super) fn token(&mut self) -> Result<Token<'a>, Malformed> {
        match self.bytes.get(self.at) {
            Some(b'A') => {
                self.at += 1;
                self.array().map(Token::Array)
            }
            Some(b'n') => {
                self.at += 1;
                self.scalar().map(Token::Scalar)
            }
            _ => self.plain_token(),
        }
    }

    /// The next token where no array may be: in a dtype, which otherwise could hold a dtype without end.
    pub(super) fn plain_token(&mut self) -> Result<Token<'a>, Malformed> {
        let start = self.at;
        Ok(match self.byte()? {
            b'N' => Token::None,
            b'T' => Token::Bool(true),
            b'F' => Token::Bool(false),
            b'i' => Token::Int(i64::from_le_bytes(self.eight()?)),
            b'I' => Token::BigInt(self.sized(1)?),
            b'f' => Token::Float(f64::from_le_bytes(self.eight()?)),
            b'c' => Token::Complex(
                f64::from_le_bytes(self.eight()?),
                f64::from_le_bytes(self.eight()?),
            ),
            b'u' => {
                let length = self.byte()?;
                Token::Str(self.text(length.into())?)
            }
            b's' => {
                let length = self.count(1)?;
                Token::Str(self.text(length)?)
            }
            b'b' => Token::Bytes(self.sized(1)?),
            b'B' => Token::ByteArray(self.sized(1)?),
            b'q' => Token::Ints(self.sized(8)?),
            b'D' => Token::Floats(self.sized(8)?),
            b'l' => Token::Items(Sequence::List, self.count(1)?),
            b't' => Token::Items(Sequence::Tuple, self.count(1)?),
            b'S' => Token::Items(Sequence::Set, self.count(1)?),
            b'Z' => Token::Items(Sequence::FrozenSet, self.count(1)?),
            tag @ (b'o' | b'd') => Token::Dict {
                plain: tag == b'o',
                count: self.count(2)?,
            },
            b'A' | b'n' => return Err(malformed(start, "an array inside a dtype")),
            _ => return Err(malformed(start, "unknown tag")),
        })
    }

    /// Objects unless all was read.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        match self.at == self.bytes.len() {
            true => Ok(()),
            false => Err(self.fail("bytes follow the value")),
        }
    }

    pub(super) fn fail(&self, what: &'static str) -> Malformed {
        malformed(self.at, what)
    }

    fn array(&mut self) -> Result<Array<'a>, Malformed> {
        let fortran = match self.byte()? {
            b'C' => false,
            b'F' => true,
            _ => return Err(self.fail("an array's order is neither `C` nor `F`")),
        };
        let (dtype, item_bytes) = self.dtype()?;
        let dimensions = self.byte()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(self.fail("an array has over 64 dimensions"));
        }
        let shape = self.take(usize::from(dimensions) * 8)?;
        let size = dtype::array_bytes(words(shape), item_bytes)
            .ok_or_else(|| self.fail("an array of impossible shape"))?;
        let length = u64::from_le_bytes(self.eight()?);
        if length != size {
            return Err(self.fail("an array's length does not fit its shape"));
        }
        self.take(self.at.wrapping_neg() % ALIGNMENT)?;
        let data = self.take(self.fitting(length, 1)?)?;
        let item_bytes =
            usize::try_from(item_bytes).map_err(|_| self.fail("an item is too large"))?;
        Ok(Array {
            fortran,
            dtype,
            item_bytes,
            shape,
            data,
        })
    }

    fn scalar(&mut self) -> Result<Scalar<'a>, Malformed> {
        let (dtype, item_bytes) = self.dtype()?;
        let data = self.sized(1)?;
        match data.len() as u64 == item_bytes {
            true => Ok(Scalar { dtype, data }),
            false => Err(self.fail("a scalar's length does not fit its type")),
        }
    }

    fn dtype(&mut self) -> Result<(&'a [u8], u64), Malformed> {
        let start = self.at;
        let item_bytes = dtype::item_bytes(self, 0)?;
        Ok((&self.bytes[start..self.at], item_bytes))
    }

    fn text(&mut self, length: usize) -> Result<Text<'a>, Malformed> {
        let start = self.at;
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Text::Plain(text)),
            Err(_) if is_text(bytes) => Ok(Text::Surrogates(bytes)),
            Err(_) => Err(malformed(start, "a string is not UTF-8")),
        }
    }

    /// A count, then so many items of `item_bytes` each.
    fn sized(&mut self, item_bytes: usize) -> Result<&'a [u8], Malformed> {
        let count = self.count(item_bytes)?;
        self.take(count * item_bytes)
    }

    /// A count of things that take `item_bytes` at least; so many fit into what is left.
    fn count(&mut self, item_bytes: usize) -> Result<usize, Malformed> {
        let count = u64::from_le_bytes(self.eight()?);
        self.fitting(count, item_bytes)
    }

    fn fitting(&self, count: u64, item_bytes: usize) -> Result<usize, Malformed> {
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= (self.bytes.len() - self.at) / item_bytes)
            .ok_or_else(|| self.fail("more is claimed than there is"))
    }

    fn eight(&mut self) -> Result<[u8; 8], Malformed> {
        let (head, _) = self.bytes[self.at..]
            .split_first_chunk()
            .ok_or_else(|| self.fail("it ends early"))?;
        self.at += 8;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, _) = self.bytes[self.at..]
            .split_at_checked(length)
            .ok_or_else(|| self.fail("it ends early"))?;
        self.at += length;
        Ok(taken)
    }
}

/// Packed words, as a shape or a list of ints holds them.
pub(super) fn words(bytes: &[u8]) -> impl DoubleEndedIterator<Item = u64> + Clone {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

/// Whether bytes are UTF-8 if lone surrogates may pass.
pub(super) fn is_text(mut bytes: &[u8]) -> bool {
    while let Err(error) = std::str::from_utf8(bytes) {
        bytes = match &bytes[error.valid_up_to()..] {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, rest @ ..] => rest,
            _ => return false,
        };
    }
    true
}

fn malformed(offset: usize, what: &'static str) -> Malformed {
    Malformed { offset, what }
}
