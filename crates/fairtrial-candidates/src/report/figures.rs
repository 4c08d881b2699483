//! Figures as an evaluation's report shows them, and text as somebody wrote it.

use fairtrial_document::html::{ending, put};

/// A ratio of times: as many digits as tell it from its neighbours.
#[must_use]
pub fn ratio(value: f64) -> String {
    match value {
        value if !value.is_finite() => "–".to_owned(),
        value if value < 0.01 => format!("{value:.1e}"),
        value if value < 0.1 => format!("{value:.4}"),
        value if value < 10.0 => format!("{value:.3}"),
        value => format!("{value:.1}"),
    }
}

/// A time span.
#[must_use]
pub fn duration(seconds: f64) -> String {
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
