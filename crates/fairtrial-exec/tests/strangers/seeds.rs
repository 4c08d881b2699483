//! Valid messages that several doors begin from.

use fairtrial_exec::protocol::{Header, Kind};
use fairtrial_exec::value::{Value, encode};

/// The values that both halves of the codec share.
pub(crate) fn values() -> Vec<Vec<u8>> {
    let text = include_str!("../../testdata/values.json");
    let vectors: Vec<serde_json::Value> = serde_json::from_str(text).expect("vectors are JSON");
    let hex = |vector: &serde_json::Value| vector["hex"].as_str().expect("text").to_owned();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let unhex = |text: String| text.as_bytes().as_chunks().0.iter().map(byte).collect();
    vectors.iter().map(|vector| unhex(hex(vector))).collect()
}

/// A dict with text keys.
pub(crate) fn dict(pairs: &[(&str, Value)]) -> Vec<u8> {
    let pair = |(key, value): &(&str, Value)| (Value::Str((*key).into()), value.clone());
    encode(&Value::Dict(pairs.iter().map(pair).collect()))
}

/// Error records as a shim writes them.
pub(crate) fn error_records() -> Vec<Vec<u8>> {
    let text = |text: &str| Value::Str(text.into());
    let record = |verdict: &str, rest: &[(&str, Value)]| {
        let head = [
            ("verdict", text(verdict)),
            ("type", text("ValueError")),
            ("message", text("no such thing")),
            ("traceback", text("Traceback (most recent call last):\n")),
        ];
        dict(&[&head, rest].concat())
    };
    let odd = Value::SurrogateStr(b"\xed\xa0\x80".to_vec());
    vec![
        record("exception", &[]),
        record("bad_result", &[("message", odd)]),
        record("setup_failed", &[]),
        record(
            "exception",
            &[("exception", Value::Bytes(b"\x80\x05N.".to_vec()))],
        ),
    ]
}

/// Whole calls as a worker tells them.
pub(crate) fn conversations() -> Vec<Vec<u8>> {
    let frame = |kind, payload: &[u8]| {
        let header = Header {
            kind,
            generation: 3,
            length: payload.len() as u64,
        };
        [&header.encode()[..], payload].concat()
    };
    let begin = [frame(Kind::Ack, &[1; 16]), frame(Kind::Run, &[])].concat();
    let inline = [begin.clone(), frame(Kind::Value, b"u\x02hi")].concat();
    let large = [
        begin.clone(),
        frame(Kind::Need, &[0; 8]),
        frame(Kind::Filed, &[Kind::Value as u8, 0, 0, 1, 0, 0, 0, 0, 0]),
    ];
    let failed = [begin, frame(Kind::Error, &error_records()[0])].concat();
    let ahead = [
        frame(Kind::Skipped, &[]),
        frame(Kind::Usage, &[7; 16]),
        frame(Kind::Ready, &[]),
    ];
    vec![inline, large.concat(), failed, ahead.concat()]
}
