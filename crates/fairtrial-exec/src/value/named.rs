//! What stands under the `$` names of the JSON form, leaves only, to bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json};

use super::check::Place;
use super::from_json::{FromJsonError, Put, level, problem, put};
use super::read::{MAX_DIMENSIONS, Reader, is_text};
use super::{encode, int};

pub(super) fn put_float(out: &mut Vec<u8>, json: &Json) -> Put {
    float(json)
        .map(|float| encode::put_float(out, float))
        .ok_or_else(|| problem("expected `NaN`, `Infinity`, `-Infinity` or 16 hex digits"))
}

/// What `$float` holds.
pub(super) fn float(json: &Json) -> Option<f64> {
    match json.as_str()? {
        "NaN" => Some(f64::from_bits(0x7ff8_0000_0000_0000)),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        bits if bits.len() == 16 && bits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            u64::from_str_radix(bits, 16).ok().map(f64::from_bits)
        }
        _ => None,
    }
}

pub(super) fn put_complex(out: &mut Vec<u8>, json: &Json) -> Put {
    let part = |json: &Json| json.as_f64().or_else(|| json.get("$float").and_then(float));
    match json.as_array().map(Vec::as_slice) {
        Some([real, imaginary]) => part(real).zip(part(imaginary)),
        _ => None,
    }
    .map(|(real, imaginary)| encode::put_complex(out, real, imaginary))
    .ok_or_else(|| problem("expected a list of two numbers"))
}

pub(super) fn put_int(out: &mut Vec<u8>, json: &Json) -> Put {
    json.as_str()
        .and_then(int::parse)
        .map(|bytes| encode::put_big_int(out, &bytes))
        .ok_or_else(|| problem("expected decimal digits (up to 125,000), or hex ones after `0x`"))
}

pub(super) fn put_text(out: &mut Vec<u8>, json: &Json) -> Put {
    let bytes = base64(json)?;
    match is_text(&bytes) {
        true => encode::put_text(out, &bytes),
        false => return Err(problem("expected base64 of UTF-8")),
    }
    Ok(())
}

pub(super) fn put_array(out: &mut Vec<u8>, json: &Json) -> Put {
    let part = |name: &str| {
        json.get(name).ok_or_else(|| {
            problem(format!(
                "expected `dtype`, `shape` and `base64`; no `{name}`"
            ))
        })
    };
    if let Some(key) = json
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .find(|key| !["dtype", "shape", "base64"].contains(&key.as_str()))
    {
        return Err(problem(format!(
            "unknown key `{key}`; expected `dtype`, `shape` and `base64`"
        )));
    }
    let (dtype, shape) = (part("dtype")?, part("shape")?);
    let data = base64(part("base64")?).map_err(|error| error.below(".base64"))?;
    let shape: Vec<u64> = shape
        .as_array()
        .filter(|shape| shape.len() <= MAX_DIMENSIONS.into())
        .and_then(|shape| shape.iter().map(Json::as_u64).collect())
        .ok_or_else(|| problem("expected a list of sizes").below(".shape"))?;
    let start = out.len();
    out.extend(b"AC");
    put_dtype(out, dtype, 0).map_err(|error| error.below(".dtype"))?;
    encode::put_array(out, &shape, &data);
    match Reader::starting_at(out, start).token() {
        Ok(_) => Ok(()),
        Err(malformed) => Err(problem(malformed.what)),
    }
}

/// Puts a dtype, its parts in the order that the format asks for.
fn put_dtype(out: &mut Vec<u8>, json: &Json, depth: usize) -> Put {
    const PARTS: [&str; 6] = [
        "names", "formats", "offsets", "itemsize", "titles", "aligned",
    ];
    level(depth)?;
    match json {
        Json::Object(object) => {
            let parts: Vec<_> = PARTS
                .iter()
                .filter(|part| object.contains_key(**part))
                .collect();
            if parts.len() != object.len() {
                return Err(problem(format!(
                    "unknown key; expected {}",
                    PARTS.join(", ")
                )));
            }
            encode::put_head(out, b'o', parts.len());
            parts
                .iter()
                .for_each(|part| encode::put_text(out, part.as_bytes()));
            parts
                .iter()
                .try_for_each(|part| put_dtype(out, &object[**part], depth + 1))
        }
        Json::Array(items) => {
            encode::put_head(out, b'l', items.len());
            items
                .iter()
                .try_for_each(|item| put_dtype(out, item, depth + 1))
        }
        leaf => put(out, leaf, depth, Place::Anywhere),
    }
}

pub(super) fn base64(json: &Json) -> Result<Vec<u8>, FromJsonError> {
    let text = json
        .as_str()
        .ok_or_else(|| problem("expected base64 text"))?;
    STANDARD
        .decode(text)
        .map_err(|error| problem(format!("expected base64: {error}")))
}
