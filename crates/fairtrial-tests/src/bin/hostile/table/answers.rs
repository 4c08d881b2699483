//! H35 to H40: output, answers that are none, ends of every kind.

use fairtrial_exec::ResultFormat;
use fairtrial_exec::Verdict::{
    self, BadResult, DiskLimit, Exception, Forbidden, NoResult, OutputLimit, Timeout,
};

use super::{Check, Trial, c, ok, python, source, story};
use crate::expect::Expected::{self, EngineError, OneOf};
use crate::stories::Story;

pub(super) fn rows() -> Vec<Trial> {
    [output(), frames(), pickles(), exits(), crashes(), execs()].concat()
}

fn is(verdict: Verdict) -> Expected {
    Expected::Verdict(verdict)
}

fn output() -> Vec<Trial> {
    let little = |trial: Trial| {
        trial
            .limits(|limits| limits.output_bytes = Some(4 << 20))
            .everywhere(is(OutputLimit))
            .check(Check::AtOnce)
    };
    vec![
        little(python("H35", "stdout", source!("h35_print.py"), "stdout")).fast(),
        little(python("H35", "stderr", source!("h35_print.py"), "stderr")),
        little(c("H35", "C", source!("h35_print.c"), &[])),
        story("H35", "terminal", Story::Terminal).fast(),
    ]
}

fn frames() -> Vec<Trial> {
    let frame =
        |what| python("H36", what, source!("h36_frames.py"), what).everywhere(is(BadResult));
    vec![
        frame("4 GiB").fast(),
        frame("negative"),
        frame("half").fast(),
        frame("deep"),
        frame("bomb"),
        frame("nested bomb"),
        frame("shape"),
        frame("shape that wraps"),
        frame("file"),
        // EX-62: no disk has room for what it claims; with a limit on files that is said first.
        frame("huge file").levels(EngineError("Spill"), is(DiskLimit), is(DiskLimit)),
        frame("junk"),
        frame("two")
            .everywhere(OneOf(&[BadResult, Verdict::Ok]))
            .fast(),
        frame("late").endless().everywhere(is(Timeout)),
    ]
}

fn pickles() -> Vec<Trial> {
    let mut pickle = python("H37", "pickle", source!("h37_pickles.py"), "")
        .everywhere(ok())
        .fast();
    pickle.result = ResultFormat::Pickle; // what it would make is not there: the census sees to that
    vec![
        python("H37", "data", source!("h37_pickles.py"), "")
            .everywhere(is(BadResult))
            .fast(),
        python("H37", "nested", source!("h37_pickles.py"), "nested").everywhere(is(BadResult)),
        pickle,
    ]
}

fn exits() -> Vec<Trial> {
    let way = |what| python("H38", what, source!("h38_exit.py"), what);
    let raised = |what, kind| {
        way(what)
            .everywhere(is(Exception))
            .check(Check::ErrorType(kind))
    };
    vec![
        raised("sys.exit(0)", "SystemExit").fast(),
        raised("sys.exit(3)", "SystemExit"),
        raised("sys.exit(text)", "SystemExit"),
        raised("SystemExit", "SystemExit"),
        raised("KeyboardInterrupt", "KeyboardInterrupt"),
        way("os._exit(0)").everywhere(is(NoResult)).fast(),
        way("thread").everywhere(ok()),
    ]
}

fn crashes() -> Vec<Trial> {
    let by = |what, signal| {
        python("H39", what, source!("h39_crash.py"), what)
            .everywhere(is(Verdict::Signal))
            .check(Check::Signal(signal))
    };
    let by_doing = |variant, words, signal| {
        c("H39", variant, source!("h39_crash.c"), words)
            .everywhere(is(Verdict::Signal))
            .check(Check::Signal(signal))
    };
    vec![
        by("SIGABRT", 6),
        by("SIGSEGV", 11).fast(),
        by("SIGBUS", 7),
        by("SIGFPE", 8),
        by("SIGILL", 4),
        by("SIGTRAP", 5),
        by("SIGSYS", 31)
            .levels(is(Verdict::Signal), is(Verdict::Signal), is(Forbidden))
            .confined_as_strict(),
        by("fatal", 6).fast(),
        by_doing("abort, C", &["abort"], 6),
        by_doing("SEGV, C", &["segv"], 11),
        by_doing("BUS, C", &["bus"], 7),
        by_doing("FPE, C", &["fpe"], 8),
        by_doing("ILL, C", &["ill"], 4),
        // SB-61: with 0 a handler that reads cores from a pipe would still be started.
        python("H39", "core limit", source!("h39_crash.py"), "core limit")
            .above_none(ok())
            .check(Check::Value("[1,1]")),
    ]
}

/// EX-63 has its own word for a socket that was closed by a process that goes on, for 20 ms or for ever.
fn execs() -> Vec<Trial> {
    vec![
        python("H40", "true", source!("h40_exec.py"), "true")
            .everywhere(OneOf(&[NoResult, BadResult]))
            .fast(),
        python("H40", "for ever", source!("h40_exec.py"), "for ever")
            .endless()
            .everywhere(OneOf(&[NoResult, BadResult, Timeout])),
    ]
}
