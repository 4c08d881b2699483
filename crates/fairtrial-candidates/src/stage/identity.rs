//! Who a candidate is: what it makes of which base (CA-12).

use std::fmt;

use sha2::{Digest, Sha256};

use super::image::{Image, PostImages};

/// SHA-256 over the base's hash and the sorted post-images. Shown as `c-` and 12 digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CandidateId([u8; 32]);

impl CandidateId {
    /// The id of a change of the base with that hash. How the change was written does not matter.
    #[must_use]
    pub fn new(base_hash: &str, images: &PostImages) -> Self {
        let mut digest = Sha256::new();
        // Every field is preceded by its length, so that no two lists of fields are the same bytes.
        let mut field = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        field(b"fairtrial candidate 1");
        field(base_hash.as_bytes());
        for (path, image) in images.iter() {
            field(path.as_bytes());
            match image {
                None => field(b"deleted"),
                Some(Image::File { mode, bytes }) => {
                    field(format!("{:o}", 0o100000 | mode).as_bytes());
                    field(bytes);
                }
                Some(Image::Link { target }) => {
                    field(b"120000");
                    field(target);
                }
            }
        }
        Self(digest.finalize().into())
    }

    /// All 64 digits.
    #[must_use]
    pub fn full(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for CandidateId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "c-{}", &self.full()[..12])
    }
}

impl fmt::Debug for CandidateId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}
