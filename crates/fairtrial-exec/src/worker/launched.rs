//! What the launcher says of a worker's process: that it is there, what it passed, that its tree is gone.

use super::current::Current;
use super::drive::{Worker, resident};
use super::{Ending, Event, Mode, State};
use crate::dispatch::{PoolNews, Unstarted};
use crate::error::EngineError;
use crate::event::ExitReason;
use crate::launcher::News;
use crate::linux::run_delay::run_delay_ns;
use crate::protocol::launcher::{End, FromLauncher, Step};
use crate::workspace::UpperDir;

impl Worker {
    pub(super) fn hear_launcher(&mut self, news: News) {
        match news {
            News::Said(FromLauncher::Spawned {
                pid,
                at_ns,
                before_ns,
                ..
            }) => self.spawned(pid, at_ns, before_ns),
            News::Said(FromLauncher::Failed { step, errno, .. }) => {
                self.never_was(Unstarted::Spawn { step, errno })
            }
            News::Said(FromLauncher::Hit {
                generation, cause, ..
            }) => {
                self.settle();
                self.stamp_end_of(generation);
                self.apply(Event::Hit { generation, cause });
            }
            News::Said(FromLauncher::Exited { end, .. }) => self.exited(end),
            News::Said(FromLauncher::Ready { .. }) => {}
            News::Upper(directory) => {
                if let Some(current) = &mut self.current {
                    current.upper = Some(UpperDir::new(directory));
                }
            }
            News::Lost => self.launcher_lost(),
        }
    }

    fn spawned(&mut self, pid: u32, at_ns: u64, before_ns: Option<u64>) {
        self.pid = Some(pid);
        self.tell(PoolNews::WorkerStarted {
            worker: self.number,
            pid,
        });
        let Some(current) = &mut self.current else {
            return;
        };
        if self.mode == Mode::Command {
            current.began(at_ns);
            current.cpu_before_ns = before_ns;
            current.dispatch.streams.input = None; // no other try: whoever writes there is to hear when nobody reads
            let generation = current.generation;
            self.apply(Event::Began { generation });
        } else if current.began_ns.is_some() {
            // Its acknowledgement was quicker than the launcher's word.
            current.base_rss_bytes = resident(pid);
            current.waited_before_ns = run_delay_ns(pid);
        }
    }

    /// There is no process, and none will be.
    fn never_was(&mut self, why: Unstarted) {
        let why = match std::mem::replace(&mut self.state, State::Gone) {
            State::Ending(Ending::NoAck) => Unstarted::Spawn {
                step: Step::Zygote,
                errno: libc::ETIMEDOUT,
            },
            _ => why,
        };
        self.clean_up();
        self.tell_gone(ExitReason::Crashed, None);
        if let Some(Current { dispatch, .. }) = self.current.take() {
            self.tell(PoolNews::Unstarted {
                worker: self.number,
                dispatch,
                why,
            });
        }
    }

    fn launcher_lost(&mut self) {
        // As before any death is judged: an acknowledged call is never run again.
        if let Some(link) = &mut self.link {
            link.drain();
        }
        self.read_frames();
        let began = self
            .current
            .as_ref()
            .is_some_and(|current| current.began_ns.is_some());
        if !began {
            return self.never_was(Unstarted::LauncherLost);
        }
        self.state = State::Gone;
        self.clean_up();
        if let Some(Current { dispatch, .. }) = self.current.take() {
            self.tell_finished(dispatch, Err(EngineError::LauncherLost), false, None);
        }
        self.tell_gone(ExitReason::Crashed, None);
    }

    /// The tree is gone: what it sent before counts, so it is read first.
    fn exited(&mut self, end: End) {
        if let Some(link) = &mut self.link {
            link.drain();
        }
        self.read_frames();
        self.closed_at = None;
        let half = self.link.as_mut().map_or(0, |link| link.take_rest().len());
        if half > 0 && end.status == 0 && matches!(self.state, State::Running { .. }) {
            let reason = format!("it ended after half a frame of {half} bytes");
            self.state = State::Ending(Ending::Misbehaved(reason));
        }
        self.apply(Event::Exited(end));
    }
}
