//! Variables that calls are passed by name: their values are the engine's own, and are taken out of outcomes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::call::Call;
use crate::capture::Captured;
use crate::outcome::{ErrorReport, Outcome};
use crate::spill::Body;

/// Shorter values are words that occur by chance: masking them would spoil results and hide nothing.
const SHORTEST_MASKED: usize = 8;
/// So much of a value at the edge of dropped output is more than chance.
const SHORTEST_PIECE: usize = 4;
const MASK: &[u8] = b"***";

/// Sets the variables that a call names, from the environment of whoever runs it. A variable that has a value in the
/// call's own environment keeps it. Says which ones are not set here.
pub(crate) fn set_passed(
    call: &mut Call,
    host_env: &BTreeMap<OsString, OsString>,
) -> Result<(), String> {
    let mut unset = Vec::new();
    for name in &call.pass_env {
        if call.env.contains_key(name) {
            continue;
        }
        match host_env.get(name) {
            Some(value) => {
                call.env.insert(name.clone(), Some(value.clone()));
            }
            None => unset.push(format!("`{}`", name.display())),
        }
    }
    match unset.is_empty() {
        true => Ok(()),
        false => Err(unset.join(", ")),
    }
}

/// Takes the values of passed variables out of what becomes of a call.
pub(crate) fn mask(call: &Call, outcome: &mut Outcome) {
    let forms = Forms::of(call);
    if !forms.0.is_empty() {
        forms.mask(outcome);
    }
}

/// How values may be written, the longest first, since one may begin another.
struct Forms(Vec<Vec<u8>>);

impl Forms {
    fn of(call: &Call) -> Self {
        let values = call.pass_env.iter().filter_map(|name| call.env.get(name));
        let values = values.flatten();
        let mut forms: Vec<_> = values
            .filter(|value| value.len() >= SHORTEST_MASKED)
            .flat_map(|value| forms_of(value))
            .collect();
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        Self(forms)
    }

    fn mask(&self, outcome: &mut Outcome) {
        if let Some(value) = &mut outcome.value {
            self.mask_body(&mut value.body);
        }
        if let Some(error) = &mut outcome.error {
            self.mask_error(error);
        }
        self.mask_stream(&mut outcome.stdout);
        self.mask_stream(&mut outcome.stderr);
    }

    fn mask_error(&self, error: &mut ErrorReport) {
        for text in [&mut error.kind, &mut error.message, &mut error.traceback] {
            if let Cow::Owned(masked) = self.masked(text.as_bytes()) {
                *text = String::from_utf8_lossy(&masked).into_owned();
            }
        }
        if let Some(exception) = &mut error.exception {
            self.fill(exception);
        }
    }

    fn mask_stream(&self, stream: &mut Captured) {
        if stream.dropped > 0 {
            self.cut_edges(stream);
        } else if !stream.tail.is_empty() {
            // Head and tail meet, perhaps within a value.
            stream.head.append(&mut stream.tail);
        }
        for bytes in [&mut stream.head, &mut stream.tail] {
            if let Cow::Owned(masked) = self.masked(bytes) {
                *bytes = masked;
            }
        }
    }

    /// Where output was dropped, the beginning or the end of a value may be left.
    fn cut_edges(&self, stream: &mut Captured) {
        for form in &self.0 {
            let lengths = (SHORTEST_PIECE..form.len()).rev();
            let mut before = lengths.clone();
            if let Some(length) = before.find(|length| stream.head.ends_with(&form[..*length])) {
                stream.head.truncate(stream.head.len() - length);
                stream.head.extend(MASK);
            }
            let mut behind = lengths;
            if let Some(length) =
                behind.find(|length| stream.tail.starts_with(&form[form.len() - length..]))
            {
                stream.tail.splice(..length, MASK.iter().copied());
            }
        }
    }

    fn masked<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        let mut text = Cow::Borrowed(bytes);
        for form in &self.0 {
            let Some(mut at) = find(&text, form) else {
                continue;
            };
            let (mut rest, mut masked) = (&*text, Vec::new());
            loop {
                masked.extend_from_slice(&rest[..at]);
                masked.extend_from_slice(MASK);
                rest = &rest[at + form.len()..];
                match find(rest, form) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            masked.extend_from_slice(rest);
            text = Cow::Owned(masked);
        }
        text
    }

    /// Encoded bytes keep their lengths, so that a value stays one.
    fn mask_body(&self, body: &mut Body) {
        match body {
            Body::Inline(bytes) => self.fill(bytes),
            Body::Mapped(mapping) => self.fill(mapping.bytes_mut()),
        }
    }

    fn fill(&self, bytes: &mut [u8]) {
        for form in &self.0 {
            let mut from = 0;
            while let Some(at) = find(&bytes[from..], form) {
                let end = from + at + form.len();
                bytes[from + at..end].fill(b'*');
                from = end;
            }
        }
    }
}

/// As it is, as Python shows it, and as JSON may have it.
fn forms_of(value: &OsStr) -> Vec<Vec<u8>> {
    let bytes = value.as_bytes();
    let mut forms = vec![bytes.to_vec(), shown(bytes, false), shown(bytes, true)];
    let Some(text) = value.to_str() else {
        return forms;
    };
    let quoted = serde_json::Value::from(text).to_string();
    let quoted = &quoted[1..quoted.len() - 1];
    for unicode in [Escape::None, Escape::Lower, Escape::Upper] {
        for markup in [Escape::None, Escape::Lower, Escape::Upper] {
            for slash in ["/", "\\/"] {
                let written = quoted.chars().map(|c| match c {
                    '/' => slash.to_owned(),
                    '<' | '>' | '&' => markup.write(c),
                    c if c.is_ascii() => c.to_string(),
                    c => unicode.write(c),
                });
                forms.push(written.collect::<String>().into_bytes());
            }
        }
    }
    forms
}

/// As `repr` writes a text, or bytes: those beyond ASCII are numbers then.
fn shown(bytes: &[u8], are_bytes: bool) -> Vec<u8> {
    let written = bytes.iter().flat_map(|byte| match byte {
        b'\\' => b"\\\\".to_vec(),
        b'\n' => b"\\n".to_vec(),
        b'\r' => b"\\r".to_vec(),
        b'\t' => b"\\t".to_vec(),
        byte if byte.is_ascii_control() || are_bytes && !byte.is_ascii() => {
            format!("\\x{byte:02x}").into_bytes()
        }
        byte => vec![*byte],
    });
    written.collect()
}

/// How a character is escaped: writers of JSON differ in that.
#[derive(Clone, Copy)]
enum Escape {
    None,
    Lower,
    Upper,
}

impl Escape {
    fn write(self, c: char) -> String {
        let mut units = [0; 2];
        let units = c.encode_utf16(&mut units).iter();
        match self {
            Self::None => c.to_string(),
            Self::Lower => units.map(|unit| format!("\\u{unit:04x}")).collect(),
            Self::Upper => units.map(|unit| format!("\\u{unit:04X}")).collect(),
        }
    }
}

/// Where a form begins. Looks for its first byte, which the standard library does fast enough for large values.
fn find(bytes: &[u8], form: &[u8]) -> Option<usize> {
    let (first, rest) = form.split_first()?;
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|byte| byte == first)?;
        if bytes[at + 1..].starts_with(rest) {
            return Some(at);
        }
        from = at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "a/b\"c&d-\u{e9}-longest";

    fn passing(values: &[(&str, &str)]) -> Call {
        let mut call = Call::command(["true"]);
        for (name, value) in values {
            call.pass_env.insert((*name).into());
            call.env.insert((*name).into(), Some((*value).into()));
        }
        call
    }

    fn shown(call: &Call, text: &str) -> String {
        let masked = Forms::of(call).masked(text.as_bytes()).into_owned();
        String::from_utf8(masked).unwrap()
    }

    /// FA-23
    #[test]
    fn a_value_is_masked_however_it_is_written() {
        let call = passing(&[("KEY", VALUE)]);
        for written in [
            VALUE,
            "a/b\\\"c&d-\u{e9}-longest",
            "a\\/b\\\"c&d-\\u00e9-longest",
            "a/b\\\"c\\u0026d-\\u00E9-longest",
            "a/b\"c&d-\\xc3\\xa9-longest",
        ] {
            let text = format!("x{written}{written}y {written}");
            assert_eq!(shown(&call, &text), "x******y ***", "{written}");
        }
    }

    /// FA-23: of two values one of which begins the other, nothing is left of the longer.
    #[test]
    fn the_longest_value_is_masked_first_and_short_ones_not_at_all() {
        let call = passing(&[("A", "sk-12345"), ("B", "sk-12345-67890"), ("C", "yes")]);
        assert_eq!(shown(&call, "sk-12345-67890 sk-12345 yes"), "*** *** yes");
    }

    /// FA-23
    #[test]
    fn what_is_left_of_a_value_at_the_edge_of_dropped_output_is_masked() {
        let call = passing(&[("KEY", "0123456789")]);
        let stream = |dropped| Captured {
            head: b"head 01234".to_vec(),
            tail: b"56789 tail".to_vec(),
            dropped,
        };
        let (mut whole, mut cut) = (stream(0), stream(7));
        Forms::of(&call).mask_stream(&mut whole);
        Forms::of(&call).mask_stream(&mut cut);
        assert_eq!(whole.text(), "head *** tail");
        assert_eq!(
            (&*cut.head, &*cut.tail),
            (&b"head ***"[..], &b"*** tail"[..])
        );
    }

    /// FA-23: lengths stay, so a value can still be read.
    #[test]
    fn encoded_values_keep_their_shape() {
        let call = passing(&[("KEY", "0123456789")]);
        let data = |text: &str| {
            use crate::value::{Value, encode};
            let text = Value::Str(text.into());
            encode(&Value::List(vec![
                text.clone(),
                Value::Dict(vec![(text, Value::Int(7))]),
            ]))
        };
        let mut body = Body::Inline(data("<0123456789>"));
        Forms::of(&call).mask_body(&mut body);
        assert_eq!(body.bytes(), data("<**********>"));
    }

    /// FA-23: what a call sets itself goes first; what is set nowhere is named.
    #[test]
    fn passed_variables_are_those_of_the_engine() {
        let host = [("A", "1"), ("B", "2")].map(|(name, value)| (name.into(), value.into()));
        let mut call = Call::command(["true"]);
        call.pass_env.extend(["A", "B"].map(OsString::from));
        call.env.insert("B".into(), Some("own".into()));
        set_passed(&mut call, &host.clone().into()).unwrap();
        let env = [("A", Some("1".into())), ("B", Some("own".into()))];
        assert_eq!(
            call.env,
            env.map(|(name, value)| (name.into(), value)).into()
        );
        call.pass_env.extend(["C", "D"].map(OsString::from));
        assert_eq!(set_passed(&mut call, &host.into()).unwrap_err(), "`C`, `D`");
    }
}
