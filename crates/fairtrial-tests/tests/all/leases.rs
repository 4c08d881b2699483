//! Claims on what calls share, by which one makes others wait or go without; and files that hand on their user.

use fairtrial_exec::{Level, Sandbox};
use fairtrial_tests::{Story, json};

/// Tries each claim, and says how it ended. Core scheduling ends with another error where processors share no cores.
const CLAIMS: &str = "import ctypes, errno, fcntl, os
F_SETLEASE, F_SETDELEG, PR_SCHED_CORE, PR_SCHED_CORE_CREATE = 1024, 1040, 62, 1
def f():
    said = {}
    held = os.open('own', os.O_RDONLY | os.O_CREAT, 0o600)
    for name, command in (('lease', F_SETLEASE), ('delegation', F_SETDELEG)):
        try:
            fcntl.fcntl(held, command, fcntl.F_RDLCK if name == 'lease' else b'\\0' * 8)
            said[name] = 'taken'
        except OSError as error:
            said[name] = errno.errorcode[error.errno]
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, 0, 0)
    said['core'] = 'taken' if done == 0 else errno.errorcode[ctypes.get_errno()]
    try:
        os.chmod('own', 0o4755)
        said['setuid'] = 'taken'
    except OSError as error:
        said['setuid'] = errno.errorcode[error.errno]
    os.chmod('own', 0o755)
    context = ctypes.c_ulong(0)
    for name, claim in (('aio', lambda: libc.syscall(206, 1, ctypes.byref(context))),
                        ('fanotify', lambda: libc.syscall(300, 0x200, 0))):
        said[name] = 'taken' if claim() >= 0 else errno.errorcode[ctypes.get_errno()]
    return said
";

async fn claims(level: Level) -> serde_json::Value {
    let story = Story::new();
    let mut call = Story::call(CLAIMS, "[]");
    call.sandbox = Sandbox::new(level);
    let outcome = story.run(call).await;
    let said = json(&outcome);
    story.end().await;
    said
}

/// FA-8: a program that opens a file under a lease waits for up to 45 s, and any owner of a file can take one; at `limits`
/// the owner is the user that all calls have.
#[tokio::test]
async fn no_call_takes_a_lease_on_a_file_or_a_core_for_itself() {
    assert_eq!(claims(Level::None).await["lease"], "taken");
    for level in [Level::Limits, Level::Confined, Level::Strict] {
        let said = claims(level).await;
        for claim in ["lease", "delegation", "core"] {
            assert_eq!(said[claim], "EPERM", "{claim} at {level}");
        }
    }
}

/// FA-8: another user that runs such a file has the user of all calls, who can act on them.
#[tokio::test]
async fn no_call_makes_a_file_that_hands_on_its_user() {
    assert_eq!(claims(Level::None).await["setuid"], "taken");
    for level in [Level::Limits, Level::Confined, Level::Strict] {
        assert_eq!(claims(level).await["setuid"], "EPERM", "{level}");
    }
}

/// FA-8: the kernel counts contexts of asynchronous input and output for the whole machine, and groups of fanotify for
/// the user. The numbers are those of x86-64.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn no_call_takes_contexts_that_are_counted_for_all() {
    assert_eq!(claims(Level::None).await["aio"], "taken");
    for level in [Level::Confined, Level::Strict] {
        let said = claims(level).await;
        assert_eq!(
            (&said["aio"], &said["fanotify"]),
            (&"ENOSYS".into(), &"EPERM".into()),
            "{level}"
        );
    }
}
