//! Values that nobody may read in a file, a journal or a report (CA-9).

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt;
use std::sync::Arc;

/// Shorter values are found everywhere, and are no secrets.
const SHORTEST: usize = 8;

/// What stands in a secret's place.
const IN_ITS_PLACE: &str = "[secret]";

/// Names of variables that hold secrets have one of these in them.
const TELLING_NAMES: [&str; 6] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL"];

/// What must not be written down. Shows nothing of itself.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Arc<[String]>);

impl Secrets {
    pub(crate) fn none() -> Self {
        Self::default()
    }

    pub(crate) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut values: Vec<String> = values
            .into_iter()
            .filter(|value| value.len() >= SHORTEST)
            .collect();
        // The longer first: one may be part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values.into())
    }

    /// The values of variables that are named like secrets. A path is none, and may well stand in a patch.
    pub(crate) fn of_environment<'a>(
        variables: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
    ) -> Self {
        let telling = |name: &OsStr| {
            let name = name.to_string_lossy().to_ascii_uppercase();
            TELLING_NAMES.iter().any(|part| name.contains(part))
        };
        let values = variables.filter(|(name, _)| telling(name));
        let texts = values.filter_map(|(_, value)| value.to_str());
        let secrets = texts.filter(|text| !text.starts_with(['/', '.', '~']));
        Self::new(secrets.map(str::to_owned))
    }

    /// The length of the longest.
    pub(crate) fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// The bytes without them; as they are if they are no text.
    pub(crate) fn scrubbed_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        match str::from_utf8(bytes) {
            Ok(text) if self.0.iter().any(|secret| text.contains(secret.as_str())) => {
                self.scrubbed(text).into_bytes().into()
            }
            _ => bytes.into(),
        }
    }

    /// The text without them.
    pub(crate) fn scrubbed(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.0.iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), IN_ITS_PLACE);
            }
        }
        text
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} secrets", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-9
    #[test]
    fn variables_named_like_secrets_are_scrubbed() {
        let variables = [
            ("OPENAI_API_KEY", "sk-abcdefgh"),
            ("HOME", "/home/someone"),
            ("my_token", "short"),
            ("KEYFILE", "/home/someone/keys"),
        ];
        let variables = variables.map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
        let secrets = Secrets::of_environment(variables.into_iter());
        let text = "used sk-abcdefgh in /home/someone, which was short, for /home/someone/keys";
        assert_eq!(
            secrets.scrubbed(text),
            "used [secret] in /home/someone, which was short, for /home/someone/keys"
        );
        assert_eq!(format!("{secrets:?}"), "1 secrets");
    }

    /// CA-9
    #[test]
    fn a_secret_that_holds_another_goes_whole() {
        let secrets = Secrets::new(["abcdefgh".to_owned(), "abcdefgh-ijkl".to_owned()]);
        assert_eq!(
            secrets.scrubbed("abcdefgh-ijkl abcdefgh"),
            "[secret] [secret]"
        );
    }
}
