//! Landlock: which files a process may still write or read, and whom it may still signal.
//!
//! Rights to read are handled only where no mount namespace sees to that. Landlock does not handle what concerns no
//! content: whether a file is there, its owner, size, modes and times can be asked for, and its owner can change them.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::plan::{Arg, Plan};
use super::world::HERE;
use crate::protocol::launcher::{Landlock, Step};

const STEP: Step = Step::Landlock;
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_AND_MAKE: u64 = 0x1ff << 4; // REMOVE_DIR to MAKE_SYM
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const BIND_AND_CONNECT_TCP: u64 = 3;
const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
const SCOPE_SIGNALS: u64 = 1 << 1;
const CREATE_RULESET_VERSION: libc::c_uint = 1;
const RULE_PATH_BENEATH: u64 = 1;

/// From this version on truncation can be kept inside.
pub const TRUNCATE_ABI: u32 = 3;

/// From this version on TCP ports can be refused.
const TCP_ABI: u32 = 4;

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
    /// To change files.
    write: u64,
    /// To read and execute files; none where reading is not handled.
    read: u64,
    ports: u64,
    scopes: u64,
    /// How much of the structure that tells so the kernel knows.
    size: u64,
}

impl Handled {
    fn by(landlock: &Landlock) -> Self {
        let abi = landlock.abi;
        let mut write = WRITE_FILE | REMOVE_AND_MAKE;
        write |= if abi >= 2 { REFER } else { 0 };
        write |= if abi >= TRUNCATE_ABI { TRUNCATE } else { 0 };
        let (scopes, size) = match abi {
            SCOPES_ABI.. => (SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS, 24),
            TCP_ABI.. => (0, 16),
            _ => (0, 8),
        };
        let refuses_tcp = landlock.refuse_tcp && abi >= TCP_ABI;
        Self {
            write,
            read: match landlock.readable {
                Some(_) => EXECUTE | READ_FILE | READ_DIR,
                None => 0,
            },
            ports: if refuses_tcp { BIND_AND_CONNECT_TCP } else { 0 },
            scopes,
            size,
        }
    }

    /// handled_access_fs, handled_access_net, scoped
    fn attributes(&self) -> Vec<u8> {
        let words = [self.write | self.read, self.ports, self.scopes];
        words.map(u64::to_ne_bytes).concat()
    }

    /// Each place with the rights that there are beneath it.
    fn rules<'a>(&self, landlock: &'a Landlock) -> Vec<(&'a [u8], u64)> {
        let readable = landlock.readable.iter().flatten();
        let readable = readable.map(|path| (&path[..], self.read));
        let writable = landlock.writable.iter().map(|path| {
            let unlisted = landlock.unlisted.contains(path);
            let hidden = if unlisted { READ_DIR } else { 0 };
            (&path[..], (self.write | self.read) & !hidden)
        });
        let of_kind = |(path, rights)| (path, rights_of_kind(path, rights));
        readable.chain(writable).map(of_kind).collect()
    }
}

/// Rights that only a directory has are refused for a file.
fn rights_of_kind(path: &[u8], rights: u64) -> u64 {
    let path = Path::new(OsStr::from_bytes(path));
    match path.metadata() {
        Ok(file) if !file.is_dir() => rights & (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE),
        _ => rights,
    }
}

/// Makes a ruleset by which files can be changed and read only beneath the places named, and nobody outside be
/// signalled if the kernel can see to that; the process has only to put it in force. Places that are missing have no rule.
///
/// The rule for `own_mount`, a place where the process has a mount of its own, is added by the process.
pub fn restrict(plan: &mut Plan, landlock: &Landlock, own_mount: Option<&[u8]>) -> io::Result<()> {
    let handled = Handled::by(landlock);
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
    let mut added_inside = None;
    for (path, rights) in handled.rules(landlock) {
        if own_mount == Some(path) {
            added_inside = Some((path, rights));
            continue;
        }
        let Ok(file) = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            continue;
        };
        let rule = rule(rights, file.as_raw_fd());
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
    if let Some((path, rights)) = added_inside {
        add_rule_inside(plan, ruleset, path, rights);
    }
    let arguments = [ruleset, Arg::Value(0)];
    plan.call(STEP, libc::SYS_landlock_restrict_self, &arguments);
    Ok(())
}

/// As [`restrict`], with a ruleset that the process itself makes: paths are looked up in its own mount namespace.
pub fn restrict_inside(plan: &mut Plan, landlock: &Landlock) {
    let handled = Handled::by(landlock);
    let attributes = plan.bytes(&handled.attributes());
    let arguments = [attributes, Arg::Value(handled.size), Arg::Value(0)];
    plan.call(STEP, libc::SYS_landlock_create_ruleset, &arguments);
    let ruleset = plan.keep();
    for (path, rights) in handled.rules(landlock) {
        add_rule_inside(plan, ruleset, path, rights);
    }
    let arguments = [ruleset, Arg::Value(0)];
    plan.call(STEP, libc::SYS_landlock_restrict_self, &arguments);
    plan.call(STEP, libc::SYS_close, &[ruleset]);
}

/// Has the process look the place up in its own mount namespace. A place that is missing has no rule.
fn add_rule_inside(plan: &mut Plan, ruleset: Arg, path: &[u8], rights: u64) {
    let rule = plan.bytes(&rule(rights, -1));
    let path = plan.text(path);
    let flags = Arg::Value((libc::O_PATH | libc::O_CLOEXEC) as u64);
    plan.try_call(STEP, libc::SYS_openat, &[HERE, path, flags]);
    let file = plan.keep_at(rule, 8);
    let arguments = [ruleset, Arg::Value(RULE_PATH_BENEATH), rule, Arg::Value(0)];
    plan.try_call(STEP, libc::SYS_landlock_add_rule, &arguments);
    plan.try_call(STEP, libc::SYS_close, &[file]);
}

/// allowed_access, parent_fd
fn rule(allowed: u64, file: RawFd) -> Vec<u8> {
    [&allowed.to_ne_bytes()[..], &file.to_ne_bytes()].concat()
}
