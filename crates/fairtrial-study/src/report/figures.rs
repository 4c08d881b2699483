//! Numbers and times as a study's report shows them.

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

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
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
    }
}
