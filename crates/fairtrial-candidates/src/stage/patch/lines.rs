//! The lines of a patch, one after the other, with their numbers.

/// Where a reader of a patch is.
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    /// Of the line that `peek` shows, counted from 1.
    pub(super) number: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        let (rest, number) = (text, 1);
        Self { rest, number }
    }

    /// The next line without its newline.
    pub(super) fn peek(&self) -> Option<&'a [u8]> {
        (!self.rest.is_empty()).then(|| &self.rest[..self.length()])
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        let line = self.peek()?;
        let taken = self.rest.len().min(line.len() + 1);
        self.rest = &self.rest[taken..];
        self.number += 1;
        Some(line)
    }

    /// The line after the next.
    pub(super) fn peek_second(&self) -> Option<&'a [u8]> {
        let rest = self.rest.get(self.length() + 1..)?;
        Self::new(rest).peek()
    }

    fn length(&self) -> usize {
        let newline = self.rest.iter().position(|byte| *byte == b'\n');
        newline.unwrap_or(self.rest.len())
    }
}

/// A line of a header: a patch saved with CR LF has a CR there that belongs to no name, for git quotes those that do.
pub(super) fn header(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_at_newlines_alone() {
        let mut lines = Lines::new(b"a\r\n\nb");
        assert_eq!(lines.peek_second(), Some(&b""[..]));
        assert_eq!(lines.next(), Some(&b"a\r"[..]));
        assert_eq!(lines.next(), Some(&b""[..]));
        assert_eq!((lines.number, lines.peek_second()), (3, None));
        assert_eq!(lines.next(), Some(&b"b"[..]));
        assert_eq!(lines.next(), None);
    }
}
