//! Whether bytes are a value; allocates nothing.

use super::read::{Reader, Sequence, Text, Token};
use super::{MAX_DEPTH, Malformed};

/// Says whether `bytes` are exactly one value. Allocates nothing.
///
/// ```
/// use fairtrial_exec::value;
///
/// assert!(value::check(b"N").is_ok());
/// assert_eq!(value::check(b"NN").unwrap_err().to_string(), "at byte 1: bytes follow the value");
/// ```
pub fn check(bytes: &[u8]) -> Result<(), Malformed> {
    let mut reader = Reader::new(bytes);
    skip(&mut reader, 0, Place::Anywhere)?;
    reader.end()
}

/// Where a value stands: keys and members of sets must be hashable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Anywhere,
    Hashed,
}

/// Walks over a value inside `depth` containers.
pub(super) fn skip(reader: &mut Reader<'_>, depth: usize, place: Place) -> Result<(), Malformed> {
    let token = reader.token()?;
    if place == Place::Hashed && !hashable(&token) {
        return Err(reader.fail("a key or a set's member cannot be hashed"));
    }
    if is_container(&token) && depth >= MAX_DEPTH {
        return Err(reader.fail("over 1,000 levels"));
    }
    match token {
        Token::Items(sequence, count) => {
            let place = match sequence {
                Sequence::Set | Sequence::FrozenSet => Place::Hashed,
                Sequence::List | Sequence::Tuple => place,
            };
            (0..count).try_for_each(|_| skip(reader, depth + 1, place))
        }
        Token::Dict { plain, count } => {
            skip_keys(reader, plain, count, depth)?;
            (0..count).try_for_each(|_| skip(reader, depth + 1, Place::Anywhere))
        }
        _ => Ok(()),
    }
}

/// Walks over the keys of a dict inside `depth` containers.
pub(super) fn skip_keys(
    reader: &mut Reader<'_>,
    plain: bool,
    count: usize,
    depth: usize,
) -> Result<(), Malformed> {
    if !plain {
        return (0..count).try_for_each(|_| skip(reader, depth + 1, Place::Hashed));
    }
    for _ in 0..count {
        match reader.token()? {
            Token::Str(Text::Plain(key)) if !key.starts_with('$') => {}
            _ => return Err(reader.fail("a plain dict has a key that is not plain")),
        }
    }
    Ok(())
}

fn is_container(token: &Token<'_>) -> bool {
    matches!(
        token,
        Token::Items(..) | Token::Dict { .. } | Token::Ints(_) | Token::Floats(_)
    )
}

fn hashable(token: &Token<'_>) -> bool {
    !matches!(
        token,
        Token::Items(Sequence::List | Sequence::Set, _)
            | Token::Dict { .. }
            | Token::Ints(_)
            | Token::Floats(_)
            | Token::ByteArray(_)
            | Token::Array(_)
    )
}
