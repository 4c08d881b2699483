//! Large values in nameless files: memory where it is plenty, the spill directory where not.
//!
//! Decides which of the two, and when bytes may be mapped instead of copied. The system calls are in `linux`.

mod dir;
mod policy;
mod result_file;

pub use dir::SpillDir;
pub use policy::{ArgumentFile, SpillPolicy, sealed_argument};
pub use result_file::{ResultFile, SettleError, Writers};

use crate::linux::mapping::Mapping;

/// Encoded bytes of a value.
#[derive(Debug)]
pub enum Body {
    /// Small: in memory.
    Inline(Vec<u8>),
    /// Large: a private, writable mapping that needs neither descriptor, worker nor engine.
    Mapped(Mapping),
}

impl Body {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(bytes) => bytes,
            Self::Mapped(mapping) => mapping.bytes(),
        }
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }
}
