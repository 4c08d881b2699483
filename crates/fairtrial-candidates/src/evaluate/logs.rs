//! What commands write, whole, on disk (CA-57).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fairtrial_exec::{Stream, Streams, Tap};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

/// Streams that lead to `PLACE.stdout` and `PLACE.stderr`. Files are made when there is something to write; when all is
/// written, the handle ends.
pub(crate) fn to_files(place: PathBuf) -> (Streams, JoinHandle<io::Result<()>>) {
    let (tap, reader) = Tap::new();
    let writing = tokio::task::spawn_blocking(move || {
        let mut files: [Option<File>; 2] = [None, None];
        // A disk that is full must not stop the command: the rest is read and let go.
        let mut written = Ok(());
        for (stream, bytes) in reader {
            let file = &mut files[usize::from(stream == Stream::Stderr)];
            written = written.and_then(|()| write(file, &place, stream, &bytes));
        }
        written
    });
    let streams = Streams {
        output: Some(tap),
        ..Streams::default()
    };
    (streams, writing)
}

fn write(file: &mut Option<File>, place: &Path, stream: Stream, bytes: &[u8]) -> io::Result<()> {
    let open = match file {
        Some(open) => open,
        None => {
            let suffix = match stream {
                Stream::Stdout => ".stdout",
                Stream::Stderr => ".stderr",
            };
            let mut name = place.as_os_str().to_owned();
            name.push(suffix);
            if let Some(parent) = place.parent() {
                fs::create_dir_all(parent)?;
            }
            file.insert(File::create(name)?)
        }
    };
    open.write_all(bytes)
}

/// What the build's own log is called.
pub(crate) const BUILD: &str = "build";

/// A test's name as one of a file, whatever people called it: another for each, and never that of the build.
pub(crate) fn file_name(name: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => letter,
        _ => '_',
    };
    let plain: String = name.chars().take(80).map(plain).collect();
    if plain == name && name != BUILD {
        return plain;
    }
    let sum = Sha256::digest(name.as_bytes());
    let digits: String = sum
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{plain}-{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-57
    #[test]
    fn each_test_has_a_log_of_its_own() {
        let long = "long".repeat(100);
        let names = ["a/b", "a_b", "a.b", "..", "", BUILD, &long, &long[1..]];
        let files: std::collections::BTreeSet<String> =
            names.iter().map(|name| file_name(name)).collect();
        assert_eq!(files.len(), names.len(), "{files:?}");
        assert!(files.contains("a_b") && !files.contains(BUILD));
        let is_plain = |file: &String| !file.contains(['/', '.']) && file.len() < 100;
        assert!(files.iter().all(is_plain), "{files:?}");
    }
}
