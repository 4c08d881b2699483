//! What those who keep files need: names of their own, and the time of now.

use std::fs::File;

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};

use crate::jitter::nonce;

/// A name that nobody else draws; it tells which process did.
pub(crate) fn fresh_name() -> String {
    format!("{}-{}", std::process::id(), nonce())
}

/// Sets a file's times to now, by the clock of whoever keeps the file system.
pub(crate) fn touch(file: &File) -> rustix::io::Result<()> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    futimens(file, &times)
}
