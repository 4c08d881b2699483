//! Real cgroups, made and removed. What this machine does not offer is skipped, with the reason.

mod access;
mod accounting;
mod lifecycle;
mod v2_files;

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::skipped::skipped;

const MIB: u64 = 1 << 20;

/// Takes memory until it is stopped or has 90 MB.
const HOG: &str = "head -c 100000000 /dev/zero | tail -c 90000000 >/dev/null";

#[expect(clippy::print_stderr, reason = "a test that is skipped says why")]
fn say(what: &str) {
    eprintln!("{what}");
}

fn name() -> EngineName {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    EngineName::new(std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)).unwrap()
}

/// Leaves that have these parts; they go even when the test fails.
fn leaves_by(access: &Access, parts: &[Part]) -> Option<Leaves> {
    if let Some(reason) = parts.iter().find_map(|part| access.via(*part).err()) {
        skipped(reason);
        return None;
    }
    Some(Leaves::new(access, &name()).unwrap())
}

fn leaves(parts: &[Part]) -> Option<Leaves> {
    leaves_by(&Access::find(), parts)
}

fn limits(memory_bytes: Option<u64>, processes: Option<u64>) -> LeafLimits {
    LeafLimits {
        memory_bytes,
        processes,
    }
}

/// Runs a script inside; it ends when its input does, or is killed with the leaf.
fn run(joins: Vec<RawFd>, script: &str) -> Child {
    #[expect(clippy::disallowed_methods, reason = "a test needs a process inside")]
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let join = move || {
        for fd in &joins {
            // SAFETY: a live buffer of one byte, and descriptors that are open in the parent.
            if unsafe { libc::write(*fd, c"0".as_ptr().cast(), 1) } != 1 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: only writes, which may be done between fork and exec.
    unsafe { command.pre_exec(join) };
    command.spawn().unwrap()
}

fn run_in(leaf: &Leaf, script: &str) -> Child {
    run(
        leaf.joins(false).iter().map(AsRawFd::as_raw_fd).collect(),
        script,
    )
}

/// Looks again and again, up to ten seconds.
fn until(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < Duration::from_secs(10), "never: {what}");
        group::pause();
    }
}
