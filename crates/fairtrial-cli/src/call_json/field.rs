//! One value of a call, read as what it must be; what it is not says so, by name and place.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use fairtrial_exec::{InvalidCall, parse_size, seconds};
use serde_json::Value as Json;

use crate::json::{Fault, Raw};

/// A value with the name users know it by.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) name: &'static str,
    pub(super) raw: Raw<'a>,
}

impl<'a> Field<'a> {
    pub(super) fn fault(self, problem: impl Into<String>) -> Fault {
        let invalid = InvalidCall::new(self.name, problem);
        Fault::new(self.raw.at, invalid.to_string())
    }

    /// The value, if it begins as one of the wanted kind does.
    pub(super) fn expect(self, first: char, wanted: &str) -> Result<Raw<'a>, Fault> {
        if self.raw.text.starts_with(first) {
            return Ok(self.raw);
        }
        Err(self.fault(format!("must be {wanted}, not {}", self.raw.kind())))
    }

    pub(super) fn id(self) -> Result<Json, Fault> {
        match self.raw.value()? {
            id if id.is_string() || id.is_i64() || id.is_u64() => Ok(id),
            _ => Err(self.fault("must be a string or an integer of at most 64 bits")),
        }
    }

    pub(super) fn string(self) -> Result<String, Fault> {
        self.expect('"', "a string")?.parse()
    }

    /// One of a few names.
    pub(super) fn named<T: std::str::FromStr<Err = InvalidCall>>(self) -> Result<T, Fault> {
        self.string()?
            .parse()
            .map_err(|invalid: InvalidCall| self.fault(invalid.problem))
    }

    pub(super) fn strings(self) -> Result<Vec<String>, Fault> {
        let items = self.expect('[', "an array of strings")?.items()?;
        let string = |raw| {
            let item = Field { raw, ..self };
            item.expect('"', "an array of strings")
                .map_err(|_| item.fault(format!("must hold strings only, not {}", raw.kind())))?
                .parse()
        };
        items.into_iter().map(string).collect()
    }

    pub(super) fn variables(self) -> Result<BTreeMap<OsString, Option<OsString>>, Fault> {
        let mut entries = Vec::new();
        self.expect('{', "an object of strings")?
            .entries(&mut entries)?;
        let mut variables = BTreeMap::new();
        for entry in entries {
            let kind = entry.value.kind();
            if !matches!(kind, "a string" | "null") {
                let name = format!("env.{}", entry.key);
                let invalid = InvalidCall::new(
                    name,
                    format!("must be a string, or null to unset it, not {kind}"),
                );
                return Err(Fault::new(entry.value.at, invalid.to_string()));
            }
            let value: Option<String> = entry.value.parse()?;
            let name = entry.key.to_string().into();
            if variables.insert(name, value.map(OsString::from)).is_some() {
                let message = format!("duplicate key `{}` in `env` (give it once)", entry.key);
                return Err(Fault::new(entry.key_at, message));
            }
        }
        Ok(variables)
    }

    fn number(self) -> Result<f64, Fault> {
        match self.raw.kind() {
            "a number" => self.raw.parse(),
            kind => Err(self.fault(format!("must be a number of seconds, not {kind}"))),
        }
    }

    pub(super) fn seconds(self) -> Result<Duration, Fault> {
        seconds(self.name, self.number()?).map_err(|invalid| self.fault(invalid.problem))
    }

    pub(super) fn seconds_or_zero(self) -> Result<Duration, Fault> {
        match self.number()? {
            0.0 => Ok(Duration::ZERO),
            _ => self.seconds(),
        }
    }

    pub(super) fn count(self) -> Result<u64, Fault> {
        match self.count_or_zero()? {
            0 => Err(self.fault("must be greater than 0")),
            count => Ok(count),
        }
    }

    /// A number of bytes, or text such as `512M`.
    pub(super) fn size(self) -> Result<u64, Fault> {
        match self.raw.kind() {
            "a string" => parse_size(&self.string()?).map_err(|problem| self.fault(problem)),
            _ => self.count(),
        }
    }

    /// Numbers that begin at 0.
    pub(super) fn indices(self) -> Result<Vec<usize>, Fault> {
        let items = self.expect('[', "an array of whole numbers")?.items()?;
        let index = |raw: Raw<'a>| {
            let item = Field { raw, ..self };
            let index = item.count_or_zero()?;
            usize::try_from(index).map_err(|_| item.fault(format!("{index} is out of range")))
        };
        items.into_iter().map(index).collect()
    }

    pub(super) fn count_or_zero(self) -> Result<u64, Fault> {
        let text = self.raw.text;
        text.parse().map_err(|_| {
            self.fault(match self.raw.kind() {
                "a number" if text.starts_with('-') => {
                    format!("must not be negative, as {text} is")
                }
                "a number" if text.bytes().all(|b| b.is_ascii_digit()) => {
                    format!("{text} is out of range")
                }
                "a number" => format!("must be a whole number, not {text}"),
                kind => format!("must be a whole number, not {kind}"),
            })
        })
    }
}
