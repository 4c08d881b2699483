//! The trait between those who submit calls and those who run them: leased work out, one result back. Owns what each
//! operation promises; knows neither what is in an envelope nor what a study is (CL-2, CL-3).
//!
//! Every operation is atomic and may be repeated when its reply was lost (CL-59). Times are the server's (CL-12).

use std::future::Future;
use std::time::Duration;

use crate::answers::{
    Announced, Cancelled, Committed, DeadLetter, Events, Holding, Kept, Leased, ListedQueue, Nodes,
    Opened, Place, QueueCancelled, QueueStatus, Reaped, Released, Renewed, ServerStatus, Submitted,
};
use crate::hints::Hints;
use crate::names::{Agent, Class, Consumer, QueueName, StreamId, TaskId};
use crate::terms::{Commit, Lease, NewEvent, Node, Owner, Release, Task, Terms};

/// Somebody who hands out leased work and takes results.
///
/// An `Err` of [`DispatchError::Unreachable`] says that nothing is known of what was asked: ask again, after a while that
/// the caller chooses. The next call connects again by itself.
pub trait Dispatch: Send + Sync {
    // What a coordinator does.

    /// Takes a queue, or takes it back: refused while another owner lives, else made (or found, with all that is in it),
    /// its state open, its terms noted.
    fn open(&self, queue: &QueueName, owner: &Owner, terms: &Terms) -> impl Answer<Opened>;

    /// The owner's sign of life, every 10 s (CL-39).
    fn keep(&self, queue: &QueueName, owner: &Owner) -> impl Answer<Kept>;

    /// The owner is done: an unnamed queue is deleted with all that is in it; a named one is closed (no submission, no
    /// lease), listed without a weight, and may be opened by anybody.
    fn close(&self, queue: &QueueName, owner: &Owner) -> impl Answer<Kept>;

    /// Queues a task, once.
    fn submit(&self, queue: &QueueName, task: &Task) -> impl Answer<Submitted>;

    /// [`Dispatch::submit`] of each, in order; in one round trip where there is one. Each has an answer of its own; after
    /// an `Err` nothing is known of any: ask for all again, and what came through is `Dup`.
    fn submit_all(
        &self,
        queue: &QueueName,
        tasks: &[&Task],
    ) -> impl Answer<Vec<Result<Submitted, DispatchError>>> {
        async move {
            let mut answers = Vec::with_capacity(tasks.len());
            for task in tasks {
                match self.submit(queue, task).await {
                    Err(error @ DispatchError::Unreachable { .. }) => return Err(error),
                    answer => answers.push(answer),
                }
            }
            Ok(answers)
        }
    }

    /// Records those that have waited for longer than they may (EX-46), which a lease does too. For each, after what time
    /// to ask again; none if it is not queued any more.
    fn expire(&self, queue: &QueueName, tasks: &[TaskId]) -> impl Answer<Vec<Option<Duration>>>;

    /// Up to 100 tasks whose results were not collected.
    fn left(&self, queue: &QueueName) -> impl Answer<Vec<TaskId>>;

    /// Cancels one task. A leased one is flagged: its agent hears it by a hint or at the next renewal, and commits
    /// `cancelled`; if it never does, reaping records that.
    fn cancel(&self, queue: &QueueName, task: &TaskId) -> impl Answer<Cancelled>;

    /// Cancels the queue (CL-20): leases stop, renewals answer `cancel`, and a batch of queued tasks is recorded as
    /// `cancelled`. Call again while there is `more`. [`Dispatch::open`] ends it.
    fn cancel_queue(&self, queue: &QueueName) -> impl Answer<QueueCancelled>;

    /// Stops leases, or lets them go on. Does nothing to a queue that is cancelled, closed or gone, and says so by
    /// `false`.
    fn pause(&self, queue: &QueueName, paused: bool) -> impl Answer<bool>;

    /// Where each task is, in the order asked.
    fn check(&self, queue: &QueueName, tasks: &[TaskId]) -> impl Answer<Vec<Place>>;

    /// The results of those of `tasks` that have one; then drops the results of `kept`, which the caller has stored.
    fn collect(
        &self,
        queue: &QueueName,
        tasks: &[TaskId],
        kept: &[TaskId],
    ) -> impl Answer<Vec<(TaskId, Vec<u8>)>>;

    /// Notes words that [`Dispatch::each_held`] then tells of as long as the queue is there: blobs that its owner still
    /// means to use, though no task names them now (CL-53).
    fn pin(&self, queue: &QueueName, pins: &[String]) -> impl Answer<()>;

    // What an agent does.

    /// Takes one task for a free slot. A slot that holds one (its reply was lost) is given the same again; a slot holds
    /// one at a time, so ask only with a free one.
    fn lease(&self, queue: &QueueName, class: Class, consumer: &Consumer) -> impl Answer<Leased>;

    /// Whether [`Dispatch::lease`] would find something for this slot; takes nothing, and promises nothing.
    fn waits(&self, queue: &QueueName, class: Class, consumer: &Consumer) -> impl Answer<bool>;

    /// Keeps a lease.
    fn renew(&self, lease: &Lease) -> impl Answer<Renewed>;

    /// Records a result, once, if the lease still holds.
    fn commit(&self, commit: &Commit) -> impl Answer<Committed>;

    /// [`Dispatch::commit`], then [`Dispatch::lease`] for the same slot, in one round trip where there is one. An `Err` is the
    /// commit's; the lease, of another queue perhaps, has its own. After either ask again: what came through is
    /// `Duplicate`, and the task leased is given again.
    fn commit_and_lease(
        &self,
        commit: &Commit,
        queue: &QueueName,
        class: Class,
    ) -> impl Answer<(Committed, Result<Leased, DispatchError>)> {
        async move {
            let committed = self.commit(commit).await?;
            let leased = self.lease(queue, class, &commit.lease.consumer).await;
            Ok((committed, leased))
        }
    }

    /// Gives a task back.
    fn release(&self, lease: &Lease, release: &Release) -> impl Answer<Released>;

    /// Takes back up to 100 leases of a class that were not renewed, from an entry on. `live` are the agents that serve
    /// the class now and are not draining: what all of them refused is recorded so, unless there is none (CL-38).
    fn reap(
        &self,
        queue: &QueueName,
        class: Class,
        live: &[Agent],
        from: Option<StreamId>,
    ) -> impl Answer<Reaped>;

    /// [`Dispatch::reap`], page after page.
    fn reap_all(&self, queue: &QueueName, class: Class, live: &[Agent]) -> impl Answer<Reaped> {
        async move {
            let mut all = self.reap(queue, class, live, None).await?;
            while let Some(next) = all.next {
                all.add(&self.reap(queue, class, live, Some(next)).await?);
            }
            Ok(all)
        }
    }

    /// Takes a name (CL-8). Repeated by the same agent it is a refresh.
    fn announce(&self, node: &Node) -> impl Answer<Announced>;

    /// Ends a name. `Taken` if it is another's by now, whose it stays.
    fn remove_node(&self, agent: &Agent) -> impl Answer<Announced>;

    /// Forgets a lost name. `true` for one caller only, who then tells `agent.lost`.
    fn forget_node(&self, name: &str) -> impl Answer<bool>;

    // What anybody does.

    /// Agents.
    fn nodes(&self) -> impl Answer<Nodes>;

    /// Queues, by name.
    fn queues(&self) -> impl Answer<Vec<ListedQueue>>;

    /// Tells of all that a queue holds. What comes or goes meanwhile may be told of or not.
    fn each_held(&self, queue: &QueueName, each: impl FnMut(Holding) + Send) -> impl Answer<()>;

    /// Adds events to a queue's stream, in order; none if there is no such queue.
    fn emit(&self, queue: &QueueName, events: &[NewEvent]) -> impl Answer<()>;

    /// Up to 1,000 events after an id; waits up to `wait` for the first.
    fn events(&self, queue: &QueueName, after: StreamId, wait: Duration) -> impl Answer<Events>;

    /// The newest dead letters, up to 100, oldest of them first.
    fn dead_letters(&self, queue: &QueueName) -> impl Answer<Vec<DeadLetter>>;

    /// Hints from now on: wakes of these classes, cancellations told to this agent.
    fn hints(&self, classes: &[Class], agent: Option<&str>) -> impl Answer<Hints>;

    /// A queue's numbers; none if there is no such queue.
    fn queue_status(&self, queue: &QueueName) -> impl Answer<Option<QueueStatus>>;

    /// The server's.
    fn server_status(&self) -> impl Answer<ServerStatus>;
}

/// What an operation of [`Dispatch`] returns: a future of a `T` or a [`DispatchError`], which may go to another thread.
pub trait Answer<T>: Future<Output = Result<T, DispatchError>> + Send {}

impl<T, F: Future<Output = Result<T, DispatchError>> + Send> Answer<T> for F {}

/// Why dispatch could not do its work. Never has a password in it (CL-48).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DispatchError {
    /// The server is away, or its reply did not come. Worth trying again.
    #[error("cannot reach the server `{address}`: {problem}")]
    Unreachable {
        /// Host and port, or socket.
        address: String,
        /// What stood in the way.
        problem: String,
    },
    /// The server does not let this user in, or do this. Not worth trying again (CL-48).
    #[error("the server denies `{command}` to user `{user}`{hint}")]
    Denied {
        /// The user.
        user: String,
        /// The command; or the operation, where the server does not say which command of its script it denied.
        command: String,
        /// What would mend it, where that can be told; begins with `: `.
        hint: &'static str,
    },
    /// The server is not one we can work with (CL-11, CL-70, CL-72).
    #[error("cannot use the server `{address}`: {problem}")]
    Unsuited {
        /// Host and port, or socket.
        address: String,
        /// What it lacks, and what would mend it.
        problem: String,
    },
    /// The address given cannot be one.
    #[error("bad server address: {problem}")]
    Address {
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such queue.
    #[error("there is no queue `{queue}`")]
    Gone {
        /// Which.
        queue: QueueName,
    },
    /// An envelope is larger than its bound.
    #[error("a {what} of {bytes} bytes is too large: at most {limit}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// The server answered what we do not understand, or failed.
    #[error("`{operation}` failed: {problem}")]
    Protocol {
        /// What was asked.
        operation: &'static str,
        /// What came.
        problem: String,
    },
}
