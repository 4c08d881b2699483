//! JSON documents with places, as Python's `json` reads them: integers of any size, `NaN` and infinities allowed.

use std::sync::Arc;

use crate::fault::{Fault, Place, fault};
use crate::node::{Content, DEEPEST, Entry, Node};
use crate::value::Value;

/// Reads one document.
pub fn parse(file: &Arc<str>, text: &str) -> Result<Node, Fault> {
    let mut reader = Reader {
        file,
        rest: text,
        line: 1,
        column: 1,
    };
    reader.blanks();
    if reader.rest.is_empty() {
        return Err(reader.expected("a value"));
    }
    let node = reader.value(0)?;
    reader.blanks();
    match reader.rest {
        "" => Ok(node),
        _ => Err(reader.expected("the end of the file")),
    }
}

/// Reads a value from the command line or another text without a file.
pub fn parse_value(name: &str, text: &str) -> Result<Value, Fault> {
    Ok(parse(&Arc::from(name), text)?.into_value())
}

struct Reader<'t> {
    file: &'t Arc<str>,
    rest: &'t str,
    line: usize,
    column: usize,
}

impl<'t> Reader<'t> {
    fn place(&self) -> Place {
        Place {
            file: self.file.clone(),
            line: self.line,
            column: self.column,
        }
    }

    fn expected(&self, what: &str) -> Fault {
        let found = match self.rest.chars().next() {
            Some(c) => format!("not `{}`", c.escape_debug()),
            None => "not the end of the file".into(),
        };
        let message = format!("not JSON: {what} was expected, {found}");
        fault(&self.place(), "syntax", message, "")
    }

    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(bytes);
        for byte in taken.bytes() {
            match byte {
                b'\n' => (self.line, self.column) = (self.line + 1, 1),
                0x80..0xc0 => {} // of the character before
                _ => self.column += 1,
            }
        }
        self.rest = rest;
        taken
    }

    fn blanks(&mut self) {
        let blank = self.rest.len() - self.rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.take(blank);
    }

    fn skip(&mut self, expected: &str) -> bool {
        let found = self.rest.starts_with(expected);
        if found {
            self.take(expected.len());
        }
        found
    }

    fn value(&mut self, depth: usize) -> Result<Node, Fault> {
        let place = self.place();
        if depth > DEEPEST {
            let message = format!("nested deeper than {DEEPEST} levels");
            return Err(fault(&place, "depth", message, ""));
        }
        let content = match self.rest.chars().next() {
            Some('{') => self.object(depth)?,
            Some('[') => self.array(depth)?,
            Some('"') => Content::Scalar(Value::Text(self.string()?)),
            _ => Content::Scalar(self.word_or_number()?),
        };
        Ok(Node {
            place,
            content,
            doubt: None,
        })
    }

    fn object(&mut self, depth: usize) -> Result<Content, Fault> {
        self.take(1);
        let mut entries = Vec::new();
        self.blanks();
        if self.skip("}") {
            return Ok(Content::Map(entries));
        }
        loop {
            self.blanks();
            let place = self.place();
            if !self.rest.starts_with('"') {
                return Err(self.expected("a key in double quotes"));
            }
            let key = Node::scalar(place, Value::Text(self.string()?));
            self.blanks();
            if !self.skip(":") {
                return Err(self.expected("`:`"));
            }
            self.blanks();
            let value = self.value(depth + 1)?;
            entries.push(Entry { key, value });
            self.blanks();
            if self.skip("}") {
                return Ok(Content::Map(entries));
            }
            if !self.skip(",") {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Content, Fault> {
        self.take(1);
        let mut items = Vec::new();
        self.blanks();
        if self.skip("]") {
            return Ok(Content::List(items));
        }
        loop {
            self.blanks();
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.skip("]") {
                return Ok(Content::List(items));
            }
            if !self.skip(",") {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.take(1);
        let mut text = String::new();
        loop {
            let plain = self.rest.find(['"', '\\']).unwrap_or(self.rest.len());
            let plain = self.rest[..plain].find(|c: char| c < ' ').unwrap_or(plain);
            text += self.take(plain);
            match self.rest.bytes().next() {
                Some(b'"') => {
                    self.take(1);
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(self.expected("the end of the string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let place = self.place();
        self.take(1);
        let escaped = match self.rest.chars().next() {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some(c @ ('"' | '\\' | '/')) => c,
            Some('u') => return self.unicode(&place),
            _ => return Err(self.expected("an escape of JSON")),
        };
        self.take(1);
        Ok(escaped)
    }

    fn unicode(&mut self, place: &Place) -> Result<char, Fault> {
        let mut units = vec![self.unit()?];
        if (0xd800..0xdc00).contains(&units[0]) && self.skip("\\") {
            units.push(self.unit()?);
        }
        let mut decoded = char::decode_utf16(units);
        match (decoded.next(), decoded.next()) {
            (Some(Ok(c)), None) => Ok(c),
            _ => Err(fault(
                place,
                "syntax",
                "half of a surrogate pair is no character",
                "",
            )),
        }
    }

    fn unit(&mut self) -> Result<u16, Fault> {
        let digits = self.rest.strip_prefix('u').and_then(|rest| rest.get(..4));
        let unit = digits
            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|digits| u16::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.expected("`u` and four hex digits"))?;
        self.take(5);
        Ok(unit)
    }

    fn word_or_number(&mut self) -> Result<Value, Fault> {
        let Some((length, whole)) = number_length(self.rest) else {
            return self.word();
        };
        let text = self.take(length);
        if whole {
            let int = match text.parse::<i64>() {
                Ok(int) => int.into(),
                Err(_) => text.parse().expect("checked digits are an integer"),
            };
            return Ok(Value::Int(int));
        }
        Ok(Value::Float(
            text.parse().expect("a JSON number is a float"),
        ))
    }

    fn word(&mut self) -> Result<Value, Fault> {
        let words = [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("NaN", Value::Float(f64::NAN)),
            ("Infinity", Value::Float(f64::INFINITY)),
            ("-Infinity", Value::Float(f64::NEG_INFINITY)),
        ];
        let known = words.into_iter().find(|(word, _)| self.skip(word));
        known
            .map(|(_, value)| value)
            .ok_or_else(|| self.expected("a value"))
    }
}

/// How long the number is that `text` starts with, and whether it is an integer.
fn number_length(text: &str) -> Option<(usize, bool)> {
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        bytes[from..]
            .iter()
            .take_while(|b| b.is_ascii_digit())
            .count()
    };
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let whole = match bytes.get(sign) {
        Some(b'0') => 1,
        _ => digits(sign),
    };
    if whole == 0 {
        return None;
    }
    let mut end = sign + whole;
    let integer = end;
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + signed);
        if exponent > 0 {
            end += 1 + signed + exponent;
        }
    }
    Some((end, end == integer))
}
