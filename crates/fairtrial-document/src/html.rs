//! Reports as one HTML page that needs nothing else: its head and style, tables, and text in which nothing is markup.
//!
//! Everything that candidates, agents, tests or users wrote goes through here. What a page says is for others.

use std::fmt::{Display, Write};

/// What all pages look like; each adds a style of its own.
const STYLE: &str = include_str!("html/style.css");

/// Begins a page, up to the first heading in its header. All but the style is HTML already.
#[must_use]
pub fn begin(title: &str, style: &str, above: &str, heading: &str) -> String {
    // No script runs and nothing is fetched, whatever a hole in the escaping might let through.
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}{style}</style>\n</head><body>\n<header><p class=\"eyebrow\">{above}</p><h1>{heading}</h1>\n"
    )
}

/// Ends a page. `source` is what it was made from.
pub fn end(out: &mut String, source: &str) {
    put(
        out,
        format_args!(
            "</main>\n<footer>Made by Fairtrial from {source}. This file needs no other and fetches nothing.</footer>\n\
             </body></html>\n"
        ),
    );
}

/// Text in which nothing is markup.
#[must_use]
pub fn escape(text: &str) -> String {
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
#[must_use]
pub fn short(text: &str, most: usize) -> String {
    escape(&cut(text, most))
}

/// At most so many characters, with `…` for the rest.
#[must_use]
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(most.saturating_sub(1));
            format!("{}…", &text[..end.map_or(0, |(at, _)| at)])
        }
    }
}

/// The last so many characters, escaped, after a `…` for the rest.
#[must_use]
pub fn ending(text: &str, most: usize) -> String {
    match tail(text, most) {
        (text, true) => format!("…{}", escape(text)),
        (text, false) => escape(text),
    }
}

/// The last so many characters, and whether any were left out.
#[must_use]
pub fn tail(text: &str, most: usize) -> (&str, bool) {
    match text.char_indices().rev().nth(most.saturating_sub(1)) {
        Some((at, _)) if at > 0 => (&text[at..], true),
        _ => (text, false),
    }
}

/// A count, its thousands apart.
#[must_use]
pub fn count(count: u64) -> String {
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
#[must_use]
pub fn counted(number: u64, what: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {what}{ending}", count(number))
}

/// A share in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent == 0.0 || percent >= 99.95 => format!("{percent:.0} %"),
        percent if percent < 0.1 => format!("{percent:.3} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// A table of cells that are HTML already. A head of empty cells is none.
#[must_use]
pub fn table(class: &str, head: &[impl Display], rows: &[impl AsRef<[String]>]) -> String {
    let mut out = format!("<div class=\"wide\"><table class=\"{class}\">");
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    if head.iter().any(|cell| !cell.is_empty()) {
        out.push_str("<thead>");
        row(&mut out, "th", &head);
        out.push_str("</thead>");
    }
    out.push_str("<tbody>");
    for cells in rows {
        row(&mut out, "td", cells.as_ref());
        out.push('\n');
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn row(out: &mut String, tag: &str, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        put(out, format_args!("<{tag}>{cell}</{tag}>"));
    }
    out.push_str("</tr>");
}

/// Appends to a page.
pub fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("a string takes all that is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-82, ST-81
    #[test]
    fn nothing_that_was_written_is_markup() {
        let hostile = "<script>alert('\"&')</script>\u{0}\u{1b}[31m\u{202e}\u{2066}\u{200f}";
        assert_eq!(
            escape(hostile),
            "&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;\u{fffd}\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    /// CA-82, ST-81
    #[test]
    fn texts_are_cut_before_they_are_escaped() {
        assert_eq!(short(&"<".repeat(9), 3), "&lt;&lt;…");
        assert_eq!(ending(&"é".repeat(9), 3), "…ééé");
        assert_eq!(
            (short("abc", 3), ending("abc", 3)),
            ("abc".into(), "abc".into())
        );
        assert_eq!(
            (cut("abcdef", 4).as_str(), cut("abcd", 4).as_str()),
            ("abc…", "abcd")
        );
        assert_eq!(
            (tail("abcdef", 2), tail("ab", 2)),
            (("ef", true), ("ab", false))
        );
    }

    /// CA-82, ST-81
    #[test]
    fn counts_and_shares_are_easy_to_read() {
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(
            (&*counted(1, "run"), &*counted(2, "run")),
            ("1 run", "2 runs")
        );
        assert_eq!(
            (percent(0.0), percent(0.1234), percent(1.0)),
            ("0 %".into(), "12.3 %".into(), "100 %".into())
        );
    }

    /// CA-82, ST-81
    #[test]
    fn a_table_without_headings_has_no_head() {
        let rows = [["a".to_owned(), "b".to_owned()]];
        let body = "<tbody><tr><td>a</td><td>b</td></tr>\n</tbody></table></div>\n";
        assert_eq!(
            table("c", &["", ""], &rows),
            format!("<div class=\"wide\"><table class=\"c\">{body}")
        );
        assert_eq!(
            table("", &["x", ""], &rows),
            format!(
                "<div class=\"wide\"><table class=\"\"><thead><tr><th>x</th><th></th></tr></thead>{body}"
            )
        );
    }
}
