//! Where a program's standard error goes: a file, bounded, without secrets.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::super::secrets::Secrets;

/// More than anybody reads. What comes after is dropped, and the file says so.
const MOST_BYTES: usize = 16 << 20;

/// A line that is longer is written in pieces; a secret across two of them would be seen.
const LONGEST_LINE: usize = 64 << 10;

/// Takes standard error, line by line.
#[derive(Debug)]
pub(super) struct LogFile<W> {
    out: W,
    secrets: Secrets,
    line: Vec<u8>,
    left: usize,
}

impl LogFile<File> {
    /// Appends to a file, that a program started again does not lose what it said before.
    pub(super) fn open(path: &Path, secrets: Secrets) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let written = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        Ok(Self::new(file, secrets, MOST_BYTES.saturating_sub(written)))
    }
}

impl<W: Write> LogFile<W> {
    fn new(out: W, secrets: Secrets, left: usize) -> Self {
        Self {
            out,
            secrets,
            line: Vec::new(),
            left,
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.left == 0 {
                return;
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LONGEST_LINE {
                self.flush();
            }
        }
    }

    pub(super) fn flush(&mut self) {
        let line = std::mem::take(&mut self.line);
        if self.left == 0 || line.is_empty() {
            return;
        }
        let text = self.secrets.scrubbed(&String::from_utf8_lossy(&line));
        let written = match text.len() < self.left {
            true => self.out.write_all(text.as_bytes()),
            false => self.out.write_all(b"[the rest was dropped]\n"),
        };
        self.left = match written {
            Ok(()) => self.left.saturating_sub(text.len()),
            Err(_) => 0, // a full disk must not end a search; nobody else reads this file
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-9, CA-84
    #[test]
    fn a_secret_is_not_logged_even_if_it_comes_in_pieces() {
        let mut out = Vec::new();
        let secrets = Secrets::new(["sk-12345678".to_owned()]);
        let mut log = LogFile::new(&mut out, secrets, 1000);
        log.push(b"key sk-123");
        log.push(b"45678 was used\nand");
        log.flush();
        assert_eq!(String::from_utf8_lossy(&out), "key [secret] was used\nand");
    }

    /// CA-87
    #[test]
    fn a_flood_is_cut() {
        let mut out = Vec::new();
        let mut log = LogFile::new(&mut out, Secrets::none(), 100);
        for _ in 0..1000 {
            log.push(b"0123456789\n");
        }
        let text = String::from_utf8(out).expect("text");
        assert!(
            text.ends_with("9\n[the rest was dropped]\n") && text.len() < 130,
            "{text}"
        );
    }
}
