//! Values that cases record, in the form that the plug-in writes them: plain JSON means itself, all else is an object
//! with one key. Kept in this form in journals too.

mod equal;
mod reading;
mod show;

use serde::{Deserialize, Serialize};

pub(super) use equal::difference;

use super::paths::Paths;

/// A recorded value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "each is the Python type of its name")]
pub enum Recorded {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Recorded>),
    Other(Box<Tagged>),
}

/// What JSON has no form for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tagged {
    /// An integer of more than 64 bits, as Python's `hex` has it.
    Int(String),
    /// `nan`, `inf` or `-inf`.
    Float(NotFinite),
    /// Real and imaginary part.
    Complex(Recorded, Recorded),
    /// Base64.
    Bytes(String),
    /// Base64.
    Bytearray(String),
    /// Base64.
    Memoryview(String),
    /// A string with lone surrogates: base64 of its bytes.
    Surrogates(String),
    /// A tuple.
    Tuple(Vec<Recorded>),
    /// In no order.
    Set(Vec<Recorded>),
    /// In no order.
    Frozenset(Vec<Recorded>),
    /// Keys and values; their order does not count, as in Python.
    Dict(Vec<(Recorded, Recorded)>),
    /// Type and message.
    Exception(String, Recorded),
    /// An array of floats, each as 8 little-endian bytes, in base64; complex ones as two.
    Floats(Numbers),
    /// An array of other numbers, as bytes in base64.
    Array(Numbers),
    /// An array of anything else.
    Items(Items),
    /// An object of a subclass of a builtin type: its type and the plain value.
    Subclass(String, Recorded),
    /// An object by its type and attributes.
    Object(String, Vec<(String, Recorded)>),
    /// An object by its type and `repr`, addresses removed.
    Repr(String, Recorded),
    /// A value too large to be kept, by its digest.
    Large(Large),
    /// A value that contains this one, so many levels out.
    Cycle(u32),
}

/// A float that JSON has no digits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each says what it is")]
pub enum NotFinite {
    #[serde(rename = "nan")]
    Nan,
    #[serde(rename = "inf")]
    Infinity,
    #[serde(rename = "-inf")]
    MinusInfinity,
}

/// An array of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    /// The type of its elements, as numpy names it.
    pub dtype: String,
    /// Its length in each dimension.
    pub shape: Vec<u64>,
    /// Base64.
    pub data: String,
}

/// An array of any values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Items {
    /// The type of its elements, as numpy names it.
    pub dtype: String,
    /// Its length in each dimension.
    pub shape: Vec<u64>,
    /// Its elements, row by row.
    pub items: Vec<Recorded>,
}

/// What is known of a value that was too large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Large {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// How long its form would have been.
    pub bytes: u64,
    /// SHA-256 of its form.
    pub sha256: String,
}

impl Recorded {
    /// The value with paths replaced in every text.
    pub(super) fn without(self, paths: &Paths) -> Self {
        if paths.is_empty() {
            return self;
        }
        let each = |items: Vec<Self>| items.into_iter().map(|item| item.without(paths)).collect();
        match self {
            Self::Text(text) => Self::Text(paths.text(&text).into_owned()),
            Self::List(items) => Self::List(each(items)),
            Self::Other(tagged) => Self::Other(Box::new(tagged.without(paths))),
            plain => plain,
        }
    }

    fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(float) => Some(*float),
            Self::Other(tagged) => match **tagged {
                Tagged::Float(NotFinite::Nan) => Some(f64::NAN),
                Tagged::Float(NotFinite::Infinity) => Some(f64::INFINITY),
                Tagged::Float(NotFinite::MinusInfinity) => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Tagged {
    fn without(self, paths: &Paths) -> Self {
        let one = |item: Recorded| item.without(paths);
        let each = |items: Vec<Recorded>| items.into_iter().map(one).collect();
        match self {
            Self::Tuple(items) => Self::Tuple(each(items)),
            Self::Set(items) => Self::Set(each(items)),
            Self::Frozenset(items) => Self::Frozenset(each(items)),
            Self::Dict(entries) => {
                let entries = entries.into_iter();
                Self::Dict(entries.map(|(key, item)| (one(key), one(item))).collect())
            }
            Self::Exception(kind, message) => Self::Exception(kind, one(message)),
            Self::Items(items) => Self::Items(Items {
                items: each(items.items),
                ..items
            }),
            Self::Subclass(kind, value) => Self::Subclass(kind, one(value)),
            Self::Object(kind, fields) => {
                let fields = fields.into_iter();
                Self::Object(kind, fields.map(|(name, item)| (name, one(item))).collect())
            }
            Self::Repr(kind, shown) => Self::Repr(kind, one(shown)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Recorded {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// CA-51
    #[test]
    fn every_form_of_the_plug_in_is_read_and_written_back() {
        let forms = [
            "null",
            "true",
            "3",
            "-9223372036854775808",
            "0.30000000000000004",
            "5e-324",
            "-0.0",
            r#""é\n""#,
            r#"[1,[2.0]]"#,
            r#"{"int":"-0x400000000000000000"}"#,
            r#"{"float":"nan"}"#,
            r#"{"float":"inf"}"#,
            r#"{"float":"-inf"}"#,
            r#"{"complex":[1.0,{"float":"nan"}]}"#,
            r#"{"bytes":"AP8="}"#,
            r#"{"bytearray":""}"#,
            r#"{"memoryview":""}"#,
            r#"{"surrogates":"7bKA"}"#,
            r#"{"tuple":[1,"a"]}"#,
            r#"{"set":[1]}"#,
            r#"{"frozenset":[]}"#,
            r#"{"dict":[[1,"a"],["b",{"tuple":[2]}]]}"#,
            r#"{"exception":["KeyError","'k'"]}"#,
            r#"{"floats":{"dtype":"float64","shape":[0,2],"data":""}}"#,
            r#"{"array":{"dtype":"int16","shape":[2],"data":"AQACAA=="}}"#,
            r#"{"items":{"dtype":"object","shape":[2],"items":[null,1]}}"#,
            r#"{"subclass":["m.Pair",{"tuple":[1,2.5]}]}"#,
            r#"{"object":["m.Bare",[["x",0.1]]]}"#,
            r#"{"repr":["decimal.Decimal","Decimal('1.50')"]}"#,
            r#"{"large":{"type":"list","bytes":5000000,"sha256":"ab"}}"#,
            r#"{"cycle":1}"#,
        ];
        for form in forms {
            assert_eq!(serde_json::to_string(&read(form)).expect("written"), form);
        }
    }

    /// CA-51
    #[test]
    fn a_form_that_is_none_is_refused() {
        for form in [
            r#"{"new":1}"#,
            r#"{"tuple":1}"#,
            "{}",
            r#"{"float":"x"}"#,
            r#"{"int":"1","float":"nan"}"#,
        ] {
            assert!(serde_json::from_str::<Recorded>(form).is_err(), "{form}");
        }
    }

    /// CA-51
    #[test]
    fn paths_are_replaced_at_any_depth() {
        let paths = Paths::new([("/ws/1", "/repo")]);
        let value = |path: &str| {
            read(&format!(
                r#"[{{"dict":[["{path}/a",{{"tuple":["{path}"]}}]]}},{{"object":["C",[["at",{{"set":["{path}"]}}]]]}},
                {{"exception":["OSError","no '{path}/x'"]}},{{"subclass":["S","{path}"]}},
                {{"items":{{"dtype":"object","shape":[1],"items":["{path}"]}}}},{{"repr":["P","P('{path}')"]}}]"#
            ))
        };
        assert_eq!(value("/ws/1").without(&paths), value("/repo"));
    }
}
