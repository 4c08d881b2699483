//! Candidates read from where the evaluation file says they are (CA-11). What each holds is made sense of in `stage`.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::EvaluateError;
use crate::spec::{Source, Spec};
use crate::stage::{Given, LineFault, MOST_BYTES, Mode, Replacement, read_jsonl, read_tree};

/// What the sources gave, in order: a candidate, or a line that is none.
pub(crate) type Read1 = Result<Given, LineFault>;

/// Reads all sources. A source that cannot be read or has nothing is an error (CA-8); a candidate that makes no sense is
/// not.
pub(crate) fn read_sources(spec: &Spec) -> Result<Vec<Read1>, EvaluateError> {
    let mut all = Vec::new();
    for (number, source) in spec.candidates.iter().enumerate() {
        let path = &source.path().path;
        let read = match source {
            Source::Patches(_) => patches(number, path),
            Source::Trees(_) => trees(number, path),
            Source::Jsonl(_) => lines(number, path),
        };
        let fault = |problem: String| {
            let key = format!("candidates[{number}].{}", source.key());
            EvaluateError::from(spec.places.fault(&key, problem))
        };
        let read = read.map_err(|(path, error)| {
            fault(match error.kind() {
                ErrorKind::NotADirectory => format!(
                    "`{}` is not a directory (name the one that holds the candidates)",
                    path.display()
                ),
                _ => format!("cannot read `{}`: {error}", path.display()),
            })
        })?;
        if read.is_empty() {
            let what = match source {
                Source::Patches(_) => "`*.patch` or `*.diff`",
                Source::Trees(_) => "directories",
                Source::Jsonl(_) => "lines",
            };
            return Err(fault(format!("`{}` has no {what}", path.display())));
        }
        all.extend(read);
    }
    Ok(all)
}

/// What cannot be read, and why.
type Unreadable = (PathBuf, std::io::Error);

fn unreadable(path: &Path) -> impl FnOnce(std::io::Error) -> Unreadable {
    let path = path.to_owned();
    move |error| (path, error)
}

/// The entries of a directory, by name.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, Unreadable> {
    let found = fs::read_dir(directory).map_err(unreadable(directory))?;
    let paths = found.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths
        .collect::<Result<_, _>>()
        .map_err(unreadable(directory))?;
    paths.sort();
    Ok(paths)
}

fn patches(source: usize, directory: &Path) -> Result<Vec<Read1>, Unreadable> {
    let is_patch = |path: &PathBuf| {
        path.extension()
            .is_some_and(|suffix| suffix == "patch" || suffix == "diff")
    };
    let paths = entries(directory)?.into_iter().filter(is_patch);
    let read = paths.map(|path| {
        let text = read_bounded(&path).map_err(unreadable(&path))?;
        Ok(Ok(Given::patch(source, file_name(&path), text)))
    });
    read.collect()
}

/// A little more than a candidate can have: staging then says that it is too long.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    fs::File::open(path)?
        .take(4 * MOST_BYTES)
        .read_to_end(&mut text)?;
    Ok(text)
}

fn file_name(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_bytes()
}

fn trees(source: usize, directory: &Path) -> Result<Vec<Read1>, Unreadable> {
    let trees = entries(directory)?.into_iter().filter(|path| path.is_dir());
    let read = trees.map(|tree| {
        let files = read_tree(replacements(&tree)?);
        Ok(Ok(Given::tree(source, file_name(&tree), files)))
    });
    read.collect()
}

/// All that a candidate's directory holds; links are links, and special files are told to staging, which refuses them.
fn replacements(tree: &Path) -> Result<Vec<(Vec<u8>, Replacement)>, Unreadable> {
    let mut files = Vec::new();
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for path in entries(&directory)? {
            let found = fs::symlink_metadata(&path).map_err(unreadable(&path))?;
            if found.is_dir() {
                directories.push(path);
                continue;
            }
            let replacement = if found.is_symlink() {
                let target = fs::read_link(&path).map_err(unreadable(&path))?;
                Replacement::Link {
                    target: target.as_os_str().as_bytes().to_vec(),
                }
            } else if found.is_file() {
                Replacement::File {
                    bytes: read_bounded(&path).map_err(unreadable(&path))?,
                    mode: Mode::KeptOr(found.permissions().mode() & 0o777),
                }
            } else {
                Replacement::Special
            };
            let place = path.strip_prefix(tree).unwrap_or(&path);
            files.push((place.as_os_str().as_bytes().to_vec(), replacement));
        }
    }
    Ok(files)
}

fn lines(source: usize, file: &Path) -> Result<Vec<Read1>, Unreadable> {
    let text = fs::read(file).map_err(unreadable(file))?;
    Ok(read_jsonl(source, &file.display().to_string(), &text).collect())
}
