//! A sandbox as the command line and `FAIRTRIAL_SANDBOX` write it: `LEVEL[,KEY=VALUE]...`.

use std::path::PathBuf;
use std::str::FromStr;

use super::{MAX_CPUS, SANDBOX_KEYS, Sandbox};
use crate::call::InvalidCall;
use crate::hint::unknown_key;
use crate::limits::parse_size;

impl FromStr for Sandbox {
    type Err = String;

    /// A list is given by repeating its key. What the level makes of the options is for [`Sandbox::validate`] to say.
    fn from_str(text: &str) -> Result<Self, String> {
        let (level, options) = match text.split_once(',') {
            Some((level, options)) => (level, Some(options)),
            None => (text, None),
        };
        let mut sandbox = Self::new(level.trim().parse().map_err(problem)?);
        let mut scalars = Vec::new();
        for option in options.into_iter().flat_map(|options| options.split(',')) {
            let Some((key, value)) = option.split_once('=') else {
                return Err(format!(
                    "`{option}` is not KEY=VALUE; write for example `{level},on_missing=fail`"
                ));
            };
            let key = key.trim();
            if scalars.contains(&key) {
                return Err(format!("`{key}`: is given twice; give it once"));
            }
            if !["read", "write", "devices", "cpus"].contains(&key) {
                scalars.push(key);
            }
            sandbox.set(key, value.trim())?;
        }
        Ok(sandbox)
    }
}

impl Sandbox {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let set = match key {
            "on_missing" => value
                .parse()
                .map(|it| self.on_missing = it)
                .map_err(problem),
            "network" => value.parse().map(|it| self.network = it).map_err(problem),
            "read" => path(value).map(|it| self.read.push(it)),
            "write" => path(value).map(|it| self.write.push(it)),
            "scratch_bytes" => liftable(value, parse_size).map(|it| self.scratch_bytes = it),
            "scratch_inodes" => liftable(value, count).map(|it| self.scratch_inodes = it),
            "address_space" => liftable(value, parse_size).map(|it| self.address_space = it),
            "devices" => {
                self.devices.push(value.into());
                Ok(())
            }
            "cpus" => cpus(value).map(|it| self.cpus.get_or_insert_default().extend(it)),
            _ => return Err(unknown_key(key, "", SANDBOX_KEYS.into_iter().skip(1))),
        };
        set.map_err(|problem| format!("`{key}`: {problem}"))
    }
}

fn problem(invalid: InvalidCall) -> String {
    invalid.problem
}

fn path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("names no path; write for example `read=/data`".into()),
        path => Ok(path.into()),
    }
}

/// A quota, or `none`.
fn liftable(text: &str, read: fn(&str) -> Result<u64, String>) -> Result<Option<u64>, String> {
    match text {
        "none" => Ok(None),
        text => read(text).map(Some),
    }
}

fn count(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("`{text}` is not a whole number greater than 0"))
}

/// A processor's number, or a range of them: `3`, `0-7`.
fn cpus(text: &str) -> Result<impl Iterator<Item = usize>, String> {
    let number = |text: &str| text.trim().parse().ok().filter(|cpu| *cpu < MAX_CPUS);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "`{text}` is no processor; write for example `cpus=0` or `cpus=0-3`"
        )),
    }
}
