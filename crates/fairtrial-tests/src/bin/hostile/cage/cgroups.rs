//! The cage's control groups: one in each hierarchy, below our own, so that nothing inside can leave it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::show::{Refusal, attempting};

/// The cage's group in one hierarchy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Its directory, as the host sees it.
    dir: PathBuf,
    /// What to mount inside: `memory` or `none,name=systemd`; nothing for version 2.
    controllers: String,
    /// Where to mount it inside.
    pub(super) mount_point: PathBuf,
}

const NAME: &str = "fairtrial-cage-";

impl Group {
    fn is_v2(&self) -> bool {
        self.controllers.is_empty()
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|name| name == controller)
    }

    /// File system type and data for `mount`.
    pub(super) fn to_mount(&self) -> (&'static str, &str) {
        match self.is_v2() {
            true => ("cgroup2", ""),
            false => ("cgroup", &self.controllers),
        }
    }
}

/// One group in each hierarchy that this process is in.
pub(crate) fn plan() -> Result<Vec<Group>, Refusal> {
    let own = std::fs::read_to_string("/proc/self/cgroup")?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let groups: Vec<Group> = own
        .lines()
        .filter_map(|line| group(line, &mounts))
        .collect();
    let has = |name| groups.iter().any(|group| group.has(name));
    let v2 = groups.iter().any(Group::is_v2);
    match (has("memory") && has("pids"), v2) {
        (false, false) => Err(Refusal(
            "no control group hierarchy with memory and pids is mounted".into(),
        )),
        _ => Ok(groups),
    }
}

/// From a line of `/proc/self/cgroup`: `4:memory:/path` or `0::/path`.
fn group(line: &str, mounts: &str) -> Option<Group> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, own) = (fields.next()?, fields.next()?);
    let mount_point = mounts.lines().find_map(|line| mounted(line, controllers))?;
    let named = controllers.starts_with("name=");
    Some(Group {
        dir: mount_point
            .join(own.trim_start_matches('/'))
            .join(format!("{NAME}{}", std::process::id())),
        controllers: if named {
            format!("none,{controllers}")
        } else {
            controllers.into()
        },
        mount_point,
    })
}

/// Where a line of `mountinfo` mounts the hierarchy of these controllers, from its top.
fn mounted(line: &str, controllers: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (top, mount_point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let is_it = match controllers {
        "" => kind == "cgroup2",
        some => {
            kind == "cgroup"
                && some
                    .split(',')
                    .all(|one| options.split(',').any(|option| option == one))
        }
    };
    (is_it && top == "/").then(|| mount_point.into())
}

/// Makes the groups, with their limits.
pub(crate) fn make(groups: &[Group], memory_bytes: u64, tasks: u64) -> Result<(), Refusal> {
    groups
        .iter()
        .filter_map(|group| group.dir.parent())
        .for_each(sweep);
    for group in groups {
        if group.is_v2() {
            ask_for_controllers(group);
        }
        std::fs::create_dir(&group.dir).map_err(attempting(format!(
            "cannot make the control group `{}`",
            group.dir.display()
        )))?;
        if group.has("cpuset") {
            let parent = group.dir.parent().expect("below the hierarchy's top");
            for file in ["cpuset.cpus", "cpuset.mems"] {
                write(&group.dir, file, &read(parent, file)?)?; // empty at first, and then nobody may enter
            }
        }
        if group.has("memory") {
            write(
                &group.dir,
                "memory.limit_in_bytes",
                &memory_bytes.to_string(),
            )?;
            match write(
                &group.dir,
                "memory.memsw.limit_in_bytes",
                &memory_bytes.to_string(),
            ) {
                Err(refusal) if has_swap() => return Err(refusal),
                _ => {}
            }
        }
        if group.has("cpu") && group.dir.join("cpu.rt_runtime_us").exists() {
            // Else real-time priority is refused for want of time, whatever the sandbox does (H10).
            write(&group.dir, "cpu.rt_runtime_us", "50000")?;
        }
        if group.has("pids") {
            write(&group.dir, "pids.max", &tasks.to_string())?;
        }
        if group.dir.join("memory.max").exists() {
            write(&group.dir, "memory.max", &memory_bytes.to_string())?;
            write(&group.dir, "pids.max", &tasks.to_string())?;
            match write(&group.dir, "memory.swap.max", "0") {
                Err(refusal) if has_swap() => return Err(refusal),
                _ => {}
            }
        }
    }
    let limited = |name: &str| groups.iter().any(|group| group.dir.join(name).exists());
    let memory = limited("memory.limit_in_bytes") || limited("memory.max");
    if !memory || !limited("pids.max") {
        return Err(Refusal(
            "control groups here limit no memory or no tasks; try `systemd-run --scope -p Delegate=yes hostile`".into(),
        ));
    }
    Ok(())
}

/// Version 2 gives a group only the controllers that its parent shares out.
fn ask_for_controllers(group: &Group) {
    let parent = group.dir.parent().expect("below the hierarchy's top");
    // Refused where version 1 has them, or where the parent holds processes; `make` sees what came of it.
    write(parent, "cgroup.subtree_control", "+memory +pids").ok();
}

fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

/// Moves this process in.
pub(crate) fn enter(groups: &[Group]) -> Result<(), Refusal> {
    let own = std::process::id().to_string();
    groups
        .iter()
        .try_for_each(|group| write(&group.dir, "cgroup.procs", &own))
}

/// From inside, where the cage's group is all of the hierarchy: refuses if the limits are not there.
pub(crate) fn must_be_limited(
    groups: &[Group],
    memory_bytes: u64,
    tasks: u64,
) -> Result<(), Refusal> {
    let number = |file: &str| {
        let texts = groups
            .iter()
            .filter_map(|group| read(&group.mount_point, file).ok());
        texts
            .filter_map(|text| text.trim().parse::<u64>().ok())
            .min()
    };
    let memory = number("memory.limit_in_bytes").or_else(|| number("memory.max"));
    if memory.is_none_or(|bytes| bytes > memory_bytes) {
        return Err(Refusal("not in a cage: memory is not limited".into()));
    }
    if number("pids.max").is_none_or(|most| most > tasks) {
        return Err(Refusal("not in a cage: tasks are not limited".into()));
    }
    Ok(())
}

/// Where the trials' processes get their processor time, apart from the suite's own: inside the cage, in version 1.
const TRIALS: &str = "/sys/fs/cgroup/cpu/trials";

/// Makes the trials' group: one processor for all of them, so that a bomb leaves some to the suite and to the machine.
pub(super) fn make_trials_group() {
    let dir = Path::new(TRIALS);
    let written = std::fs::create_dir(dir)
        .map_err(attempting(TRIALS))
        .and_then(|()| {
            write(dir, "cpu.cfs_quota_us", "100000")?;
            write(dir, "cpu.rt_runtime_us", "20000")
        });
    written.ok(); // for the neighbours' sake; the trials go without it where it cannot be had
}

/// Puts a process there, and those that it will start.
pub(crate) fn give_trial_share(pid: u32) {
    write(Path::new(TRIALS), "cgroup.procs", &pid.to_string()).ok(); // as above
}

/// A group inside the cage with little room, with this process in it, until it is dropped.
pub(crate) struct SmallGroup(PathBuf);

impl SmallGroup {
    /// For so many tasks; none where tasks cannot be counted so.
    pub(crate) fn of_tasks(most: u64) -> Option<Self> {
        let dir = Path::new("/sys/fs/cgroup/pids").join("few");
        std::fs::create_dir(&dir).ok()?;
        write(&dir, "pids.max", &most.to_string()).ok()?;
        write(&dir, "cgroup.procs", &std::process::id().to_string()).ok()?;
        Some(Self(dir))
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let parent = self.0.parent().expect("below the hierarchy's top");
        write(parent, "cgroup.procs", &std::process::id().to_string()).ok(); // then it goes with the cage
        std::fs::remove_dir(&self.0).ok();
    }
}

/// Removes the groups, once everybody in them is gone.
pub(crate) fn remove(groups: &[Group]) -> Result<(), Refusal> {
    let give_up = Instant::now() + Duration::from_secs(5);
    for group in groups {
        loop {
            match remove_tree(&group.dir) {
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < give_up =>
                {
                    rustix::thread::sched_yield(); // the last one is on its way out
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    let dir = group.dir.display();
                    return Err(Refusal(format!(
                        "the control group `{dir}` is left: {error}"
                    )));
                }
                _ => break,
            }
        }
    }
    Ok(())
}

/// A control group goes with the groups below it; its files are the kernel's.
fn remove_tree(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    std::fs::remove_dir(dir)
}

/// Removes cages whose maker was killed.
fn sweep(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name
            .to_str()
            .and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        if maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove_tree(&entry.path()).ok(); // in use after all, or gone
        }
    }
}

fn read(dir: &Path, file: &str) -> Result<String, Refusal> {
    let path = dir.join(file);
    std::fs::read_to_string(&path).map_err(attempting(format!("cannot read `{}`", path.display())))
}

fn write(dir: &Path, file: &str, text: &str) -> Result<(), Refusal> {
    let path = dir.join(file);
    std::fs::write(&path, text).map_err(attempting(format!(
        "cannot write `{text}` to `{}`",
        path.display()
    )))
}
