//! The user namespace in which an engine's `strict` calls live: there, and only there, its launcher and zygotes have the
//! privileges that mounts and namespaces take. The calls themselves have none.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::DumpableBehavior;

use super::clone::{clone, clone_from, enter, exit, reap};
use super::process::close_all_but;

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
            rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).ok();
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

    /// One below this, with the same users: the kernel counts what its processes take of a user's quotas apart. Where a
    /// quota is counted for this one as well, it has one part in `sharers` of half of what the machine allows.
    pub fn with_own_quotas(&self, sharers: u32) -> io::Result<Self> {
        let (maps, quotas) = (self.maps(), machine_quotas(sharers));
        let (ours, theirs) = super::socket::pair_stream()?;
        let go_in = || {
            enter(self.raw(), libc::CLONE_NEWUSER)?;
            // It took new credentials: the files in `/proc` of what it starts would belong to root.
            Ok(rustix::process::set_dumpable_behavior(
                DumpableBehavior::Dumpable,
            )?)
        };
        // Only a process in this namespace may write the maps of one below.
        let above = clone_from(go_in, 0)?;
        if above == 0 {
            close_all_but(&[&theirs]); // where there are few, its own would not be had
            let below = make_below(&maps, &quotas);
            let answer = *below.as_ref().unwrap_or_else(|errno| errno);
            rustix::io::write(&theirs, &answer.to_ne_bytes()).ok(); // nobody waits any more
            rustix::io::read(&theirs, &mut [0; 1][..]).ok(); // its end says that the namespace has been taken
            if let Ok(pid) = below {
                super::signals::kill_child(pid);
                reap(pid).ok();
            }
            exit(0);
        }
        drop(theirs);
        let mut answer = [0; 4];
        let read = rustix::io::retry_on_intr(|| rustix::io::read(&ours, &mut answer));
        let made = match (read, i32::from_ne_bytes(answer)) {
            (Ok(4), pid @ 1..) => {
                let file = std::fs::File::open(format!("/proc/{pid}/ns/user"));
                file.map(|file| Self {
                    file: file.into(),
                    slots: self.slots,
                })
            }
            (Ok(4), errno) => Err(io::Error::from_raw_os_error(-errno)),
            (Ok(_), _) => Err(io::ErrorKind::UnexpectedEof.into()),
            (Err(errno), _) => Err(errno.into()),
        };
        drop(ours);
        reap(above)?;
        made
    }

    /// Its users, each as itself.
    fn maps(&self) -> [String; 2] {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let line = |id: u32| match self.slots {
            Some((base, count)) => format!("0 0 1\n{base} {base} {count}"),
            None => format!("{id} {id} 1"),
        };
        [line(uid.as_raw()), line(gid.as_raw())]
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

/// What the kernel counts for a namespace's user and for those above: `/proc/sys/user/max_...`.
const COUNTED_ABOVE: [&str; 12] = [
    "cgroup_namespaces",
    "fanotify_groups",
    "fanotify_marks",
    "inotify_instances",
    "inotify_watches",
    "ipc_namespaces",
    "mnt_namespaces",
    "net_namespaces",
    "pid_namespaces",
    "time_namespaces",
    "user_namespaces",
    "uts_namespaces",
];

/// The least part of a quota, even if all calls together could then pass it: a program that watches files needs some, and
/// the kernel gives them back a moment after they were closed.
const LEAST_PART: u64 = 8;

/// The files of these quotas, and what to write there. Half of what the machine allows is left to other programs.
fn machine_quotas(sharers: u32) -> Vec<(String, String)> {
    let quota = |name| {
        let file = format!("/proc/sys/user/max_{name}");
        let most: u64 = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        let part = most / 2 / u64::from(sharers.max(1));
        Some((file, part.max(LEAST_PART).min(most).to_string()))
    };
    COUNTED_ABOVE.into_iter().filter_map(quota).collect()
}

/// A process in a user namespace of its own below this process's, which has these maps and quotas. The negative errno of
/// what failed.
fn make_below([users, groups]: &[String; 2], quotas: &[(String, String)]) -> Result<i32, i32> {
    let negative = |error: io::Error| -error.raw_os_error().unwrap_or(libc::EINVAL);
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (mapped, tell_mapped) = pipe().map_err(|errno| negative(errno.into()))?;
    let (limited, tell_limited) = pipe().map_err(|errno| negative(errno.into()))?;
    let pid = clone(libc::CLONE_NEWUSER).map_err(negative)?;
    if pid == 0 {
        drop((tell_mapped, limited));
        let parent_death = rustix::process::set_parent_process_death_signal;
        parent_death(Some(rustix::process::Signal::KILL)).ok();
        rustix::io::read(&mapped, &mut [0; 1][..]).ok(); // its end says that the maps are written
        for (file, most) in quotas {
            std::fs::write(file, most).ok(); // read-only in some containers: then calls share it
        }
        drop(tell_limited);
        loop {
            rustix::event::pause();
        }
    }
    drop((mapped, tell_limited));
    let write = |file: &str, text: &str| std::fs::write(format!("/proc/{pid}/{file}"), text);
    let written = write("uid_map", users).and_then(|()| write("gid_map", groups));
    drop(tell_mapped);
    rustix::io::read(&limited, &mut [0; 1][..]).ok(); // its end says that the quotas are set
    match written {
        Ok(()) => Ok(pid),
        Err(error) => {
            super::signals::kill_child(pid);
            reap(pid).ok();
            Err(negative(error))
        }
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
