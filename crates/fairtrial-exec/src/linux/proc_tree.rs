//! Who descends from whom.
//!
//! A list of the living is true of a moment that is past: processes fork and end while it is made, and a kernel list
//! read while children end may skip one. Whoever kills by it reads again until it is empty.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::OnceLock;

use crate::linux::proc_status::{Stat, number, read_small};

/// The children of a process, of whichever thread. A process that is gone has none.
pub fn children(pid: u32) -> io::Result<Vec<u32>> {
    if !kernel_lists_children() {
        return Ok(Parents::scan()?.children(pid));
    }
    let threads = format!("/proc/{pid}/task");
    // Each of its threads is a link to that directory, beside its name and its own `.`; most have but one.
    let links = rustix::fs::stat(&threads).map(|found| found.st_nlink);
    let tasks = match links {
        Ok(3) => vec![pid],
        _ => numbers_in(&threads)?,
    };
    let mut found = Vec::new();
    for task in tasks {
        match read_small(&format!("{threads}/{task}/children")) {
            Ok(list) => found.extend(parse_list(&list)),
            Err(error) if is_gone(&error) => (),
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The threads of a process; none if it is gone.
#[must_use]
pub fn threads(pid: u32) -> Vec<u32> {
    numbers_in(&format!("/proc/{pid}/task")).unwrap_or_default()
}

/// Children, their children and so on, parents before children; not the process itself.
pub fn descendants(pid: u32) -> io::Result<Vec<u32>> {
    if kernel_lists_children() {
        return walk(pid, children);
    }
    let parents = Parents::scan()?;
    walk(pid, |pid| Ok(parents.children(pid)))
}

fn walk(root: u32, children: impl Fn(u32) -> io::Result<Vec<u32>>) -> io::Result<Vec<u32>> {
    // Numbers are reused while we look, so a walk could come back to where it was.
    let mut known = HashSet::from([root]);
    let mut found = children(root)?;
    found.retain(|&pid| known.insert(pid));
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        found.extend(children(pid)?.into_iter().filter(|&pid| known.insert(pid)));
        next += 1;
    }
    Ok(found)
}

/// For kernels without lists of children: everybody's parent, from one reading of `/proc`.
struct Parents(HashMap<u32, Vec<u32>>);

impl Parents {
    fn scan() -> io::Result<Self> {
        let mut by_parent: HashMap<u32, Vec<u32>> = HashMap::new();
        for pid in numbers_in("/proc")? {
            // Gone since it was listed, or hidden from us: then it is no child of ours either.
            if let Ok(stat) = Stat::read(pid) {
                by_parent.entry(stat.ppid).or_default().push(pid);
            }
        }
        Ok(Self(by_parent))
    }

    fn children(&self, pid: u32) -> Vec<u32> {
        self.0.get(&pid).cloned().unwrap_or_default()
    }
}

/// Whether the kernel was built with `CONFIG_PROC_CHILDREN`.
pub(super) fn kernel_lists_children() -> bool {
    static LISTS: OnceLock<bool> = OnceLock::new();
    *LISTS.get_or_init(|| std::path::Path::new("/proc/thread-self/children").exists())
}

/// The numbers a kernel list holds.
pub(super) fn parse_list(list: &[u8]) -> impl Iterator<Item = u32> {
    list.split(u8::is_ascii_whitespace).filter_map(number)
}

/// The entries of a `/proc` directory that are numbers; none if it is gone.
fn numbers_in(dir: &str) -> io::Result<Vec<u32>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) => numbers.extend(number::<u32>(entry.file_name().as_encoded_bytes())),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(numbers)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Stdio};

    use super::*;

    /// `sh` with a child that has a child; both numbers are read from its output.
    fn family() -> (Child, [u32; 2]) {
        let script = "sh -c 'sh -c \"echo \\$\\$; exec sleep 1000\" & echo $$; wait' & wait";
        #[expect(
            clippy::disallowed_methods,
            reason = "a test needs a process to look at"
        )]
        let mut child = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().unwrap().unwrap().parse().unwrap();
        let pair = [line(), line()];
        (child, pair)
    }

    fn end(pids: [u32; 2]) {
        for pid in pids {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            // The parent ends by itself when the child does.
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    /// EX-9, EX-48
    #[test]
    fn children_of_children_are_found_by_list_and_by_scan() {
        let (mut child, mut below) = family();
        let (mut listed, parents) = (descendants(child.id()).unwrap(), Parents::scan().unwrap());
        let mut scanned = walk(child.id(), |pid| Ok(parents.children(pid))).unwrap();
        let direct = children(child.id()).unwrap();
        end(below);
        child.wait().unwrap();
        listed.sort_unstable();
        scanned.sort_unstable();
        below.sort_unstable();
        assert_eq!((&listed[..], &scanned[..]), (&below[..], &below[..]));
        assert!(direct.len() == 1 && below.contains(&direct[0]));
    }

    /// EX-9
    #[test]
    fn a_child_forked_by_another_thread_is_found() {
        let (mut child, below) = std::thread::spawn(|| {
            let family = family();
            let mine = children(std::process::id()).unwrap();
            assert!(mine.contains(&family.0.id()));
            family
        })
        .join()
        .unwrap();
        end(below);
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_has_no_children_and_a_circle_ends() {
        assert!(children(i32::MAX as u32).unwrap().is_empty());
        assert_eq!(walk(1, |pid| Ok(vec![pid % 3 + 1])).unwrap(), [2, 3]);
    }
}
