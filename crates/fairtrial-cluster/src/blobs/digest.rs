//! What a blob is called: by what it holds.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// As much as is read or written at a time.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// SHA-256 of a blob, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

/// What is not 64 small hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256 of 64 small hexadecimal digits")]
pub struct BadDigest(String);

impl Digest {
    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Where a store keeps it, below its root.
    pub(super) fn path(&self) -> String {
        let hex = self.to_string();
        format!("sha256/{}/{hex}", &hex[..2])
    }

    /// What is kept at a path below the root of a store, if it is a blob.
    pub(super) fn at_path(path: &str) -> Option<Self> {
        let digest: Self = path.rsplit('/').next()?.parse().ok()?;
        (digest.path() == path).then_some(digest)
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            // One blob has one name, so capitals are no digits here.
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let read = |pairs: &[u8]| {
            let mut bytes = [0; 32];
            for (byte, pair) in bytes.iter_mut().zip(pairs.chunks_exact(2)) {
                *byte = digit(pair[0])? << 4 | digit(pair[1])?;
            }
            Some(bytes)
        };
        let bytes = (text.len() == 64).then(|| read(text.as_bytes())).flatten();
        bytes
            .map(Self)
            .ok_or_else(|| BadDigest(text.chars().take(80).collect()))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        text.parse()
    }
}

/// A blob as envelopes name it: what it holds, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Blob {
    /// Its name.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}

impl Blob {
    /// That these bytes are.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            digest: Digest::of(bytes),
            bytes: bytes.len() as u64,
        }
    }

    /// That a reader gives, from where it stands to its end.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(mut source: impl Read) -> io::Result<Self> {
        let mut tally = Tally::default();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match source.read(&mut piece) {
                Ok(0) => return Ok(tally.blob()),
                Ok(read) => tally.take(&piece[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What has passed by so far.
#[derive(Default)]
pub(super) struct Tally {
    hasher: Sha256,
    bytes: u64,
}

impl Tally {
    pub(super) fn take(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn blob(self) -> Blob {
        Blob {
            digest: Digest(self.hasher.finalize().into()),
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    /// CL-50
    #[test]
    fn a_digest_is_64_small_hexadecimal_digits_and_its_path_begins_with_two_of_them() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), OF_NOTHING);
        assert_eq!(OF_NOTHING.parse(), Ok(digest));
        assert_eq!(digest.path(), format!("sha256/e3/{OF_NOTHING}"));
        assert_eq!(Digest::at_path(&digest.path()), Some(digest));
        for bad in [
            "",
            "e3",
            &OF_NOTHING.to_uppercase(),
            &OF_NOTHING[..63],
            &format!("{OF_NOTHING}0"),
            &"é".repeat(32),
        ] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
        assert_eq!(Digest::at_path(&format!("sha256/e4/{OF_NOTHING}")), None);
        assert_eq!(Digest::at_path(OF_NOTHING), None);
    }

    /// CL-13
    #[test]
    fn an_envelope_names_a_blob_by_digest_and_size() {
        let blob = Blob::read(&b""[..]).unwrap();
        let json = serde_json::to_string(&blob).unwrap();
        assert_eq!(json, format!("{{\"digest\":\"{OF_NOTHING}\",\"bytes\":0}}"));
        assert_eq!(serde_json::from_str::<Blob>(&json).unwrap(), blob);
    }
}
