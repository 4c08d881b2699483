//! A candidate given as a directory that mirrors the files it replaces.

use super::files::Replacement;

/// The file at the root of such a directory that lists what is deleted, one path a line.
pub const DELETE_LIST: &str = ".fairtrial-delete";

/// Takes every file, link and special file of the directory, with its path below it, and gives what each path is to hold.
/// The list of deletions is read and not itself a file of the candidate.
#[must_use]
pub fn read_tree(
    entries: impl IntoIterator<Item = (Vec<u8>, Replacement)>,
) -> Vec<(Vec<u8>, Replacement)> {
    let mut files = Vec::new();
    for (path, replacement) in entries {
        match &replacement {
            Replacement::File { bytes, .. } if path == DELETE_LIST.as_bytes() => {
                let deleted = deletions(bytes).map(|path| (path.to_vec(), Replacement::Deleted));
                files.extend(deleted);
            }
            _ => files.push((path, replacement)),
        }
    }
    // A directory is read in no order of its own, but the first fault found should always be the same.
    files.sort_by(|one, other| one.0.cmp(&other.0));
    files
}

fn deletions(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = list.split(|byte| *byte == b'\n');
    let bare = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    bare.filter(|line| !line.is_empty())
}
