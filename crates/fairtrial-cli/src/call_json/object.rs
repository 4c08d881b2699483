//! A JSON object with known keys: which are given, where, and which are not known.

use std::time::Duration;

use fairtrial_exec::unknown_key;

use super::field::Field;
use crate::json::{Entry, Fault, Raw};

/// An object with known keys.
pub(super) struct Object<'a> {
    /// Empty for the call itself.
    name: &'static str,
    /// Where it stands in the line.
    pub(super) at: usize,
    entries: Vec<Entry<'a>>,
}

impl<'a> Object<'a> {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            at: 0,
            entries: Vec::new(),
        }
    }

    pub(super) fn parse(&mut self, raw: Raw<'a>) -> Result<(), Fault> {
        self.at = raw.at + (raw.text.len() - raw.text.trim_start().len());
        if !raw.text.trim_start().starts_with('{') {
            let message = format!("expected an object, not {}", raw.kind());
            // What is no JSON at all says so itself.
            raw.value()?;
            return Err(Fault::new(self.at, message));
        }
        raw.entries(&mut self.entries)
    }

    /// Reads `other`, the word that flags and files have for it, as `name`.
    pub(super) fn read_as(&mut self, other: &str, name: &'static str) -> Result<(), Fault> {
        let is_given = self.entry(name).is_some();
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == other) else {
            return Ok(());
        };
        if is_given {
            let message = format!("`{name}` and `{other}` say the same (give one of them)");
            return Err(Fault::new(entry.key_at, message));
        }
        entry.key = name.into();
        Ok(())
    }

    /// The field, unless it is absent or null. `name` is as users write it, with the object's name before a dot.
    pub(super) fn get(&self, name: &'static str) -> Option<Field<'a>> {
        let raw = self.entry(name)?.value;
        (!raw.is_null()).then_some(Field { name, raw })
    }

    fn entry(&self, name: &str) -> Option<&Entry<'a>> {
        let key = name.rsplit_once('.').map_or(name, |(_, key)| key);
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Refuses unknown keys with the nearest known one, and duplicates.
    pub(super) fn check_keys(&self, known: &[&[&str]]) -> Result<(), Fault> {
        let place = match self.name {
            "" => String::new(),
            name => format!(" in `{name}`"),
        };
        let is_known = |key: &str| known.iter().any(|keys| keys.contains(&key));
        for (index, entry) in self.entries.iter().enumerate() {
            let key = &entry.key;
            if !is_known(key) {
                let message = unknown_key(key, &place, known.concat());
                return Err(Fault::new(entry.key_at, message));
            }
            if self.entries[..index]
                .iter()
                .any(|before| before.key == *key)
            {
                let message = format!("duplicate key `{key}`{place} (give it once)");
                return Err(Fault::new(entry.key_at, message));
            }
        }
        Ok(())
    }

    /// Refuses each of `keys` that is given.
    pub(super) fn refuse(&self, keys: &[&'static str], why: &str) -> Result<(), Fault> {
        let refused = |entry: &&Entry<'_>| keys.contains(&&*entry.key) && !entry.value.is_null();
        match self.entries.iter().find(refused) {
            Some(entry) => {
                let message = format!("`{}` {why} (remove it)", entry.key);
                Err(Fault::new(entry.key_at, message))
            }
            None => Ok(()),
        }
    }

    pub(super) fn seconds(&self, name: &'static str) -> Result<Option<Duration>, Fault> {
        self.get(name).map(Field::seconds).transpose()
    }

    /// A limit as `read` reads it, none if it is null, which lifts it, or nothing if it is absent.
    pub(super) fn liftable<T>(
        &self,
        name: &'static str,
        read: fn(Field<'a>) -> Result<T, Fault>,
    ) -> Result<Option<Option<T>>, Fault> {
        match (self.entry(name), self.get(name)) {
            (_, Some(field)) => Ok(Some(Some(read(field)?))),
            (Some(_null), None) => Ok(Some(None)),
            (None, None) => Ok(None),
        }
    }

    /// Where the field that an invalid call names stands.
    pub(super) fn locate(&self, field: &str) -> usize {
        let inner = field.strip_prefix(self.name).unwrap_or(field);
        let key = inner.trim_start_matches('.').split('.').next();
        let key = key.unwrap_or(inner);
        let entry = self.entries.iter().find(|entry| entry.key == key);
        entry.map_or(self.at, |entry| entry.value.at)
    }
}
