//! Processes as `/proc` shows them: who is whose child, who is still there.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// One process, told apart from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    born: u64,
}

struct Stat {
    state: char,
    parent: u32,
    born: u64,
}

impl Process {
    /// The process of that number, if there is one; zombies count.
    #[must_use]
    pub fn find(pid: u32) -> Option<Self> {
        let Stat { born, .. } = stat(pid)?;
        Some(Self { pid, born })
    }

    /// Whether it is there and no zombie.
    #[must_use]
    pub fn is_running(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.born == self.born && !"ZX".contains(stat.state))
    }

    /// Whether it is stopped by a signal.
    #[must_use]
    pub fn is_stopped(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.born == self.born && stat.state == 'T')
    }

    /// The name of its program; none if it is gone.
    #[must_use]
    pub fn name(self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?;
        self.is_running().then(|| name.trim_end().to_owned())
    }

    /// Its parent.
    #[must_use]
    pub fn parent(self) -> Self {
        let parent = stat(self.pid).map(|stat| stat.parent);
        parent
            .and_then(Self::find)
            .expect("a running process has a parent")
    }

    /// Its children, zombies left out.
    #[must_use]
    pub fn children(self) -> Vec<Self> {
        let mut children: Vec<_> = all()
            .filter(|(_, stat)| stat.parent == self.pid && !"ZX".contains(stat.state))
            .map(|(pid, Stat { born, .. })| Self { pid, born })
            .collect();
        children.sort_unstable();
        children
    }

    /// All below it, zombies left out.
    #[must_use]
    pub fn descendants(self) -> Vec<Self> {
        let mut found = self.children();
        let mut next = 0;
        while next < found.len() {
            found.extend(found[next].children());
            next += 1;
        }
        found
    }

    /// Sends a signal; whoever is gone does not get it, nor does a namesake.
    pub fn signal(self, signal: Signal) {
        let pid = Pid::from_raw(self.pid.cast_signed()).expect("no process has the number 0");
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            && self.is_running()
        {
            pidfd_send_signal(&handle, signal).ok(); // it ended just now
        }
    }

    /// A number from its `status` file: `VmRSS` (in kB), `Threads`.
    #[must_use]
    pub fn status(self, field: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid))
            .expect("the process is running");
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = value.and_then(|value| value.split_whitespace().next()?.parse().ok());
        number.expect("the field is a number")
    }
}

fn all() -> impl Iterator<Item = (u32, Stat)> {
    let entries = std::fs::read_dir("/proc")
        .expect("/proc is there")
        .flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?)))
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        born: fields.get(19)?.parse().ok()?,
    })
}
