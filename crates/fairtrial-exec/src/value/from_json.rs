//! The JSON form (EX-69) back to bytes: arguments of calls, values of outcomes.

use serde_json::{Map, Value as Json};

use super::check::Place;
use super::encode::{
    Number, is_plain_key, put_big_int, put_float, put_head, put_int, put_packed, put_sized,
    put_text,
};
use super::{MAX_DEPTH, named};

/// JSON that is no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`${path}`: {problem}")]
pub struct FromJsonError {
    /// Where, below the root: `.args[0].x`.
    pub path: String,
    /// What is wrong there, and what would be right.
    pub problem: String,
}

/// The bytes of a value given in JSON form.
pub fn from_json(json: &Json) -> Result<Vec<u8>, FromJsonError> {
    let mut out = Vec::new();
    put(&mut out, json, 0, Place::Anywhere)?;
    Ok(out)
}

/// The bytes of `(args, kwargs)`, a tuple of a tuple and a dict, from a JSON array and a JSON object.
pub fn arguments_from_json(args: &Json, kwargs: &Json) -> Result<Vec<u8>, FromJsonError> {
    let Json::Array(args) = args else {
        return Err(problem("expected a list of arguments").below(".args"));
    };
    let Json::Object(kwargs) = kwargs else {
        return Err(problem("expected an object of named arguments").below(".kwargs"));
    };
    if let Some(key) = kwargs.keys().find(|key| !is_plain_key(key)) {
        return Err(problem(format!("`{key}` names no argument")).below(".kwargs"));
    }
    let mut out = Vec::new();
    put_head(&mut out, b't', 2);
    put_items(&mut out, b't', args, 1, Place::Anywhere).map_err(|error| error.below(".args"))?;
    put_object(&mut out, kwargs, 1).map_err(|error| error.below(".kwargs"))?;
    Ok(out)
}

pub(super) type Put = Result<(), FromJsonError>;

pub(super) fn put(out: &mut Vec<u8>, json: &Json, depth: usize, place: Place) -> Put {
    match json {
        Json::Null => out.push(b'N'),
        Json::Bool(true) => out.push(b'T'),
        Json::Bool(false) => out.push(b'F'),
        Json::String(text) => put_text(out, text.as_bytes()),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(int), _, _) => put_int(out, int),
            (_, Some(int), _) => put_big_int(out, &i128::from(int).to_le_bytes()[..9]),
            (_, _, float) => put_float(out, float.unwrap_or(f64::NAN)),
        },
        Json::Array(items) => {
            unhashable(place)?;
            if !put_packed(out, items, packable) {
                return put_items(out, b'l', items, depth, Place::Anywhere);
            }
            level(depth)?;
        }
        Json::Object(object) => return put_named(out, object, depth, place),
    }
    Ok(())
}

/// Puts an object: a dict, or a value under a name of ours.
fn put_named(out: &mut Vec<u8>, object: &Map<String, Json>, depth: usize, place: Place) -> Put {
    let Some(name) = object.keys().find(|key| !is_plain_key(key)) else {
        unhashable(place)?;
        return put_object(out, object, depth);
    };
    let inner = &object[name];
    if object.len() > 1 {
        let hint = "a key that begins with `$` stands alone; write such a dict as `$map`";
        return Err(problem(format!("unexpected key `{name}`: {hint}")));
    }
    match name.as_str() {
        "$float" => named::put_float(out, inner),
        "$int" => named::put_int(out, inner),
        "$str" => named::put_text(out, inner),
        "$bytes" => named::base64(inner).map(|bytes| put_sized(out, b'b', &bytes)),
        "$complex" => named::put_complex(out, inner),
        "$tuple" => list(inner).and_then(|items| put_items(out, b't', items, depth, place)),
        "$frozenset" => {
            list(inner).and_then(|items| put_items(out, b'Z', items, depth, Place::Hashed))
        }
        "$set" => unhashable(place)
            .and_then(|()| list(inner))
            .and_then(|items| put_items(out, b'S', items, depth, Place::Hashed)),
        "$map" => unhashable(place).and_then(|()| put_map(out, inner, depth)),
        "$array" => unhashable(place).and_then(|()| named::put_array(out, inner)),
        "$pickle" => Err(problem("a pickle is no data; it can only be carried")),
        _ => {
            let hint = "a dict with such a key is written as `$map`: a list of pairs";
            return Err(problem(format!("unknown key `{name}`: {hint}")));
        }
    }
    .map_err(|error| error.below(&format!(".{name}")))
}

fn put_items(out: &mut Vec<u8>, tag: u8, items: &[Json], depth: usize, place: Place) -> Put {
    level(depth)?;
    put_head(out, tag, items.len());
    for (index, item) in items.iter().enumerate() {
        put(out, item, depth + 1, place).map_err(|error| error.below(&format!("[{index}]")))?;
    }
    Ok(())
}

fn put_object(out: &mut Vec<u8>, object: &Map<String, Json>, depth: usize) -> Put {
    level(depth)?;
    put_head(out, b'o', object.len());
    object.keys().for_each(|key| put_text(out, key.as_bytes()));
    for (key, value) in object {
        put(out, value, depth + 1, Place::Anywhere)
            .map_err(|error| error.below(&format!(".{key}")))?;
    }
    Ok(())
}

fn put_map(out: &mut Vec<u8>, json: &Json, depth: usize) -> Put {
    level(depth)?;
    let mut pairs = Vec::new();
    for (index, pair) in list(json)?.iter().enumerate() {
        match pair.as_array().map(Vec::as_slice) {
            Some([key, value]) => pairs.push((key, value)),
            _ => return Err(problem("expected a pair").below(&format!("[{index}]"))),
        }
    }
    let plain = |key: &Json| key.as_str().is_some_and(is_plain_key);
    let tag = if pairs.iter().all(|(key, _)| plain(key)) {
        b'o'
    } else {
        b'd'
    };
    put_head(out, tag, pairs.len());
    for (index, (key, _)) in pairs.iter().enumerate() {
        put(out, key, depth + 1, Place::Hashed)
            .map_err(|error| error.below(&format!("[{index}][0]")))?;
    }
    for (index, (_, value)) in pairs.iter().enumerate() {
        put(out, value, depth + 1, Place::Anywhere)
            .map_err(|error| error.below(&format!("[{index}][1]")))?;
    }
    Ok(())
}

fn list(json: &Json) -> Result<&[Json], FromJsonError> {
    json.as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| problem("expected a list"))
}

pub(super) fn level(depth: usize) -> Put {
    match depth < MAX_DEPTH {
        true => Ok(()),
        false => Err(problem("over 1,000 levels")),
    }
}

fn unhashable(place: Place) -> Put {
    match place {
        Place::Anywhere => Ok(()),
        Place::Hashed => Err(problem(
            "cannot be a key or a set's member; use `$tuple` or `$frozenset`",
        )),
    }
}

fn packable(json: &Json) -> Option<Number> {
    match json {
        Json::Number(number) if number.is_f64() => number.as_f64().map(Number::Float),
        Json::Number(number) => number.as_i64().map(Number::Int),
        Json::Object(object) if object.len() == 1 => object
            .get("$float")
            .and_then(named::float)
            .map(Number::Float),
        _ => None,
    }
}

pub(super) fn problem(problem: impl Into<String>) -> FromJsonError {
    FromJsonError {
        path: String::new(),
        problem: problem.into(),
    }
}

impl FromJsonError {
    /// The same, seen from one step further up.
    pub(super) fn below(mut self, step: &str) -> Self {
        self.path.insert_str(0, step);
        self
    }
}
