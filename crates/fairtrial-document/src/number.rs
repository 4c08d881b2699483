//! Floats as Python writes them.

/// Python's `repr` of a finite float: shortest digits that read back; fixed notation from 1e-4 up to below 1e16.
#[must_use]
pub fn float_text(float: f64) -> String {
    let scientific = shortest(float);
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("`{:e}` writes an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` writes a whole exponent");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    if (-4..16).contains(&exponent) {
        let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
        return format!("{sign}{}", fixed(&digits, exponent));
    }
    let direction = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{mantissa}e{direction}{:02}", exponent.abs())
}

/// The fewest digits that read back, of several such the nearest. Between two that are equally near, the standard
/// library takes the larger and Python the even one.
fn shortest(float: f64) -> String {
    let shortest = format!("{float:e}");
    let digits = shortest
        .bytes()
        .take_while(|b| *b != b'e')
        .filter(u8::is_ascii_digit)
        .count();
    if digits <= f64::DIGITS as usize {
        return shortest; // no other of so few digits reads back as the same float
    }
    let even = format!("{float:.*e}", digits.saturating_sub(1));
    match even.parse::<f64>() {
        Ok(read) if read.to_bits() == float.to_bits() => even,
        _ => shortest,
    }
}

fn fixed(digits: &str, exponent: i32) -> String {
    if exponent < 0 {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("0.{zeros}{digits}");
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        return format!("{digits}{}.0", "0".repeat(whole - digits.len()));
    }
    format!("{}.{}", &digits[..whole], &digits[whole..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SF-21
    #[test]
    fn floats_are_written_as_python_does() {
        let table = [
            (0.1, "0.1"),
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (123.456, "123.456"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.5e-7, "-1.5e-07"),
            (0.0001, "0.0001"),
            (0.00012, "0.00012"),
            (1e-5, "1e-05"),
            (773_281_023_071_597.0 / 8.0, "96660127883949.62"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
        ];
        for (float, text) in table {
            assert_eq!(float_text(float), text);
        }
    }
}
