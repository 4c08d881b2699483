//! H1 to H13: processes, signals, privileges.

use std::time::Duration;

use fairtrial_exec::Level;
use fairtrial_exec::Verdict::{ProcessLimit, Signal, Timeout};

use super::{Check, Setting, Trial, c, ok, python, source};
use crate::expect::Expected::{Denied, Verdict};

/// Far below what the cage allows.
const FEW: u64 = 40;

pub(super) fn rows() -> Vec<Trial> {
    let bomb = |mut trial: Trial| {
        trial.limits.processes = Some(FEW);
        trial.timeout = Duration::from_secs(5);
        trial.setting = Setting::Contained(10 * FEW);
        // Where memory is sampled, pages that all of them share count for each, and may pass that limit first.
        trial.above_none(Verdict(ProcessLimit)).needs(&["memory"])
    };
    vec![
        bomb(c("H1", "C", source!("h01_fork_bomb.c"), &[])),
        bomb(python("H1", "Python", source!("h01_fork_bomb.py"), "")).fast(),
        bomb(c("H2", "C", source!("h02_thread_bomb.c"), &[])),
        bomb(python("H2", "Python", source!("h02_thread_bomb.py"), "")).fast(),
        python("H3", "daemon", source!("h03_daemon.py"), "")
            .everywhere(ok())
            .check(Check::Leaked(1))
            .fast(),
        python(
            "H4",
            "descriptors kept",
            source!("h04_keep_descriptors.py"),
            "",
        )
        .everywhere(ok())
        .check(Check::AtOnce)
        .fast(),
        python("H5", "python", source!("h05_ignore_signals.py"), "")
            .endless()
            .everywhere(Verdict(Timeout))
            .fast(),
        c("H5", "C", source!("h05_ignore_signals.c"), &[])
            .endless()
            .everywhere(Verdict(Timeout)),
        python("H6", "1,000 orphans", source!("h06_orphans.py"), "")
            .everywhere(ok())
            .fast(),
        c("H6", "10,000 orphans", source!("h06_orphans.c"), &["10000"])
            .everywhere(ok())
            .known(
                |level, uid| level == Level::None || (level == Level::Limits && uid != 0),
                "without a control group a call's dead orphans stay until it ends: its leader is their subreaper",
            ),
        python("H7", "others", source!("h07_kill_others.py"), "others")
            .above_none(Denied)
            .needs(&["signal_scope"])
            .fast(),
        python(
            "H7",
            "everybody",
            source!("h07_kill_others.py"),
            "everybody",
        )
        .above_none(Denied)
        .needs(&["signal_scope"]),
        python("H7", "its group", source!("h07_kill_others.py"), "group")
            .above_none(Verdict(Signal))
            .check(Check::Signal(9)),
        python("H8", "itself", source!("h08_stop.py"), "itself")
            .endless()
            .everywhere(Verdict(Timeout))
            .fast(),
        python("H8", "its parent", source!("h08_stop.py"), "parent")
            .above_none(Denied)
            .needs(&["signal_scope"]),
        python("H9", "", source!("h09_reach_into.py"), "")
            .above_none(Denied)
            .needs(&["capabilities"])
            .fast(),
        python(
            "H10",
            "real time",
            source!("h10_priorities.py"),
            "real_time",
        )
        .above_none(Denied)
        .needs(&["rlimits", "capabilities"]),
        python("H10", "others", source!("h10_priorities.py"), "others")
            .above_none(Denied)
            .needs(&["process_scope"])
            .fast(),
        python("H10", "itself", source!("h10_priorities.py"), "own")
            .everywhere(ok())
            .fast(),
        c("H11", "vfork", source!("h11_vfork.c"), &[])
            .endless()
            .everywhere(Verdict(Timeout))
            .fast(),
        python(
            "H11",
            "free of its parent",
            source!("h11_free_of_parent.py"),
            "",
        )
        .everywhere(ok())
        .fast(),
        python("H12", "", source!("h12_setuid.py"), "")
            .above_none(ok())
            .check(Check::EuidUnchanged)
            .fast(),
        python("H13", "namespaces", source!("h13_namespaces.py"), "")
            .at_strict(Denied).confined_as_strict()
            .needs(&["seccomp"])
            .fast(),
        python("H13", "deny-list", source!("h13_deny_list.py"), "")
            .at_strict(Denied).confined_as_strict()
            .needs(&["seccomp"]),
    ]
}
