//! Files as text, and why one cannot be.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::fault::{Fault, Place, fault};

/// The text of a file that a user named; `hint` says what to name instead if there is none such.
///
/// # Errors
/// It is not there, no regular file, not to be read, or not UTF-8.
pub fn read_text(path: &Path, hint: &str) -> Result<String, Fault> {
    let file: Arc<str> = Arc::from(path.display().to_string());
    let bytes = read_bytes(path).map_err(|error| {
        let error = error.to_string();
        let reason = error.split(" (os error").next().unwrap_or(&error);
        let message = format!("cannot read it: {reason}");
        fault(&Place::start_of(&file), "file", message, hint)
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        not_text(&file, &String::from_utf8_lossy(good))
    })
}

/// Of regular files only: a pipe or a device might never end.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    fs::read(path)
}

fn not_text(file: &Arc<str>, before: &str) -> Fault {
    let place = Place {
        file: file.clone(),
        line: before.matches('\n').count() + 1,
        column: before.rsplit('\n').next().unwrap_or(before).chars().count() + 1,
    };
    let hint = "save the file as UTF-8";
    fault(&place, "encoding", "not UTF-8 text", hint)
}
