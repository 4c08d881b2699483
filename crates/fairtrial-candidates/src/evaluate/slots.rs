//! Directories that commands run in, where nothing can be mounted: copies of a tree, put back before each command (CA-28,
//! CA-33, CA-37 to CA-39).
//!
//! A slot is owned by whoever holds it. It cannot be given back twice, or to another pool, and goes back by being dropped.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fairtrial_exec::{ChangeKind, CopySlot, FrozenTree, remove_tree};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All slots of an evaluation.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Mutex<Vec<Slot>>,
    /// As many as there are slots in use or free; who waits longest is next.
    permits: Arc<Semaphore>,
    alive: AtomicUsize,
}

/// A directory to run in, and one for HOME.
#[derive(Debug)]
struct Slot {
    copy: CopySlot,
    home: PathBuf,
}

/// A slot that somebody has.
#[derive(Debug)]
pub(crate) struct HeldSlot {
    slot: Option<Slot>,
    slots: Arc<Slots>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Slots {
    /// Makes `count` slots below `directory`, side by side. One that cannot be made is missing, and told (CA-38).
    ///
    /// # Errors
    /// None could be made: each cause. Nothing is left.
    pub(crate) async fn make(
        directory: &Path,
        count: usize,
        base: &Arc<FrozenTree>,
        reflink: bool,
    ) -> Result<(Arc<Self>, Vec<String>), String> {
        let making: Vec<_> = (0..count)
            .map(|number| {
                let place = Self::place(directory, number);
                let base = Arc::clone(base);
                tokio::task::spawn_blocking(move || Slot::make(&place, base, reflink))
            })
            .collect();
        let (mut made, mut problems) = (Vec::new(), Vec::new());
        for slot in making {
            match slot.await.map_err(io::Error::other).flatten() {
                Ok(slot) => made.push(slot),
                Err(error) => problems.push(error.to_string()),
            }
        }
        if made.is_empty() {
            return Err(format!("no slot can be made: {}", problems.join("; ")));
        }
        let permits = Arc::new(Semaphore::new(made.len()));
        let alive = AtomicUsize::new(made.len());
        Ok((
            Arc::new(Self {
                free: Mutex::new(made),
                permits,
                alive,
            }),
            problems,
        ))
    }

    /// Where a slot is. Paths of one length: no side's is longer than another's.
    pub(crate) fn place(directory: &Path, number: usize) -> PathBuf {
        directory.join(format!("slot-{number:04}"))
    }

    /// Waits for a slot, in the order of asking.
    ///
    /// # Errors
    /// All were retired.
    pub(crate) async fn acquire(self: &Arc<Self>) -> io::Result<HeldSlot> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| io::Error::other("every slot had to be retired"))?;
        let slot = self
            .free
            .lock()
            .expect("nothing panics under the lock")
            .pop();
        Ok(HeldSlot {
            slot,
            slots: Arc::clone(self),
            permit: Some(permit),
        })
    }
}

impl Slot {
    fn make(place: &Path, base: Arc<FrozenTree>, reflink: bool) -> io::Result<Self> {
        let home = place.with_extension("home");
        let made = CopySlot::make(base, place, reflink).and_then(|copy| {
            fs::DirBuilder::new().mode(0o700).create(&home)?;
            Ok(copy)
        });
        match made {
            Ok(copy) => Ok(Self { copy, home }),
            Err(error) => {
                remove_tree(place).ok(); // its directory goes with the evaluation at the latest
                Err(error)
            }
        }
    }

    fn reset(&mut self, tree: Arc<FrozenTree>) -> io::Result<()> {
        self.copy.reset_to(tree)?;
        remove_tree(&self.home)?;
        fs::DirBuilder::new().mode(0o700).create(&self.home)
    }
}

impl HeldSlot {
    /// Makes it a copy of a tree, byte for byte. One that cannot be is retired (CA-45).
    pub(crate) async fn put_back(mut self, tree: &Arc<FrozenTree>) -> io::Result<Self> {
        let tree = Arc::clone(tree);
        let resetting = tokio::task::spawn_blocking(move || {
            let slot = self.slot.as_mut().expect("a slot that is held");
            match slot.reset(tree) {
                Ok(()) => Ok(self),
                Err(error) => {
                    self.retire();
                    Err(error)
                }
            }
        });
        resetting.await.map_err(io::Error::other).flatten()
    }

    /// It is never used again; who waits for it waits for another.
    fn retire(&mut self) {
        self.slot = None;
        if let Some(permit) = self.permit.take() {
            permit.forget();
        }
        if self.slots.alive.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.slots.permits.close(); // nobody waits for what will not come
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.copy().path()
    }

    pub(crate) fn home(&self) -> &Path {
        &self.slot.as_ref().expect("a slot that is held").home
    }

    /// The bytes of a regular file that is new or changed; at most so many.
    pub(crate) fn read(&self, path: &Path, most_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        self.copy().read(path, most_bytes)
    }

    /// Tells of each path that is wanted and was changed since the slot was put back.
    pub(crate) fn visit(
        &self,
        wanted: impl Fn(&Path) -> bool,
        mut each: impl FnMut(&Path, ChangeKind),
    ) -> io::Result<()> {
        self.copy().visit(|path, kind| {
            if wanted(path) {
                each(path, kind);
            }
        })
    }

    fn copy(&self) -> &CopySlot {
        &self.slot.as_ref().expect("a slot that is held").copy
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.slots
                .free
                .lock()
                .expect("nothing panics under the lock")
                .push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(directory: &Path) -> Arc<FrozenTree> {
        let place = directory.join("tree");
        fs::create_dir_all(place.join("pkg")).unwrap();
        fs::write(place.join("pkg/a.py"), "one").unwrap();
        Arc::new(FrozenTree::record(&place).unwrap())
    }

    /// CA-33, CA-37, CA-39
    #[tokio::test]
    async fn each_holder_finds_the_tree_and_no_two_have_one_slot() {
        let directory = tempfile::tempdir().unwrap();
        let base = tree(directory.path());
        let (slots, problems) = Slots::make(directory.path(), 2, &base, false)
            .await
            .unwrap();
        assert!(problems.is_empty());
        let mut running = tokio::task::JoinSet::new();
        let used = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
        for number in 0..40 {
            let (slots, base, used) = (Arc::clone(&slots), Arc::clone(&base), Arc::clone(&used));
            running.spawn(async move {
                let held = slots
                    .acquire()
                    .await
                    .unwrap()
                    .put_back(&base)
                    .await
                    .unwrap();
                let path = held.path().to_owned();
                assert!(
                    used.lock().unwrap().insert(path.clone()),
                    "two holders of one slot"
                );
                assert_eq!(fs::read(path.join("pkg/a.py")).unwrap(), b"one");
                assert!(!path.join("left").exists());
                fs::write(path.join("left"), number.to_string()).unwrap();
                fs::write(path.join("pkg/a.py"), number.to_string()).unwrap();
                tokio::task::yield_now().await;
                let mut changed = Vec::new();
                held.visit(|_| true, |path, _| changed.push(path.to_owned()))
                    .unwrap();
                changed.sort();
                assert_eq!(changed, [Path::new("left"), Path::new("pkg/a.py")]);
                used.lock().unwrap().remove(&path);
            });
        }
        while let Some(joined) = running.join_next().await {
            joined.unwrap();
        }
    }

    /// CA-38
    #[tokio::test]
    async fn slots_that_cannot_be_made_are_told_and_missed() {
        let directory = tempfile::tempdir().unwrap();
        let base = tree(directory.path());
        fs::write(directory.path().join("slot-0000"), "in the way").unwrap();
        let (slots, problems) = Slots::make(directory.path(), 2, &base, false)
            .await
            .unwrap();
        assert_eq!(problems.len(), 1);
        assert_eq!(slots.permits.available_permits(), 1);
        let nowhere = directory.path().join("nowhere");
        let error = Slots::make(&nowhere, 2, &base, false).await.unwrap_err();
        assert_eq!(error.matches("No such file").count(), 2, "{error}");
    }
}
