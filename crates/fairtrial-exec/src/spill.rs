//! Nameless files for large values.

/// Encoded bytes of a value.
#[derive(Debug)]
pub enum Body {
    /// Small: in memory.
    Inline(Vec<u8>),
}

impl Body {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
        }
    }
}
