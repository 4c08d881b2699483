//! Frames out of a worker's byte stream, as bytes arrive. Pure.

use crate::protocol::{BadFrame, HEADER_BYTES, Header};

/// Collects a worker's bytes and cuts them into frames.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    /// Bytes at the front already given out.
    used: usize,
}

/// One message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
}

impl Frames {
    /// Takes in what has arrived.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if it has arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, BadFrame> {
        let rest = &self.buffer[self.used..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::decode(header)?;
        let length = usize::try_from(header.length).expect("bounded by Header::decode");
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.used += HEADER_BYTES + length;
        Ok(Some(Frame { header, payload }))
    }

    /// Whether part of a frame has arrived.
    pub(crate) fn has_half(&self) -> bool {
        self.buffer.len() > self.used
    }

    /// What is left of the stream that is no whole frame: half of one, or the stacks that a hung worker wrote over it.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.buffer.split_off(self.used);
        self.buffer.clear();
        self.used = 0;
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Kind, MAX_PAYLOAD_BYTES};
    use proptest::prelude::*;

    fn frame(generation: u32, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            kind: Kind::Value,
            generation,
            length: payload.len() as u64,
        };
        [&header.encode()[..], payload].concat()
    }

    proptest! {
        /// EX-63: however the bytes arrive, the same frames come out.
        #[test]
        fn cutting_does_not_depend_on_how_bytes_arrive(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..6),
            cuts in prop::collection::vec(1..40_usize, 1..20),
        ) {
            let bytes: Vec<u8> = payloads.iter().enumerate().flat_map(|(i, p)| frame(i as u32, p)).collect();
            let (mut frames, mut seen, mut rest, mut turn) = (Frames::default(), Vec::new(), &bytes[..], 0);
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(cuts[turn % cuts.len()].min(rest.len()));
                frames.push(head);
                (rest, turn) = (tail, turn + 1);
                while let Some(frame) = frames.next().unwrap() {
                    seen.push(frame.payload);
                }
            }
            prop_assert_eq!(seen, payloads);
            prop_assert!(frames.take_rest().is_empty());
        }

        /// EX-63: any bytes, no panic; a length is believed only within bounds.
        #[test]
        fn strange_bytes_are_refused_not_believed(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.push(&bytes);
            while let Ok(Some(frame)) = frames.next() {
                prop_assert!(frame.header.length <= MAX_PAYLOAD_BYTES);
            }
        }
    }

    /// EX-63, SB-38
    #[test]
    fn a_huge_length_is_refused_before_anything_is_read() {
        let header = Header {
            kind: Kind::Value,
            generation: 1,
            length: u64::MAX,
        };
        let mut frames = Frames::default();
        frames.push(&header.encode());
        assert_eq!(frames.next(), Err(BadFrame::Length(u64::MAX)));
    }
}
