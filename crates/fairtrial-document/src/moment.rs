//! Dates and times of YAML 1.1, as Python's `datetime` shows them.

use std::fmt;

/// A date, or a date with a time of day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    year: u32,
    month: u32,
    day: u32,
    clock: Option<Clock>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Clock {
    hour: u32,
    minute: u32,
    second: u32,
    microsecond: u32,
    /// Minutes east of UTC.
    offset: Option<i32>,
}

/// What a plain scalar that looks like a moment is.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// It does not look like one.
    Other,
    /// It looks like one, but there is no such day or hour.
    Impossible,
    /// A moment.
    Moment(Moment),
}

impl Moment {
    /// Reads what YAML 1.1 calls a timestamp.
    #[must_use]
    pub fn read(text: &str) -> Read {
        let Some(moment) = parse(text) else {
            return Read::Other;
        };
        if moment.is_possible() {
            Read::Moment(moment)
        } else {
            Read::Impossible
        }
    }

    fn is_possible(&self) -> bool {
        let of = |years| self.year.is_multiple_of(years);
        let leap = of(4) && (!of(100) || of(400));
        let days = match self.month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        let clock = self.clock.as_ref().is_none_or(|clock| {
            let offset = clock.offset.unwrap_or(0).abs();
            clock.hour < 24 && clock.minute < 60 && clock.second < 60 && offset < 24 * 60
        });
        self.year > 0 && (1..=days).contains(&self.day) && clock
    }

    /// Python's `repr`.
    #[must_use]
    pub fn to_repr(&self) -> String {
        let date = format!("{}, {}, {}", self.year, self.month, self.day);
        let Some(clock) = &self.clock else {
            return format!("datetime.date({date})");
        };
        let mut parts = format!("{date}, {}, {}", clock.hour, clock.minute);
        if clock.second > 0 || clock.microsecond > 0 {
            parts += &format!(", {}", clock.second);
        }
        if clock.microsecond > 0 {
            parts += &format!(", {}", clock.microsecond);
        }
        match clock.offset {
            None => {}
            Some(0) => parts += ", tzinfo=datetime.timezone.utc",
            Some(minutes) => {
                let days = minutes.div_euclid(24 * 60);
                let seconds = minutes.rem_euclid(24 * 60) * 60;
                let delta = if days == 0 {
                    format!("seconds={seconds}")
                } else {
                    format!("days={days}, seconds={seconds}")
                };
                parts += &format!(", tzinfo=datetime.timezone(datetime.timedelta({delta}))");
            }
        }
        format!("datetime.datetime({parts})")
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)?;
        let Some(clock) = &self.clock else {
            return Ok(());
        };
        let (hour, minute, second) = (clock.hour, clock.minute, clock.second);
        write!(f, " {hour:02}:{minute:02}:{second:02}")?;
        if clock.microsecond > 0 {
            write!(f, ".{:06}", clock.microsecond)?;
        }
        if let Some(offset) = clock.offset {
            let sign = if offset < 0 { '-' } else { '+' };
            let minutes = offset.abs();
            write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)?;
        }
        Ok(())
    }
}

/// Text not read yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    /// A number of so many digits.
    fn number(&mut self, least: usize, most: usize) -> Option<u32> {
        let digits = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let taken = digits.min(most);
        if taken < least {
            return None;
        }
        let (number, rest) = self.0.split_at(taken);
        self.0 = rest;
        number.parse().ok()
    }

    fn skip(&mut self, expected: char) -> Option<()> {
        self.0 = self.0.strip_prefix(expected)?;
        Some(())
    }

    fn blanks(&mut self) -> bool {
        let before = self.0.len();
        self.0 = self.0.trim_start_matches([' ', '\t']);
        self.0.len() < before
    }
}

fn parse(text: &str) -> Option<Moment> {
    let mut rest = Rest(text);
    let year = rest.number(4, 4)?;
    rest.skip('-')?;
    let month = rest.number(1, 2)?;
    rest.skip('-')?;
    let day = rest.number(1, 2)?;
    let mut moment = Moment {
        year,
        month,
        day,
        clock: None,
    };
    if rest.0.is_empty() {
        return (text.len() == "2026-01-02".len()).then_some(moment);
    }
    if rest.skip('T').or_else(|| rest.skip('t')).is_none() && !rest.blanks() {
        return None;
    }
    moment.clock = Some(clock(&mut rest)?);
    rest.0.is_empty().then_some(moment)
}

fn clock(rest: &mut Rest<'_>) -> Option<Clock> {
    let hour = rest.number(1, 2)?;
    rest.skip(':')?;
    let minute = rest.number(2, 2)?;
    rest.skip(':')?;
    let second = rest.number(2, 2)?;
    let mut microsecond = 0;
    if rest.skip('.').is_some() {
        let digits = rest.0.bytes().take_while(u8::is_ascii_digit).count();
        let (fraction, after) = rest.0.split_at(digits);
        let padded = format!("{fraction:0<6}");
        microsecond = padded[..6].parse().ok()?;
        rest.0 = after;
    }
    rest.blanks();
    let offset = match rest.0.chars().next() {
        Some('Z') => {
            rest.skip('Z')?;
            Some(0)
        }
        Some(sign @ ('+' | '-')) => {
            rest.skip(sign)?;
            let hours = rest.number(1, 2)?;
            let minutes = match rest.skip(':') {
                Some(()) => rest.number(2, 2)?,
                None => 0,
            };
            let total = (hours * 60 + minutes) as i32;
            Some(if sign == '-' { -total } else { total })
        }
        _ => None,
    };
    Some(Clock {
        hour,
        minute,
        second,
        microsecond,
        offset,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SF-18
    #[test]
    fn moments_are_shown_as_python_shows_them() {
        let table = [
            ("2026-01-02", "2026-01-02", "datetime.date(2026, 1, 2)"),
            (
                "2026-1-2 3:04:05.25 -5:30",
                "2026-01-02 03:04:05.250000-05:30",
                "datetime.datetime(2026, 1, 2, 3, 4, 5, 250000, \
                 tzinfo=datetime.timezone(datetime.timedelta(days=-1, seconds=66600)))",
            ),
        ];
        for (text, shown, repr) in table {
            let Read::Moment(moment) = Moment::read(text) else {
                panic!("{text} is a moment");
            };
            assert_eq!(
                (moment.to_string().as_str(), moment.to_repr().as_str()),
                (shown, repr)
            );
        }
        assert_eq!(Moment::read("2026-02-30"), Read::Impossible);
        assert_eq!(Moment::read("2026-1-2"), Read::Other);
    }
}
