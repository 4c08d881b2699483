//! The machine that runs a study, as its record names it.

use fairtrial_study::Value;
use fairtrial_study::provenance::{self, Site};

/// What is known without running a program of the user's.
pub(crate) fn captured() -> Value {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    provenance::captured(&Site {
        host: text(uname.nodename()),
        platform: format!("{}-{}", text(uname.sysname()), text(uname.machine())),
        ..Site::default()
    })
}
