//! Decoding what a stranger sent allocates no more than its size allows. Alone in its binary: it counts every byte.

use std::io;
use std::time::{Duration, Instant};

use fairtrial_exec::value::{MAX_SMALL_VALUES, Value, check, decode_small, write_json};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Room that does not depend on the frame: a tree of small values, or the decimal digits of one int.
const SMALL_TREE: usize = 3 * MAX_SMALL_VALUES * size_of::<Value>();
const DIGITS: usize = 1 << 20;

/// EX-67. `FAIRTRIAL_FUZZ_SECONDS` says for how long.
#[test]
fn changed_values_neither_panic_nor_allocate_above_twice_the_frame() {
    let seconds = std::env::var("FAIRTRIAL_FUZZ_SECONDS").map_or(2, |text| {
        text.parse().expect("`FAIRTRIAL_FUZZ_SECONDS` is a number")
    });
    for bytes in bombs() {
        try_all(&bytes);
    }
    let seeds = seeds();
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(seconds) {
        let bytes = changed(&seeds, &mut chance);
        try_all(&bytes);
    }
}

fn try_all(bytes: &[u8]) {
    let bound = 2 * bytes.len();
    let valid = measured(0, || check(bytes).is_ok());
    let small = measured(bound + SMALL_TREE, || decode_small(bytes).is_ok());
    let written = measured(bound + DIGITS, || {
        write_json(bytes, &mut io::sink()).is_ok()
    });
    assert!(valid == written && (valid || !small));
}

/// What `act` gives, if it never held more than `bound` bytes more than there were.
fn measured<T>(bound: usize, act: impl FnOnce() -> T) -> T {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = act();
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    assert!(peak <= bound, "{peak} bytes held, {bound} allowed");
    result
}

/// Small frames that claim much, and large ones of tiny parts.
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

fn seeds() -> Vec<Vec<u8>> {
    let text = include_str!("../testdata/values.json");
    let vectors: Vec<serde_json::Value> = serde_json::from_str(text).expect("vectors are JSON");
    let hex = |vector: &serde_json::Value| vector["hex"].as_str().expect("text").to_owned();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    vectors
        .iter()
        .map(|vector| {
            hex(vector)
                .as_bytes()
                .as_chunks()
                .0
                .iter()
                .map(byte)
                .collect()
        })
        .collect()
}

/// A seed with one to four changes.
fn changed(seeds: &[Vec<u8>], chance: &mut Chance) -> Vec<u8> {
    const TAGS: &[u8] = b"NTFiIfcusbBltSZqDodAn";
    const WORDS: [u64; 8] = [0, 1, 2, 8, 255, 1 << 32, i64::MAX as u64, u64::MAX];
    let mut bytes = seeds[chance.below(seeds.len())].clone();
    for _ in 0..=chance.below(4) {
        let at = chance.below(bytes.len());
        let end = (at + chance.below(24)).min(bytes.len());
        match chance.below(7) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = TAGS[chance.below(TAGS.len())],
            2 => bytes.truncate(at + 1),
            3 => drop(bytes.splice(at..end, WORDS[chance.below(8)].to_le_bytes())),
            4 => drop(bytes.splice(at..end, seeds[chance.below(seeds.len())].clone())),
            5 => drop(bytes.splice(0..0, [&b"l"[..], &1u64.to_le_bytes()].concat())),
            _ => bytes.extend_from_slice(&seeds[chance.below(seeds.len())]),
        }
    }
    bytes
}

/// A small generator: the same changes on each run of the same length.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }
}
