//! Paths that differ from run to run, taken out of what is compared (CA-51, CA-53).

use std::borrow::Cow;

/// Which paths stand for which: that of a workspace, of its private home, of its scratch directory. Applied as results
/// are read, so that nothing later knows in which slot a case ran.
///
/// ```
/// use fairtrial_candidates::cases::Paths;
///
/// let paths = Paths::new([("/cache/slots/03", "/repo")]);
/// assert_eq!(paths.text("at /cache/slots/03/a.py:7"), "at /repo/a.py:7");
/// assert_eq!(paths.text("at /cache/slots/031/a.py:7"), "at /cache/slots/031/a.py:7");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// From and to, the longest first: a directory inside another is known by its own name.
    replaced: Vec<(String, String)>,
}

impl Paths {
    /// Takes pairs of a path and what stands for it.
    pub fn new<F: Into<String>, T: Into<String>>(pairs: impl IntoIterator<Item = (F, T)>) -> Self {
        let pairs = pairs.into_iter().map(|(from, to)| (from.into(), to.into()));
        let mut replaced: Vec<(String, String)> = pairs
            .map(|(from, to)| (from.trim_end_matches('/').to_owned(), to))
            .filter(|(from, _)| !from.is_empty())
            .collect();
        replaced.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        Self { replaced }
    }

    /// A text without those paths.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if !self.replaced.iter().any(|(from, _)| text.contains(from)) {
            return Cow::Borrowed(text);
        }
        let mut out = Vec::with_capacity(text.len());
        self.replace(text.as_bytes(), None, true, &mut out);
        Cow::Owned(String::from_utf8(out).expect("whole strings are replaced by whole strings"))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.replaced.is_empty()
    }

    /// Appends `bytes` to `out` with paths replaced, and says how many bytes were done: all at the end of a stream,
    /// before that as many as no later byte can make part of a path. `before` is the byte that came before.
    pub(super) fn replace(
        &self,
        bytes: &[u8],
        before: Option<u8>,
        last: bool,
        out: &mut Vec<u8>,
    ) -> usize {
        let longest = self.replaced.first().map_or(0, |(from, _)| from.len());
        let mut at = 0;
        while at < bytes.len() && (last || at + longest < bytes.len()) {
            let previous = at.checked_sub(1).map_or(before, |at| Some(bytes[at]));
            let found = self.replaced.iter().find(|(from, _)| {
                bytes[at..].starts_with(from.as_bytes())
                    && !previous.is_some_and(is_of_a_name)
                    && !bytes
                        .get(at + from.len())
                        .copied()
                        .is_some_and(is_of_a_name)
            });
            match found {
                Some((from, to)) => {
                    out.extend_from_slice(to.as_bytes());
                    at += from.len();
                }
                None => {
                    out.push(bytes[at]);
                    at += 1;
                }
            }
        }
        at
    }
}

/// Whether a byte beside a path makes it part of a longer name.
fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// CA-51
    #[test]
    fn only_whole_paths_are_replaced_and_the_longest_first() {
        let paths = Paths::new([
            ("/ws", "W"),
            ("/ws/home/", "H"),
            ("/tmp/é", "T"),
            ("", "never"),
        ]);
        let table = [
            ("/ws", "W"),
            ("/ws/a", "W/a"),
            ("'/ws/home/x' /ws.", "'H/x' W."),
            ("/wsx /ws_ /ws-1 /wsé", "/wsx /ws_ /ws-1 /wsé"),
            ("a/ws x=/ws file:///ws/b", "a/ws x=W file://W/b"),
            ("/tmp/é/é", "T/é"),
            ("/ws/ws", "W/ws"),
            ("", ""),
        ];
        for (text, replaced) in table {
            assert_eq!(paths.text(text), replaced, "{text}");
        }
    }

    proptest! {
        /// CA-53
        #[test]
        fn a_stream_is_replaced_as_the_whole_would_be(
            pieces in prop::collection::vec("[/wsa é]{0,6}", 0..12)
        ) {
            let paths = Paths::new([("/ws", "WORKSPACE"), ("/ws/a", ""), ("/s", "x")]);
            let whole = pieces.concat();
            let mut expected = Vec::new();
            paths.replace(whole.as_bytes(), None, true, &mut expected);
            let (mut out, mut pending, mut before) = (Vec::new(), Vec::new(), None);
            for (at, piece) in pieces.iter().enumerate() {
                pending.extend_from_slice(piece.as_bytes());
                let done = paths.replace(&pending, before, at + 1 == pieces.len(), &mut out);
                before = done.checked_sub(1).map_or(before, |last| Some(pending[last]));
                pending.drain(..done);
            }
            prop_assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
        }
    }
}
