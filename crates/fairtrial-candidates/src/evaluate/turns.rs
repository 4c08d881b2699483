//! The machine's lock as an evaluation takes it: a wait for another evaluation is told once, and its time is counted (CA-62).

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fairtrial_exec::{Held, Holder, LockError, MachineLock};

use super::event::Event;
use super::telling::Audience;

/// An evaluation's turns at running beside others, or alone.
#[derive(Debug)]
pub(crate) struct Turns {
    lock: MachineLock,
    audience: Audience,
    waits: Waits,
    /// Processes that were waited for: two evaluations take turns block by block, and tests wait several at a time.
    told: Mutex<BTreeSet<Option<u32>>>,
}

impl Turns {
    pub(crate) fn new(lock: MachineLock, audience: Audience) -> Self {
        Self {
            lock,
            audience,
            waits: Waits::default(),
            told: Mutex::default(),
        }
    }

    /// Beside others who do not measure.
    pub(crate) async fn shared(&self, label: &str) -> Result<Held, LockError> {
        let mut waiting = None;
        let tell = |holder: Holder| waiting = Some(self.wait(&holder));
        self.lock.shared(label, tell).await
    }

    /// Alone on the machine. Whoever shows progress does so before, and not beside a measured process (CA-94).
    pub(crate) async fn exclusive(&self, label: &str) -> Result<Held, LockError> {
        tokio::task::yield_now().await;
        let mut waiting = None;
        let tell = |holder: Holder| waiting = Some(self.wait(&holder));
        self.lock.exclusive(label, tell).await
    }

    /// For how long anything of this evaluation waited for others.
    pub(crate) fn waited(&self) -> Duration {
        self.waits.total(Instant::now())
    }

    fn wait(&self, holder: &Holder) -> Waiting<'_> {
        let is_new = self
            .told
            .lock()
            .expect("nothing panics under the lock")
            .insert(holder.pid);
        if is_new {
            self.audience.tell(Event::LockWait {
                holder: shown(holder),
            });
        }
        self.waits.begin(Instant::now());
        Waiting(&self.waits)
    }
}

/// Who is in the way, for people.
fn shown(holder: &Holder) -> String {
    let label = holder.label.as_deref().unwrap_or("somebody");
    match holder.pid {
        Some(pid) => format!("{label} (process {pid})"),
        None => label.to_owned(),
    }
}

/// Somebody waits until this is dropped.
#[derive(Debug)]
struct Waiting<'a>(&'a Waits);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.end(Instant::now());
    }
}

/// The time in which anybody waits; that of several who wait at once counts once.
#[derive(Debug, Default)]
struct Waits(Mutex<Tally>);

#[derive(Debug, Default)]
struct Tally {
    waiting: u32,
    since: Option<Instant>,
    total: Duration,
}

impl Tally {
    fn until(&self, now: Instant) -> Duration {
        let since = self.since.map(|since| now.saturating_duration_since(since));
        self.total + since.unwrap_or_default()
    }
}

impl Waits {
    fn begin(&self, now: Instant) {
        let mut tally = self.0.lock().expect("nothing panics under the lock");
        tally.waiting += 1;
        tally.since.get_or_insert(now);
    }

    fn end(&self, now: Instant) {
        let mut tally = self.0.lock().expect("nothing panics under the lock");
        tally.waiting -= 1;
        if tally.waiting == 0 {
            tally.total = tally.until(now);
            tally.since = None;
        }
    }

    fn total(&self, now: Instant) -> Duration {
        let tally = self.0.lock().expect("nothing panics under the lock");
        tally.until(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-62: other labels of the same process are no other wait.
    #[test]
    fn a_wait_for_a_process_is_told_once_however_often_it_happens() {
        let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
        let turns = Turns::new(MachineLock::at("/nowhere"), Audience(sender));
        let holder = |pid, label: String| Holder {
            pid: Some(pid),
            label: Some(label),
        };
        for block in 0..26 {
            let waiting = turns.wait(&holder(7, format!("1/race/1 block {block}")));
            let _beside = turns.wait(&holder(7, "tests".to_owned()));
            drop(waiting);
        }
        drop(turns.wait(&holder(8, "tests".to_owned())));
        let mut holders = Vec::new();
        while let Ok(Event::LockWait { holder }) = told.try_recv() {
            holders.push(holder);
        }
        assert_eq!(
            holders,
            ["1/race/1 block 0 (process 7)", "tests (process 8)"]
        );
    }

    /// CA-62
    #[test]
    fn time_counts_once_however_many_wait() {
        let (waits, begun) = (Waits::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        waits.begin(at(1));
        waits.begin(at(2));
        waits.end(at(4));
        assert_eq!(waits.total(at(5)), Duration::from_secs(4));
        waits.end(at(6));
        assert_eq!(waits.total(at(9)), Duration::from_secs(5));
        waits.begin(at(10));
        waits.end(at(11));
        assert_eq!(waits.total(at(20)), Duration::from_secs(6));
    }
}
