//! Landlock: which files a process may still write, and whom it may still signal.
//!
//! Only rights to change files are handled: reading is a matter of the mount namespace, where there is one.

use std::io;

use super::plan::{Arg, Plan};
use crate::protocol::launcher::Step;

const WRITE_FILE: u64 = 1 << 1;
const REMOVE_AND_MAKE: u64 = 0x1ff << 4; // REMOVE_DIR to MAKE_SYM
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
const SCOPE_SIGNALS: u64 = 1 << 1;
const CREATE_RULESET_VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: u64 = 1;

/// From this version on signals and abstract sockets can be kept inside.
pub const SCOPES_ABI: u32 = 6;

/// The kernel's version of Landlock; the errno says why there is none.
pub fn abi() -> io::Result<u32> {
    // SAFETY: with this flag and no attributes the kernel only tells its version.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}

/// Adds rules by which only what is beneath `writable` can be changed, and nobody outside be signalled if the kernel can
/// see to that. Paths are looked up where and when the plan is run; what is not there cannot be written either.
pub fn restrict(plan: &mut Plan, abi: u32, writable: &[Vec<u8>]) {
    const HERE: Arg = Arg::Value(libc::AT_FDCWD as u64);
    const STEP: Step = Step::Landlock;
    let mut rights = WRITE_FILE | REMOVE_AND_MAKE;
    rights |= if abi >= 2 { REFER } else { 0 };
    rights |= if abi >= 3 { TRUNCATE } else { 0 };
    let (scopes, size) = match abi {
        SCOPES_ABI.. => (SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS, 24),
        _ => (0, 8),
    };
    // handled_access_fs, handled_access_net, scoped
    let attributes = plan.bytes(&[rights, 0, scopes].map(u64::to_ne_bytes).concat());
    let arguments = [attributes, Arg::Value(size), Arg::Value(0)];
    plan.call(STEP, libc::SYS_landlock_create_ruleset, &arguments);
    let ruleset = plan.keep();
    for path in writable {
        let path = plan.text(path);
        // Rights that only a directory has are refused for a file: then the second rule holds.
        for allowed in [rights, rights & (WRITE_FILE | TRUNCATE)] {
            // allowed_access, parent_fd
            let rule = plan.bytes(&[&allowed.to_ne_bytes()[..], &[0xff; 4]].concat());
            let flags = Arg::Value((libc::O_PATH | libc::O_CLOEXEC) as u64);
            plan.try_call(STEP, libc::SYS_openat, &[HERE, path, flags]);
            let file = plan.keep_at(rule, 8);
            let arguments = [ruleset, Arg::Value(RULE_PATH_BENEATH), rule, Arg::Value(0)];
            plan.try_call(STEP, libc::SYS_landlock_add_rule, &arguments);
            plan.try_call(STEP, libc::SYS_close, &[file]);
        }
    }
    plan.call(
        STEP,
        libc::SYS_landlock_restrict_self,
        &[ruleset, Arg::Value(0)],
    );
    plan.call(STEP, libc::SYS_close, &[ruleset]);
}
