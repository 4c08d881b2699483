//! Numbers, and what is written with a unit.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairtrial_document::fault::short;
use fairtrial_document::value::Value;
use fairtrial_exec::{parse_duration, parse_size};

use super::Field;

/// Nothing is waited for longer; beyond it sums of times would overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// What cannot be held is too long in any case.
fn seconds_of(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

impl Field<'_, '_> {
    /// A whole number; `u64::MAX` and `u32::MAX` are as good as no end.
    pub(in crate::spec) fn whole(self, range: RangeInclusive<u64>) -> Option<u64> {
        let Value::Int(int) = self.certain()? else {
            return self.wrong_type("a whole number", "");
        };
        let found = u64::try_from(&int).ok().filter(|int| range.contains(int));
        if found.is_none() {
            let (least, most) = range.into_inner();
            let expected = match most {
                most if most == least => most.to_string(),
                u64::MAX if int >= least.into() => format!("at most {most}"),
                u64::MAX => format!("at least {least}"),
                most if most == u64::from(u32::MAX) && int < least.into() => {
                    format!("at least {least}")
                }
                _ => format!("from {least} to {most}"),
            };
            return self.out_of_range(&expected, &int.to_string());
        }
        found
    }

    /// As [`Self::whole`], for what 32 bits hold.
    pub(in crate::spec) fn count(self, range: RangeInclusive<u32>) -> Option<u32> {
        let (least, most) = range.into_inner();
        let whole = self.whole(least.into()..=most.into())?;
        Some(u32::try_from(whole).expect("the range ends within 32 bits"))
    }

    /// A number that `fits`, as `expected` says in words.
    pub(in crate::spec) fn number(self, fits: fn(f64) -> bool, expected: &str) -> Option<f64> {
        let Some(number) = self.float()? else {
            return self.wrong_type("a number", "");
        };
        self.fitting(number, fits, expected)
    }

    /// `3%` or `0.03`.
    pub(in crate::spec) fn share(self, fits: fn(f64) -> bool, expected: &str) -> Option<f64> {
        const HINT: &str = "as in `3%` or `0.03`";
        let number = match self.node.as_text().map(str::trim) {
            Some(text) => {
                let percent = text
                    .strip_suffix('%')
                    .map(|text| format!("{}e-2", text.trim()));
                let number = percent.as_deref().unwrap_or(text).parse::<f64>();
                match number {
                    Ok(number) => number,
                    Err(_) => return self.refuse("share", "is no share", HINT),
                }
            }
            None => match self.float()? {
                Some(number) => number,
                None => return self.wrong_type("a share", HINT),
            },
        };
        self.fitting(number, fits, expected)
    }

    /// Seconds, or a text such as `5m`.
    pub(in crate::spec) fn duration(self) -> Option<Duration> {
        const HINT: &str = "as in `30s` or `5m`";
        let parsed = match (self.node.as_text(), self.certain()?.as_number()) {
            (Some(text), _) => parse_duration(text),
            (None, Some(seconds)) if seconds > 0.0 => Ok(seconds_of(seconds)),
            (None, Some(_)) => return self.refuse("range", "must be greater than 0", HINT),
            (None, None) => return self.wrong_type("a time", HINT),
        };
        match parsed {
            Ok(time) if time.is_zero() => self.refuse("range", "must be greater than 0", HINT),
            Ok(time) if time <= LONGEST => Some(time),
            Ok(_too_long) => self.refuse("range", "must be no more than a year", HINT),
            Err(problem) => self.object("duration", &problem),
        }
    }

    /// Bytes, or a text such as `512M`.
    pub(in crate::spec) fn size(self) -> Option<u64> {
        const HINT: &str = "as in `512M` or `2G`";
        match self.node.as_text() {
            Some(text) => match parse_size(text) {
                Ok(size) => Some(size),
                Err(problem) => self.object("size", &problem),
            },
            None if matches!(self.certain()?, Value::Int(_)) => self.whole(1..=u64::MAX),
            None => self.wrong_type("a size", HINT),
        }
    }

    /// The value, unless versions of YAML read different numbers: `010`, `1:30`.
    fn certain(&self) -> Option<Value> {
        let value = self.node.to_value();
        let Some(doubt) = &self.node.doubt else {
            return Some(value);
        };
        if value.as_number().is_none() {
            return Some(value);
        }
        let (written, read) = (short(&doubt.text), value.to_repr());
        let message = format!("`{}`: `{written}` is {read} in YAML 1.1 only", self.name);
        let hint = format!("write {read}, or what was meant");
        self.fault("doubt", message, hint);
        None
    }

    /// A number, if it is one; `1e-3`, which YAML 1.1 calls a text, included.
    fn float(&self) -> Option<Option<f64>> {
        let newer = self.node.doubt.as_ref().map(|doubt| &doubt.newer);
        match newer {
            Some(Value::Float(float)) if self.node.as_text().is_some() => Some(Some(*float)),
            _ => Some(self.certain()?.as_number()),
        }
    }

    fn fitting(&self, number: f64, fits: fn(f64) -> bool, expected: &str) -> Option<f64> {
        match fits(number) {
            true => Some(number),
            false => self.out_of_range(expected, &Value::Float(number).to_repr()),
        }
    }

    fn out_of_range<T>(&self, expected: &str, found: &str) -> Option<T> {
        let why = format!("must be {expected}, not {}", short(found));
        self.refuse("range", &why, "")
    }
}
