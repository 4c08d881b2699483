//! The `data` codec: plain values to bytes, to JSON and back. Can make only data; runs no code of the sender.
//!
//! The worker's half is `python/fairtrial/_shim/codec.py`. What a worker sends is a stranger's word, so nothing here trusts
//! a count or a length before it is checked against the bytes that are there, and nothing builds a tree of a value of
//! unknown size: [`check`] walks it without allocating, [`write_json`] streams it out.
//!
//! # Format
//!
//! One value, little-endian, nothing after it. A value is a tag and what follows:
//!
//! | tag | value | then |
//! |---|---|---|
//! | `N` `T` `F` | `None`, `True`, `False` | |
//! | `i` | int | i64 |
//! | `I` | any int | u64 length, two's complement |
//! | `f` | float | f64 |
//! | `c` | complex | two f64 |
//! | `u` | str of up to 255 bytes | u8 length, UTF-8 |
//! | `s` | str | u64 length, UTF-8 |
//! | `b` `B` | bytes, bytearray | u64 length, the bytes |
//! | `l` `t` `S` `Z` | list, tuple, set, frozenset | u64 count, the items |
//! | `q` `D` | list of ints, of floats, packed | u64 count, i64 or f64 each |
//! | `o` | dict whose keys are str, without lone surrogates or a leading `$` | u64 count, the keys, the values |
//! | `d` | any dict | u64 count, the keys, the values |
//! | `A` | numpy array | `C` or `F`, dtype, u8 dimensions, u64 each, u64 length, zeros to the next multiple of 64 from the start of the payload, the bytes |
//! | `n` | numpy scalar | dtype, u64 length, the bytes |
//!
//! UTF-8 here lets lone surrogates pass, as Python's `surrogatepass` does. A dtype is a value itself: its text
//! (`<f8`), a dict of `names`, `formats`, `offsets`, `itemsize` and perhaps `titles` and `aligned` in that order (what
//! `numpy.dtype` takes), or within `formats` a list of a dtype and a shape. It never holds objects.
//!
//! Keys and members of sets are hashable: no list, dict, set, bytearray or array, nor a tuple of such. Containers nest
//! [`MAX_DEPTH`] levels at most.
//!
//! # JSON form
//!
//! Plain JSON where that is exact, else an object of one key that begins with `$` (EX-69). It keeps values; where the
//! contract has no name for a type it gives way to one that Python calls equal: a bytearray is `$bytes`, a numpy scalar
//! is the number, text or bytes it holds (else an `$array` of shape `[]`), and the bytes of an `$array` are in C order.
//! `$int` is decimal up to [`MAX_DECIMAL_BYTES`] of the int, and hexadecimal (`0x…`) above, where decimal digits would
//! cost a stranger little to ask for and us much to find.

mod check;
mod dtype;
mod encode;
mod from_json;
mod int;
mod json_text;
mod named;
mod read;
mod scalar;
mod to_json;
mod tree;

pub use check::check;
pub use encode::encode;
pub use from_json::{FromJsonError, arguments_from_json, from_json};
pub use int::MAX_DECIMAL_BYTES;
pub use json_text::parse_json;
pub use to_json::{WriteJsonError, pickle_to_json, to_json, write_json, write_pickle_json};
pub use tree::{MAX_SMALL_VALUES, Value, decode_small, decode_tree};

/// Containers inside containers, at most.
pub const MAX_DEPTH: usize = 1000;
/// Array data begins at a multiple of this, from the start of the payload.
const ALIGNMENT: usize = 64;
/// Lists of at least so many numbers of one type are packed.
const PACK_FROM: usize = 9;

/// Bytes that are no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {what}")]
pub struct Malformed {
    /// Where, from the start of the payload.
    pub offset: usize,
    /// What is wrong there.
    pub what: &'static str,
}
