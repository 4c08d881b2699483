//! The backend's answer to one call, or that we stopped it.

use std::time::Duration;

use fairtrial_exec::{Backend, Call, EngineError, Outcome, Verdict};

use tokio::sync::watch;

use super::Tools;
use crate::runner::Stop;

/// What became of a call.
pub(super) enum Answer {
    Came(Box<Outcome>),
    Failed(EngineError),
    /// By us. What is known of its end, where it had begun and the backend told.
    Stopped(Option<Box<Outcome>>),
    /// By us, and it had not begun; or the backend ended, and with it the study.
    Unbegun,
}

/// A backend that is ended answers at once, and one whose server is away never.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs a call, unless it is stopped; then it has its grace to end.
pub(super) async fn answer<B: Backend>(tools: &Tools<B>, mut call: Call) -> Answer {
    call.cancel_grace = tools.grace;
    let beginning = call.beginning.clone();
    let left = async {
        if told(&tools.stop, Stop::Leave).await == Stop::Now {
            tokio::time::sleep(PATIENCE).await;
        }
    };
    let cancelled = async {
        told(&tools.stop, Stop::Cancel).await;
    };
    let answer = tokio::select! {
        biased;
        answer = tools.backend.execute_unless(call, cancelled) => answer,
        () = left => None,
    };
    let answer = match answer {
        // Of this call nothing is known; whoever goes on with the study asks for it again.
        Some(Err(error)) if error.is_of_backend() => {
            tools.broken.set(error).ok(); // the first is told
            None
        }
        answer => answer,
    };
    let is_stopped = *tools.stop.borrow() >= Stop::Cancel;
    match answer {
        Some(Ok(outcome)) if !(is_stopped && outcome.verdict == Verdict::Cancelled) => {
            Answer::Came(Box::new(outcome))
        }
        Some(Err(error)) if !is_stopped => Answer::Failed(error),
        // A worker that had it may have begun before the engine heard of that.
        Some(Ok(outcome)) if beginning.is_past() || outcome.metrics.worker_pid.is_some() => {
            Answer::Stopped(Some(Box::new(outcome)))
        }
        _ if !beginning.is_past() => Answer::Unbegun,
        _ => Answer::Stopped(None),
    }
}

/// Until runs are to stop at least so much: how much. For ever, where nobody can say so any more.
async fn told(stop: &watch::Receiver<Stop>, least: Stop) -> Stop {
    let mut stop = stop.clone();
    let told = stop.wait_for(|stop| *stop >= least).await.ok();
    match told.map(|stop| *stop) {
        Some(stop) => stop,
        None => std::future::pending().await,
    }
}
