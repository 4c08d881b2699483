//! The backend's answer to one call, or that we stopped it.

use fairtrial_exec::{Backend, Call, EngineError, Outcome, Verdict};

use super::Tools;
use crate::runner::Stop;

/// What became of a call.
pub(super) enum Answer {
    Came(Box<Outcome>),
    Failed(EngineError),
    /// By us. What is known of its end, where it had begun and the backend told.
    Stopped(Option<Box<Outcome>>),
    /// By us, and it had not begun.
    Unbegun,
}

/// Runs a call, unless it is stopped; then it has its grace to end.
pub(super) async fn answer<B: Backend>(tools: &mut Tools<B>, mut call: Call) -> Answer {
    call.cancel_grace = tools.grace;
    let beginning = call.beginning.clone();
    let cancelled = async {
        // An error is that nobody can stop us any more.
        if tools
            .stop
            .wait_for(|stop| *stop >= Stop::Cancel)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    };
    let answer = tools.backend.execute_unless(call, cancelled).await;
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
