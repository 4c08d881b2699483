//! Text as HTML. Everything that candidates, tests or users wrote goes through here.

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
            // What changes the direction of writing could make a line read otherwise.
            '\u{61c}' | '\u{200e}' | '\u{200f}' => out.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            // Control characters are no HTML.
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

/// The last so many characters, escaped, after a `…` for the rest.
pub(crate) fn ending(text: &str, most: usize) -> String {
    match text.char_indices().rev().nth(most.saturating_sub(1)) {
        Some((at, _)) if at > 0 => format!("…{}", escape(&text[at..])),
        _ => escape(text),
    }
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

/// A ratio of times: as many digits as tell it from its neighbours.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        value if !value.is_finite() => "–".to_owned(),
        value if value < 0.01 => format!("{value:.1e}"),
        value if value < 0.1 => format!("{value:.4}"),
        value if value < 10.0 => format!("{value:.3}"),
        value => format!("{value:.1}"),
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

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {what}{ending}", count(number))
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent == 0.0 || percent >= 99.95 => format!("{percent:.0} %"),
        percent if percent < 0.1 => format!("{percent:.3} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// A time span.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1e-6 => format!("{:.0} ns", s * 1e9),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A size in memory.
pub(crate) fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

/// A table of cells that are HTML already.
pub(crate) fn table<const N: usize>(class: &str, head: [&str; N], rows: &[[String; N]]) -> String {
    let mut out = format!("<div class=\"wide\"><table class=\"{class}\">");
    if head.iter().any(|cell| !cell.is_empty()) {
        out.push_str("<thead><tr>");
        for cell in head {
            put(&mut out, format_args!("<th>{cell}</th>"));
        }
        out.push_str("</tr></thead>");
    }
    out.push_str("<tbody>");
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

/// Text as it was written, if there is any.
pub(crate) fn block(out: &mut String, what: &str, text: &str, most: usize) {
    if !text.trim().is_empty() {
        let text = ending(text.trim_end(), most);
        put(
            out,
            format_args!("<p class=\"note\">{what}</p><pre>{text}</pre>\n"),
        );
    }
}

/// Appends to a page.
pub(crate) fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("a string takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-82
    #[test]
    fn nothing_that_was_written_is_markup() {
        let hostile = "<script>alert('\"&')</script>\u{0}\u{1b}[31m\u{202e}\u{2066}\u{200f}";
        assert_eq!(
            escape(hostile),
            "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;\u{fffd}\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    /// CA-82
    #[test]
    fn texts_are_cut_before_they_are_escaped() {
        assert_eq!(short(&"<".repeat(9), 3), "&lt;&lt;…");
        assert_eq!(ending(&"é".repeat(9), 3), "…ééé");
        assert_eq!(
            (short("abc", 3), ending("abc", 3)),
            ("abc".into(), "abc".into())
        );
    }
}
