//! The loop over a backend: which run is next, how many at once, when to stop. What a run does is in `job.rs`.

use std::sync::Arc;

use fairtrial_exec::Backend;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::job::{Done, Job, JobEnd, Tools};
use crate::journal::{Journal, JournalError, Status};
use crate::plan::{Action, Decide, Decision, Picker, Plan};
use crate::ready::Ready;
use crate::recorded::Recorded;
use crate::study::{FailurePolicy, FailureTrigger};

/// So many calls per worker wait in the backend while runs are short (ST-42): then a worker that is done has its next at
/// once, and many records share a commit. Beside long runs they would only make more to take back.
const AHEAD: usize = 4;

/// Whether runs go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// They do.
    No,
    /// None starts any more; those that run finish.
    Drain,
    /// None starts any more; those that run are stopped, and recorded as cancelled.
    Cancel,
    /// As well, and nobody waits for them: what they ended with is not known.
    Leave,
    /// As well, and tables are not written. Whoever says so also ends the backend, which else waits for the grace of those
    /// that run (ST-55).
    Now,
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Everything that was to do is done.
    Finished,
    /// The policy on failures struck.
    Stopped,
    /// Somebody asked for it.
    Interrupted,
    /// The backend can run nothing any more.
    Failed,
}

impl End {
    /// As the journal has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

/// What became of the runs of one invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Of the plan.
    pub planned: u64,
    /// Taken from the record.
    pub reused: u64,
    /// Ended, by [`Status`] in the order of [`Status::ALL`].
    pub ended: [u64; 8],
    /// Successes after a retry.
    pub retried: u64,
    /// Evaluations that did not go well.
    pub evaluations_failed: u64,
    /// Under way.
    pub running: u64,
}

impl Tally {
    /// Runs that ended so.
    #[must_use]
    pub fn of(&self, status: Status) -> u64 {
        self.ended[status as usize]
    }

    /// Runs that ended, whatever way.
    #[must_use]
    pub fn all_ended(&self) -> u64 {
        self.ended.iter().sum()
    }

    /// Runs that ended after they had begun.
    #[must_use]
    pub fn all_begun(&self) -> u64 {
        self.all_ended() - self.of(Status::Skipped)
    }

    /// Runs that count as failures (ST-51).
    #[must_use]
    pub fn failures(&self) -> u64 {
        let failures = Status::ALL.into_iter().filter(|status| status.is_failure());
        failures.map(|status| self.of(status)).sum()
    }

    fn count(&mut self, end: &JobEnd) {
        self.ended[end.status as usize] += 1;
        self.retried += u64::from(end.status == Status::Success && end.tries > 1);
        self.evaluations_failed += u64::from(end.evaluation_failed);
    }
}

/// Runs what is to be run. `told` hears of every end; `stop` is watched throughout. An error of the backend's that would
/// be every run's ends it, and is told.
pub(crate) async fn run<B: Backend + 'static>(
    site: &Site<'_, B>,
    mut stop: watch::Receiver<Stop>,
    mut told: impl FnMut(&Tally),
) -> Result<(End, Tally, Option<String>), Arc<JournalError>> {
    let policy = &site.plan.study.on_failure;
    let (own_stop, halt) = watch::channel(Stop::No);
    let (recorded, mut told_of) = mpsc::unbounded_channel();
    let tools = Tools {
        backend: Arc::clone(&site.backend),
        journal: Arc::clone(&site.journal),
        invocation: site.invocation,
        grace: policy.grace,
        stop: halt,
        recorded,
        broken: Arc::default(),
    };
    let mut todo = Todo::new(site);
    let mut running = JoinSet::new();
    let mut tally = Tally {
        planned: site.plan.len(),
        ..Tally::default()
    };
    // Ended, whether recorded or not: the policy decides by these, before anything else starts.
    let mut ended = Tally::default();
    let mut unrecorded = None;
    let mut end = End::Finished;
    let mut most = site.workers;
    let asked = *stop.borrow_and_update();
    if asked != Stop::No {
        end = End::Interrupted;
        own_stop.send_replace(asked);
    }
    loop {
        let mut is_looking = false;
        while *own_stop.borrow() == Stop::No && running.len() < most && !is_looking {
            match todo.next(&mut tally) {
                Ok(Next::Job(job, decision)) => {
                    running.spawn(job.perform(tools.clone(), decision, unrecorded.take()));
                }
                Ok(Next::Later) => is_looking = true,
                Ok(Next::Nothing) => break,
                Err(error) => return fail(&own_stop, running, error).await,
            }
        }
        tally.running = running.len() as u64;
        if let Some(done) = unrecorded.take() {
            match Done::commit(done, &tools.journal).await {
                Ok(job_end) => _ = tools.recorded.send(job_end), // to ourselves
                Err(error) => return fail(&own_stop, running, error).await,
            }
        }
        while let Ok(job_end) = told_of.try_recv() {
            tally.count(&job_end);
            told(&tally);
        }
        tokio::select! {
            biased;
            Ok(()) = stop.changed() => {
                end = End::Interrupted;
                own_stop.send_replace(*stop.borrow_and_update());
            }
            joined = running.join_next() => match joined {
                None if !is_looking => break,
                None => {}
                Some(Ok(Ok(done))) => {
                    ended.count(&done.end);
                    most = site.workers * if done.end.was_short { 1 + AHEAD } else { 1 };
                    unrecorded = Some(done);
                    if end != End::Interrupted && tools.broken.get().is_some() {
                        end = End::Failed;
                        own_stop.send_replace(Stop::Leave);
                    }
                    if end == End::Finished && strikes(policy, &ended) {
                        end = End::Stopped;
                        own_stop.send_replace(if policy.drain { Stop::Drain } else { Stop::Cancel });
                    }
                }
                Some(Ok(Err(error))) => return fail(&own_stop, running, error).await,
                // A task of ours that panicked: the record says that its run began and no more.
                Some(Err(_)) => tally.ended[Status::Lost as usize] += 1,
            },
            Some(job_end) = told_of.recv() => {
                tally.count(&job_end);
                told(&tally);
            }
            () = tokio::task::yield_now(), if is_looking => {}
        }
    }
    let broken = tools.broken.get().filter(|_| end == End::Failed);
    Ok((end, tally, broken.map(ToString::to_string)))
}

/// The journal cannot be written any more: what runs is stopped, since nobody would know how it ended.
async fn fail<T: 'static, R>(
    stop: &watch::Sender<Stop>,
    mut running: JoinSet<T>,
    error: Arc<JournalError>,
) -> Result<R, Arc<JournalError>> {
    stop.send_replace(Stop::Cancel);
    while running.join_next().await.is_some() {}
    Err(error)
}

/// Whether the policy on failures strikes (ST-51).
fn strikes(policy: &FailurePolicy, tally: &Tally) -> bool {
    let failures = tally.failures();
    match policy.trigger {
        FailureTrigger::Never => false,
        FailureTrigger::After(most) => failures >= most,
        FailureTrigger::Above { fraction, min_runs } => {
            let ended = tally.of(Status::Success) + failures;
            ended >= min_runs && failures as f64 > fraction * ended as f64
        }
    }
}

/// Everything the loop works with.
pub(crate) struct Site<'s, B> {
    /// What is planned.
    pub plan: &'s Plan<'s>,
    /// Its programs.
    pub ready: &'s Ready,
    /// What is recorded.
    pub recorded: &'s Recorded<'s>,
    /// Where it is recorded.
    pub journal: Arc<Journal>,
    /// Who runs it.
    pub backend: Arc<B>,
    /// How many at once.
    pub workers: usize,
    /// This invocation's number.
    pub invocation: i64,
}

/// So many recorded runs are passed over before others get a chance: each may be a question to the journal.
const PASSED_OVER: usize = 256;

/// What is next to do.
enum Next {
    Job(Box<Job>, Decision),
    /// Unknown: there is more to look at.
    Later,
    Nothing,
}

/// The runs that are to be run, in their order, each decided upon as its turn comes.
struct Todo<'s, B> {
    site: &'s Site<'s, B>,
    picker: Picker<'s>,
    order: std::vec::IntoIter<u32>,
}

impl<'s, B> Todo<'s, B> {
    fn new(site: &'s Site<'s, B>) -> Self {
        Self {
            site,
            picker: site.plan.picker(),
            order: site.plan.run_order().into_iter(),
        }
    }

    fn next(&mut self, tally: &mut Tally) -> Result<Next, Arc<JournalError>> {
        let site = self.site;
        for index in self.order.by_ref().take(PASSED_OVER) {
            let run = self.picker.run(index);
            let decision = site.recorded.decide(&run).map_err(Arc::new)?;
            if decision.action == Action::Reuse {
                tally.reused += 1;
                continue;
            }
            let past = site.recorded.past(&run);
            if let Some(job) = Job::new(site.ready, &run, past, decision.action) {
                return Ok(Next::Job(Box::new(job), decision));
            }
        }
        Ok(match self.order.len() {
            0 => Next::Nothing,
            _ => Next::Later,
        })
    }
}
