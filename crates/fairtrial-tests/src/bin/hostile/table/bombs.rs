//! H14 to H23: memory, processor, clocks, disks, descriptors.

use std::time::Duration;

use fairtrial_exec::Limits;
use fairtrial_exec::Verdict::{CpuLimit, DiskLimit, Exception, MemoryLimit, Signal, Timeout};

use super::{Check, Trial, c, ok, python, source};
use crate::expect::Expected::{Denied, NotClaimed, OneOf, Verdict};
use crate::places::MEMORY_BYTES;

pub(super) fn rows() -> Vec<Trial> {
    [memory(), stacks_and_loops(), waits_and_ends(), disks()].concat()
}

fn memory() -> Vec<Trial> {
    let way = |what| {
        let mut trial = python("H14", what, source!("h14_memory.py"), what).limits(little_memory);
        trial.timeout = Duration::from_secs(10); // where memory is looked at now and then, some ways are not seen
        trial
    };
    let counted = |what| {
        way(what)
            .above_none(Verdict(MemoryLimit))
            .needs(&["memory"])
    };
    vec![
        way("one process").above_none(Verdict(MemoryLimit)).fast(),
        way("50 children").above_none(Verdict(MemoryLimit)),
        counted("shared mapping"),
        counted("/dev/shm"),
        counted("memory file"),
        way("scratch")
            .levels(
                NotClaimed,
                Verdict(MemoryLimit),
                OneOf(&[MemoryLimit, DiskLimit]),
            )
            .needs(&["memory"]),
        counted("populate"),
        way("page cache").above_none(ok()),
        python("H15", "mlockall", source!("h15_lock_memory.py"), "lock")
            .above_none(Denied)
            .needs(&["rlimits"])
            .fast(),
        python("H15", "swap", source!("h15_lock_memory.py"), "swap")
            .limits(little_memory)
            .above_none(Verdict(MemoryLimit)),
        python("H16", "", source!("h16_reserve.py"), "")
            .everywhere(ok())
            .check(Check::Value("1099511627776"))
            .fast(),
    ]
}

fn little_memory(limits: &mut Limits) {
    limits.memory_bytes = Some(MEMORY_BYTES);
}

fn stacks_and_loops() -> Vec<Trial> {
    let endless = |what| {
        python("H18", what, source!("h18_loop.py"), what)
            .endless()
            .everywhere(Verdict(Timeout))
    };
    let half_a_second = |limits: &mut Limits| limits.cpu = Some(Duration::from_millis(500));
    vec![
        c("H17", "C", source!("h17_recursion.c"), &[])
            .everywhere(Verdict(Signal))
            .check(Check::Signal(11))
            .fast(),
        python("H17", "Python", source!("h17_recursion.py"), "")
            .everywhere(OneOf(&[Signal, Exception])),
        endless("python").fast(),
        endless("lock").fast(),
        endless("expression"),
        endless("integer"),
        c("H18", "C", source!("h18_loop.c"), &[])
            .endless()
            .everywhere(Verdict(Timeout)),
        python("H18", "python, limited", source!("h18_loop.py"), "python")
            .limits(half_a_second)
            .above_none(Verdict(CpuLimit))
            .fast(),
        c("H18", "C, limited", source!("h18_loop.c"), &[])
            .limits(half_a_second)
            .above_none(Verdict(CpuLimit)),
    ]
}

fn waits_and_ends() -> Vec<Trial> {
    let wait = |what| {
        python("H19", what, source!("h19_wait.py"), what)
            .endless()
            .everywhere(Verdict(Timeout))
            .check(Check::Idle)
    };
    let ends = |what| {
        python("H20", what, source!("h20_teardown.py"), what)
            .everywhere(ok())
            .check(Check::AtOnce)
            .check(Check::Value("\"answered\""))
    };
    vec![
        wait("sleep"),
        wait("deadlock").fast(),
        wait("select"),
        wait("pause"),
        ends("atexit").fast(),
        ends("finalizer"),
        ends("thread"),
        ends("crash").fast(),
        python("H21", "clocks", source!("h21_forge_metrics.py"), "clocks")
            .everywhere(ok())
            .check(Check::TrueMetrics)
            .fast(),
        // At `none` a program may write to `/proc/self/clear_refs` (SB-36).
        python("H21", "peak", source!("h21_forge_metrics.py"), "peak")
            .above_none(ok())
            .check(Check::TrueMetrics),
    ]
}

fn disks() -> Vec<Trial> {
    let way = |what| {
        python("H22", what, source!("h22_fill_disk.py"), what)
            .limits(|limits| limits.file_bytes = Some(MEMORY_BYTES))
    };
    let cleaned_up = OneOf(&[
        fairtrial_exec::Verdict::Ok,
        Exception,
        DiskLimit,
        MemoryLimit,
    ]);
    let filled = |what| way(what).levels(NotClaimed, cleaned_up, Verdict(DiskLimit));
    // Landlock looks at every directory above, each time: the deadline may come first.
    let mut levels = way("levels").levels(
        NotClaimed,
        OneOf(&[fairtrial_exec::Verdict::Ok, DiskLimit, Timeout]),
        OneOf(&[DiskLimit, Timeout]),
    );
    levels.timeout = Duration::from_secs(8);
    vec![
        way("big file").above_none(Verdict(DiskLimit)).fast(),
        way("sparse").above_none(Verdict(DiskLimit)).fast(),
        filled("many files"),
        filled("inodes"),
        levels,
        filled("entries"),
        python("H23", "", source!("h23_descriptors.py"), "")
            .limits(|limits| limits.open_files = Some(100))
            .above_none(Verdict(Exception))
            .check(Check::ErrorType("OSError"))
            .fast(),
    ]
}
