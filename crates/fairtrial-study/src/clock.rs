//! Times as tables show them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "a record says when; durations are the engine's, by its own clock"
)]
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Now, in whole seconds UTC.
#[must_use]
pub fn now_text() -> String {
    time_text(now_ns(), Precision::Seconds)
}

/// How finely a time is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// As DRE does.
    Seconds,
    /// Natively.
    Microseconds,
}

/// Nanoseconds since 1970 as UTC, with `+00:00`.
pub(crate) fn time_text(ns: i64, precision: Precision) -> String {
    let (seconds, rest) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let fraction = match precision {
        Precision::Seconds => String::new(),
        Precision::Microseconds => format!(".{:06}", rest / 1000),
    };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}+00:00")
}

/// The date of a day counted from 1970, by the rule of eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Nanoseconds since 1970 of a time as [`time_text`] writes it.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let fraction = text.get(19..)?.strip_suffix("+00:00")?;
    let micros: i64 = match fraction.strip_prefix('.') {
        Some(digits) => format!("{digits:0<6}").get(..6)?.parse().ok()?,
        None if fraction.is_empty() => 0,
        None => return None,
    };
    // The day whose date it is, from a guess that is never too late and at most a few days early.
    let guess = (year - 1970) * 365 + (year - 1969) / 4 - (year - 1901) / 100 + (year - 1601) / 400;
    let mut days = guess + (month - 1) * 28 + day - 1;
    while civil(days) < (year, month, day) {
        days += 1;
    }
    let is_there = civil(days) == (year, month, day) && hour < 24 && minute < 60 && second < 60;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    is_there.then_some(seconds * 1_000_000_000 + micros * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SF-53, ST-41
    #[test]
    fn times_are_utc() {
        for (ns, expected) in [
            (0, "1970-01-01T00:00:00.000000+00:00"),
            (951_782_399_999_999_999, "2000-02-28T23:59:59.999999+00:00"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000+00:00"),
            (
                1_794_787_200_123_456_000,
                "2026-11-16T00:00:00.123456+00:00",
            ),
            (-1, "1969-12-31T23:59:59.999999+00:00"),
        ] {
            assert_eq!(time_text(ns, Precision::Microseconds), expected);
            assert_eq!(parse_time(expected), Some(ns.div_euclid(1000) * 1000));
        }
        assert_eq!(parse_time("2026-02-30T00:00:00+00:00"), None);
        assert_eq!(parse_time("yesterday"), None);
        assert_eq!(
            time_text(1, Precision::Seconds),
            "1970-01-01T00:00:00+00:00"
        );
    }
}
