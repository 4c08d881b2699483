//! A hunk: some lines of a file, and what becomes of them.

use super::lines::{Lines, header};
use crate::stage::path::shown;

/// Lines to be found and lines to be there instead.
#[derive(Debug, Clone)]
pub struct Hunk<'a> {
    /// Its `@@` line, as far as people need it.
    pub header: String,
    /// Where its first line is in the old file, counted from 1. Of a hunk with no old line: the line it follows.
    pub old_start: usize,
    /// How many lines it takes away or keeps. Kept, so that an empty hunk is told from none.
    pub old_count: usize,
    /// How many lines it keeps or brings.
    pub new_count: usize,
    /// Its lines in order.
    pub lines: Vec<HunkLine<'a>>,
}

/// A line of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HunkLine<'a> {
    /// In which of the files it is.
    pub side: Side,
    /// Without its newline.
    pub text: &'a [u8],
    /// Whether a newline ends it.
    pub newline: bool,
}

/// In which of the two files a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// In both.
    Both,
    /// In the old one: it goes.
    Old,
    /// In the new one: it comes.
    New,
}

const SHOWN_HEADER: usize = 120;

impl<'a> Hunk<'a> {
    /// Reads a hunk whose `@@` line is next. The message goes on from the hunk's number.
    pub(super) fn read(lines: &mut Lines<'a>) -> Result<Self, String> {
        let line = header(lines.next().unwrap_or_default());
        let shown: String = shown(line).chars().take(SHOWN_HEADER).collect();
        let Some(((old_start, old_count), (_, new_count))) = read_ranges(line) else {
            return Err(format!(
                "(`{shown}`): this is no hunk header, `@@ -1,3 +1,4 @@` would be"
            ));
        };
        let mut hunk = Self {
            header: shown,
            old_start,
            old_count,
            new_count,
            lines: Vec::new(),
        };
        hunk.read_lines(lines)?;
        hunk.check_ends()?;
        Ok(hunk)
    }

    fn read_lines(&mut self, lines: &mut Lines<'a>) -> Result<(), String> {
        let (mut old, mut new) = (self.old_count, self.new_count);
        while old > 0 || new > 0 {
            let Some(line) = lines.peek() else {
                return Err(self.fault("ends before it has the lines that its header says"));
            };
            if line.starts_with(b"\\") {
                self.end_without_newline()?;
                lines.next();
                continue;
            }
            let (side, text) = match line.split_first() {
                // Some programs strip the blank of an empty context line.
                None => (Side::Both, line),
                Some((b'\r', [])) => (Side::Both, line),
                Some((b' ', text)) => (Side::Both, text),
                Some((b'-', text)) => (Side::Old, text),
                Some((b'+', text)) => (Side::New, text),
                Some(_) => {
                    return Err(self.fault("ends before it has the lines that its header says"));
                }
            };
            let room = |left: usize, counts: bool| left.checked_sub(usize::from(counts));
            let left = (room(old, side != Side::New), room(new, side != Side::Old));
            let (Some(old_left), Some(new_left)) = left else {
                return Err(self.fault("has more lines than its header says"));
            };
            (old, new) = (old_left, new_left);
            let newline = true;
            self.lines.push(HunkLine {
                side,
                text,
                newline,
            });
            lines.next();
        }
        if lines.peek().is_some_and(|line| line.starts_with(b"\\")) {
            self.end_without_newline()?;
            lines.next();
        }
        match lines.peek().is_some_and(goes_on) {
            true => Err(self.fault("has more lines than its header says")),
            false => Ok(()),
        }
    }

    fn end_without_newline(&mut self) -> Result<(), String> {
        match self.lines.last_mut() {
            Some(line) if line.newline => line.newline = false,
            _ => return Err(self.fault("has a `\\ No newline` after no line")),
        }
        Ok(())
    }

    /// Only the last line of a file can be without a newline.
    fn check_ends(&self) -> Result<(), String> {
        for absent in [Side::New, Side::Old] {
            let mut file = self.lines.iter().filter(|line| line.side != absent).rev();
            file.next();
            if file.any(|line| !line.newline) {
                return Err(self.fault("has lines after one without a newline"));
            }
        }
        Ok(())
    }

    fn fault(&self, what: &str) -> String {
        format!("(`{}`): it {what}", self.header)
    }

    /// The lines it must find.
    pub(super) fn old_lines(&self) -> impl Iterator<Item = &HunkLine<'a>> {
        self.lines.iter().filter(|line| line.side != Side::New)
    }

    /// The lines it leaves.
    pub(super) fn new_lines(&self) -> impl Iterator<Item = &HunkLine<'a>> {
        self.lines.iter().filter(|line| line.side != Side::Old)
    }
}

/// Whether a line after a hunk looks as if it belonged to it. Then the counts are wrong, and going on would lose it. A
/// mail's signature and the next file's header do not.
fn goes_on(line: &[u8]) -> bool {
    let elsewhere = line.starts_with(b"--- ") || matches!(header(line), b"--" | b"-- ");
    line.starts_with(b"\\") || (!elsewhere && matches!(line.first(), Some(b' ' | b'+' | b'-')))
}

type Range = (usize, usize);

fn read_ranges(line: &[u8]) -> Option<(Range, Range)> {
    let (old, rest) = read_range(line.strip_prefix(b"@@ -")?)?;
    let (new, rest) = read_range(rest.strip_prefix(b" +")?)?;
    let counted = old.0 > 0 || old.1 == 0;
    (rest.starts_with(b" @@") && counted).then_some((old, new))
}

fn read_range(text: &[u8]) -> Option<(Range, &[u8])> {
    let (start, rest) = read_number(text)?;
    match rest.strip_prefix(b",") {
        None => Some(((start, 1), rest)),
        Some(rest) => {
            let (count, rest) = read_number(rest)?;
            Some(((start, count), rest))
        }
    }
}

fn read_number(text: &[u8]) -> Option<(usize, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    // Nine digits are more lines than any candidate has, and cannot overflow.
    let number = std::str::from_utf8(number).ok().filter(|n| n.len() <= 9)?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Hunk<'_>, String> {
        Hunk::read(&mut Lines::new(text))
    }

    #[test]
    fn a_hunk_has_the_lines_that_its_header_counts() {
        let hunk = read(b"@@ -3 +3,2 @@ def f():\n-a\n+b\r\n+c\n\\ No newline at end of file\n")
            .expect("a hunk");
        assert_eq!((hunk.old_start, hunk.old_count, hunk.new_count), (3, 1, 2));
        assert_eq!(hunk.header, "@@ -3 +3,2 @@ def f():");
        assert_eq!(hunk.lines[1].text, b"b\r");
        assert!(!hunk.lines[2].newline);
    }

    #[test]
    fn an_empty_line_is_empty_context() {
        assert_eq!(
            read(b"@@ -1,2 +1 @@\n\n-x\n").expect("a hunk").lines[0].text,
            b""
        );
    }

    /// CA-13
    #[test]
    fn wrong_counts_and_headers_are_named() {
        let table: [(&[u8], &str); 9] = [
            (b"@@ -1,2 +1 @@\n-a\n", "ends before"),
            (b"@@ -1 +1 @@\n-a\n-b\n", "more lines"),
            (b"@@ -1 +1 @@\n-a\n+b\n c\n", "more lines"),
            (b"@@ -1,3 +1 @@\n-a\n@@ -5 +4 @@\n", "ends before"),
            (b"@@ ... @@\n-a\n", "this is no hunk header"),
            (b"@@ -0,1 +1 @@\n-a\n+b\n", "this is no hunk header"),
            (
                b"@@ -1,99999999999999999999 +1 @@\n",
                "this is no hunk header",
            ),
            (b"@@ -1 +1 @@\n\\ No newline\n", "after no line"),
            (
                b"@@ -1,2 +0,0 @@\n-a\n\\ No newline\n-b\n",
                "after one without",
            ),
        ];
        for (text, message) in table {
            let fault = read(text).expect_err("not a hunk");
            assert!(fault.contains(message), "{fault}");
        }
    }

    #[test]
    fn a_signature_and_the_next_header_do_not_belong_to_a_hunk() {
        for after in ["-- \n2.47.3\n", "--- a/x\n+++ b/x\n", "\n", "```\n"] {
            assert!(read(format!("@@ -1 +0,0 @@\n-a\n{after}").as_bytes()).is_ok());
        }
    }
}
