//! Plain scalars typed as YAML 1.1, the way PyYAML's safe loader does; and as YAML 1.2, for comparison.

use num_bigint::BigInt;

use crate::moment::{Moment, Read};
use crate::value::Value;

/// The value of a plain scalar in YAML 1.1.
pub fn plain(text: &str) -> Result<Value, String> {
    if let Some(value) = word(text) {
        return Ok(value);
    }
    if is_float(text) {
        return Ok(Value::Float(float(text)));
    }
    if is_int(text) {
        return int(text)
            .map(Value::Int)
            .ok_or_else(|| format!("`{text}` has no digits"));
    }
    match Moment::read(text) {
        Read::Moment(moment) => Ok(Value::Moment(moment)),
        Read::Impossible => Err(format!(
            "`{text}` looks like a date, but there is none such"
        )),
        Read::Other => Ok(Value::text(text)),
    }
}

/// The value of a plain scalar in the core schema of YAML 1.2.
pub(super) fn core(text: &str) -> Value {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let digits = |text: &str, radix| {
        let valid = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
        valid
            .then(|| BigInt::parse_bytes(text.as_bytes(), radix))
            .flatten()
    };
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        _ => {}
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Value::Float(sign * f64::INFINITY);
    }
    let prefixed = text.strip_prefix("0o").and_then(|rest| digits(rest, 8));
    let prefixed = prefixed.or_else(|| text.strip_prefix("0x").and_then(|rest| digits(rest, 16)));
    if let Some(int) = prefixed {
        return Value::Int(int);
    }
    if let Some(int) = digits(unsigned, 10) {
        return Value::Int(if text.starts_with('-') { -int } else { int });
    }
    let numeric = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.bytes().any(|b| b.is_ascii_digit())
        && unsigned
            .bytes()
            .all(|b| b.is_ascii_digit() || b".eE+-".contains(&b));
    match text.parse() {
        Ok(float) if numeric => Value::Float(float),
        _ => Value::text(text),
    }
}

/// The value of a scalar with a tag of YAML's own.
pub(super) fn tagged(text: &str, tag: &str) -> Option<Value> {
    match tag {
        "str" | "!" => Some(Value::text(text)),
        "null" => Some(Value::Null),
        "bool" => word(&text.to_lowercase()).filter(|value| matches!(value, Value::Bool(_))),
        "int" if is_int(text) => int(text).map(Value::Int),
        "float" if is_float(text) => Some(Value::Float(float(text))),
        "float" if is_int(text) => text.replace('_', "").parse().ok().map(Value::Float),
        "timestamp" => match Moment::read(text) {
            Read::Moment(moment) => Some(Value::Moment(moment)),
            _ => None,
        },
        _ => None,
    }
}

fn word(text: &str) -> Option<Value> {
    match text {
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Some(Value::Bool(true))
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Some(Value::Bool(false))
        }
        "" | "~" | "null" | "Null" | "NULL" => Some(Value::Null),
        _ => None,
    }
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'_'
}

/// Sexagesimal places after the first: `:30`, `:5`.
fn are_sixtieths(text: &str) -> bool {
    let place = |part: &str| match part.as_bytes() {
        [one] => one.is_ascii_digit(),
        [ten, one] => (b'0'..=b'5').contains(ten) && one.is_ascii_digit(),
        _ => false,
    };
    text.split(':').all(place)
}

fn is_int(text: &str) -> bool {
    let text = unsigned(text);
    let all = |rest: &str, test: fn(u8) -> bool| !rest.is_empty() && rest.bytes().all(test);
    if let Some(rest) = text.strip_prefix("0b") {
        return all(rest, |b| matches!(b, b'0' | b'1' | b'_'));
    }
    if let Some(rest) = text.strip_prefix("0x") {
        return all(rest, |b| b.is_ascii_hexdigit() || b == b'_');
    }
    if let Some(rest) = text.strip_prefix('0') {
        return rest.is_empty() || all(rest, |b| matches!(b, b'0'..=b'7' | b'_'));
    }
    let (first, sixtieths) = match text.split_once(':') {
        Some((first, rest)) => (first, are_sixtieths(rest)),
        None => (text, true),
    };
    first.starts_with(|c: char| c.is_ascii_digit()) && first.bytes().all(is_digit) && sixtieths
}

fn is_float(text: &str) -> bool {
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let bare = unsigned(text);
    if matches!(bare, ".inf" | ".Inf" | ".INF") {
        return true;
    }
    let Some((whole, rest)) = bare.split_once('.') else {
        return false;
    };
    let (fraction, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let exponent_is_good = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or("");
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    });
    if !fraction.bytes().all(is_digit) || !exponent_is_good {
        return false;
    }
    if whole.is_empty() {
        // No sign here, and a digit first: as PyYAML has it.
        return bare.len() == text.len() && fraction.starts_with(|c: char| c.is_ascii_digit());
    }
    let (first, sixtieths) = match whole.split_once(':') {
        Some((first, rest)) => (first, exponent.is_none() && are_sixtieths(rest)),
        None => (whole, true),
    };
    first.starts_with(|c: char| c.is_ascii_digit()) && first.bytes().all(is_digit) && sixtieths
}

fn int(text: &str) -> Option<BigInt> {
    let clean = text.replace('_', "");
    let digits = unsigned(&clean);
    let magnitude = if let Some(rest) = digits.strip_prefix("0b") {
        BigInt::parse_bytes(rest.as_bytes(), 2)
    } else if let Some(rest) = digits.strip_prefix("0x") {
        BigInt::parse_bytes(rest.as_bytes(), 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        BigInt::parse_bytes(digits.as_bytes(), 8)
    } else {
        digits.split(':').try_fold(BigInt::ZERO, |sum, part| {
            Some(sum * 60 + BigInt::parse_bytes(part.as_bytes(), 10)?)
        })
    }?;
    Some(if clean.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

fn float(text: &str) -> f64 {
    let clean = text.replace('_', "").to_lowercase();
    let sign = if clean.starts_with('-') { -1.0 } else { 1.0 };
    let magnitude = match unsigned(&clean) {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        digits => {
            // From the last place to the first, as PyYAML adds them up.
            let mut base = 1.0;
            let mut sum = 0.0;
            for part in digits.rsplit(':') {
                sum += base
                    * part
                        .parse::<f64>()
                        .expect("`is_float` let only digits pass");
                base *= 60.0;
            }
            sum
        }
    };
    sign * magnitude
}
