//! `search.proposer`: a process or a service; or only the terms of a function that whoever calls gives.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::field::Field;
use super::reader::Record;
use super::search::{CommandProposer, Proposer};
use super::units::seconds;
use crate::search::{HttpSettings, PROPOSER_RESTARTS, PROPOSER_TIMEOUT};

const KEYS: &[&str] = &[
    "command",
    "restarts",
    "base_url",
    "model",
    "api_key_env",
    "retries",
    "max_tokens",
    "temperature",
    "timeout",
];
/// Those of a process, and those of a service; `timeout` is of both, and of a function.
const OF_COMMAND: [&str; 2] = ["command", "restarts"];
const OF_HTTP: [&str; 6] = [
    "base_url",
    "model",
    "api_key_env",
    "retries",
    "max_tokens",
    "temperature",
];

impl Proposer {
    pub(super) fn read(field: &Field<'_, '_>) -> Option<Self> {
        let record = field.record(KEYS);
        let has = |keys: &[&'static str]| keys.iter().any(|key| record.field(key).is_some());
        match (has(&OF_COMMAND), has(&OF_HTTP)) {
            (true, false) => command(&record).map(Self::Command),
            (false, true) => http(&record).map(Self::Http),
            (true, true) => {
                let message = "a proposer is a `command` or a `base_url`, not both";
                let keys = [OF_COMMAND.as_slice(), &OF_HTTP].concat();
                record.contradiction(&keys, message, "keep the keys of one");
                None
            }
            (false, false) if record.field("timeout").is_some() => Some(Self::Function {
                timeout: timeout(&record),
            }),
            (false, false) => {
                let hint = "give a `command`, or `base_url` and `model`";
                record.missing_any("`proposer` names nobody to ask", hint);
                None
            }
        }
    }

    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Command(proposer) => json!({
                "command": proposer.command.to_json(),
                "timeout": seconds(proposer.timeout),
                "restarts": proposer.restarts,
            }),
            Self::Http(proposer) => json!({
                "base_url": proposer.base_url,
                "model": proposer.model,
                "api_key_env": proposer.api_key_env,
                "timeout": seconds(proposer.timeout),
                "retries": proposer.retries,
                "max_tokens": proposer.max_tokens,
                "temperature": proposer.temperature,
            }),
            Self::Function { timeout } => json!({"timeout": seconds(*timeout)}),
        }
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> Duration {
        match self {
            Self::Command(program) => program.timeout,
            Self::Http(server) => server.timeout,
            Self::Function { timeout } => *timeout,
        }
    }
}

fn timeout(record: &Record<'_, '_>) -> Duration {
    record
        .read("timeout", Field::duration)
        .unwrap_or(PROPOSER_TIMEOUT)
}

fn command(record: &Record<'_, '_>) -> Option<CommandProposer> {
    Some(CommandProposer {
        timeout: timeout(record),
        restarts: record
            .read("restarts", |field| field.count(0..=1000))
            .unwrap_or(PROPOSER_RESTARTS),
        command: record.require("command", Field::command)?,
    })
}

fn http(record: &Record<'_, '_>) -> Option<HttpSettings> {
    let is_temperature = |number: f64| (0.0..=2.0).contains(&number);
    let base_url = record.require("base_url", base_url);
    let model = record.require("model", |field| field.line());
    let api_key_env = record.read("api_key_env", variable);
    let timeout = timeout(record);
    let retries = record.read("retries", |field| field.count(0..=100));
    let max_tokens = record.read("max_tokens", |field| field.count(1..=u32::MAX));
    let temperature = record.read("temperature", |field| {
        field.number(is_temperature, "from 0 to 2")
    });
    // All keys are read by now, so every fault is found.
    let usual = HttpSettings::new(base_url?, model?);
    Some(HttpSettings {
        api_key_env: api_key_env.unwrap_or(usual.api_key_env),
        timeout,
        retries: retries.unwrap_or(usual.retries),
        max_tokens: max_tokens.map(u64::from),
        temperature,
        ..usual
    })
}

/// Never shown: passwords travel in addresses, too.
fn base_url(field: Field<'_, '_>) -> Option<String> {
    const HINT: &str = "as in `https://api.openai.com/v1`";
    let url = field.line()?;
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest.filter(|rest| !url.contains(char::is_whitespace) && !rest.is_empty())
    else {
        return field.refuse(
            "url",
            "must be an address that begins with `https://` or `http://`",
            HINT,
        );
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return field.refuse("url", "names no host", HINT);
    }
    if authority.contains('@') {
        let hint = "name the variable that holds the key: `api_key_env: NAME`";
        return field.refuse("secret", "must not hold a name or a password", hint);
    }
    if rest.contains(['?', '#']) {
        return field.refuse("url", "must end before any `?` or `#`", HINT);
    }
    Some(url)
}

/// The name of a variable; what is none may be the key itself, and is not shown.
fn variable(field: Field<'_, '_>) -> Option<String> {
    let name = field.text()?;
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if is_name && !is_random(&name) {
        return Some(name);
    }
    let hint = "the key itself stays out of the file, as in `api_key_env: OPENAI_API_KEY`";
    field.refuse("secret", "must be the name of a variable", hint)
}

/// Long, with many digits or with letters of both sizes between them: nobody names a variable so.
fn is_random(name: &str) -> bool {
    let count = |test: fn(&u8) -> bool| name.bytes().filter(test).count();
    let digits = count(u8::is_ascii_digit);
    let is_mixed = count(u8::is_ascii_uppercase) > 0 && count(u8::is_ascii_lowercase) > 0;
    name.len() >= 20 && (digits >= 6 || (digits > 0 && is_mixed))
}
