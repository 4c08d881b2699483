//! How large an item of a numpy dtype is; refuses what holds objects, or is no dtype at all.

use super::Malformed;
use super::read::{Reader, Sequence, Text, Token, words};

/// A dtype inside a dtype, at most.
const MAX_LEVELS: usize = 32;

/// Reads a dtype's description and says how many bytes an item takes.
pub(super) fn item_bytes(reader: &mut Reader<'_>, level: usize) -> Result<u64, Malformed> {
    if level > MAX_LEVELS {
        return Err(reader.fail("a dtype nests too deeply"));
    }
    match reader.plain_token()? {
        Token::Str(Text::Plain(text)) => simple(text).map(|simple| simple.bytes),
        Token::Items(Sequence::List, 2) if level > 0 => {
            let base = item_bytes(reader, level + 1)?;
            let mut size = Some(base);
            integers(reader, |n| {
                size = size.and_then(|size| size.checked_mul(n));
            })?;
            size
        }
        Token::Dict { plain: true, count } => Some(structure(reader, count, level)?),
        _ => None,
    }
    .filter(|size| *size <= i32::MAX as u64)
    .ok_or_else(|| reader.fail("no dtype of plain data"))
}

/// A dtype without fields: `<f8`, `|S3`, `<M8[ns]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Simple {
    pub(super) big_endian: bool,
    pub(super) kind: u8,
    pub(super) bytes: u64,
}

/// Parses the text of a dtype without fields.
pub(super) fn simple(text: &str) -> Option<Simple> {
    let [order @ (b'<' | b'>' | b'|'), kind, rest @ ..] = text.as_bytes() else {
        return None;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = rest.split_at(digits);
    let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
    let bytes = match (kind, number) {
        (b'b', 1) | (b'i' | b'u', 1 | 2 | 4 | 8) | (b'm' | b'M', 8) | (b'S' | b'V', _) => number,
        (b'f', 2 | 4 | 8 | 12 | 16) | (b'c', 8 | 16 | 24 | 32) => number,
        (b'U', _) => number.checked_mul(4)?,
        _ => return None,
    };
    (unit.is_empty() || matches!(kind, b'm' | b'M') && is_unit(unit)).then_some(Simple {
        big_endian: *order == b'>',
        kind: *kind,
        bytes,
    })
}

/// Bytes of an array: `None` where numpy could not count them.
pub(super) fn array_bytes(
    shape: impl Iterator<Item = u64> + Clone,
    item_bytes: u64,
) -> Option<u64> {
    let product = shape
        .clone()
        .filter(|n| *n != 0)
        .try_fold(item_bytes.max(1), u64::checked_mul)
        .filter(|product| i64::try_from(*product).is_ok())?;
    let empty = item_bytes == 0 || shape.clone().any(|n| n == 0);
    Some(if empty { 0 } else { product })
}

fn is_unit(unit: &[u8]) -> bool {
    let [b'[', name @ .., b']'] = unit else {
        return false;
    };
    (1..32).contains(&name.len()) && name.iter().all(u8::is_ascii_alphanumeric)
}

/// Reads the parts of a dtype with fields, in the order the format gives them.
fn structure(reader: &mut Reader<'_>, count: usize, level: usize) -> Result<u64, Malformed> {
    const REQUIRED: [&str; 4] = ["names", "formats", "offsets", "itemsize"];
    let (mut titles, mut aligned) = (false, false);
    for index in 0..count {
        match reader.plain_token()? {
            Token::Str(Text::Plain(key)) if REQUIRED.get(index) == Some(&key) => {}
            Token::Str(Text::Plain("titles")) if index == REQUIRED.len() => titles = true,
            Token::Str(Text::Plain("aligned")) if index >= REQUIRED.len() && !aligned => {
                aligned = true;
            }
            _ => return Err(reader.fail("unknown part of a dtype")),
        }
    }
    if count < REQUIRED.len() {
        return Err(reader.fail("a dtype lacks a part"));
    }
    let fields = list(reader, |reader| match reader.plain_token()? {
        Token::Str(_) => Ok(()),
        _ => Err(reader.fail("a field's name is no text")),
    })?;
    let formats = list(reader, |reader| item_bytes(reader, level + 1).map(drop))?;
    let offsets = integers(reader, |_| {})?;
    let size = match reader.plain_token()? {
        Token::Int(size) => u64::try_from(size).ok(),
        _ => None,
    }
    .ok_or_else(|| reader.fail("a dtype's size is no count"))?;
    let titled = match titles {
        false => fields,
        true => list(reader, |reader| match reader.plain_token()? {
            Token::Str(_) | Token::None => Ok(()),
            _ => Err(reader.fail("a field's title is no text")),
        })?,
    };
    if aligned && !matches!(reader.plain_token()?, Token::Bool(true)) {
        return Err(reader.fail("`aligned` is not true"));
    }
    match [formats, offsets, titled] == [fields; 3] {
        true => Ok(size),
        false => Err(reader.fail("a dtype's parts differ in length")),
    }
}

fn list<'a>(
    reader: &mut Reader<'a>,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<(), Malformed>,
) -> Result<usize, Malformed> {
    let Token::Items(Sequence::List, count) = reader.plain_token()? else {
        return Err(reader.fail("a dtype's part is no list"));
    };
    for _ in 0..count {
        item(reader)?;
    }
    Ok(count)
}

/// Reads a list of counts, packed or not, and says how many there are.
fn integers(reader: &mut Reader<'_>, mut each: impl FnMut(u64)) -> Result<usize, Malformed> {
    let mut counted = |n: i64| u64::try_from(n).map(&mut each).ok();
    match reader.plain_token()? {
        Token::Ints(ints) => words(ints)
            .try_for_each(|word| counted(word as i64))
            .map(|()| ints.len() / 8),
        Token::Items(Sequence::List, count) => {
            for _ in 0..count {
                match reader.plain_token()? {
                    Token::Int(n) if counted(n).is_some() => {}
                    _ => return Err(reader.fail("no count")),
                }
            }
            Some(count)
        }
        _ => None,
    }
    .ok_or_else(|| reader.fail("no list of counts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-65
    #[test]
    fn the_text_of_a_dtype_says_its_size() {
        let known = [
            ("<f8", 8),
            (">i2", 2),
            ("|b1", 1),
            ("|S3", 3),
            ("<U5", 20),
            ("<c16", 16),
            ("<M8[25s]", 8),
            ("|V0", 0),
        ];
        for (text, bytes) in known {
            assert_eq!(
                simple(text).map(|simple| simple.bytes),
                Some(bytes),
                "{text}"
            );
        }
        for text in [
            "",
            "f8",
            "|O",
            "|O8",
            "<f3",
            "<f8[ns]",
            "<M8[]",
            "<M8[n s]",
            "<i4,|O",
            "<U99999999999999999999",
        ] {
            assert_eq!(simple(text), None, "{text}");
        }
    }

    /// EX-67
    #[test]
    fn an_array_that_numpy_could_not_count_is_impossible() {
        let bytes = |shape: &[u64], item| array_bytes(shape.iter().copied(), item);
        assert_eq!(bytes(&[], 8), Some(8));
        assert_eq!(bytes(&[2, 3], 8), Some(48));
        assert_eq!(bytes(&[2, 0], 8), Some(0));
        assert_eq!(bytes(&[1 << 60], 0), Some(0));
        assert_eq!(bytes(&[1 << 62, 0], 8), None);
        assert_eq!(bytes(&[u64::MAX, 2], 8), None);
    }
}
