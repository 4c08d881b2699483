//! Text as HTML. Everything that users or agents wrote goes through here.

use std::fmt::Write;

/// Text in which nothing is markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(character),
            // Control characters are no HTML; what changes the direction of writing could make a line read otherwise.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            other if other.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// At most so many characters, escaped, with `…` for the rest.
pub(crate) fn short(text: &str, most: usize) -> String {
    escape(&cut(text, most))
}

/// At most so many characters, with `…` for the rest.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(most.saturating_sub(1));
            format!("{}…", &text[..end.map_or(0, |(at, _)| at)])
        }
    }
}

/// The last so many characters, and whether any were left out.
pub(crate) fn tail(text: &str, most: usize) -> (&str, bool) {
    match text.char_indices().rev().nth(most.saturating_sub(1)) {
        Some((at, _)) if at > 0 => (&text[at..], true),
        _ => (text, false),
    }
}

/// A number with as many digits as people read.
pub(crate) fn number(value: f64) -> String {
    rounded(value, 4)
}

/// A number where there is little room.
pub(crate) fn brief(value: f64) -> String {
    rounded(value, 3)
}

/// With so many digits that count.
fn rounded(value: f64, digits: i32) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    let size = value.abs();
    let text = if size == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e7).contains(&size) {
        format!("{value:.2e}")
    } else {
        let whole = size.log10().floor() as i32;
        let decimals = usize::try_from(digits - 1 - whole).unwrap_or(0);
        format!("{value:.*}", decimals.min(6))
    };
    let text = match text.contains('.') && !text.contains('e') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match text {
        "-0" => "0".to_owned(),
        text => text.replace('-', "−"),
    }
}

/// A count, its thousands apart.
pub(crate) fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A rate in percent.
pub(crate) fn percent(rate: f64) -> String {
    let percent = rate * 100.0;
    match percent {
        percent if percent == 0.0 || percent >= 99.95 => format!("{percent:.0} %"),
        percent if percent < 0.1 => format!("{percent:.3} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// A p-value.
pub(crate) fn p_value(p: f64) -> String {
    match p {
        p if p < 1e-4 => "&lt; 0.0001".to_owned(),
        p => format!("{p:.4}"),
    }
}

/// A time span.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {what}{ending}", count(number))
}

/// A table of cells that are HTML already.
pub(crate) fn table(class: &str, head: &[String], rows: &[Vec<String>]) -> String {
    let mut out = format!("<div class=\"wide\"><table class=\"{class}\"><thead><tr>");
    for cell in head {
        put(&mut out, format_args!("<th>{cell}</th>"));
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            put(&mut out, format_args!("<td>{cell}</td>"));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    out
}

/// Appends to a page.
pub(crate) fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("a string takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn nothing_that_was_written_is_markup() {
        let hostile = "<script>alert('\"&')</script>\u{0}\u{1b}[31m\u{202e}";
        let escaped = escape(hostile);
        assert_eq!(
            escaped,
            "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;\u{fffd}\u{fffd}[31m\u{fffd}"
        );
    }

    #[test]
    fn numbers_have_the_digits_that_people_read() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (0.123_456, "0.1235"),
            (-12.345_6, "−12.35"),
            (123_456.7, "123457"),
            (1e9, "1.00e9"),
            (0.000_012, "1.20e−5"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(
            (cut("abcdef", 4).as_str(), cut("abcd", 4).as_str()),
            ("abc…", "abcd")
        );
        assert_eq!(
            (tail("abcdef", 2), tail("ab", 2)),
            (("ef", true), ("ab", false))
        );
        assert_eq!(
            (percent(0.0), percent(0.1234), percent(1.0)),
            ("0 %".into(), "12.3 %".into(), "100 %".into())
        );
    }
}
