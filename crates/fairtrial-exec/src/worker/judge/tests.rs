use super::words::stacks;
use super::*;
use crate::outcome::FirstRun;
use crate::protocol::launcher::LeafCounts;
use crate::sandbox::InForce;

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

fn timed_out(wait_ns: u64, tried_alone: bool) -> Answer {
    let metrics = Metrics {
        wall_ns: Some(100),
        wait_ns: Some(wait_ns),
        ..Metrics::default()
    };
    let verdict = Verdict::Timeout;
    let first = FirstRun {
        verdict,
        metrics: metrics.clone(),
    };
    Ok(Outcome {
        verdict,
        value: None,
        error: None,
        exit: None,
        killed_by: None,
        stdout: Captured::default(),
        stderr: Captured::default(),
        metrics,
        in_force: InForce::default(),
        tried_alone: tried_alone.then(|| Box::new(first)),
        upper: None,
    })
}

fn used(used_ns: u64, shared: bool) -> End {
    End {
        host_memory: false,
        shortage: None,
        status: 0,
        at_ns: 0,
        user_ns: 0,
        system_ns: 0,
        max_rss_bytes: 0,
        sampled_rss_bytes: None,
        wait_ns: None,
        cpu_use: Some(CpuUse { used_ns, shared }),
        counts: Default::default(),
        leaked: 0,
        survivors: 0,
        scratch_full: false,
        upper_full: false,
        passed: None,
        leaf: None,
        counted: Vec::new(),
    }
}

/// FA-7: an answer that a call gave without some of its processes may be another than it gives with them.
#[test]
fn a_call_that_lost_processes_to_the_hosts_want_of_memory_lacked_memory_whatever_it_answered() {
    let end = |host_memory, memory_limit| End {
        leaf: Some(Box::new(LeafCounts {
            host_memory,
            memory_limit,
            ..LeafCounts::default()
        })),
        ..used(0, false)
    };
    let answer = |verdict| timed_out(0, false).map(|outcome| Outcome { verdict, ..outcome });
    assert!(lacked_memory(&answer(Verdict::Ok), &end(true, false)));
    assert!(!lacked_memory(&answer(Verdict::Ok), &end(false, false)));
    assert!(!lacked_memory(
        &answer(Verdict::MemoryLimit),
        &end(true, true)
    ));
    assert!(!lacked_memory(
        &answer(Verdict::Cancelled),
        &end(true, false)
    ));
    assert!(lacked_memory(
        &Err(EngineError::HostMemory),
        &used(0, false)
    ));
}

/// FA-5, FA-8: what ended well, or at a limit of its own, did not end because of others.
#[test]
fn only_what_may_come_of_a_shortage_is_run_again() {
    let mut call = Call::command(["true"]);
    call.sandbox.level = Level::Limits;
    let answer = |verdict| timed_out(0, false).map(|outcome| Outcome { verdict, ..outcome });
    let end = |shortage| End {
        shortage,
        ..used(0, false)
    };
    let by = |shortage: Shared| -> Vec<Verdict> {
        let lacks = |verdict: &Verdict| {
            let lacked = lacked(&call, &answer(*verdict), &end(Some(shortage)));
            assert!(lacked.is_none_or(|lacked| lacked == shortage));
            lacked.is_some()
        };
        Verdict::ALL.into_iter().filter(lacks).collect()
    };
    let failures = [
        Verdict::SetupFailed,
        Verdict::Signal,
        Verdict::Exit,
        Verdict::Exception,
        Verdict::BadResult,
        Verdict::NoResult,
    ];
    assert_eq!(by(Shared::TcpPorts), failures);
    assert_eq!(by(Shared::FileLock), [Verdict::Timeout]);
    let failed = answer(Verdict::Exception);
    assert_eq!(lacked(&call, &failed, &end(None)), None);
    let no_room = || {
        Err(EngineError::Spill {
            needed: 2,
            free: 1,
            dir: "/".into(),
        })
    };
    let full = end(Some(Shared::ScratchDisk));
    assert_eq!(lacked(&call, &no_room(), &full), Some(Shared::ScratchDisk));
    assert_eq!(
        lacked(&call, &no_room(), &end(Some(Shared::UdpPorts))),
        None
    );
    call.sandbox.level = Level::None;
    assert_eq!(lacked(&call, &failed, &full), None);
}

/// FA-15: a run beside others is in doubt, one alone only if it was not alone after all; and none that slept.
#[test]
fn a_time_out_is_in_doubt_if_others_had_the_processor() {
    let mut call = Call::command(["true"]);
    (call.timeout, call.time) = (Some(Duration::from_nanos(50)), Time::Cpu);
    let doubt = |wait_ns, alone, end: &End| is_in_doubt(&call, &timed_out(wait_ns, alone), end);
    assert!(doubt(0, false, &used(51, true)));
    assert!(!doubt(0, false, &used(51, false)));
    assert!(!doubt(90, false, &used(50, true)), "it slept");
    assert!(!doubt(10, true, &used(51, true)));
    assert!(doubt(11, true, &used(51, true)));
    call.time = Time::Wall;
    assert!(!is_in_doubt(&call, &timed_out(90, false), &used(51, true)));
}
