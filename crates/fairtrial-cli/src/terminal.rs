//! What candidates wrote, shown so that it can do nothing to a terminal. Pure, but for asking what a stream is.

use std::io::{self, IsTerminal, Write};

/// Passes text on; on a terminal, control characters and text-direction overrides are written as `\u001b`.
/// Incomplete UTF-8 at the end of a write waits for the next.
pub(crate) struct Shown<W: Write> {
    out: W,
    escape: bool,
    partial: Vec<u8>,
}

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {what}{ending}")
}

impl<W: Write + IsTerminal> Shown<W> {
    /// Escapes if `out` is a terminal.
    pub(crate) fn on(out: W) -> Self {
        let escape = out.is_terminal();
        Self::new(out, escape)
    }
}

impl<W: Write> Shown<W> {
    fn new(out: W, escape: bool) -> Self {
        Self {
            out,
            escape,
            partial: Vec::new(),
        }
    }

    fn write_escaped(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.partial.extend_from_slice(bytes);
        let taken = std::mem::take(&mut self.partial);
        let mut rest = taken.as_slice();
        while !rest.is_empty() {
            match str::from_utf8(rest) {
                Ok(text) => return self.write_text(text),
                Err(error) => {
                    let (good, bad) = rest.split_at(error.valid_up_to());
                    self.write_text(str::from_utf8(good).expect("checked just now"))?;
                    let Some(length) = error.error_len() else {
                        self.partial = bad.to_vec();
                        return Ok(());
                    };
                    self.write_text("\u{fffd}")?;
                    rest = &bad[length..];
                }
            }
        }
        Ok(())
    }

    fn write_text(&mut self, text: &str) -> io::Result<()> {
        let mut rest = text;
        while let Some((place, character)) = rest.char_indices().find(|(_, c)| is_unsafe(*c)) {
            self.out.write_all(&rest.as_bytes()[..place])?;
            write!(self.out, "\\u{:04x}", u32::from(character))?;
            rest = &rest[place + character.len_utf8()..];
        }
        self.out.write_all(rest.as_bytes())
    }
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.escape {
            self.write_escaped(bytes)?;
        } else {
            self.out.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Control characters but newline and tab, and what reorders text.
fn is_unsafe(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(escape: bool, writes: &[&[u8]]) -> String {
        let mut out = Shown::new(Vec::new(), escape);
        for bytes in writes {
            out.write_all(bytes).unwrap();
        }
        String::from_utf8_lossy(&out.out).into_owned()
    }

    /// EX-80
    #[test]
    fn on_a_terminal_control_characters_are_escaped() {
        assert_eq!(
            shown(true, &[b"a\tb\n\x1b[2J\r\x7f\xc2\x9b1m\xff."]),
            "a\tb\n\\u001b[2J\\u000d\\u007f\\u009b1m\u{fffd}."
        );
        assert_eq!(shown(true, &["x\u{202e}y".as_bytes()]), "x\\u202ey");
    }

    #[test]
    fn a_character_split_between_writes_arrives_whole() {
        assert_eq!(shown(true, &[b"\xe2\x82", b"\xac!"]), "€!");
        assert_eq!(shown(true, &[b"\xc2", b"\x9b"]), "\\u009b");
    }

    /// EX-80
    #[test]
    fn elsewhere_bytes_pass_as_they_are() {
        assert_eq!(shown(false, &[b"\x1b[2J\r\n"]), "\x1b[2J\r\n");
    }
}
