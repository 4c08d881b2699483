//! Those of one process who have the lock or want it: for the kernel they are one.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use super::Holder;
use super::file::{FileId, LOCK, LockFile, LockedByte, TURNSTILE, id_at, lock, try_lock};
use crate::linux::record_lock::Kind;

/// The rooms of this process. While one is closed nobody opens its file anew: the old descriptor, when it is closed, would
/// take the new one's locks with it.
// A plain mutex: held to look, to open or to close one file.
static ROOMS: Mutex<Option<HashMap<FileId, Weak<Room>>>> = Mutex::new(None);

/// One file, as this process uses it.
#[derive(Debug)]
pub(super) struct Room {
    /// `None` only at the end of `drop`.
    file: Option<Arc<LockFile>>,
    /// One at a time goes for the lock, in order of arrival.
    queue: tokio::sync::Mutex<()>,
    inside: Mutex<Inside>,
    /// Somebody left; the one who goes for the lock hears it.
    left: Notify,
}

#[derive(Debug, Default)]
struct Inside {
    shared: usize,
    exclusive: usize,
    /// The process's own, for all of them.
    lock: Option<LockedByte>,
    label: String,
}

impl Inside {
    fn admit(&mut self, kind: Kind, label: &str, lock: LockedByte) {
        *self.count(kind) += 1;
        self.lock = Some(lock);
        self.label = label.to_owned();
    }

    /// The last to go gives up the lock; before anybody sees that there is room, for it would be the new one's, too.
    fn release(&mut self, kind: Kind) {
        *self.count(kind) -= 1;
        if self.shared + self.exclusive == 0 {
            self.lock = None;
        }
    }

    fn count(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Shared => &mut self.shared,
            Kind::Exclusive => &mut self.exclusive,
        }
    }

    fn has_room_for(&self, kind: Kind) -> bool {
        self.exclusive == 0 && (kind == Kind::Shared || self.shared == 0)
    }
}

impl Room {
    /// The room of the file at this path.
    pub(super) fn at(path: &Path) -> io::Result<Arc<Self>> {
        loop {
            if let Some(room) = Self::find_or_open(path)? {
                return Ok(room);
            }
            std::thread::yield_now();
        }
    }

    /// `None` while it is being closed, or if another file has the name than a moment ago.
    fn find_or_open(path: &Path) -> io::Result<Option<Arc<Self>>> {
        let mut rooms = ROOMS.lock().unwrap_or_else(PoisonError::into_inner);
        let rooms = rooms.get_or_insert_default();
        match id_at(path).and_then(|id| rooms.get(&id)) {
            Some(room) => Ok(room.upgrade()),
            None => Self::open(path, rooms),
        }
    }

    fn open(path: &Path, rooms: &mut HashMap<FileId, Weak<Self>>) -> io::Result<Option<Arc<Self>>> {
        let file = LockFile::open(path)?;
        if rooms.contains_key(&file.id) {
            // Never closed, for this process may have locks on it.
            std::mem::forget(file);
            return Ok(None);
        }
        let id = file.id;
        let room = Arc::new(Self {
            file: Some(Arc::new(file)),
            queue: tokio::sync::Mutex::new(()),
            inside: Mutex::default(),
            left: Notify::new(),
        });
        rooms.insert(id, Arc::downgrade(&room));
        Ok(Some(room))
    }

    pub(super) fn file(&self) -> &Arc<LockFile> {
        self.file.as_ref().expect("it is there until the room goes")
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn, for room among those of this process, and for the lock.
    pub(super) async fn enter(
        self: &Arc<Self>,
        kind: Kind,
        label: &str,
        tell: &mut impl FnMut(Holder),
    ) -> io::Result<()> {
        let _next = match self.queue.try_lock() {
            Ok(next) => next,
            Err(_) => {
                tell(self.holder());
                self.queue.lock().await
            }
        };
        // Given up at the end, whatever that is: who comes next may wait for the lock in its turn. Sharers pass it side by
        // side: none of them has to wait for another.
        let _turnstile = self.byte(TURNSTILE, kind, tell).await?;
        while !self.inside().has_room_for(kind) {
            tell(self.holder());
            self.left.notified().await;
        }
        if !self.joins_others(kind) {
            let lock = self.byte(LOCK, kind, tell).await?;
            self.inside().admit(kind, label, lock);
        }
        self.file().sign(label); // only now: until then another's name is there
        Ok(())
    }

    /// Where the process has the lock already, all its sharers have it.
    fn joins_others(&self, kind: Kind) -> bool {
        let mut inside = self.inside();
        let joins = kind == Kind::Shared && inside.shared > 0;
        inside.shared += usize::from(joins);
        joins
    }

    async fn byte(
        &self,
        byte: u32,
        kind: Kind,
        tell: &mut impl FnMut(Holder),
    ) -> io::Result<LockedByte> {
        if let Some(locked) = try_lock(self.file(), byte, kind)? {
            return Ok(locked);
        }
        tell(self.holder());
        lock(self.file(), byte, kind).await
    }

    /// Whether somebody waits whom a holder of this kind keeps out. Whoever waits stands in the queue, and the first of a
    /// process at the turnstile.
    pub(super) fn is_wanted(&self, held: Kind) -> bool {
        self.queue.try_lock().is_err() || self.file().others_wait(held)
    }

    fn holder(&self) -> Holder {
        let ours = || Holder {
            pid: Some(std::process::id()),
            label: Some(self.inside().label.clone()),
        };
        self.file().other_holder().unwrap_or_else(ours)
    }

    pub(super) fn leave(&self, kind: Kind) {
        self.inside().release(kind);
        self.left.notify_one();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut rooms = ROOMS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = self.file.take() else { return };
        let id = file.id;
        drop(file); // closed before anybody may open it again
        if let Some(rooms) = rooms.as_mut() {
            rooms.remove(&id);
        }
    }
}
