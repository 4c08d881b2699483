//! Output cut into lines, within bounds. Pure.

use super::super::answer::LONGEST_ANSWER;
use super::process::Output;

/// Cuts a stream into lines. After a line that is too long nothing more is cut: whoever writes such is not believed.
#[derive(Debug, Default)]
pub(super) struct Lines {
    begun: Vec<u8>,
    gave_up: bool,
}

impl Lines {
    /// Takes the next bytes, and gives every line that they complete, without its end.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Output> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.gave_up {
                break;
            }
            self.begun.extend_from_slice(piece);
            if self.begun.len() > LONGEST_ANSWER + 1 {
                self.gave_up = true;
                let bytes = self.begun.len() as u64;
                let mut beginning = std::mem::take(&mut self.begun);
                beginning.truncate(64 << 10);
                complete.push(Output::TooLong { beginning, bytes });
            } else if self.begun.last() == Some(&b'\n') {
                self.begun.pop();
                complete.push(Output::Line(std::mem::take(&mut self.begun)));
            }
        }
        complete
    }

    /// What is left when the stream ends: a last line that nobody ended.
    pub(super) fn finish(self) -> Option<Output> {
        (!self.begun.is_empty()).then_some(Output::Line(self.begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut lines = Lines::default();
        assert!(lines.push(b"on").is_empty());
        let line = |text: &[u8]| Output::Line(text.to_vec());
        assert_eq!(
            lines.push(b"e\n\ntwo\nthr"),
            [line(b"one"), line(b""), line(b"two")]
        );
        assert_eq!(lines.finish(), Some(line(b"thr")));
    }

    /// CA-86, CA-87
    #[test]
    fn a_line_without_end_is_given_up_and_not_kept() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        let given: Vec<_> = (0..40).flat_map(|_| lines.push(&piece)).collect();
        assert!(
            matches!(&given[..], [Output::TooLong { beginning, .. }] if beginning.len() == 64 << 10)
        );
        assert!(lines.begun.is_empty());
        assert!(lines.push(b"\n{}\n").is_empty());
        let mut lines = Lines::default();
        let mut longest = vec![b'x'; LONGEST_ANSWER];
        longest.push(b'\n');
        assert!(
            matches!(&lines.push(&longest)[..], [Output::Line(_)]),
            "16 MiB are allowed"
        );
    }
}
