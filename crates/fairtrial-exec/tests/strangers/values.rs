//! The data codec.

use std::io;

use fairtrial_exec::value::{
    MAX_SMALL_VALUES, Value, check, decode_small, decode_tree, encode, from_json, parse_json,
    write_json,
};

use crate::attack::Door;
use crate::{measured, seeds};

/// Room that does not depend on the bytes: a tree of small values, or the decimal digits of one int.
pub(crate) const SMALL_TREE: usize = 3 * MAX_SMALL_VALUES * size_of::<Value>();
const DIGITS: usize = 1 << 20;

/// EX-67, SB-38
#[test]
fn no_bytes_are_more_than_a_value_or_malformed() {
    Door {
        name: "value",
        seeds: seeds::values(),
        tags: b"NTFiIfcusbBltSZqDodAn",
        open: try_value,
    }
    .attack();
}

/// EX-67, SB-38
#[test]
fn what_claims_much_or_holds_many_tiny_parts_takes_no_more_than_its_size_allows() {
    Door {
        name: "value",
        seeds: bombs(),
        tags: &[],
        open: try_value,
    }
    .show();
}

fn try_value(bytes: &[u8]) {
    let bound = 2 * bytes.len();
    let valid = measured(0, || check(bytes).is_ok());
    let small = measured(bound + SMALL_TREE, || decode_small(bytes));
    let tree = measured(bound + SMALL_TREE, || decode_tree(bytes, MAX_SMALL_VALUES));
    assert!(valid || tree.is_err());
    let written = measured(bound + DIGITS, || {
        write_json(bytes, &mut io::sink()).is_ok()
    });
    assert!(valid == written && (valid || small.is_err()));
    if let Ok(value) = small {
        let again = encode(&value);
        let same = decode_small(&again).expect("what is written can be read");
        assert_eq!(encode(&same), again); // bytes, for NaN is not equal to itself
    }
    if valid && bytes.len() < 4096 {
        try_json(bytes);
    }
}

/// Its JSON form is JSON, and whatever value that is taken for is one.
fn try_json(bytes: &[u8]) {
    let mut text = Vec::new();
    write_json(bytes, &mut text).expect("it was written before");
    let text = std::str::from_utf8(&text).expect("JSON is UTF-8");
    if let Ok(json) = parse_json(text)
        && let Ok(back) = from_json(&json)
    {
        assert_eq!(check(&back), Ok(()));
    }
}

/// Small messages that claim much, and large ones of tiny parts.
fn bombs() -> Vec<Vec<u8>> {
    let headed = |tag: u8, count: u64| [&[tag][..], &count.to_le_bytes()].concat();
    let claims = b"IsbBltSZodqD"
        .iter()
        .flat_map(|tag| [1, 1 << 20, 1 << 40, u64::MAX].map(|count| headed(*tag, count)));
    let tiny = 1 << 20;
    let large = [
        [headed(b'l', tiny), vec![b'N'; 1 << 20]].concat(),
        [headed(b'q', tiny), vec![0; 8 << 20]].concat(),
        [headed(b'I', tiny), vec![0x55; 1 << 20]].concat(),
        [headed(b'I', 50_000), vec![0x55; 50_000]].concat(),
        [
            headed(b'o', tiny),
            b"u\x00".repeat(1 << 20),
            vec![b'T'; 1 << 20],
        ]
        .concat(),
        headed(b'l', 1).repeat(100_000),
        b"AC".repeat(100_000),
        b"n".repeat(100_000),
    ];
    claims.chain(large).collect()
}
