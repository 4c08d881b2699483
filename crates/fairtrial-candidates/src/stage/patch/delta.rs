//! Git's deltas: a file written as pieces of another and bytes of its own.

/// What a delta makes of a file. `most` bounds it whatever the delta says of itself.
pub(super) fn apply_delta(
    delta: &[u8],
    source: &[u8],
    most: usize,
) -> Result<Vec<u8>, &'static str> {
    let mut reader = Reader(delta);
    if reader.size()? != source.len() {
        return Err("its delta was made for a file of another size");
    }
    let size = reader.size()?;
    if size > most {
        return Err("its delta makes more than a candidate may have");
    }
    let mut out = Vec::new();
    while !reader.0.is_empty() {
        let piece = reader.piece(source)?;
        if out.len() + piece.len() > size {
            return Err("its delta makes more than it says");
        }
        out.extend_from_slice(piece);
    }
    match out.len() == size {
        true => Ok(out),
        false => Err("its delta makes less than it says"),
    }
}

struct Reader<'a>(&'a [u8]);

const CUT_SHORT: &str = "its delta is cut short";

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (byte, rest) = self.0.split_first().ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(*byte)
    }

    /// Seven bits a byte, the lowest first.
    fn size(&mut self) -> Result<usize, &'static str> {
        let mut size = 0;
        for shift in (0..56).step_by(7) {
            let byte = self.byte()?;
            size |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(size);
            }
        }
        Err("its delta states an impossible size")
    }

    fn piece(&mut self, source: &'a [u8]) -> Result<&'a [u8], &'static str> {
        match self.byte()? {
            0 => Err("its delta has an unknown instruction"),
            copy if copy & 0x80 != 0 => {
                let offset = self.number(copy & 0x0f, 4)?;
                let length = match self.number(copy >> 4 & 0x07, 3)? {
                    0 => 0x10000,
                    length => length,
                };
                let copied = source.get(offset..offset + length);
                copied.ok_or("its delta copies what is not there")
            }
            length => {
                let (own, rest) = self.0.split_at_checked(length.into()).ok_or(CUT_SHORT)?;
                self.0 = rest;
                Ok(own)
            }
        }
    }

    /// A number of which only the bytes that are not zero are written.
    fn number(&mut self, present: u8, bytes: u8) -> Result<usize, &'static str> {
        let mut number = 0;
        for at in 0..bytes {
            if present >> at & 1 == 1 {
                number |= usize::from(self.byte()?) << (8 * at);
            }
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deltas_copy_and_add() {
        let delta = [4, 5, 0x91, 1, 2, 3, b'x', b'y', b'z'];
        assert_eq!(apply_delta(&delta, b"abcd", 100), Ok(b"bcxyz".to_vec()));
    }

    /// CA-13, CA-14
    #[test]
    fn damaged_deltas_are_refused() {
        let table: [&[u8]; 10] = [
            &[],
            &[4],
            &[3, 1, 1, b'x'],
            &[4, 200, 1, 1, b'x'],
            &[4, 2, 1, b'x'],
            &[4, 1, 2, b'x', b'y'],
            &[4, 1, 0],
            &[4, 2, 0x91, 3, 2],
            &[4, 2, 0x91],
            &[0xff; 12],
        ];
        for delta in table {
            assert!(apply_delta(delta, b"abcd", 100).is_err(), "{delta:?}");
        }
    }
}
