//! The user namespace in which an engine's `strict` calls live: there, and only there, its launcher and zygotes have the
//! privileges that mounts and namespaces take. The calls themselves have none.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::clone::{clone, exit, reap};

/// The users of calls whose engine is root's: the first, and how many. Calls that run at once have a user each.
pub const SLOT_USERS: (u32, u32) = (1_900_000_000, 4096);

/// Such a namespace.
#[derive(Debug)]
pub struct UserNamespace {
    file: OwnedFd,
    /// Users of their own for calls: the first, and how many. None without privileges.
    pub slots: Option<(u32, u32)>,
}

impl UserNamespace {
    /// A new one. With privileges it has [`SLOT_USERS`], so that no two calls have the same.
    pub fn create() -> io::Result<Self> {
        let (ready, ready_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let (go, go_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let pid = clone(libc::CLONE_NEWUSER)?;
        if pid == 0 {
            drop(go_write);
            // Otherwise its maps belong to root, whoever made it.
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable)
                .ok();
            drop(ready_write);
            rustix::io::read(&go, &mut [0; 1][..]).ok(); // its end says that the namespace has been taken
            exit(0);
        }
        drop(ready_write);
        let is_ready = rustix::io::retry_on_intr(|| rustix::io::read(&ready, &mut [0; 1][..]));
        let made = is_ready.map_err(io::Error::from);
        let made = made.and_then(|_| map_users(pid)).and_then(|slots| {
            let file = std::fs::File::open(format!("/proc/{pid}/ns/user"))?.into();
            Ok(Self { file, slots })
        });
        drop(go_write);
        reap(pid)?;
        made
    }

    /// Its file, to enter it by.
    #[must_use]
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub(super) fn raw(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

fn map_users(pid: i32) -> io::Result<Option<(u32, u32)>> {
    let write = |file: &str, text: &str| std::fs::write(format!("/proc/{pid}/{file}"), text);
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let map_self = || -> io::Result<_> {
        write("setgroups", "deny")?;
        write("uid_map", &format!("{uid} {uid} 1"))?;
        write("gid_map", &format!("{gid} {gid} 1"))?;
        Ok(None)
    };
    if !uid.is_root() {
        return map_self();
    }
    // In a container that has few users itself, one that is nobody's has to do for all calls.
    for (base, count) in [SLOT_USERS, (65534, 1)] {
        let map = format!("0 0 1\n{base} {base} {count}");
        if write("uid_map", &map).is_ok() {
            write("gid_map", &map)?;
            return Ok(Some((base, count)));
        }
    }
    map_self() // root without the capability to map others
}
