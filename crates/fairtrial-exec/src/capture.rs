//! Bounded head and tail of an output stream. Pure: bytes in, a report out.

/// What is kept of a stream: its first and its last bytes, and how many lay between.
///
/// Nothing is lost while the whole stream fits the cap; head and tail then meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes, as far as they are not in the head.
    pub tail: Vec<u8>,
    /// Bytes between head and tail that were not kept.
    pub dropped: u64,
}

/// Collects a stream within a cap: the first half fills once, the second is a ring of the latest bytes.
///
/// ```
/// let mut capture = fairtrial_exec::Capture::new(4);
/// capture.push(b"abcdef");
/// let captured = capture.finish();
/// assert_eq!((&captured.head[..], &captured.tail[..], captured.dropped), (&b"ab"[..], &b"ef"[..], 2));
/// ```
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    head_cap: usize,
    tail: Vec<u8>,
    tail_cap: usize,
    /// Where the oldest byte of a full tail is.
    oldest: usize,
    total: u64,
}

impl Capture {
    /// Keeps at most `cap_bytes`; allocates nothing until bytes come.
    #[must_use]
    pub fn new(cap_bytes: usize) -> Self {
        let tail_cap = cap_bytes / 2;
        Self {
            head: Vec::new(),
            head_cap: cap_bytes - tail_cap,
            tail: Vec::new(),
            tail_cap,
            oldest: 0,
            total: 0,
        }
    }

    /// Takes the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let rest = fill(&mut self.head, self.head_cap, bytes);
        let rest = fill(&mut self.tail, self.tail_cap, rest);
        self.turn(rest);
    }

    /// Bytes seen so far, kept or not.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What was kept.
    #[must_use]
    pub fn finish(mut self) -> Captured {
        self.tail.rotate_left(self.oldest);
        let kept = self.head.len() + self.tail.len();
        Captured {
            dropped: self.total - kept as u64,
            head: self.head,
            tail: self.tail,
        }
    }

    /// Overwrites the oldest bytes of a full tail.
    fn turn(&mut self, bytes: &[u8]) {
        if self.tail_cap == 0 || bytes.is_empty() {
            return;
        }
        let latest = &bytes[bytes.len().saturating_sub(self.tail_cap)..];
        let (before_wrap, after_wrap) =
            latest.split_at(latest.len().min(self.tail_cap - self.oldest));
        self.tail[self.oldest..][..before_wrap.len()].copy_from_slice(before_wrap);
        self.tail[..after_wrap.len()].copy_from_slice(after_wrap);
        self.oldest = (self.oldest + latest.len()) % self.tail_cap;
    }
}

/// Appends what fits under `cap` and gives the rest back.
fn fill<'a>(kept: &mut Vec<u8>, cap: usize, bytes: &'a [u8]) -> &'a [u8] {
    let (now, rest) = bytes.split_at(bytes.len().min(cap - kept.len()));
    let needed = kept.len() + now.len();
    if needed > kept.capacity() {
        // `reserve` would double past the cap.
        let target = needed.max(kept.capacity() * 2).min(cap);
        kept.reserve_exact(target - kept.len());
    }
    kept.extend_from_slice(now);
    rest
}

impl Captured {
    /// The text, invalid UTF-8 replaced; says in place how much was dropped.
    #[must_use]
    pub fn text(&self) -> String {
        if self.dropped == 0 {
            return String::from_utf8_lossy(&self.bytes()).into_owned();
        }
        let (head, tail) = (
            String::from_utf8_lossy(&self.head),
            String::from_utf8_lossy(&self.tail),
        );
        format!("{head}\n… [{} bytes dropped] …\n{tail}", self.dropped)
    }

    /// The kept bytes as they came, with no mark where some were dropped.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [&self.head[..], &self.tail[..]].concat()
    }

    /// Whether the stream had no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty() && self.dropped == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(cap: usize, chunks: &[Vec<u8>]) -> Captured {
        let mut capture = Capture::new(cap);
        for chunk in chunks {
            capture.push(chunk);
            assert!(capture.head.capacity() + capture.tail.capacity() <= cap);
        }
        capture.finish()
    }

    /// The same by keeping everything.
    fn naive(cap: usize, chunks: &[Vec<u8>]) -> Captured {
        let all = chunks.concat();
        let head = all.len().min(cap - cap / 2);
        let tail = (all.len() - head).min(cap / 2);
        Captured {
            head: all[..head].to_vec(),
            tail: all[all.len() - tail..].to_vec(),
            dropped: (all.len() - head - tail) as u64,
        }
    }

    proptest! {
        /// EX-78
        #[test]
        fn a_capture_is_what_keeping_everything_and_cutting_would_give(
            cap in 0_usize..40,
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..12),
        ) {
            prop_assert_eq!(captured(cap, &chunks), naive(cap, &chunks));
        }

        /// EX-78
        #[test]
        fn nothing_is_dropped_while_the_stream_fits_the_cap(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..12),
            spare in 0_usize..3,
        ) {
            let all = chunks.concat();
            let kept = captured(all.len() + spare, &chunks);
            prop_assert_eq!(kept.dropped, 0);
            prop_assert_eq!(kept.bytes(), all);
        }
    }

    /// EX-78
    #[test]
    fn a_silent_stream_allocates_nothing() {
        let capture = Capture::new(1 << 20);
        assert_eq!(capture.head.capacity() + capture.tail.capacity(), 0);
        assert!(capture.finish().is_empty());
    }

    /// EX-78
    #[test]
    fn a_flood_costs_no_more_than_the_cap() {
        let mut capture = Capture::new(1 << 20);
        let chunk = vec![7; 64 << 10];
        for _ in 0..(1 << 14) {
            capture.push(&chunk);
            assert!(capture.head.capacity() + capture.tail.capacity() <= 1 << 20);
        }
        assert_eq!(capture.total(), 1 << 30);
        assert_eq!(capture.finish().dropped, (1 << 30) - (1 << 20));
    }

    /// EX-78
    #[test]
    fn a_cap_of_zero_keeps_nothing_but_counts() {
        let kept = captured(0, &[b"abc".to_vec(), b"de".to_vec()]);
        assert_eq!(
            (kept.bytes(), kept.dropped, kept.is_empty()),
            (vec![], 5, false)
        );
    }

    /// EX-76
    #[test]
    fn the_text_says_how_many_bytes_were_dropped() {
        let kept = captured(4, &[b"abcdefg".to_vec()]);
        assert_eq!(kept.text(), "ab\n… [3 bytes dropped] …\nfg");
    }

    /// EX-80
    #[test]
    fn a_character_across_head_and_tail_stays_whole_and_invalid_bytes_are_replaced() {
        assert_eq!(captured(4, &["aéb".into()]).text(), "aéb");
        assert_eq!(
            captured(9, &[b"ok \xff\xfe".to_vec()]).text(),
            "ok \u{fffd}\u{fffd}"
        );
    }
}
