//! Whether two recorded values are the same (CA-51): floats within 1e-9 of their size, NaN equals NaN, the order of
//! sets and of a dictionary's keys does not count; types do.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{Items, Numbers, Recorded, Tagged};

/// How far two floats may be apart, as a share of the larger.
const RELATIVE: f64 = 1e-9;
/// Elements of a set without an exact equal that are tried pair by pair.
const MOST_PAIRED: usize = 100;

/// Where two values differ, and what is there.
#[derive(Debug, PartialEq)]
pub(in crate::cases) struct Difference {
    /// As one would write it in Python behind the value: `[3]['x']`.
    pub(in crate::cases) place: String,
    pub(in crate::cases) base: Recorded,
    pub(in crate::cases) candidate: Recorded,
}

/// The first difference; none if the values are the same.
pub(in crate::cases) fn difference(base: &Recorded, candidate: &Recorded) -> Option<Difference> {
    let mut path = Vec::new();
    let (base, candidate) = differ(base, candidate, &mut path)?;
    Some(Difference {
        place: path.concat(),
        base,
        candidate,
    })
}

fn same(one: &Recorded, other: &Recorded) -> bool {
    differ(one, other, &mut Vec::new()).is_none()
}

type Differing = Option<(Recorded, Recorded)>;

fn differ(one: &Recorded, other: &Recorded, path: &mut Vec<String>) -> Differing {
    let here = || Some((one.clone(), other.clone()));
    if let (Some(a), Some(b)) = (one.as_float(), other.as_float()) {
        return if close(a, b) { None } else { here() };
    }
    match (one, other) {
        (Recorded::List(a), Recorded::List(b)) if a.len() == b.len() => in_order(a, b, path),
        (Recorded::Other(a), Recorded::Other(b)) => match differ_tagged(a, b, path) {
            Found::Here => here(),
            Found::Inside(differing) => Some(differing),
            Found::Nothing => None,
        },
        _ if one == other => None,
        _ => here(),
    }
}

/// What comparing two values of one tag gave.
enum Found {
    Nothing,
    Here,
    Inside((Recorded, Recorded)),
}

impl From<Differing> for Found {
    fn from(differing: Differing) -> Self {
        differing.map_or(Self::Nothing, Self::Inside)
    }
}

impl From<bool> for Found {
    fn from(same: bool) -> Self {
        if same { Self::Nothing } else { Self::Here }
    }
}

fn differ_tagged(one: &Tagged, other: &Tagged, path: &mut Vec<String>) -> Found {
    use Tagged as T;
    match (one, other) {
        (T::Tuple(a), T::Tuple(b)) if a.len() == b.len() => in_order(a, b, path).into(),
        (T::Set(a), T::Set(b)) | (T::Frozenset(a), T::Frozenset(b)) => {
            pairs(&references(a), &references(b)).is_some().into()
        }
        (T::Dict(a), T::Dict(b)) => entries(a, b, path),
        (T::Complex(a, ai), T::Complex(b, bi)) => same_complex([a, ai], [b, bi]).into(),
        (T::Floats(a), T::Floats(b)) if a.is_like(b) => floats(a, b, path),
        (T::Items(a), T::Items(b)) if a.is_like(b) => in_order(&a.items, &b.items, path).into(),
        (T::Subclass(kind, a), T::Subclass(other_kind, b)) if kind == other_kind => {
            differ(a, b, path).into()
        }
        (T::Object(kind, a), T::Object(other_kind, b)) if kind == other_kind => fields(a, b, path),
        _ => (one == other).into(),
    }
}

fn in_order(one: &[Recorded], other: &[Recorded], path: &mut Vec<String>) -> Differing {
    let mut both = one.iter().zip(other).enumerate();
    both.find_map(|(at, (a, b))| inside(format!("[{at}]"), a, b, path))
}

fn inside(step: String, one: &Recorded, other: &Recorded, path: &mut Vec<String>) -> Differing {
    path.push(step);
    let found = differ(one, other, path);
    if found.is_none() {
        path.pop();
    }
    found
}

fn entries(
    one: &[(Recorded, Recorded)],
    other: &[(Recorded, Recorded)],
    path: &mut Vec<String>,
) -> Found {
    let keys = |entries: &'_ [(Recorded, Recorded)]| -> Vec<Recorded> {
        entries.iter().map(|(key, _)| key.clone()).collect()
    };
    let (a, b) = (keys(one), keys(other));
    let Some(paired) = pairs(&references(&a), &references(&b)) else {
        return Found::Here;
    };
    let mut paired = paired.into_iter();
    let found = paired.find_map(|(a, b)| {
        let (key, item) = &one[a];
        inside(format!("[{}]", key.shown()), item, &other[b].1, path)
    });
    found.into()
}

fn fields(
    one: &[(String, Recorded)],
    other: &[(String, Recorded)],
    path: &mut Vec<String>,
) -> Found {
    let named = |name: &str| other.iter().find(|(other, _)| other == name);
    if one.len() != other.len() || one.iter().any(|(name, _)| named(name).is_none()) {
        return Found::Here;
    }
    let mut both = one
        .iter()
        .filter_map(|(name, a)| Some((name, a, named(name)?)));
    let found = both.find_map(|(name, a, (_, b))| inside(format!(".{name}"), a, b, path));
    found.into()
}

fn references(items: &[Recorded]) -> Vec<&Recorded> {
    items.iter().collect()
}

/// Which element of one collection is which of the other: the equals in form first, then those within tolerance. In the
/// order of the first.
fn pairs(one: &[&Recorded], other: &[&Recorded]) -> Option<Vec<(usize, usize)>> {
    if one.len() != other.len() {
        return None;
    }
    let mut by_form = std::collections::HashMap::<String, Vec<usize>>::new();
    for (at, item) in other.iter().enumerate().rev() {
        by_form.entry(form(item)).or_default().push(at);
    }
    let mut paired = Vec::with_capacity(one.len());
    let mut left = Vec::new();
    for (at, item) in one.iter().enumerate() {
        match by_form.get_mut(&form(item)).and_then(Vec::pop) {
            Some(partner) => paired.push((at, partner)),
            None => left.push(at),
        }
    }
    let mut partners: Vec<_> = by_form.into_values().flatten().collect();
    partners.sort_unstable();
    if left.len() > MOST_PAIRED {
        return None;
    }
    for at in left {
        let found = partners
            .iter()
            .position(|partner| same(one[at], other[*partner]))?;
        paired.push((at, partners.remove(found)));
    }
    paired.sort_unstable();
    Some(paired)
}

fn form(item: &Recorded) -> String {
    serde_json::to_string(item).expect("a recorded value was JSON")
}

impl Numbers {
    fn is_like(&self, other: &Self) -> bool {
        (&self.dtype, &self.shape) == (&other.dtype, &other.shape)
    }

    /// None if the data is not as it says, which no plug-in of ours writes.
    fn floats(&self) -> Option<Vec<f64>> {
        let bytes = BASE64.decode(&self.data).ok()?;
        let (floats, rest) = bytes.as_chunks::<8>();
        rest.is_empty().then(|| {
            floats
                .iter()
                .map(|bytes| f64::from_le_bytes(*bytes))
                .collect()
        })
    }
}

impl Items {
    fn is_like(&self, other: &Self) -> bool {
        (&self.dtype, &self.shape, self.items.len())
            == (&other.dtype, &other.shape, other.items.len())
    }
}

fn floats(one: &Numbers, other: &Numbers, path: &mut Vec<String>) -> Found {
    if one.data == other.data {
        return Found::Nothing;
    }
    let (Some(a), Some(b)) = (one.floats(), other.floats()) else {
        return Found::Here;
    };
    if a.len() != b.len() {
        return Found::Here;
    }
    let width = if one.dtype.contains("complex") { 2 } else { 1 };
    let (a, b) = (a.chunks(width), b.chunks(width));
    let mut both = a.zip(b).enumerate();
    let Some((at, (a, b))) = both.find(|(_, (a, b))| !close_vectors(a, b)) else {
        return Found::Nothing;
    };
    if !one.shape.is_empty() {
        path.push(place_in(&one.shape, at as u64));
    }
    Found::Inside((element(a), element(b)))
}

fn element(parts: &[f64]) -> Recorded {
    match parts {
        [real, imaginary] => Recorded::Other(Box::new(Tagged::Complex(
            Recorded::Float(*real),
            Recorded::Float(*imaginary),
        ))),
        _ => Recorded::Float(parts[0]),
    }
}

/// An element's index in each dimension.
fn place_in(shape: &[u64], mut at: u64) -> String {
    let mut indexes = Vec::new();
    for length in shape.iter().rev() {
        let length = (*length).max(1);
        indexes.push((at % length).to_string());
        at /= length;
    }
    indexes.reverse();
    format!("[{}]", indexes.join(", "))
}

fn same_complex(one: [&Recorded; 2], other: [&Recorded; 2]) -> bool {
    let parts = |parts: [&Recorded; 2]| Some([parts[0].as_float()?, parts[1].as_float()?]);
    match (parts(one), parts(other)) {
        (Some(a), Some(b)) => close_vectors(&a, &b),
        _ => one == other,
    }
}

/// Complex numbers are as far apart as their difference is long: a tiny part beside a large one is noise.
fn close_vectors(one: &[f64], other: &[f64]) -> bool {
    let length = |parts: &[f64]| parts.iter().fold(0.0, |sum: f64, part| sum.hypot(*part));
    if one.len() == 1 || !length(one).is_finite() || !length(other).is_finite() {
        return one.iter().zip(other).all(|(a, b)| close(*a, *b));
    }
    let apart: Vec<_> = one.iter().zip(other).map(|(a, b)| a - b).collect();
    length(&apart) <= RELATIVE * length(one).max(length(other))
}

fn close(one: f64, other: f64) -> bool {
    if one == other || (one.is_nan() && other.is_nan()) {
        return true;
    }
    one.is_finite()
        && other.is_finite()
        && (one - other).abs() <= RELATIVE * one.abs().max(other.abs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Recorded {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn floats_of(values: &[f64]) -> String {
        let bytes: Vec<_> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        BASE64.encode(bytes)
    }

    /// CA-51
    #[test]
    fn values_that_are_the_same() {
        let table = [
            ("1.0", "1.0000000009"),
            ("-1e300", "-1.0000000009e300"),
            ("0.0", "-0.0"),
            (r#"{"float":"nan"}"#, r#"{"float":"nan"}"#),
            (r#"{"float":"inf"}"#, r#"{"float":"inf"}"#),
            (r#"{"complex":[1.0,0.0]}"#, r#"{"complex":[1.0,1e-12]}"#),
            (
                r#"{"set":[10.0,5.0,1]}"#,
                r#"{"set":[1,5.0,9.999999999999998]}"#,
            ),
            (
                r#"{"dict":[["a",1.0],[2,3]]}"#,
                r#"{"dict":[[2,3],["a",1.0000000001]]}"#,
            ),
            (
                r#"{"dict":[[0.3,1]]}"#,
                r#"{"dict":[[0.30000000000000004,1]]}"#,
            ),
            (
                r#"{"object":["C",[["a",1],["b",2]]]}"#,
                r#"{"object":["C",[["b",2],["a",1]]]}"#,
            ),
            (r#"{"exception":["E","m"]}"#, r#"{"exception":["E","m"]}"#),
        ];
        for (one, other) in table {
            assert_eq!(difference(&read(one), &read(other)), None, "{one} {other}");
            assert_eq!(difference(&read(other), &read(one)), None, "{other} {one}");
        }
    }

    /// CA-51
    #[test]
    fn values_that_differ_and_where() {
        let table = [
            ("1.0", "1.000000002", ""),
            ("0.0", "1e-300", ""),
            ("1", "1.0", ""),
            ("1", "true", ""),
            ("1e308", r#"{"float":"inf"}"#, ""),
            (r#"{"float":"inf"}"#, r#"{"float":"-inf"}"#, ""),
            (r#"{"float":"nan"}"#, "0.0", ""),
            ("[1,2]", "[1]", ""),
            ("[1,[2,3]]", "[1,[2,4]]", "[1][1]"),
            ("[1]", r#"{"tuple":[1]}"#, ""),
            (r#"{"tuple":[1,2]}"#, r#"{"tuple":[2,1]}"#, "[0]"),
            (r#"{"set":[1,2]}"#, r#"{"set":[1,3]}"#, ""),
            (r#"{"set":[1]}"#, r#"{"frozenset":[1]}"#, ""),
            (
                r#"{"dict":[["a",[1]]]}"#,
                r#"{"dict":[["a",[2]]]}"#,
                "['a'][0]",
            ),
            (r#"{"dict":[["a",1]]}"#, r#"{"dict":[["b",1]]}"#, ""),
            (
                r#"{"object":["C",[["a",1]]]}"#,
                r#"{"object":["C",[["a",2]]]}"#,
                ".a",
            ),
            (r#"{"object":["C",[]]}"#, r#"{"object":["D",[]]}"#, ""),
            (
                r#"{"exception":["E","m"]}"#,
                r#"{"exception":["E","n"]}"#,
                "",
            ),
            (
                r#"{"exception":["E","m"]}"#,
                r#"{"exception":["F","m"]}"#,
                "",
            ),
            (r#"{"bytes":"YQ=="}"#, r#"{"bytes":"Yg=="}"#, ""),
            (r#"{"subclass":["S",1]}"#, r#"{"subclass":["S",2]}"#, ""),
            (r#"{"subclass":["S",1]}"#, "1", ""),
        ];
        for (one, other, place) in table {
            let found =
                difference(&read(one), &read(other)).unwrap_or_else(|| panic!("{one} {other}"));
            assert_eq!(found.place, place, "{one} {other}");
            assert!(
                difference(&read(other), &read(one)).is_some(),
                "{other} {one}"
            );
        }
    }

    /// CA-51
    #[test]
    fn arrays_are_compared_element_by_element() {
        let array = |dtype: &str, shape: &str, values: &[f64]| {
            let data = floats_of(values);
            read(&format!(
                r#"{{"floats":{{"dtype":"{dtype}","shape":{shape},"data":"{data}"}}}}"#
            ))
        };
        let base = array("float64", "[2,2]", &[1.0, f64::NAN, 3.0, 4.0]);
        let close = array("float64", "[2,2]", &[1.0 + 1e-12, f64::NAN, 3.0, 4.0]);
        assert_eq!(difference(&base, &close), None);
        let far = array("float64", "[2,2]", &[1.0, f64::NAN, 3.5, 4.0]);
        let found = difference(&base, &far).expect("they differ");
        assert_eq!(
            (&*found.place, found.candidate),
            ("[1, 0]", Recorded::Float(3.5))
        );
        for other in [
            array("float32", "[2,2]", &[1.0, f64::NAN, 3.0, 4.0]),
            array("float64", "[4]", &[1.0, f64::NAN, 3.0, 4.0]),
            array("float64", "[2,2]", &[1.0, f64::NAN, 3.0]),
        ] {
            assert_eq!(difference(&base, &other).expect("they differ").place, "");
        }
        let complex = |values: &[f64]| array("complex128", "[1]", values);
        assert_eq!(
            difference(&complex(&[1.0, 0.0]), &complex(&[1.0, 1e-12])),
            None
        );
        assert!(difference(&complex(&[1.0, 0.0]), &complex(&[1.0, 1e-3])).is_some());
    }

    fn any_recorded() -> impl Strategy<Value = Recorded> {
        let leaf = prop_oneof![
            Just(Recorded::None),
            any::<bool>().prop_map(Recorded::Bool),
            any::<i64>().prop_map(Recorded::Int),
            prop::num::f64::NORMAL.prop_map(Recorded::Float),
            "[a-c/é]{0,4}".prop_map(Recorded::Text),
            Just(read(r#"{"float":"nan"}"#)),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let items = prop::collection::vec(inner.clone(), 0..4);
            let entries = prop::collection::vec((inner.clone(), inner), 0..4);
            prop_oneof![
                items.clone().prop_map(Recorded::List),
                items
                    .clone()
                    .prop_map(|items| Recorded::Other(Box::new(Tagged::Tuple(items)))),
                items.prop_map(|items| Recorded::Other(Box::new(Tagged::Set(items)))),
                entries.prop_map(|items| Recorded::Other(Box::new(Tagged::Dict(items)))),
            ]
        })
    }

    proptest! {
        /// CA-51
        #[test]
        fn a_value_is_the_same_as_itself_and_read_back(value in any_recorded()) {
            prop_assert_eq!(difference(&value, &value), None);
            let text = serde_json::to_string(&value).expect("written");
            prop_assert_eq!(difference(&value, &read(&text)), None);
        }

        /// CA-51
        #[test]
        fn differing_is_mutual(one in any_recorded(), other in any_recorded()) {
            prop_assert_eq!(difference(&one, &other).is_some(), difference(&other, &one).is_some());
        }
    }
}
