//! What a confined process can still do, found out by trying. Runs in place of a program, under the real plan.

use std::fmt::Write;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::clone::{clone, exit};

/// What is tried, on whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SelfTest {
    /// A process of the host's that is nobody's business: the engine.
    pub engine: u32,
    /// A file that the host could read and change.
    pub canary: Vec<u8>,
    /// A port on the loopback interface where somebody listens.
    pub port: u16,
    /// What is to be used up, if anything: then nothing else is tried.
    pub exhaust: Option<Exhaust>,
}

/// What a self-test uses up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Exhaust {
    /// Memory, up to so many bytes.
    Memory(u64),
    /// Processes, up to so many.
    Processes(u64),
}

/// Tries everything, tells on standard output line by line, and ends.
pub(super) fn run(test: &SelfTest) -> ! {
    match test.exhaust {
        Some(Exhaust::Memory(bytes)) => use_memory(bytes),
        Some(Exhaust::Processes(count)) => use_processes(count),
        None => {
            let mut report = String::new();
            for (name, result) in attempts(test) {
                let word = match &result {
                    Ok(()) => "allowed",
                    Err(_) => "denied",
                };
                writeln!(report, "{name} {word}").expect("a string takes all");
            }
            rustix::io::write(rustix::stdio::stdout(), report.as_bytes()).ok(); // what is missing was not denied
        }
    }
    exit(0)
}

fn attempts(test: &SelfTest) -> Vec<(&'static str, io::Result<()>)> {
    let engine = test.engine.cast_signed();
    let canary = std::str::from_utf8(&test.canary).unwrap_or_default();
    let open = |path: &str, write: bool| {
        let file = std::fs::OpenOptions::new()
            .read(!write)
            .write(write)
            .open(path)?;
        // Whether it may be read is decided when it is read.
        if write {
            Ok(())
        } else {
            io::Read::read(&mut &file, &mut [0; 1]).map(|_| ())
        }
    };
    vec![
        ("connect", connect(test.port)),
        (
            "kill_engine",
            result_of(|| {
                // SAFETY: signal 0 only asks.
                unsafe { libc::kill(engine, 0) }
            }),
        ),
        (
            "limit_engine",
            result_of(|| {
                // SAFETY: without a new limit or a place for the old one the kernel only checks the permission.
                unsafe {
                    libc::prlimit(
                        engine,
                        libc::RLIMIT_NOFILE,
                        std::ptr::null(),
                        std::ptr::null_mut(),
                    )
                }
            }),
        ),
        (
            "ptrace_engine",
            result_of(|| {
                // SAFETY: takes numbers; whoever is traced so runs on, and is let go when this process ends, at once.
                let result = unsafe { libc::ptrace(libc::PTRACE_SEIZE, engine, 0, 0) };
                i32::try_from(result).unwrap_or(-1)
            }),
        ),
        ("read_memory", read_memory(engine)),
        (
            "read_environ",
            open(&format!("/proc/{engine}/environ"), false),
        ),
        ("read_canary", open(canary, false)),
        ("write_canary", open(canary, true)),
        (
            "gain_nice",
            result_of(|| {
                // SAFETY: take numbers.
                unsafe {
                    let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
                    libc::setpriority(libc::PRIO_PROCESS, 0, nice - 1)
                }
            }),
        ),
        (
            "keep_descriptor",
            result_of(|| if keeps_descriptor() { 0 } else { -1 }),
        ),
        // The last: whoever succeeds has other privileges from then on. This one takes none.
        (
            "unshare",
            result_of(|| {
                // SAFETY: takes a number; this process does nothing else afterwards that it could matter for.
                unsafe { libc::unshare(libc::CLONE_NEWUSER) }
            }),
        ),
    ]
}

/// As far as a process that keeps one is looked through.
const DESCRIPTORS: i32 = 4096;

/// Closes what executing a program would: a self-test is none, and what is left open by mistake is to be found.
pub(super) fn close_as_exec_does() {
    for fd in
        (3..DESCRIPTORS).filter(|fd| flags_of(*fd) & libc::FD_CLOEXEC != 0 && flags_of(*fd) >= 0)
    {
        // SAFETY: this process is about to end, and nothing in it uses the descriptor any more.
        unsafe { libc::close(fd) };
    }
}

fn keeps_descriptor() -> bool {
    (3..DESCRIPTORS).any(|fd| flags_of(fd) >= 0)
}

/// Negative if there is no such descriptor.
fn flags_of(fd: i32) -> i32 {
    // SAFETY: asks about a number only.
    unsafe { libc::fcntl(fd, libc::F_GETFD) }
}

fn result_of(call: impl FnOnce() -> i32) -> io::Result<()> {
    match call() {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn connect(port: u16) -> io::Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).map(|_| ())
}

fn read_memory(pid: i32) -> io::Result<()> {
    let mut byte = 0_u8;
    let local = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // An address that is not there: who may look is told so, who may not is told that.
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(8),
        iov_len: 1,
    };
    // SAFETY: the kernel writes at most one byte, to a live place.
    let count =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    let error = io::Error::last_os_error();
    if count >= 0 || error.raw_os_error() == Some(libc::EFAULT) {
        Ok(())
    } else {
        Err(error)
    }
}

fn use_memory(bytes: u64) {
    const STEP: usize = 1 << 20;
    let mut held = Vec::new();
    for _ in 0..bytes / STEP as u64 {
        held.push(std::hint::black_box(vec![1_u8; STEP]));
    }
}

fn use_processes(count: u64) {
    for _ in 0..count {
        match clone(0) {
            Ok(0) => loop {
                // SAFETY: waits for a signal, which will be the one that ends it.
                unsafe { libc::pause() };
            },
            Ok(_) => {}
            Err(_) => break,
        }
    }
    // Whoever limits them has a moment to say so, by a signal.
    let moment = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 200_000_000,
    };
    rustix::event::poll(&mut [], Some(&moment)).ok(); // cut short it proves as much
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    /// SB-41: the attempt can succeed, so that its failure says something.
    #[test]
    fn a_descriptor_that_a_program_would_inherit_is_found() {
        for (flag, kept) in [(0, true), (libc::FD_CLOEXEC, false)] {
            let child = clone(0).expect("a process");
            if child == 0 {
                // SAFETY: the child's own descriptors; it ends below and runs nothing else of this program.
                unsafe {
                    libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
                    libc::dup2(1, 77);
                    libc::fcntl(77, libc::F_SETFD, flag);
                }
                close_as_exec_does();
                exit(keeps_descriptor().into());
            }
            let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).expect("a child");
            let code = ended.and_then(|(_, status)| status.exit_status());
            assert_eq!(code, Some(kept.into()), "{flag}");
        }
    }
}
