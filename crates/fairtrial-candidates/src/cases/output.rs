//! What a case or a command wrote: a bounded text to read, and a digest of all of it to compare.

use fairtrial_exec::{Capture, Captured};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::paths::Paths;

/// Bytes kept of an output, half of them its last.
const KEPT_BYTES: usize = 32 << 10;

/// An output, paths already replaced. Two outputs are the same by all their bytes, kept or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Its first and last bytes as text; says in place how many lay between.
    pub text: String,
    /// How many bytes there were.
    pub bytes: u64,
    /// SHA-256 of them all; empty where there were none.
    pub sha256: String,
}

impl Output {
    /// Of all its bytes at once.
    #[must_use]
    pub fn of(bytes: &[u8], paths: &Paths) -> Self {
        let mut reader = OutputReader::new(paths);
        reader.push(bytes);
        reader.finish()
    }

    /// Of what the engine kept. Where it dropped bytes, what was kept and how many were dropped is all that is compared:
    /// better is an [`OutputReader`] over the whole.
    #[must_use]
    pub fn of_captured(captured: &Captured, paths: &Paths) -> Self {
        let mut reader = OutputReader::new(paths);
        reader.push(&captured.head);
        if captured.dropped > 0 {
            reader.leave_out(captured.dropped, b"");
        }
        reader.push(&captured.tail);
        reader.finish()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Whether both are the same to the last byte.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        (self.bytes, &self.sha256) == (other.bytes, &other.sha256)
    }
}

/// Takes an output piece by piece and holds a bounded part of it: for what lies on a disk.
///
/// ```
/// use fairtrial_candidates::cases::{Output, OutputReader, Paths};
///
/// let paths = Paths::new([("/slot/1", "/repo")]);
/// let mut reader = OutputReader::new(&paths);
/// reader.push(b"in /slo");
/// reader.push(b"t/1/a.py");
/// let output = reader.finish();
/// assert_eq!(output, Output::of(b"in /repo/a.py", &Paths::default()));
/// ```
#[derive(Debug)]
pub struct OutputReader<'a> {
    paths: &'a Paths,
    /// Bytes that may be the beginning of a path.
    pending: Vec<u8>,
    before: Option<u8>,
    capture: Capture,
    left_out: u64,
    digest: Sha256,
}

impl<'a> OutputReader<'a> {
    /// For a stream that begins now.
    #[must_use]
    pub fn new(paths: &'a Paths) -> Self {
        Self {
            paths,
            pending: Vec::new(),
            before: None,
            capture: Capture::new(KEPT_BYTES),
            left_out: 0,
            digest: Sha256::new(),
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.paths.is_empty() {
            self.take(bytes);
            return;
        }
        self.pending.extend_from_slice(bytes);
        self.replace(false);
    }

    /// Goes on behind bytes that somebody else left out, known by their number and perhaps a digest.
    pub(super) fn leave_out(&mut self, bytes: u64, digest: &[u8]) {
        self.replace(true);
        self.before = None;
        self.left_out += bytes;
        self.digest.update(bytes.to_le_bytes());
        self.digest.update(digest);
    }

    /// The output.
    #[must_use]
    pub fn finish(mut self) -> Output {
        self.replace(true);
        let bytes = self.capture.total() + self.left_out;
        if bytes == 0 {
            return Output::default();
        }
        let mut kept = self.capture.finish();
        kept.dropped += self.left_out;
        Output {
            text: kept.text(),
            bytes,
            sha256: format!("{:x}", self.digest.finalize()),
        }
    }

    fn replace(&mut self, last: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut out = Vec::with_capacity(pending.len());
        let done = self.paths.replace(&pending, self.before, last, &mut out);
        self.before = done
            .checked_sub(1)
            .map_or(self.before, |at| Some(pending[at]));
        self.pending = pending[done..].to_vec();
        self.take(&out);
    }

    fn take(&mut self, bytes: &[u8]) {
        self.capture.push(bytes);
        self.digest.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-51
    #[test]
    fn outputs_that_differ_only_where_nothing_was_kept_differ() {
        let mut bytes = vec![b'a'; 1 << 20];
        let one = Output::of(&bytes, &Paths::default());
        bytes[1 << 19] = b'b';
        let other = Output::of(&bytes, &Paths::default());
        assert_eq!(one.text, other.text);
        assert!(one.text.len() < KEPT_BYTES + 100 && one.text.contains("bytes dropped"));
        assert!(!one.same(&other) && one.same(&one));
    }

    /// CA-51
    #[test]
    fn some_output_and_none_differ() {
        let none = Output::of(b"", &Paths::default());
        assert!(none.is_empty() && none == Output::default());
        assert!(!none.same(&Output::of(b"\n", &Paths::default())));
    }

    /// CA-57
    #[test]
    fn what_the_engine_dropped_counts() {
        let captured = |dropped| Captured {
            head: b"ab".to_vec(),
            tail: b"yz".to_vec(),
            dropped,
        };
        let paths = Paths::default();
        let [whole, cut] = [0, 7].map(|dropped| Output::of_captured(&captured(dropped), &paths));
        assert_eq!(whole, Output::of(b"abyz", &paths));
        assert_eq!(cut.bytes, 11);
        assert!(!cut.same(&whole));
    }
}
