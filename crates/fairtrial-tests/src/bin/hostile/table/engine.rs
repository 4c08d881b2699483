//! H41 to H45: the engine's own deaths and shortages.

use super::{Setting, Trial, ok, python, source, story};
use crate::expect::Expected::{Denied, EngineError, Held, NotClaimed};
use crate::stories::Story;

pub(super) fn rows() -> Vec<Trial> {
    let kill =
        |what| python("H41", what, source!("h41_kill_engine.py"), what).needs(&["signal_scope"]);
    let mut launcher = kill("launcher")
        .levels(EngineError("LauncherLost"), Denied, Denied)
        .fast();
    launcher.spares_sibling = false; // at `none`: it has lost its launcher too
    vec![
        launcher,
        kill("zygote").levels(ok(), Denied, Denied).fast(),
        kill("init").levels(NotClaimed, Denied, Denied),
        story("all", "in one batch", Story::Company)
            .above_none(Held)
            .fast(),
        story("H42", "50 calls", Story::EngineKilled).fast(),
        story("H43", "", Story::LauncherKilled).endless().fast(),
        python("H44", "", source!("h44_large.py"), "")
            .setting(Setting::SmallDisk)
            .everywhere(EngineError("Spill"))
            .fast(),
        story("H45", "descriptors", Story::FewDescriptors).fast(),
        story("H45", "tasks", Story::FewTasks).setting(Setting::FewTasks(24)),
        story("H45", "watches", Story::FewWatches),
    ]
}
