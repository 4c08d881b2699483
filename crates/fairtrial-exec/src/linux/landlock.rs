//! Landlock: which files a process may still write, and whom it may still signal.
//!
//! Only rights to change files are handled: reading is a matter of the mount namespace, where there is one.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::plan::{Arg, Plan};
use crate::protocol::launcher::Step;

const STEP: Step = Step::Landlock;
const WRITE_FILE: u64 = 1 << 1;
const REMOVE_AND_MAKE: u64 = 0x1ff << 4; // REMOVE_DIR to MAKE_SYM
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
const SCOPE_SIGNALS: u64 = 1 << 1;
const CREATE_RULESET_VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: u64 = 1;

/// From this version on truncation can be kept inside.
pub const TRUNCATE_ABI: u32 = 3;

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

/// What a ruleset handles, by the kernel's version.
struct Handled {
    rights: u64,
    scopes: u64,
    /// How much of the structure that tells so the kernel knows.
    size: u64,
}

impl Handled {
    fn by(abi: u32) -> Self {
        let mut rights = WRITE_FILE | REMOVE_AND_MAKE;
        rights |= if abi >= 2 { REFER } else { 0 };
        rights |= if abi >= TRUNCATE_ABI { TRUNCATE } else { 0 };
        let (scopes, size) = match abi {
            SCOPES_ABI.. => (SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS, 24),
            _ => (0, 8),
        };
        Self {
            rights,
            scopes,
            size,
        }
    }

    /// handled_access_fs, handled_access_net, scoped
    fn attributes(&self) -> Vec<u8> {
        [self.rights, 0, self.scopes].map(u64::to_ne_bytes).concat()
    }

    /// Rights that only a directory has are refused for a file.
    fn rule(&self, path: &[u8]) -> u64 {
        let path = Path::new(OsStr::from_bytes(path));
        match path.metadata() {
            Ok(file) if !file.is_dir() => self.rights & (WRITE_FILE | TRUNCATE),
            _ => self.rights,
        }
    }
}

/// Makes a ruleset by which only what is beneath `writable` can be changed, and nobody outside be signalled if the
/// kernel can see to that; the process has only to put it in force. What is not there cannot be written either.
pub fn restrict(plan: &mut Plan, abi: u32, writable: &[Vec<u8>]) -> io::Result<()> {
    let handled = Handled::by(abi);
    let attributes = handled.attributes();
    // SAFETY: the kernel reads as many bytes as told, and makes a descriptor that is then ours alone.
    let ruleset = unsafe {
        let ruleset = libc::syscall(
            libc::SYS_landlock_create_ruleset,
            attributes.as_ptr(),
            handled.size,
            0,
        );
        if ruleset < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(ruleset as RawFd)
    };
    for path in writable {
        let Ok(file) = openat(
            CWD,
            &path[..],
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            continue;
        };
        let rule = rule(handled.rule(path), file.as_raw_fd());
        // SAFETY: as above.
        let added = unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                RULE_PATH_BENEATH,
                rule.as_ptr(),
                0,
            )
        };
        if added < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let ruleset = plan.descriptor(ruleset);
    let arguments = [ruleset, Arg::Value(0)];
    plan.call(STEP, libc::SYS_landlock_restrict_self, &arguments);
    Ok(())
}

/// As [`restrict`], with a ruleset that the process itself makes: paths are looked up in its own mount namespace.
pub fn restrict_inside(plan: &mut Plan, abi: u32, writable: &[Vec<u8>]) {
    const HERE: Arg = Arg::Value(libc::AT_FDCWD as u64);
    let handled = Handled::by(abi);
    let attributes = plan.bytes(&handled.attributes());
    let arguments = [attributes, Arg::Value(handled.size), Arg::Value(0)];
    plan.call(STEP, libc::SYS_landlock_create_ruleset, &arguments);
    let ruleset = plan.keep();
    for path in writable {
        let rule = plan.bytes(&rule(handled.rule(path), -1));
        let path = plan.text(path);
        let flags = Arg::Value((libc::O_PATH | libc::O_CLOEXEC) as u64);
        plan.try_call(STEP, libc::SYS_openat, &[HERE, path, flags]);
        let file = plan.keep_at(rule, 8);
        let arguments = [ruleset, Arg::Value(RULE_PATH_BENEATH), rule, Arg::Value(0)];
        plan.try_call(STEP, libc::SYS_landlock_add_rule, &arguments);
        plan.try_call(STEP, libc::SYS_close, &[file]);
    }
    let arguments = [ruleset, Arg::Value(0)];
    plan.call(STEP, libc::SYS_landlock_restrict_self, &arguments);
    plan.call(STEP, libc::SYS_close, &[ruleset]);
}

/// allowed_access, parent_fd
fn rule(allowed: u64, file: RawFd) -> Vec<u8> {
    [&allowed.to_ne_bytes()[..], &file.to_ne_bytes()].concat()
}
