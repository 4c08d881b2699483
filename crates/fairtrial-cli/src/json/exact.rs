//! JSON text to a tree in which every int is exact, no key is given twice, and every fault has its place.
//!
//! `serde_json` rounds ints beyond 64 bits, refuses them beyond 300 digits, and keeps the last of two equal keys: which
//! of the two was meant nobody knows.

use serde_json::{Map, Value as Json, json};

use super::Fault;

/// Nesting allowed: that of the data codec.
const MAX_DEPTH: usize = fairtrial_exec::value::MAX_DEPTH;

/// The value that `text` holds. Ints beyond 64 bits become `{"$int": digits}`, as the data codec writes them.
pub(super) fn parse(text: &str) -> Result<Json, Fault> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    match parser.peek() {
        None => Ok(value),
        Some(_) => parser.fault("trailing characters"),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn value(&mut self, depth: usize) -> Result<Json, Fault> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(),
            None => self.fault("the text ends where a value is expected"),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, Fault> {
        let mut items = Vec::new();
        self.open(depth)?;
        if self.take(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(Json::Array(items));
            }
            self.expect(b',', "expected `,` or `]`")?;
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, Fault> {
        let mut entries = Map::new();
        self.open(depth)?;
        if self.take(b'}') {
            return Ok(Json::Object(entries));
        }
        loop {
            if self.peek() != Some(b'"') {
                return self.fault("expected a key in double quotes");
            }
            let key_at = self.at;
            let key = self.string()?;
            if entries.contains_key(&key) {
                return Err(Fault::new(
                    key_at,
                    format!("duplicate key `{key}` (give it once)"),
                ));
            }
            self.expect(b':', "expected `:`")?;
            let value = self.value(depth + 1)?;
            entries.insert(key, value);
            if self.take(b'}') {
                return Ok(Json::Object(entries));
            }
            self.expect(b',', "expected `,` or `}`")?;
        }
    }

    /// Steps over an opening bracket.
    fn open(&mut self, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH {
            return self.fault(format!("more than {MAX_DEPTH} levels deep"));
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Result<String, Fault> {
        let start = self.at;
        let token = self.token(|rest| {
            let mut escaped = false;
            let end = rest.bytes().skip(1).position(|byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |end| end + 2)
        });
        self.scalar(start, token)
    }

    fn number(&mut self) -> Result<Json, Fault> {
        let start = self.at;
        let token = self.token(|rest| {
            let is_part = |byte| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
            rest.bytes()
                .position(|byte| !is_part(byte))
                .unwrap_or(rest.len())
        });
        match is_long_int(token) {
            true => Ok(json!({"$int": token})),
            false => self.scalar(start, token),
        }
    }

    fn word(&mut self) -> Result<Json, Fault> {
        let rest = &self.text[self.at..];
        let words = [
            ("null", Json::Null),
            ("true", true.into()),
            ("false", false.into()),
        ];
        match words.into_iter().find(|(word, _)| rest.starts_with(word)) {
            Some((word, value)) => {
                self.at += word.len();
                Ok(value)
            }
            None => self.fault("expected value"),
        }
    }

    /// Steps over as much as `length` says of what is left.
    fn token(&mut self, length: impl FnOnce(&str) -> usize) -> &'a str {
        let rest = &self.text[self.at..];
        let token = &rest[..length(rest)];
        self.at += token.len();
        token
    }

    /// Lets `serde_json` judge a string or number; the fault is in it, or at its end.
    fn scalar<T: serde::de::DeserializeOwned>(
        &self,
        start: usize,
        token: &str,
    ) -> Result<T, Fault> {
        serde_json::from_str(token).map_err(|error| {
            super::Raw {
                text: token,
                at: start,
            }
            .fault(&error)
        })
    }

    /// The next byte that is not white space, not taken.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let skipped = rest.iter().position(|byte| !blank(byte));
        self.at += skipped.unwrap_or(rest.len());
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8, message: &str) -> Result<(), Fault> {
        match self.take(byte) {
            true => Ok(()),
            false => self.fault(message),
        }
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault::new(self.at, message))
    }
}

fn is_long_int(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    digits.len() >= 19
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && number.parse::<i64>().is_err()
        && number.parse::<u64>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault_of(text: &str) -> String {
        let fault = parse(text).unwrap_err();
        let (line, column) = fault.place(text);
        format!("{line}:{column}: {}", fault.message)
    }

    #[test]
    fn a_fault_is_placed_by_line_and_character() {
        let table = [
            ("[1, x]", "1:5: expected value"),
            ("[1,\n  \"é\", x]", "2:8: expected value"),
            ("[1] 2", "1:5: trailing characters"),
            ("[1", "1:3: expected `,` or `]`"),
            ("[1 2]", "1:4: expected `,` or `]`"),
            ("{\"a\" 1}", "1:6: expected `:`"),
            ("{a: 1}", "1:2: expected a key in double quotes"),
            ("[1,", "1:4: the text ends where a value is expected"),
            ("", "1:1: the text ends where a value is expected"),
            ("[1.]", "1:3: EOF while parsing a value"),
            ("[01]", "1:3: invalid number"),
            ("[\"ab", "1:4: EOF while parsing a string"),
            ("[\"a\\x\"]", "1:5: invalid escape"),
            ("[1e999]", "1:6: number out of range"),
        ];
        for (text, fault) in table {
            assert_eq!(fault_of(text), fault, "{text}");
        }
    }

    #[test]
    fn a_duplicate_key_is_refused_at_any_depth() {
        assert_eq!(
            fault_of(r#"[{"a": {"b": 1, "b": 2}}]"#),
            "1:17: duplicate key `b` (give it once)"
        );
    }

    /// EX-69
    #[test]
    fn every_int_is_exact() {
        let long = "9".repeat(400);
        for digits in ["18446744073709551616", "-9223372036854775809", &long] {
            assert_eq!(parse(digits), Ok(json!({"$int": digits})));
        }
        assert_eq!(parse("18446744073709551615"), Ok(json!(u64::MAX)));
        assert_eq!(parse("-9223372036854775808"), Ok(json!(i64::MIN)));
        assert_eq!(parse("1e30"), Ok(json!(1e30)));
    }

    /// EX-66
    #[test]
    fn nesting_ends_where_the_codec_ends() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(1000)).is_ok());
        assert!(fault_of(&nested(1001)).contains("more than 1000 levels deep"));
        assert!(fault_of(&nested(100_000)).contains("more than 1000 levels deep"));
    }
}
