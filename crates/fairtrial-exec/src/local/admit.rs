//! Whether a call can have its level on this machine, before anything of it starts (SB-45).

use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::sync::mpsc;

use super::pool::{Pool, mode_of};
use super::start;
use crate::call::Call;
use crate::dispatch::{Dispatch, Site};
use crate::event::Event;
use crate::launcher::News;
use crate::linux::selftest::{Exhaust, SelfTest};
use crate::passed::set_passed;
use crate::protocol::launcher::{FromLauncher, Step, ToLauncher};
use crate::sandbox::{
    Lack, Level, Mechanism, Network, OnMissing, Sandbox, Trial, is_lasting, lacking, missing,
};
use crate::verdict::Verdict;
use crate::worker::Mode;
use crate::zygote::setup_error;

/// Longest that trying namespaces may take; after that the first call finds out by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// So that they are counted as a call's are.
const PROBE_PROCESSES: u64 = 16;

/// What decides which mechanisms a call needs.
pub(super) type Demand = (Level, Mode, Network);

impl Pool {
    /// A call that can have what it insists on; of what others do without is told once.
    pub(super) fn admit(&mut self, mut dispatch: Dispatch) -> Option<Dispatch> {
        if let Err(unset) = set_passed(&mut dispatch.call, &self.config.host_env) {
            let node = &self.config.node_id;
            let problem = format!("`pass_env`: not set in the environment of `{node}`: {unset}");
            self.resolve_unstarted(dispatch, Verdict::SetupFailed, setup_error(problem));
            return None;
        }
        let (call, mode) = (&dispatch.call, mode_of(&dispatch));
        let sandbox = &call.sandbox;
        if sandbox.level == Level::None {
            return Some(dispatch);
        }
        if self.means.untried(sandbox.level).is_some() && !self.untried.contains(&sandbox.level) {
            self.untried.push(sandbox.level);
        }
        if sandbox.on_missing == OnMissing::Degrade {
            // Looked at once for all calls of a kind: this is on every call's path.
            if self.demands.insert((sandbox.level, mode, sandbox.network)) {
                let missing = missing(call, mode, &self.means);
                let level = sandbox.level;
                missing
                    .iter()
                    .for_each(|one| self.tell_degraded(level, one));
            }
            return Some(dispatch);
        }
        match lacking(call, mode, &self.means) {
            Some(problem) => {
                self.resolve_unstarted(dispatch, Verdict::SetupFailed, setup_error(problem));
                None
            }
            None => Some(dispatch),
        }
    }

    fn tell_degraded(&mut self, requested: Level, mechanism: &Mechanism) {
        if self.degraded.insert(mechanism.name) {
            let reason = mechanism.why();
            log::warn!("level `{requested}` without `{}`: {reason}", mechanism.name);
            self.observers.tell(Event::Degraded {
                requested,
                mechanism: mechanism.name,
                reason,
            });
        }
    }

    /// Before the first call starts that would have namespaces: can it? If not, calls that wait are looked at again.
    pub(super) async fn try_namespaces(&mut self, site: &Site) {
        let mut lacking = false;
        for level in std::mem::take(&mut self.untried) {
            while let Some(trial) = self.means.untried(level) {
                let tried = tokio::time::timeout(PATIENCE, probe(site, trial)).await;
                let result = match (tried.ok().flatten(), trial) {
                    (Some(result), _) => result,
                    (None, Trial::World) => break, // nothing was learnt; the calls' own set-up will tell
                    (None, Trial::Fallback | Trial::Mounts) => Err(Lack::unknown()), // and they can do without
                };
                self.means.tried(trial, result);
                lacking |= result.is_err();
            }
        }
        if lacking {
            self.demands.clear();
            for dispatch in self.queue.drain_all() {
                self.enter_queue(dispatch);
            }
        }
    }
}

/// Sets up a process as of any call of a level, which then does nothing. `None` if that says nothing about namespaces.
async fn probe(site: &Site, trial: Trial) -> Option<Result<(), Lack>> {
    let mut call = Call::command(["fairtrial-probe"]);
    call.sandbox = Sandbox::new(trial.level());
    call.limits.processes = Some(PROBE_PROCESSES);
    call.self_test = Some(SelfTest {
        exhaust: Some(Exhaust::Memory(0)),
        ..SelfTest::default()
    });
    let scratch = site.context.make_scratch().ok()?;
    let mut program = start::program(site, &call, "fairtrial-probe", scratch.path());
    if let (Trial::Mounts, Some(confine)) = (trial, &mut program.confine) {
        // Of these nothing is known yet.
        (confine.namespaces, confine.user_tasks) = (None, None);
    }
    let null: OwnedFd = std::fs::File::open("/dev/null").ok()?.into();
    let fds = vec![null.try_clone().ok()?, null.try_clone().ok()?, null];
    let (sender, mut news) = mpsc::unbounded_channel();
    let task = site.launcher.open(sender);
    site.launcher.send(ToLauncher::Spawn { task, program }, fds);
    let mut result = None;
    loop {
        match news.recv().await {
            Some(News::Said(FromLauncher::Spawned { .. })) => result = Some(Ok(())),
            Some(News::Said(FromLauncher::Failed { step, errno, .. })) => {
                result = concerns_namespaces(step, errno).then(|| Err(Lack::at(step, errno)));
                break;
            }
            Some(
                News::Said(FromLauncher::Hit { .. } | FromLauncher::Ready { .. }) | News::Upper(_),
            ) => {}
            Some(News::Said(FromLauncher::Exited { .. }) | News::Lost) | None => break,
        }
    }
    site.context.return_scratch(scratch);
    result
}

fn concerns_namespaces(step: Step, errno: i32) -> bool {
    let steps = [Step::Clone, Step::Namespaces, Step::Mounts, Step::Network];
    steps.contains(&step) && is_lasting(errno)
}
