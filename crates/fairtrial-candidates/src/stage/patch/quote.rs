//! Names in quotes, as git and GNU diff write those with unusual bytes.

/// Reads a quoted name at the start of a text. Gives its bytes and what follows the closing quote.
pub(super) fn unquote(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(b"\"")?;
    let mut name = Vec::new();
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'"' => return Some((name, rest)),
            b'\\' => {
                let (byte, after) = escape(rest)?;
                name.push(byte);
                rest = after;
            }
            _ => name.push(*byte),
        }
    }
}

/// The byte that stands behind a backslash.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (first, rest) = text.split_first()?;
    let byte = match first {
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        b'"' | b'\\' => *first,
        b'0'..=b'3' => return octal(text),
        _ => return None,
    };
    Some((byte, rest))
}

fn octal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, rest) = text.split_at_checked(3)?;
    let all_octal = digits.iter().all(|digit| (b'0'..=b'7').contains(digit));
    let value = digits.iter().fold(0u32, |value, digit| {
        value * 8 + u32::from(digit.wrapping_sub(b'0'))
    });
    match all_octal {
        true => Some((u8::try_from(value).ok()?, rest)),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-13
    #[test]
    fn quoted_names_give_any_bytes() {
        let table: [(&[u8], &[u8], &[u8]); 4] = [
            (br#""a b""#, b"a b", b""),
            (br#""\303\274\t\"\\" "x""#, b"\xc3\xbc\t\"\\", br#" "x""#),
            (br#""\a\b\n\v\f\r""#, b"\x07\x08\n\x0b\x0c\r", b""),
            (br#""\000\377""#, b"\0\xff", b""),
        ];
        for (text, name, rest) in table {
            assert_eq!(unquote(text), Some((name.to_vec(), rest)));
        }
        for bad in [
            &b"a"[..],
            b"\"a",
            b"\"\\",
            b"\"\\z\"",
            b"\"\\48\"",
            b"\"\\39\"",
            b"\"\\1\"",
        ] {
            assert_eq!(unquote(bad), None, "{}", bad.escape_ascii());
        }
    }
}
