use super::words::stacks;
use super::*;

/// EX-96
#[test]
fn an_exit_code_is_never_read_as_a_signal() {
    assert_eq!(exit_of(137 << 8), Exit::Code(137));
    assert_eq!(exit_of(9), Exit::Signal(9));
    assert_eq!(exit_of(11 | 0x80), Exit::Signal(11));
    assert_eq!(signal_name(11), "SIGSEGV");
    assert_eq!(signal_name(40), "signal 40");
}

/// EX-51
#[test]
fn stacks_are_found_behind_half_a_frame_and_without_our_frames() {
    let sent = b"FT\x01junkCurrent thread 0x01 (most recent call first):\n  File \"<source>\", line 2 in f\n  \
                 File \"<fairtrial>\", line 9 in run\n  File \"<string>\", line 1 in <module>\n";
    assert_eq!(
        stacks(sent),
        "Current thread 0x01 (most recent call first):\n  File \"<source>\", line 2 in f\n"
    );
    assert_eq!(stacks(b"nothing of the kind"), "");
}

/// EX-72
#[test]
fn only_three_verdicts_can_be_claimed() {
    let record = |verdict: &str| {
        let text = |text: &str| Value::Str(text.to_owned());
        let pairs = [
            ("verdict", verdict),
            ("type", "T"),
            ("message", "MemoryError"),
            ("traceback", ""),
        ];
        value::encode(&Value::Dict(
            pairs.map(|(key, value)| (text(key), text(value))).into(),
        ))
    };
    assert_eq!(
        read_record(&record("exception")).unwrap().0,
        Verdict::Exception
    );
    for claimed in ["ok", "timeout", "memory_limit", "cancelled", ""] {
        assert_eq!(read_record(&record(claimed)), None, "{claimed}");
    }
}
