//! The files of one process in `/proc`, kept open so that a look costs one system call.
//!
//! An open file stays with its process: once that is gone reads fail, and never show another of the same number.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use crate::foreign_host::{Held, check_loop};
use crate::linux::proc_status::{Stat, Status, malformed, parse_statm};
use crate::linux::proc_tree::{children, kernel_lists_children, parse_list};

/// What `status` needs, with room to spare; its masks grow with the number of CPUs.
const BUFFER_BYTES: usize = 8 << 10;

/// The open files of one process.
#[derive(Debug)]
pub struct ProcFiles {
    pid: u32,
    /// Before the descriptors, as they want.
    _held: Vec<Held>,
    status: OwnedFd,
    stat: OwnedFd,
    statm: OwnedFd,
    clear_refs: OwnedFd,
    /// Of the main thread; none where the kernel keeps no such list.
    children: Option<OwnedFd>,
    buffer: Vec<u8>,
}

impl ProcFiles {
    /// Opens them. The caller knows that the number is still the process's (it is its parent, or holds its pidfd).
    pub fn open(pid: u32) -> io::Result<Self> {
        let open = |file: &str, access| {
            let path = format!("/proc/{pid}/{file}");
            openat(CWD, path, access | OFlags::CLOEXEC, Mode::empty())
        };
        let list = format!("task/{pid}/children");
        let mut files = Self {
            pid,
            _held: Vec::new(),
            status: open("status", OFlags::RDONLY)?,
            stat: open("stat", OFlags::RDONLY)?,
            statm: open("statm", OFlags::RDONLY)?,
            clear_refs: open("clear_refs", OFlags::WRONLY)?,
            children: kernel_lists_children()
                .then(|| open(&list, OFlags::RDONLY))
                .transpose()?,
            buffer: vec![0; BUFFER_BYTES],
        };
        let open = [&files.status, &files.stat, &files.statm, &files.clear_refs];
        let open = open.into_iter().chain(&files.children);
        files._held = open.map(Held::new).collect();
        Ok(files)
    }

    /// Makes what is resident now the peak, from which it can only rise again.
    pub fn reset_peak(&self) -> io::Result<()> {
        check_loop(); // what is written would be found in a file of the host
        retry_on_intr(|| pwrite(&self.clear_refs, b"5", 0))?;
        Ok(())
    }

    /// Peak, resident size and threads, now.
    pub fn read(&mut self) -> io::Result<Status> {
        let length = read_once(&self.status, &mut self.buffer, 0)?;
        Status::parse(&self.buffer[..length]).ok_or_else(|| malformed("status"))
    }

    /// Its `stat` now: for `cpu_clock::split`, and to tell a zombie.
    pub fn stat(&mut self) -> io::Result<Stat> {
        let length = read_once(&self.stat, &mut self.buffer, 0)?;
        Stat::parse(&self.buffer[..length]).ok_or_else(|| malformed("stat"))
    }

    /// Resident bytes now: cheaper than [`ProcFiles::read`], and at most a few pages per thread behind.
    pub fn resident(&mut self) -> io::Result<u64> {
        let length = read_once(&self.statm, &mut self.buffer, 0)?;
        parse_statm(&self.buffer[..length])
    }

    /// The children of all its threads, of which it had `threads` just now: the kernel keeps a list for each.
    pub fn children(&mut self, threads: u64) -> io::Result<Vec<u32>> {
        match &self.children {
            Some(list) if threads == 1 => {
                let length = read_whole(list, &mut self.buffer)?;
                Ok(parse_list(&self.buffer[..length]).collect())
            }
            _ => children(self.pid),
        }
    }
}

/// Reads a list to its end; the kernel gives a page or so at a time.
fn read_whole(fd: &OwnedFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            buffer.resize(length * 2, 0);
        }
        match read_once(fd, &mut buffer[length..], length as u64)? {
            0 => return Ok(length),
            more => length += more,
        }
    }
}

fn read_once(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    match retry_on_intr(|| pread(fd, &mut *buffer, offset)) {
        // The process has been reaped.
        Err(Errno::NOENT) => Err(Errno::SRCH.into()),
        read => Ok(read?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(argv: &[&str]) -> std::process::Child {
        #[expect(
            clippy::disallowed_methods,
            reason = "a test needs a process to look at"
        )]
        std::process::Command::new(argv[0])
            .args(&argv[1..])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// EX-83
    #[test]
    fn the_peak_falls_when_it_is_reset_and_rises_with_use() {
        // Of this very process: other tests may run in it, so sizes are far above theirs.
        const BYTES: usize = 512 << 20;
        let mut files = ProcFiles::open(std::process::id()).unwrap();
        let block = vec![1_u8; BYTES];
        let full = files.read().unwrap();
        assert!(block[BYTES / 2] == 1 && full.hwm_bytes.unwrap() > BYTES as u64);
        drop(block);
        assert!(files.read().unwrap().hwm_bytes.unwrap() > BYTES as u64);
        files.reset_peak().unwrap();
        let after = files.read().unwrap();
        assert!(after.hwm_bytes.unwrap() < full.hwm_bytes.unwrap());
        assert!(after.threads >= 1);
    }

    /// EX-82
    #[test]
    fn a_process_that_is_gone_is_told_and_not_taken_for_another() {
        let mut child = quiet(&["cat"]);
        let mut files = ProcFiles::open(child.id()).unwrap();
        assert!(files.read().unwrap().rss_bytes.is_some());
        assert_eq!(files.stat().unwrap().ppid, std::process::id());
        assert!(files.children(1).unwrap().is_empty());
        assert!(files.resident().unwrap() > 0);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(files.read().unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert!(ProcFiles::open(child.id()).is_err());
    }

    /// EX-9
    #[test]
    fn many_children_are_all_listed() {
        let mut sh = quiet(&[
            "sh",
            "-c",
            "for i in $(seq 300); do sleep 100 & done; read x",
        ]);
        let mut files = ProcFiles::open(sh.id()).unwrap();
        let found = loop {
            let found = files.children(1).unwrap();
            if found.len() >= 300 {
                break found;
            }
        };
        for &pid in &found {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        drop(sh.stdin.take());
        sh.wait().unwrap();
        assert_eq!(found.len(), 300);
    }
}
