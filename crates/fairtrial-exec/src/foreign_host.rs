//! An event loop in a process that is somebody else's, such as a Python interpreter: the host may close descriptors that are
//! not its own (`os.closerange`), and open others under the same numbers. Then nothing that the loop holds may be used or
//! closed any more: whoever waits is told, and the loop's thread does nothing else, for ever.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::sync::Semaphore;

use crate::linux::loop_descriptors::{FileIdentity, LoopDescriptors, disconnect};

/// Between two looks while nothing else may come.
const LOOK: Duration = Duration::from_secs(1);

thread_local! {
    static HERE: RefCell<Option<Arc<Guard>>> = const { RefCell::new(None) };
}

/// What one event loop's thread holds, known by more than numbers.
pub(crate) struct Guard {
    of_loop: LoopDescriptors,
    // Plain mutexes: held to read or change a few words, and for one `fstat` each of what is held.
    held: Mutex<HashMap<RawFd, FileIdentity>>,
    launcher: Mutex<Option<Launched>>,
    on_loss: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    is_lost: AtomicBool,
    has_ended: (Mutex<bool>, Condvar),
    /// Closed when it is lost.
    lost: Semaphore,
}

/// The launcher, by what is left to speak of it without its descriptors.
#[derive(Clone, Copy)]
struct Launched {
    pid: Pid,
    socket: RawFd,
    identity: FileIdentity,
}

impl Guard {
    /// For the event loop that this runs on; `None` where it cannot be found out what that holds.
    pub(crate) fn here() -> Option<Arc<Self>> {
        let of_loop = match LoopDescriptors::find() {
            Ok(found) => found,
            Err(error) => {
                log::debug!("descriptors that the host closes will not be noticed: {error}");
                return None;
            }
        };
        let guard = Arc::new(Self {
            of_loop,
            held: Mutex::default(),
            launcher: Mutex::default(),
            on_loss: Mutex::default(),
            is_lost: AtomicBool::new(false),
            has_ended: Default::default(),
            lost: Semaphore::new(0),
        });
        HERE.set(Some(Arc::clone(&guard)));
        stop_instead_of_panicking();
        Some(guard)
    }

    /// Called once, on another thread, if the descriptors are lost.
    pub(crate) fn on_loss(&self, tell: impl FnOnce() + Send + 'static) {
        *lock(&self.on_loss) = Some(Box::new(tell));
    }

    /// Whether the loop can be woken. To be asked before each time.
    pub(crate) fn is_sound(self: &Arc<Self>) -> bool {
        self.expect_of(|it| it.of_loop.can_be_woken())
    }

    fn is_whole(self: &Arc<Self>) -> bool {
        let all_held = |it: &Self| {
            let held = lock(&it.held);
            let mut held = held.iter();
            held.all(|(fd, identity)| FileIdentity::of(*fd) == Some(*identity))
        };
        self.expect_of(|it| it.of_loop.are_ours() && all_held(it))
    }

    fn expect_of(self: &Arc<Self>, is_so: impl FnOnce(&Self) -> bool) -> bool {
        // What an ended loop held is given up, perhaps while this looks.
        if !self.is_lost() && !is_so(self) && !self.of_loop.is_released() {
            self.lose();
        }
        !self.is_lost()
    }

    /// Whether that was seen before.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    /// Returns when the descriptors are known to be lost.
    pub(crate) async fn lost(&self) {
        drop(self.lost.acquire().await); // it has no permits, and fails when it is closed
    }

    /// Told by the loop's thread.
    pub(crate) fn ended(&self) {
        self.of_loop.release();
        *lock(&self.has_ended.0) = true;
        self.has_ended.1.notify_all();
    }

    /// Waits until the loop's thread has ended; `false` if it never will.
    pub(crate) fn wait_for_end(self: &Arc<Self>) -> bool {
        let (has_ended, told) = &self.has_ended;
        let mut ended = lock(has_ended);
        while !*ended {
            let waited = told.wait_timeout(ended, LOOK);
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !*ended && !self.is_sound() {
                return false;
            }
        }
        true
    }

    fn lose(self: &Arc<Self>) {
        if self.is_lost.swap(true, Ordering::AcqRel) {
            return;
        }
        log::error!("this process closed the engine's descriptors: its calls are given up");
        let guard = Arc::clone(self);
        // On a thread of its own: who found it out may hold a lock that whoever is told wants.
        let thread = std::thread::Builder::new().name("fairtrial-aside".into());
        if thread.spawn(move || guard.give_up()).is_err() {
            self.give_up();
        }
    }

    fn give_up(&self) {
        let launched = lock(&self.launcher).take();
        if let Some(Launched {
            socket, identity, ..
        }) = launched
            && FileIdentity::of(socket) == Some(identity)
        {
            disconnect(socket); // else it was closed, which the launcher has noticed
        }
        let tell = lock(&self.on_loss).take();
        if let Some(tell) = tell {
            tell();
        }
        self.lost.close();
        if let Some(Launched { pid, .. }) = launched {
            _ = waitpid(Some(pid), WaitOptions::empty()); // it ends everything below it first
        }
    }
}

/// A descriptor that is looked after for as long as this is there. To be dropped before the descriptor: its number may be
/// given to another at once.
#[derive(Debug)]
pub(crate) struct Held(Option<(Arc<Guard>, RawFd)>);

impl Held {
    /// On a thread without a guard nothing is looked after.
    pub(crate) fn new(fd: impl AsFd) -> Self {
        let fd = fd.as_fd().as_raw_fd();
        Self(here().map(|guard| {
            if let Some(identity) = FileIdentity::of(fd) {
                let held_before = lock(&guard.held).insert(fd, identity);
                if held_before.is_some() {
                    guard.lose(); // the number was free again: its owner here did not close it
                    stop();
                }
            }
            (guard, fd)
        }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((guard, fd)) = &self.0 {
            lock(&guard.held).remove(fd);
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guard")
    }
}

/// The guard of this thread's loop.
pub(crate) fn here() -> Option<Arc<Guard>> {
    HERE.with_borrow(Option::clone)
}

/// Remembers the launcher, which is ended even if its descriptors are lost.
pub(crate) fn remember_launcher(pid: Pid, socket: impl AsFd) {
    let socket = socket.as_fd().as_raw_fd();
    if let Some(guard) = here()
        && let Some(identity) = FileIdentity::of(socket)
    {
        *lock(&guard.launcher) = Some(Launched {
            pid,
            socket,
            identity,
        });
    }
}

/// It was waited for: its number may be another process's.
pub(crate) fn forget_launcher(guard: Option<&Arc<Guard>>) {
    if let Some(guard) = guard {
        lock(&guard.launcher).take();
    }
}

/// Waits for something that never comes if the descriptors are lost, and looks for that.
pub(crate) async fn looking<T>(wait: impl Future<Output = T>) -> T {
    let mut wait = pin!(wait);
    loop {
        match tokio::time::timeout(LOOK, wait.as_mut()).await {
            Ok(value) => return value,
            Err(_) => check_all(),
        }
    }
}

/// Before the loop goes on after it has waited, and before writes: does not return if its own descriptors are lost. Should they be lost
/// between this and the next wait, that panics, which comes to the same (see [`stop_instead_of_panicking`]).
pub(crate) fn check_loop() {
    go_on_if(Guard::is_sound);
}

/// As [`check_loop`], of all that is looked after. Where something ended that the host may have ended.
pub(crate) fn check_all() {
    go_on_if(Guard::is_whole);
}

/// After a read or write that failed for another reason than that there is nothing, or no room.
pub(crate) fn check_after(error: Errno) {
    if error != Errno::AGAIN {
        check_all();
    }
}

fn go_on_if(is_so: impl FnOnce(&Arc<Guard>) -> bool) {
    let stops = HERE.with_borrow(|guard| guard.as_ref().is_some_and(|guard| !is_so(guard)));
    if stops {
        stop();
    }
}

/// Nothing that this thread owns may be dropped.
fn stop() -> ! {
    loop {
        std::thread::park();
    }
}

/// An event loop without its epoll panics, and what is unwound closes descriptors that may be somebody else's by now.
fn stop_instead_of_panicking() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let guard = HERE.try_with(|guard| guard.try_borrow().ok().and_then(|it| it.clone()));
            if let Ok(Some(guard)) = guard
                && !guard.is_whole()
            {
                stop();
            }
            before(panic);
        }));
    });
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
