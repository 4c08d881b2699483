//! Git's base 85: five characters for four bytes.

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Adds what a line of a binary patch encodes. Its first letter says how many bytes that is.
pub(super) fn decode_line(line: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (length, digits) = line.split_first()?;
    let length = match length {
        b'A'..=b'Z' => usize::from(length - b'A') + 1,
        b'a'..=b'z' => usize::from(length - b'a') + 27,
        _ => return None,
    };
    if digits.len() != length.div_ceil(4) * 5 {
        return None;
    }
    let start = out.len();
    for five in digits.chunks_exact(5) {
        out.extend_from_slice(&decode_five(five)?.to_be_bytes());
    }
    out.truncate(start + length);
    Some(())
}

fn decode_five(five: &[u8]) -> Option<u32> {
    let value = five.iter().try_fold(0u64, |value, letter| {
        let digit = ALPHABET.iter().position(|known| known == letter)?;
        Some(value * 85 + digit as u64)
    })?;
    u32::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_decoded_and_damage_is_seen() {
        let mut out = Vec::new();
        assert_eq!(decode_line(b"C00001", &mut out), Some(()));
        assert_eq!(decode_line(b"D00960", &mut out), Some(()));
        assert_eq!(out, [0, 0, 0, 0, 0, 0xff, 0xff]);
        for bad in [
            &b""[..],
            b"A",
            b"A0000",
            b"A00000x",
            b"100000",
            b"D~~~~~",
            b"A 0000",
            b"E00000",
        ] {
            assert_eq!(decode_line(bad, &mut Vec::new()), None);
        }
    }
}
