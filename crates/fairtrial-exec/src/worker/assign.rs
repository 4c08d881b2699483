//! A call becomes a worker's own: its frame and its directory made ready, its streams opened, the frame sent.

use super::Event;
use super::call_frame::{CallFrame, call_frame};
use super::current::Current;
use super::drive::Worker;
use super::initialize::Initializer;
use crate::call::Work;
use crate::dispatch::Dispatch;
use crate::error::EngineError;
use crate::linux::monotonic::now_ns;
use crate::protocol::Kind;
use crate::scratch::ScratchDir;

impl Worker {
    /// A Python call for a worker that waits for one.
    pub(crate) fn assigned(&mut self, dispatch: Dispatch, generation: u32) {
        match self.prepare(&dispatch) {
            Ok((frame, scratch)) => {
                self.reset_peak();
                self.take(dispatch, generation, Some(frame), scratch);
            }
            Err(error) => self.refuse(dispatch, error),
        }
    }

    /// A call's frame, and its scratch directory if it is to have one.
    pub(crate) fn prepare(
        &mut self,
        dispatch: &Dispatch,
    ) -> Result<(CallFrame, Option<ScratchDir>), EngineError> {
        let scratch = match (&dispatch.call.work, self.own_scratch.pop()) {
            (Work::Source(_), Some(scratch)) => Some(scratch),
            (Work::Source(_), None) => Some(self.site.context.make_scratch()?),
            (_, unused) => {
                self.own_scratch.extend(unused);
                None
            }
        };
        match call_frame(
            &self.site,
            &dispatch.call,
            &self.id,
            self.mode,
            scratch.as_ref(),
            &mut self.said_before,
        ) {
            Ok(frame) => Ok((frame, scratch)),
            Err(error) => {
                self.keep_scratch(scratch);
                Err(error)
            }
        }
    }

    /// Makes a call this worker's own.
    pub(crate) fn take(
        &mut self,
        dispatch: Dispatch,
        generation: u32,
        frame: Option<CallFrame>,
        scratch: Option<ScratchDir>,
    ) {
        // What it wrote between calls is nobody's.
        self.stdout.drain_known();
        self.stderr.drain_known();
        self.open_streams(&dispatch);
        let ack_timeout = self.site.context.config.ack_timeout;
        let current = Current::new(dispatch, generation, ack_timeout);
        self.current = Some(Current {
            frame,
            scratch,
            ..current
        });
        self.apply(Event::Assigned { generation });
    }

    /// What is written from now on is this call's.
    pub(super) fn open_streams(&mut self, dispatch: &Dispatch) {
        for output in [&mut self.stdout, &mut self.stderr] {
            output.take(dispatch.call.capture_bytes);
            output.lead_to(dispatch.streams.output.clone());
        }
    }

    /// Unless it has an initializer to run first: then when that has returned.
    pub(super) fn send_call(&mut self) {
        let Some(current) = self
            .current
            .as_mut()
            .filter(|_| self.initializer == Initializer::None)
        else {
            return;
        };
        if let (Some(link), Some(frame)) = (&mut self.link, current.frame.take()) {
            current.sent_ns = now_ns();
            link.send(Kind::Call, current.generation, &frame.payload, frame.body);
        }
    }

    pub(crate) fn refuse(&mut self, dispatch: Dispatch, error: EngineError) {
        self.tell_finished(dispatch, Err(error), true, None);
    }

    /// A worker that served before starts the next call with its present size as the peak (EX-83).
    pub(super) fn reset_peak(&mut self) {
        if let Some(files) = self.proc_files.as_ref().filter(|_| self.peak_is_stale) {
            // If it cannot be reset it is not exact, and `measure` says so by leaving it out.
            self.peak_is_stale = files.reset_peak().is_err();
        }
    }
}
