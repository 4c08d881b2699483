//! Mounts of a task's own, made by the task itself before it gives up its privileges.
//!
//! Landlock decides who may change the content of files, and their names. It does not handle modes, owners, times and
//! extended attributes; a read-only mount does.

use super::plan::{Arg, Plan};
use super::world::{HERE, NODEV, NOSUID, NULL, RDONLY, clear_attributes, set_attributes};
use crate::protocol::launcher::{Cover, OwnMounts, Step};

const STEP: Step = Step::Mounts;

/// Where programs share memory by name.
pub(super) const SHARED_MEMORY: &[u8] = b"/dev/shm";

/// Adds the system calls. The task has privileges in a user namespace that does not own the host's mounts, so none of
/// its own spreads to the host.
pub(super) fn put_up(plan: &mut Plan, mounts: &OwnMounts) {
    let own_memory = if mounts.own_memory {
        libc::CLONE_NEWIPC
    } else {
        0
    };
    let kinds = Arg::Value((libc::CLONE_NEWNS | own_memory) as u64);
    plan.call(STEP, libc::SYS_unshare, &[kinds]);
    let kept = mounts.cover.as_ref().map(|cover| take_aside(plan, cover));
    make_read_only_except(plan, STEP, mounts.writable.iter().map(Vec::as_slice));
    if let (Some(cover), Some(kept)) = (&mounts.cover, kept) {
        put_over(plan, cover, kept);
    }
    if mounts.own_memory {
        let (kind, place) = (plan.text(b"tmpfs"), plan.text(SHARED_MEMORY));
        let (flags, options) = (Arg::Value(NOSUID | NODEV), plan.text(b"mode=1777"));
        let arguments = [kind, place, kind, flags, options];
        plan.call(STEP, libc::SYS_mount, &arguments);
    }
}

/// A mount of what is not covered, which is nowhere yet.
fn take_aside(plan: &mut Plan, cover: &Cover) -> Arg {
    const OPEN_TREE_CLONE: libc::c_uint = 1;
    let flags =
        OPEN_TREE_CLONE | libc::AT_RECURSIVE as libc::c_uint | libc::O_CLOEXEC as libc::c_uint;
    let place = plan.text(&cover.keep);
    let arguments = [HERE, place, Arg::Value(u64::from(flags))];
    plan.call(STEP, libc::SYS_open_tree, &arguments);
    plan.keep()
}

/// An empty file system over the directory, and in it, at its usual place, what was taken aside.
fn put_over(plan: &mut Plan, cover: &Cover, kept: Arg) {
    const FROM_DESCRIPTOR: u64 = 4; // MOVE_MOUNT_F_EMPTY_PATH
    let (kind, at) = (plan.text(b"tmpfs"), plan.text(&cover.at));
    let (flags, options) = (
        Arg::Value(NOSUID | NODEV),
        plan.text(b"mode=755,size=64k,nr_inodes=16"),
    );
    plan.call(STEP, libc::SYS_mount, &[kind, at, kind, flags, options]);
    let slashes = cover.keep.iter().enumerate().skip(cover.at.len() + 1);
    let ends = slashes
        .filter(|(_, byte)| **byte == b'/')
        .map(|(end, _)| end);
    for end in ends.chain([cover.keep.len()]) {
        let directory = plan.text(&cover.keep[..end]);
        let arguments = [HERE, directory, Arg::Value(0o755)];
        plan.call(STEP, libc::SYS_mkdirat, &arguments);
    }
    let (nothing, place) = (plan.text(b""), plan.text(&cover.keep));
    let arguments = [kept, nothing, HERE, place, Arg::Value(FROM_DESCRIPTOR)];
    plan.call(STEP, libc::SYS_move_mount, &arguments);
    plan.call(STEP, libc::SYS_close, &[kept]);
    set_attributes(plan, STEP, at, RDONLY, 0);
}

/// Makes all of the host read-only except these places.
pub(super) fn make_read_only_except<'a>(
    plan: &mut Plan,
    step: Step,
    writable: impl Iterator<Item = &'a [u8]>,
) {
    let places: Vec<Arg> = writable.map(|place| plan.text(place)).collect();
    let mount = Arg::Value(libc::MS_BIND | libc::MS_REC);
    for place in &places {
        let arguments = [*place, *place, NULL, mount, NULL];
        plan.try_call(step, libc::SYS_mount, &arguments); // what is not there need not be
    }
    let root = plan.text(b"/");
    set_attributes(plan, step, root, RDONLY, libc::AT_RECURSIVE);
    for place in &places {
        // A mount below it that the host has read-only stays so, and must not keep the place itself read-only.
        for flags in [libc::AT_RECURSIVE, 0] {
            clear_attributes(plan, step, *place, RDONLY, flags);
        }
    }
}
