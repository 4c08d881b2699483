//! The data codec against the vectors that both halves share, and against values made up.

use fairtrial_exec::value::{
    self, MAX_DEPTH, Value, check, decode_small, decode_tree, encode, from_json, parse_json,
    to_json, write_json,
};
use proptest::prelude::*;

fn json_text(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    write_json(bytes, &mut out).expect("these bytes are a value");
    String::from_utf8(out).expect("JSON is UTF-8")
}

struct Vector {
    python: String,
    json: String,
    bytes: Vec<u8>,
    exact: bool,
}

/// What `python/tests/value_vectors.py` wrote.
fn vectors() -> Vec<Vector> {
    let text = include_str!("../testdata/values.json");
    let vectors: Vec<serde_json::Value> = serde_json::from_str(text).expect("vectors are JSON");
    let text = |vector: &serde_json::Value, key: &str| {
        let text = vector[key].as_str().expect("vectors hold text");
        text.to_owned()
    };
    vectors
        .iter()
        .map(|vector| Vector {
            python: text(vector, "python"),
            json: text(vector, "json"),
            bytes: unhex(&text(vector, "hex")),
            exact: vector["exact"] == true,
        })
        .collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let (pairs, _) = text.as_bytes().as_chunks::<2>();
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(|pair| byte(pair)).collect()
}

/// EX-65, EX-69
#[test]
fn both_halves_agree_on_every_vector() {
    for vector in vectors() {
        assert_eq!(check(&vector.bytes), Ok(()), "{}", vector.python);
        let expected = parse_json(&vector.json).unwrap();
        let written = parse_json(&json_text(&vector.bytes)).unwrap();
        assert_eq!(written, expected, "{}", vector.python);
        assert_eq!(
            to_json(&vector.bytes),
            Ok(expected.clone()),
            "{}",
            vector.python
        );
        let back = from_json(&expected).unwrap();
        assert_eq!(check(&back), Ok(()), "{}", vector.python);
        if vector.exact {
            assert!(back == vector.bytes, "{}: {back:02x?}", vector.python);
        }
    }
}

/// EX-67
#[test]
fn every_vector_cut_short_or_too_long_is_malformed() {
    for mut vector in vectors() {
        for end in 0..vector.bytes.len() {
            assert!(check(&vector.bytes[..end]).is_err(), "{}", vector.python);
        }
        vector.bytes.push(b'N');
        assert!(check(&vector.bytes).is_err(), "{}", vector.python);
    }
}

/// EX-66
#[test]
fn a_thousand_levels_pass_and_one_more_is_malformed() {
    let one = [b"t".as_slice(), &1u64.to_le_bytes()].concat();
    let deep = [
        one.repeat(MAX_DEPTH - 1),
        [b"l".as_slice(), &[0; 8]].concat(),
    ]
    .concat();
    let walk = move || {
        assert_eq!(check(&deep), Ok(()));
        assert!(json_text(&deep).starts_with(r#"{"$tuple":[{"$tuple":[{"#));
        assert!(to_json(&deep).is_err());
        assert_eq!(encode(&decode_small(&deep).unwrap()), deep);
        let deeper = [one, deep].concat();
        assert_eq!(check(&deeper).unwrap_err().what, "over 1,000 levels");
    };
    // Threads of the async runtime have 2 MiB.
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(walk).unwrap().join().unwrap();
}

/// EX-67
#[test]
fn a_dtype_holds_no_array() {
    assert!(check(&b"AC".repeat(1 << 20)).is_err());
    assert!(check(&b"n".repeat(1 << 20)).is_err());
}

/// ST-12
#[test]
fn arrays_are_lists_in_a_tree() {
    let tree =
        |text: &str, most| decode_tree(&from_json(&parse_json(text).unwrap()).unwrap(), most);
    let array = |dtype: &str, shape: &str, base64: &str| {
        format!(r#"{{"$array": {{"dtype": "{dtype}", "shape": {shape}, "base64": "{base64}"}}}}"#)
    };
    let list = |items: &[i64]| Value::List(items.iter().copied().map(Value::Int).collect());
    let bytes = array("|i1", "[2, 2]", "AQID/w==");
    let rows = Value::List(vec![list(&[1, 2]), list(&[3, -1])]);
    assert_eq!(tree(&bytes, 6), Ok(rows));
    assert_eq!(tree(&bytes, 5).unwrap_err().what, "too many values");
    assert_eq!(tree(&array("|b1", "[]", "AQ=="), 9), Ok(Value::Bool(true)));
    let largest = Value::BigInt(vec![255, 255, 255, 255, 255, 255, 255, 255, 0]);
    assert_eq!(tree(&array("<u8", "[]", "//////////8="), 9), Ok(largest));
    let empty = array("<f8", "[1000000000000, 0]", "");
    assert_eq!(tree(&empty, 1 << 20).unwrap_err().what, "too many values");
    let complex = array("<c8", "[1]", "AAAAAAAAAAA=");
    let error = tree(&complex, 9).unwrap_err();
    assert_eq!(error.what, "an array of neither numbers nor texts");
}

/// EX-69
#[test]
fn ints_beyond_a_bound_are_hexadecimal() {
    for (head, sign) in [("0x01", 1), ("-0x01", -1)] {
        let mut bytes = vec![0; 60_000];
        bytes.extend(if sign > 0 { [1, 0] } else { [0xff, 0xff] });
        let encoded = [b"I".as_slice(), &60_002u64.to_le_bytes(), &bytes].concat();
        let json = parse_json(&json_text(&encoded)).unwrap();
        let text = json["$int"].as_str().unwrap();
        assert!(text.starts_with(head) && text.len() == head.len() + 120_000);
        let back = from_json(&json).unwrap();
        assert_eq!(parse_json(&json_text(&back)).unwrap(), json);
    }
}

/// EX-69
#[test]
fn a_long_int_in_a_call_stays_exact() {
    let text = r#"[1000000000000000000000000000000,-9223372036854775809,18446744073709551616,"\"9223372036854775808000",1.0]"#;
    let args = parse_json(text).unwrap();
    let bytes = value::arguments_from_json(&args, &serde_json::json!({"k": 1})).unwrap();
    assert_eq!(
        json_text(&bytes),
        format!(r#"{{"$tuple":[{{"$tuple":{text}}},{{"k":1}}]}}"#)
    );
}

/// EX-69
#[test]
fn json_that_is_no_value_is_refused_by_its_path() {
    let cases = [
        (
            r#"[0, {"x": {"$bytes": "?"}}]"#,
            "`$[1].x.$bytes`: expected base64",
        ),
        (
            r#"{"$foo": 1}"#,
            "`$`: unknown key `$foo`: a dict with such a key is written as `$map`",
        ),
        (r#"{"a": {"$x": 1, "b": 2}}"#, "`$.a`: unexpected key `$x`"),
        (
            r#"{"$set": [[1]]}"#,
            "`$.$set[0]`: cannot be a key or a set's member",
        ),
        (r#"{"$map": [[1]]}"#, "`$.$map[0]`: expected a pair"),
        (r#"{"$pickle": "gA=="}"#, "`$.$pickle`: a pickle is no data"),
        (r#"{"$int": "1_0"}"#, "`$.$int`: expected decimal digits"),
        (r#"{"$float": "nan"}"#, "`$.$float`: expected `NaN`"),
        (
            r#"{"$array": {"dtype": "|O", "shape": [1], "base64": "AAAAAAAAAAA="}}"#,
            "`$.$array`: no dtype of plain data",
        ),
        (
            r#"{"$array": {"dtype": "<f8", "shape": [2], "base64": "AAAAAAAAAAA="}}"#,
            "`$.$array`: an array's length does not fit its shape",
        ),
    ];
    for (text, expected) in cases {
        let error = from_json(&parse_json(text).unwrap()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let error = value::arguments_from_json(&parse_json("3").unwrap(), &parse_json("{}").unwrap());
    assert_eq!(
        error.unwrap_err().to_string(),
        "`$.args`: expected a list of arguments"
    );
}

/// EX-67
#[test]
fn what_cannot_be_hashed_is_no_key() {
    let unhashable = [
        Value::List(vec![]),
        Value::ByteArray(vec![]),
        Value::Tuple(vec![Value::Dict(vec![])]),
    ];
    for key in unhashable {
        assert!(check(&encode(&Value::Set(vec![key.clone()]))).is_err());
        assert!(check(&encode(&Value::Dict(vec![(key, Value::None)]))).is_err());
    }
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::None),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<i128>().prop_map(big_int),
        float(),
        (any::<f64>(), any::<f64>()).prop_map(|(real, imaginary)| Value::Complex(real, imaginary)),
        ".{0,12}".prop_map(Value::Str),
        "[$a-z]{0,300}".prop_map(Value::Str),
        Just(Value::SurrogateStr(b"a\xed\xa0\x80".to_vec())),
        any::<Vec<u8>>().prop_map(Value::Bytes),
    ]
}

fn float() -> impl Strategy<Value = Value> {
    let special = prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1.0]);
    let bits = any::<u64>().prop_map(f64::from_bits);
    prop_oneof![bits, any::<f64>(), special].prop_map(Value::Float)
}

/// In the fewest bytes, and as `Int` where that is enough.
fn big_int(int: i128) -> Value {
    if let Ok(int) = i64::try_from(int) {
        return Value::Int(int);
    }
    let length = (1..=16).find(|bytes| int >> (8 * bytes - 1) == int >> 127);
    Value::BigInt(int.to_le_bytes()[..length.unwrap_or(16)].to_vec())
}

fn hashable() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 4, |inner| {
        let items = prop::collection::vec(inner, 0..4);
        prop_oneof![
            items.clone().prop_map(Value::Tuple),
            items.prop_map(Value::FrozenSet),
        ]
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 64, 12, |inner| {
        let text = "[a-z$]{0,4}".prop_map(Value::Str);
        let pairs = |keys| prop::collection::vec((keys, inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::List),
            prop::collection::vec(any::<i64>().prop_map(Value::Int), 0..20).prop_map(Value::List),
            prop::collection::vec(float(), 0..20).prop_map(Value::List),
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Tuple),
            prop::collection::vec(hashable(), 0..4).prop_map(Value::Set),
            pairs(hashable().boxed()).prop_map(unique),
            pairs(text.boxed()).prop_map(unique),
        ]
    })
}

/// A dict of these pairs, the first of those with one key.
fn unique(pairs: Vec<(Value, Value)>) -> Value {
    let mut kept: Vec<(Value, Value)> = Vec::new();
    for (key, value) in pairs {
        if kept.iter().all(|(each, _)| encode(each) != encode(&key)) {
            kept.push((key, value));
        }
    }
    Value::Dict(kept)
}

proptest! {
    /// EX-65, EX-69
    #[test]
    fn a_value_survives_bytes_and_json(value in any_value()) {
        let bytes = encode(&value);
        prop_assert_eq!(check(&bytes), Ok(()));
        prop_assert_eq!(&encode(&decode_small(&bytes).unwrap()), &bytes);
        let json = parse_json(&json_text(&bytes)).unwrap();
        prop_assert_eq!(from_json(&json).unwrap(), bytes);
    }

    /// EX-67
    #[test]
    fn any_bytes_are_a_value_or_malformed(bytes in any::<Vec<u8>>()) {
        let valid = check(&bytes).is_ok();
        prop_assert_eq!(write_json(&bytes, &mut Vec::new()).is_ok(), valid);
        prop_assert!(valid || decode_small(&bytes).is_err());
    }

    /// EX-69
    #[test]
    fn any_json_is_a_value_or_refused(text in r#"[\[\]{}:,"$a-z0-9.eE+\\ -]{0,40}"#) {
        if let Ok(json) = parse_json(&text)
            && let Ok(bytes) = from_json(&json)
        {
            prop_assert_eq!(check(&bytes), Ok(()));
        }
    }
}
