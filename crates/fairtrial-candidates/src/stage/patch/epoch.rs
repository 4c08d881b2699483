//! Time stamps behind names. Only one matters: GNU diff dates a file that is not there at the beginning of Unix time.

/// Whether a stamp such as `1970-01-01 01:00:00.000000000 +0100` is that moment.
pub(super) fn is_epoch(stamp: &[u8]) -> bool {
    minutes_since_epoch(stamp) == Some(0)
}

fn minutes_since_epoch(stamp: &[u8]) -> Option<i32> {
    let stamp = std::str::from_utf8(stamp).ok()?;
    let mut words = stamp.split_ascii_whitespace();
    let day = match words.next()? {
        "1970-01-01" => 0,
        "1969-12-31" => -24 * 60,
        _ => return None,
    };
    let mut clock = words.next()?.splitn(3, ':');
    let hours: i32 = clock.next()?.parse().ok()?;
    let minutes: i32 = clock.next()?.parse().ok()?;
    let seconds: f64 = clock.next()?.parse().ok()?;
    let zone = words.next()?;
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let digits: i32 = digits.replace(':', "").parse().ok()?;
    let offset = sign * (digits / 100 * 60 + digits % 100);
    let plain = (0..24).contains(&hours) && (0..60).contains(&minutes) && seconds == 0.0;
    plain.then_some(day + hours * 60 + minutes - offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_is_known_in_every_zone() {
        for stamp in [
            "1970-01-01 00:00:00.000000000 +0000",
            "1970-01-01 01:00:00.000000000 +0100",
            "1969-12-31 19:00:00 -05:00",
            "1970-01-01 05:30:00 +0530",
        ] {
            assert!(is_epoch(stamp.as_bytes()), "{stamp}");
        }
        for stamp in [
            "",
            "2024-02-01 00:00:00 +0000",
            "1970-01-01 00:00:01 +0000",
            "1970-01-01 00:00:00",
            "1970-01-01 00:00:00 +0100",
            "1970-01-01 00:00:00 +9999999999",
        ] {
            assert!(!is_epoch(stamp.as_bytes()), "{stamp}");
        }
    }
}
