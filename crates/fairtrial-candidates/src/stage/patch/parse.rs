//! A patch, part by part. What is not part of it (a mail's header, a message, a fence) is passed over; what looks like a
//! change but cannot be read is an error, so that no change is lost in silence.

use super::git_header::{GitHeader, plain_file, read_names};
use super::hunk::Hunk;
use super::lines::{Lines, header};
use super::{BinaryData, Body, Section, Verb};
use crate::stage::path::TreePath;

/// A patch as it was read.
///
/// ```
/// use fairtrial_candidates::stage::patch::Patch;
///
/// let text = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n";
/// assert_eq!(Patch::read(text).unwrap().sections().count(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Patch<'a> {
    /// One for each mail of a series. Within one, names mean the tree as it was before it.
    pub(super) rounds: Vec<Vec<Section<'a>>>,
}

/// What is wrong with the text of a patch, and in which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the patch: {message}")]
pub struct SyntaxError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl<'a> Patch<'a> {
    /// Reads a patch, or several one after the other. A text of blanks is a patch that changes nothing.
    pub fn read(text: &'a [u8]) -> Result<Self, SyntaxError> {
        let mut rounds = vec![Vec::new()];
        let mut lines = Lines::new(text);
        while let Some(line) = lines.peek() {
            let number = lines.number;
            let at = |message| SyntaxError {
                line: number,
                message,
            };
            let section = if line.starts_with(b"diff --git ") {
                Some(read_git(&mut lines).map_err(at)?)
            } else if line.starts_with(b"--- ") {
                read_plain(&mut lines).map_err(at)?
            } else if line.starts_with(b"@@ -") {
                return Err(at("a hunk that belongs to no file".to_owned()));
            } else {
                None
            };
            match section {
                Some(section) => rounds.last_mut().expect("never empty").push(section),
                None => {
                    if is_mail(line) {
                        rounds.push(Vec::new());
                    }
                    lines.next();
                }
            }
        }
        let nothing = rounds.iter().all(Vec::is_empty) && !text.trim_ascii().is_empty();
        match nothing {
            true => Err(SyntaxError {
                line: 1,
                message: "there is no change in it".to_owned(),
            }),
            false => Ok(Self { rounds }),
        }
    }

    /// What it does, file by file.
    pub fn sections(&self) -> impl Iterator<Item = &Section<'a>> {
        self.rounds.iter().flatten()
    }
}

fn read_git<'a>(lines: &mut Lines<'a>) -> Result<Section<'a>, String> {
    let header_lines = GitHeader::read(lines)?;
    let verb = header_lines.verb()?;
    let body = match lines.peek().map(header) {
        Some(b"GIT binary patch") => {
            lines.next();
            let mut data = BinaryData::read(lines)?;
            data.ids = header_lines.ids;
            Body::Binary(data)
        }
        Some(line) if line.starts_with(b"Binary files ") && line.ends_with(b" differ") => {
            lines.next();
            Body::Absent
        }
        _ => match read_hunks(lines, verb.file())? {
            // Whoever names both sides has more to say: only lines that change have such names.
            hunks if hunks.is_empty() && header_lines.names.is_some() => {
                return Err(format!("`{}` has no hunk", verb.file()));
            }
            hunks => Body::Text(hunks),
        },
    };
    Ok(Section {
        verb,
        old_mode: header_lines.old_mode,
        new_mode: header_lines.new_mode,
        body,
    })
}

/// A part without git's header; none if it is only a line of dashes.
fn read_plain<'a>(lines: &mut Lines<'a>) -> Result<Option<Section<'a>>, String> {
    let Some((old, new)) = read_names(lines)? else {
        return Ok(None);
    };
    let file = TreePath::new(plain_file(&old, &new)?).map_err(|fault| fault.to_string())?;
    let hunks = read_hunks(lines, &file)?;
    let [first, ..] = &hunks[..] else {
        return Err(format!("`{file}` has no hunk"));
    };
    let (no_old, no_new) = (
        first.old_start == 0,
        hunks.len() == 1 && first.new_count == 0,
    );
    let verb = match () {
        () if old.is_null() || (old.epoch && no_old) => Verb::Create(file),
        () if new.is_null() || (new.epoch && no_new) => Verb::Delete(file),
        () => Verb::Modify(file),
    };
    Ok(Some(Section {
        verb,
        old_mode: None,
        new_mode: None,
        body: Body::Text(hunks),
    }))
}

fn read_hunks<'a>(lines: &mut Lines<'a>, file: &TreePath) -> Result<Vec<Hunk<'a>>, String> {
    let mut hunks = Vec::new();
    while lines.peek().is_some_and(|line| line.starts_with(b"@@")) {
        let number = hunks.len() + 1;
        let hunk = Hunk::read(lines);
        hunks.push(hunk.map_err(|message| format!("`{file}`, hunk {number} {message}"))?);
    }
    Ok(hunks)
}

/// The line with which `git format-patch` begins a mail: `From`, an id, a date that is always the same.
fn is_mail(line: &[u8]) -> bool {
    let id = line.strip_prefix(b"From ");
    let id = id.and_then(|rest| rest.split(|byte| *byte == b' ').next());
    id.is_some_and(|id| id.len() >= 40 && id.iter().all(u8::is_ascii_hexdigit))
}
