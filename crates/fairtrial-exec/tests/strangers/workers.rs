//! What workers and zygotes say.

use fairtrial_exec::protocol::zygote::Answer;
use fairtrial_exec::protocol::{HEADER_BYTES, Kind, MAX_PAYLOAD_BYTES};
use fairtrial_exec::strangers::{error_record, frames, said, zygote_record};
use fairtrial_exec::value::Value;
use fairtrial_exec::{ErrorReport, Verdict};

use crate::attack::Door;
use crate::values::SMALL_TREE;
use crate::{measured, seeds};

/// EX-63, SB-38
#[test]
fn no_bytes_are_more_than_frames_or_a_bad_one() {
    Door {
        name: "frames",
        seeds: seeds::conversations(),
        tags: &[b'F', b'T', 1, 3, 4, 17, 18, 19, 20, 21, 22, 23, 24, 25],
        open: |bytes| {
            let bound = 8 * bytes.len() + 1024; // what arrived, and what was made of it, as vectors grow
            let (same, bad) = measured(bound, || frames(bytes, usize::MAX));
            assert_eq!(frames(bytes, 7), (same.clone(), bad.clone()));
            let rest = bytes.strip_prefix(&same[..]).expect("nothing is made up");
            if let (None, Some(header)) = (bad, rest.first_chunk::<HEADER_BYTES>()) {
                // It waits for the rest of a frame: of one that there can be.
                let claimed = u64::from_le_bytes(*header.last_chunk().expect("16 bytes"));
                assert!(claimed <= MAX_PAYLOAD_BYTES);
            }
        },
    }
    .attack();
}

/// SB-38: acknowledgements, metrics, sizes, replies.
#[test]
fn no_payload_is_more_than_a_message_or_out_of_place() {
    let payloads: [(Kind, &[u8]); 8] = [
        (Kind::Ack, &[1; 16]),
        (Kind::Run, &[]),
        (Kind::Skipped, &[]),
        (Kind::Usage, &[255; 16]),
        (Kind::Need, &[0, 0, 0, 0, 0, 0, 0, 128]),
        (Kind::Filed, &[21, 255, 0, 0, 0, 0, 0, 0, 0]),
        (Kind::Value, b"N"),
        (Kind::Error, b"o"),
    ];
    let seed = |(kind, payload): (Kind, &[u8])| [&[kind as u8][..], payload].concat();
    Door {
        name: "payload",
        seeds: payloads.map(seed).into(),
        tags: &[17, 18, 19, 20, 21, 22, 23, 24, 25],
        open: |bytes| {
            let Some((kind, payload)) = bytes.split_first() else {
                return;
            };
            if let Some(kind) = Kind::from_byte(*kind) {
                let same = measured(4 * payload.len() + 512, || said(kind, payload));
                assert!(same.is_none_or(|same| same == (kind, payload.to_vec())));
            }
        },
    }
    .attack();
}

/// EX-67, SB-38
#[test]
fn no_bytes_are_more_than_an_error_record_or_none() {
    Door {
        name: "error-record",
        seeds: seeds::error_records(),
        tags: b"NTFiIfcusbBltSZqDodAn",
        open: |bytes| {
            let read = measured(3 * bytes.len() + SMALL_TREE, || error_record(bytes));
            if let Some((verdict, report)) = read {
                let again = record(verdict, &report);
                assert_eq!(error_record(&again), Some((verdict, report)));
            }
        },
    }
    .attack();
}

fn record(verdict: Verdict, report: &ErrorReport) -> Vec<u8> {
    let text = |text: &str| Value::Str(text.into());
    let mut pairs = vec![
        ("verdict", text(verdict.name())),
        ("type", text(&report.kind)),
        ("message", text(&report.message)),
        ("traceback", text(&report.traceback)),
    ];
    let pickle = report.exception.clone();
    pairs.extend(pickle.map(|pickle| ("exception", Value::Bytes(pickle))));
    seeds::dict(&pairs)
}

/// SB-38
#[test]
fn no_bytes_are_more_than_what_a_zygote_says_of_itself_or_nothing() {
    let paths = Value::List(vec![Value::Str("/usr/lib/python3".into()); 12]);
    let ready = seeds::dict(&[
        ("version", Value::List(vec![Value::Int(3), Value::Int(12)])),
        ("threads", Value::Int(1)),
        ("pid", Value::Int(4711)),
        ("paths", paths),
    ]);
    let mut seeds = seeds::error_records();
    seeds.push(ready);
    Door {
        name: "zygote-record",
        seeds,
        tags: b"NTFiIfcusbBltSZqDodAn",
        open: |bytes| {
            measured(5 * bytes.len() + 2 * SMALL_TREE, || zygote_record(bytes));
        },
    }
    .attack();
}

/// SB-38: what the launcher hears of a zygote.
#[test]
fn no_bytes_are_more_than_a_zygotes_answer_or_none() {
    let answers = [
        (0, Ok(2)),
        (7, Ok(i32::MAX)),
        (u32::MAX, Err(12)),
        (1, Err(0)),
    ];
    let seed = |(number, worker)| Answer { number, worker }.encode().to_vec();
    Door {
        name: "zygote-answer",
        seeds: answers.map(seed).into(),
        tags: &[0, 127, 128, 255],
        open: |bytes| {
            if let Some(answer) = measured(0, || Answer::decode(bytes)) {
                assert_eq!(Answer::decode(&answer.encode()), Some(answer));
            }
        },
    }
    .attack();
}
