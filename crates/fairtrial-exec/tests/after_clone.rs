//! Between clone and exec nothing is allocated. Alone in its binary: its allocator ends any process but the first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};

use fairtrial_exec::linux::confine::{self, Birth, Means};
use fairtrial_exec::linux::landlock::abi;
use fairtrial_exec::linux::perf::Counted;
use fairtrial_exec::linux::plan::Plan;
use fairtrial_exec::linux::seccomp::{Filter, Others, Sockets};
use fairtrial_exec::linux::selftest::SelfTest;
use fairtrial_exec::linux::spawn::{read_report, spawn};
use fairtrial_exec::protocol::launcher::{Confine, Landlock, Program};
use rustix::process::{Pid, WaitOptions, waitpid};

/// The only process that may allocate, once there is one.
static OWNER: AtomicI32 = AtomicI32::new(0);

struct OnlyInTheOwner;

impl OnlyInTheOwner {
    fn check() {
        let owner = OWNER.load(Ordering::Relaxed);
        // SAFETY: neither takes memory, and both may be called after a fork.
        unsafe {
            if owner != 0 && owner != libc::getpid() {
                libc::abort();
            }
        }
    }
}

// SAFETY: passes every request on to the system's allocator as it is, or ends the process.
unsafe impl GlobalAlloc for OnlyInTheOwner {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::check();
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::check();
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: OnlyInTheOwner = OnlyInTheOwner;

fn program(path: &str, self_test: Option<SelfTest>) -> Program {
    let text = |text: &str| text.as_bytes().to_vec();
    Program {
        paths: vec![text("/no/such/place/true"), text(path)],
        argv: vec![text("true")],
        env: vec![text("PATH=/bin")],
        cwd: text("/"),
        rlimits: vec![(libc::RLIMIT_CORE, 0)],
        ahead: false,
        alone: false,
        zygote: false,
        confine: None,
        self_test,
        nest: false,
        counted: vec![Counted::TaskClock], // so that it waits at the gate, too
    }
}

/// Starts a program as the launcher does; gives what it reported and its wait status.
fn run(program: &Program, plan: Plan) -> (bool, i32) {
    let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("always there"));
    let started = spawn(program, &[null(), null(), null()], plan, None).expect("it is started");
    let status = waitpid(Pid::from_raw(started.pid), WaitOptions::empty());
    let (_, status) = status.expect("a child of ours").expect("it has ended");
    (read_report(&started.report).is_ok(), status.as_raw())
}

fn all_that_confines() -> Plan {
    let confine = Confine {
        user_tasks: None,
        leaf: None,
        rlimits: vec![(libc::RLIMIT_NICE, 0)],
        oom_score: 800,
        landlock: abi().ok().map(|abi| Landlock {
            abi,
            writable: vec![b"/tmp".to_vec(), b"/dev/null".to_vec()],
            readable: Some(vec![b"/usr".to_vec()]),
            unlisted: Vec::new(),
            refuse_tcp: true,
        }),
        cpus: Vec::new(),
        umask: Some(0o077),
        namespaces: None, // the namespaces themselves are an init's work
        tree: None,
        mounts: None,
        own_quotas: None,
        filter: Some(Filter {
            others: Others::InNamespace,
            rare_calls: Some(Sockets::Namespaced),
            shares_host: true,
        }),
    };
    confine::plan(&confine, Means::default(), Birth::Executed).expect("nothing of it can fail")
}

/// SB-3: with every step that a command takes, and with one that fails.
#[test]
fn nothing_is_allocated_between_clone_and_exec() {
    let programs = [program("/bin/true", None), program("/nowhere", None)];
    let plans = [
        Plan::default(),
        all_that_confines(),
        Plan::default(),
        all_that_confines(),
    ];
    let liar = program("/bin/true", Some(SelfTest::default()));
    OWNER.store(std::process::id().cast_signed(), Ordering::Relaxed);
    let [plain, confined, plain_again, confined_again] = plans;
    let seen = [
        run(&programs[0], plain),
        run(&programs[0], confined),
        run(&programs[1], plain_again),
        run(&programs[1], confined_again),
    ];
    // The test itself works: a self-test puts words together, in a child that never executes anything.
    let caught = run(&liar, Plan::default());
    OWNER.store(0, Ordering::Relaxed);
    let failed = (false, 127 << 8);
    assert_eq!(seen, [(true, 0), (true, 0), failed, failed]);
    assert_eq!(caught.1 & 0x7f, libc::SIGABRT);
}
