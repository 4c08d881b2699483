//! Errnos by name, for reports.

use rustix::io::Errno;

/// The name of a refusal, as far as it is one that setting things up meets.
#[must_use]
pub fn name(number: i32) -> &'static str {
    match Errno::from_raw_os_error(number) {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::SRCH => "ESRCH",
        Errno::IO => "EIO",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::BUSY => "EBUSY",
        Errno::EXIST => "EEXIST",
        Errno::NODEV => "ENODEV",
        Errno::NOTDIR => "ENOTDIR",
        Errno::INVAL => "EINVAL",
        Errno::NFILE => "ENFILE",
        Errno::MFILE => "EMFILE",
        Errno::NOSPC => "ENOSPC",
        Errno::ROFS => "EROFS",
        Errno::NOSYS => "ENOSYS",
        Errno::LOOP => "ELOOP",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::USERS => "EUSERS",
        _ => "another errno",
    }
}
