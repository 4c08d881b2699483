//! Hunks into a file. A hunk belongs where its header says, or else in the only place where its lines are (CA-13).

use super::hunk::{Hunk, HunkLine};
use super::search::find_two;
use crate::stage::path::shown;

/// Why a hunk has no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HunkFault {
    /// Its lines are nowhere.
    #[error("its lines are not in the file{}", at.as_ref().map(|at| format!(": {at}")).unwrap_or_default())]
    NotFound {
        /// What differs where the header says the lines are.
        at: Option<Difference>,
    },
    /// Its lines are not where the header says, and in several other places.
    #[error("its lines are not at line {stated}, but at lines {first}, {second} and perhaps more")]
    Ambiguous {
        /// The line that the header says.
        stated: usize,
        /// The first place.
        first: usize,
        /// The next place.
        second: usize,
    },
    /// It only adds, has no context, and the file has no such line.
    #[error("it has no context, and line {stated} is not a place where it could stand")]
    Unanchored {
        /// The line that the header says.
        stated: usize,
    },
    /// So many hunks are out of place that looking for them would take too long.
    #[error(
        "it is not at line {stated}, and the patch has too many such hunks to look for them all"
    )]
    TooCostly {
        /// The line that the header says.
        stated: usize,
    },
}

/// The first line that is not as a hunk has it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// Another text.
    #[error("line {line} is `{is}`, not `{wanted}`")]
    Text {
        /// Counted from 1.
        line: usize,
        /// What the file has.
        is: String,
        /// What the hunk has.
        wanted: String,
    },
    /// The same text, ended otherwise.
    #[error("line {line} ends in {is}, not in {wanted}")]
    End {
        /// Counted from 1.
        line: usize,
        /// What the file has.
        is: &'static str,
        /// What the hunk has.
        wanted: &'static str,
    },
    /// The file is shorter.
    #[error("the file has {lines} lines")]
    Short {
        /// How many it has.
        lines: usize,
    },
}

/// A line, and whether a newline ends it.
type FileLine<'a> = (&'a [u8], bool);

/// Looking for hunks compares at most so many lines in all: seconds, not hours.
const MOST_SEARCHED: usize = 1 << 28;

/// The file after its hunks, or the number (from 0) of the first that has no place.
pub(super) fn apply_hunks(file: &[u8], hunks: &[Hunk<'_>]) -> Result<Vec<u8>, (usize, HunkFault)> {
    let mut placer = Placer {
        lines: split(file),
        done: 0,
        drifted: false,
        budget: MOST_SEARCHED,
    };
    let mut out = Vec::with_capacity(file.len());
    for (number, hunk) in hunks.iter().enumerate() {
        let old: Vec<FileLine> = hunk.old_lines().map(as_file_line).collect();
        let at = placer.place(hunk, &old).map_err(|fault| (number, fault))?;
        write(&mut out, placer.lines[placer.done..at].iter().copied());
        write(&mut out, hunk.new_lines().map(as_file_line));
        placer.done = at + old.len();
    }
    write(&mut out, placer.lines[placer.done..].iter().copied());
    Ok(out)
}

struct Placer<'a> {
    lines: Vec<FileLine<'a>>,
    /// Lines that earlier hunks have passed.
    done: usize,
    /// Whether an earlier hunk was not where its header said. Then no header is believed any longer.
    drifted: bool,
    budget: usize,
}

impl Placer<'_> {
    fn place(&mut self, hunk: &Hunk<'_>, old: &[FileLine<'_>]) -> Result<usize, HunkFault> {
        let stated = hunk.old_start;
        let index = stated - usize::from(!old.is_empty());
        if !self.drifted && self.is_at(index, hunk, old) {
            return Ok(index);
        }
        if old.is_empty() {
            return Err(HunkFault::Unanchored { stated });
        }
        let cost = self.lines.len() - self.done + old.len();
        let left = self.budget.checked_sub(cost);
        self.budget = left.ok_or(HunkFault::TooCostly { stated })?;
        let fits = |at: usize| self.ends_well(at + old.len(), hunk);
        match find_two(&self.lines, old, self.done, fits)[..] {
            [only] => {
                self.drifted |= only != index;
                Ok(only)
            }
            [first, second, ..] => Err(HunkFault::Ambiguous {
                stated,
                first: first + 1,
                second: second + 1,
            }),
            [] => Err(HunkFault::NotFound {
                at: self.difference(index, old),
            }),
        }
    }

    fn is_at(&self, index: usize, hunk: &Hunk<'_>, old: &[FileLine<'_>]) -> bool {
        // What is added after a last line without a newline would be glued to it.
        let glued = old.is_empty()
            && index > 0
            && self
                .lines
                .get(index - 1)
                .is_some_and(|(_, newline)| !newline);
        index >= self.done
            && !glued
            && self
                .lines
                .get(index..)
                .is_some_and(|rest| rest.starts_with(old))
            && self.ends_well(index + old.len(), hunk)
    }

    /// What ends without a newline can only end the file.
    fn ends_well(&self, end: usize, hunk: &Hunk<'_>) -> bool {
        let newline = hunk.new_lines().last().is_none_or(|line| line.newline);
        newline || end == self.lines.len()
    }

    fn difference(&self, index: usize, old: &[FileLine<'_>]) -> Option<Difference> {
        for (at, wanted) in old.iter().enumerate() {
            let line = index + at + 1;
            let Some(is) = self.lines.get(index + at) else {
                let lines = self.lines.len();
                return Some(Difference::Short { lines });
            };
            if is != wanted {
                return Some(differing(line, is, wanted));
            }
        }
        None
    }
}

fn differing(line: usize, is: &FileLine<'_>, wanted: &FileLine<'_>) -> Difference {
    let bare = |line: &FileLine<'_>| line.0.strip_suffix(b"\r").unwrap_or(line.0).to_vec();
    if bare(is) == bare(wanted) {
        let (is, wanted) = (end_of(is), end_of(wanted));
        return Difference::End { line, is, wanted };
    }
    let (is, wanted) = excerpts(is.0, wanted.0);
    Difference::Text { line, is, wanted }
}

fn end_of(line: &FileLine<'_>) -> &'static str {
    match (line.0.ends_with(b"\r"), line.1) {
        (true, true) => "CR LF",
        (false, true) => "LF",
        (true, false) => "CR",
        (false, false) => "nothing",
    }
}

/// What is shown of a line, in characters; and how much of that before the place where it differs.
const SHOWN: usize = 60;
const SHOWN_BEFORE: usize = 20;

/// Two lines, from near where they differ if that is not near their beginning.
fn excerpts(one: &[u8], other: &[u8]) -> (String, String) {
    let (one, other) = (shown(one), shown(other));
    let pairs = one.chars().zip(other.chars());
    let same = pairs.take_while(|(one, other)| one == other).count();
    let from = match same + SHOWN_BEFORE < SHOWN {
        true => 0,
        false => same - SHOWN_BEFORE,
    };
    (excerpt(&one, from), excerpt(&other, from))
}

fn excerpt(text: &str, from: usize) -> String {
    let part: String = text.chars().skip(from).take(SHOWN).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = match text.chars().count() > from + SHOWN {
        true => "…",
        false => "",
    };
    format!("{before}{part}{after}")
}

fn as_file_line<'a>(line: &HunkLine<'a>) -> FileLine<'a> {
    (line.text, line.newline)
}

fn split(file: &[u8]) -> Vec<FileLine<'_>> {
    let pieces = file.split_inclusive(|byte| *byte == b'\n');
    let split = pieces.map(|piece| match piece.strip_suffix(b"\n") {
        Some(text) => (text, true),
        None => (piece, false),
    });
    split.collect()
}

fn write<'a>(out: &mut Vec<u8>, lines: impl Iterator<Item = FileLine<'a>>) {
    for (text, newline) in lines {
        out.extend_from_slice(text);
        out.extend_from_slice(if newline { b"\n" } else { b"" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-13: however long the lines are, what is shown of them differs.
    #[test]
    fn lines_are_shown_where_they_differ() {
        let long = "x".repeat(200);
        let pairs = [
            ("short".to_owned(), "other".to_owned()),
            (long.clone() + "a", long.clone() + "b"),
            (format!("{long}a{long}"), format!("{long}b{long}")),
            (long.clone(), long.clone() + "more"),
            (
                format!("{}a", "é".repeat(45)),
                format!("{}b", "é".repeat(45)),
            ),
        ];
        for (one, other) in pairs {
            let (one, other) = excerpts(one.as_bytes(), other.as_bytes());
            assert_ne!(one, other);
            assert!(one.chars().count() <= SHOWN + 2, "{one}");
        }
        let (one, other) = excerpts(b"\xfe", b"\xff");
        assert_ne!(one, other);
        let (one, other) = excerpts(b"def one():", b"def two():");
        assert_eq!((one.as_str(), other.as_str()), ("def one():", "def two():"));
    }
}
