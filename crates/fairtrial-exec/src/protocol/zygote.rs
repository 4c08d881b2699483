//! What a zygote answers the launcher: one `SOCK_SEQPACKET` packet of [`ANSWER_BYTES`] for each request.

/// The longest request that a zygote takes (`serve.py`).
pub const MOST_REQUEST_BYTES: usize = 1 << 16;

/// `<Ii`: the request's number, and a pid or a negative errno.
pub const ANSWER_BYTES: usize = 8;

/// A zygote's answer to a request for a worker; to number 0, which nobody asked, its own pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which request.
    pub number: u32,
    /// The worker's pid, or why there is none.
    pub worker: Result<i32, i32>,
}

impl Answer {
    /// Reads an answer; `None` if the bytes are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [n0, n1, n2, n3, v0, v1, v2, v3] = *<&[u8; ANSWER_BYTES]>::try_from(bytes).ok()?;
        let value = i32::from_le_bytes([v0, v1, v2, v3]);
        Some(Self {
            number: u32::from_le_bytes([n0, n1, n2, n3]),
            // No kernel has an error of that size, and its negation is no number.
            worker: match value {
                1.. => Ok(value),
                _ => Err(value.saturating_neg()),
            },
        })
    }

    /// The answer's bytes.
    #[must_use]
    pub fn encode(self) -> [u8; ANSWER_BYTES] {
        let value = self.worker.unwrap_or_else(|errno| -errno);
        let (number, value) = (self.number.to_le_bytes(), value.to_le_bytes());
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&number);
        bytes[4..].copy_from_slice(&value);
        bytes
    }
}
