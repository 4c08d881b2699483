//! The JSON of a call, as one line of `batch` holds it: every fault has a place and a hint. Starts nothing.
//!
//! A key whose value is `null` counts as not given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairtrial_exec::value::{self, FromJsonError};
use fairtrial_exec::{
    Call, CommandWork, InvalidCall, Level, Limits, PythonTerms, SourceWork, Work, seconds,
};
use serde_json::{Value as Json, json};

use crate::json::{Entry, Fault, Raw};

/// Keys of every call.
const COMMON_KEYS: [&str; 9] = [
    "id",
    "env",
    "cwd",
    "timeout_s",
    "queue_timeout_s",
    "term_grace_s",
    "limits",
    "sandbox",
    "capture_bytes",
];
/// Keys of a function in source text.
const PYTHON_KEYS: [&str; 10] = [
    "source",
    "file",
    "function",
    "args",
    "kwargs",
    "python",
    "python_path",
    "isolation",
    "preload",
    "result",
];
/// Keys of a command.
const COMMAND_KEYS: [&str; 2] = ["argv", "stdin"];
const LIMIT_KEYS: [&str; 6] = [
    "memory_bytes",
    "cpu_s",
    "processes",
    "open_files",
    "file_bytes",
    "output_bytes",
];

/// Reads lines into calls. Relative paths are those of `base`.
#[derive(Debug)]
pub(crate) struct CallReader {
    base: PathBuf,
    sandbox: Level,
    /// The file read last: batches often name one file on every line.
    last_file: Option<(PathBuf, String)>,
}

impl CallReader {
    /// `sandbox` is the level of calls that do not say.
    pub(crate) fn new(base: PathBuf, sandbox: Level) -> Self {
        Self {
            base,
            sandbox,
            last_file: None,
        }
    }

    /// The id of a line (its number, if it gives none or none can be read) and its call.
    pub(crate) fn read(&mut self, text: &str, line: u64) -> (Json, Result<Call, Fault>) {
        let mut object = Object::new("");
        let parsed = object.parse(Raw::whole(text)).map_err(|fault| {
            let message = format!("{} (a line is one JSON object)", fault.message);
            Fault::new(fault.at, message)
        });
        let id = object.get("id").map(Field::id);
        let call = parsed
            .and_then(|()| id.clone().transpose())
            .and_then(|_| self.call(&object));
        let id = id.and_then(Result::ok).unwrap_or_else(|| json!(line));
        (id, call)
    }

    fn call(&mut self, object: &Object<'_>) -> Result<Call, Fault> {
        object.check_keys(&[&COMMON_KEYS[..], &PYTHON_KEYS, &COMMAND_KEYS])?;
        let work = if let Some(argv) = object.get("argv") {
            object.refuse(&PYTHON_KEYS, "does not go with `argv`")?;
            command(object, argv)?
        } else {
            object.refuse(&COMMAND_KEYS, "goes with `argv` only")?;
            self.source(object)?
        };
        let mut call = Call::new(work);
        call.sandbox = self.sandbox;
        self.set_terms(&mut call, object)?;
        call.validate()
            .map_err(|invalid| Fault::new(object.locate(&invalid.field), invalid.to_string()))?;
        Ok(call)
    }

    fn source(&mut self, object: &Object<'_>) -> Result<Work, Fault> {
        let (source, filename) = match (object.get("source"), object.get("file")) {
            (Some(source), None) => (source.string()?, "<source>".to_owned()),
            (None, Some(file)) => (self.read_file(file)?, file.string()?),
            (Some(source), Some(file)) => {
                let at = source.raw.at.max(file.raw.at);
                let message = "both `source` and `file` (give one of them)";
                return Err(Fault::new(at, message));
            }
            (None, None) => {
                let message = "nothing to run (give `source` or `file`, or `argv`)";
                return Err(Fault::new(object.at, message));
            }
        };
        let Some(function) = object.get("function") else {
            let message = "`function` is missing (name the function to call)";
            return Err(Fault::new(object.at, message));
        };
        Ok(Work::Source(SourceWork {
            source,
            filename,
            function: function.string()?,
            arguments: arguments(object)?,
            python: self.python(object)?,
        }))
    }

    fn read_file(&mut self, file: Field<'_>) -> Result<String, Fault> {
        let path = self.base.join(file.string()?);
        if self
            .last_file
            .as_ref()
            .is_none_or(|(last, _)| *last != path)
        {
            let text = read_source(&path).map_err(|problem| file.fault(problem))?;
            self.last_file = Some((path, text));
        }
        let (_, text) = self.last_file.as_ref().expect("set just above");
        Ok(text.clone())
    }

    fn python(&self, object: &Object<'_>) -> Result<PythonTerms, Fault> {
        let mut terms = PythonTerms::default();
        if let Some(python) = object.get("python") {
            terms.python = resolve_python(&self.base, python.string()?);
        }
        if let Some(path) = object.get("python_path") {
            let entries = path.strings()?;
            terms.python_path = entries.iter().map(|entry| self.base.join(entry)).collect();
        }
        if let Some(preload) = object.get("preload") {
            terms.preload = preload.strings()?;
        }
        if let Some(isolation) = object.get("isolation") {
            terms.isolation = isolation.named()?;
        }
        if let Some(result) = object.get("result") {
            terms.result = result.named()?;
        }
        Ok(terms)
    }

    fn set_terms(&self, call: &mut Call, object: &Object<'_>) -> Result<(), Fault> {
        if let Some(env) = object.get("env") {
            call.env = env.variables()?;
        }
        if let Some(cwd) = object.get("cwd") {
            call.cwd = Some(self.base.join(cwd.string()?));
        }
        call.timeout = object.seconds("timeout_s")?;
        call.queue_timeout = object.seconds("queue_timeout_s")?;
        if let Some(grace) = object.get("term_grace_s") {
            call.term_grace = grace.seconds_or_zero()?;
        }
        if let Some(given) = object.get("limits") {
            call.limits = limits(given)?;
        }
        if let Some(level) = object.get("sandbox") {
            call.sandbox = level
                .string()?
                .parse()
                .map_err(|problem: String| level.fault(problem))?;
        }
        if let Some(bytes) = object.get("capture_bytes") {
            call.capture_bytes = bytes.count_or_zero()?;
        }
        Ok(())
    }
}

/// The text of a source file, or why there is none.
pub(crate) fn read_source(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("cannot read `{shown}`: it is not UTF-8 text"))
}

/// An interpreter with a `/` is a path of `base`; one without is searched in `PATH`.
pub(crate) fn resolve_python(base: &Path, python: String) -> String {
    if python.contains('/') {
        base.join(python).to_string_lossy().into_owned()
    } else {
        python
    }
}

fn command(object: &Object<'_>, argv: Field<'_>) -> Result<Work, Fault> {
    let stdin = object.get("stdin").map(Field::string).transpose()?;
    Ok(Work::Command(CommandWork {
        argv: argv.strings()?,
        stdin: stdin.map(String::into_bytes).unwrap_or_default(),
    }))
}

fn arguments(object: &Object<'_>) -> Result<Vec<u8>, Fault> {
    let args = object.get("args").map(|args| args.expect('[', "an array"));
    let args = args.transpose()?.unwrap_or(Raw::whole("[]"));
    let kwargs = object
        .get("kwargs")
        .map(|kwargs| kwargs.expect('{', "an object"));
    let kwargs = kwargs.transpose()?.unwrap_or(Raw::whole("{}"));
    value::arguments_from_json(&args.value()?, &kwargs.value()?).map_err(|error| {
        let at = if is_of_kwargs(&error) {
            kwargs.at
        } else {
            args.at
        };
        Fault::new(at, error.to_string())
    })
}

/// Whether it is the keyword arguments that are no data.
pub(crate) fn is_of_kwargs(error: &FromJsonError) -> bool {
    error.path.starts_with(".kwargs")
}

fn limits(given: Field<'_>) -> Result<Limits, Fault> {
    let mut object = Object::new("limits");
    object.parse(given.expect('{', "an object")?)?;
    object.check_keys(&[&LIMIT_KEYS])?;
    Ok(Limits {
        memory_bytes: object.count("limits.memory_bytes")?,
        cpu: object.seconds("limits.cpu_s")?,
        processes: object.count("limits.processes")?,
        open_files: object.count("limits.open_files")?,
        file_bytes: object.count("limits.file_bytes")?,
        output_bytes: object
            .count("limits.output_bytes")?
            .or(Limits::default().output_bytes),
    })
}

/// An object with known keys.
struct Object<'a> {
    /// Empty for the call itself.
    name: &'static str,
    at: usize,
    entries: Vec<Entry<'a>>,
}

impl<'a> Object<'a> {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            at: 0,
            entries: Vec::new(),
        }
    }

    fn parse(&mut self, raw: Raw<'a>) -> Result<(), Fault> {
        self.at = raw.at + (raw.text.len() - raw.text.trim_start().len());
        if !raw.text.trim_start().starts_with('{') {
            let message = format!("expected an object, not {}", raw.kind());
            // What is no JSON at all says so itself.
            raw.value()?;
            return Err(Fault::new(self.at, message));
        }
        raw.entries(&mut self.entries)
    }

    /// The field, unless it is absent or null. `name` is as users write it, with the object's name before a dot.
    fn get(&self, name: &'static str) -> Option<Field<'a>> {
        let key = name.rsplit_once('.').map_or(name, |(_, key)| key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        let raw = entry.value;
        (!raw.is_null()).then_some(Field { name, raw })
    }

    /// Refuses unknown keys with the nearest known one, and duplicates.
    fn check_keys(&self, known: &[&[&str]]) -> Result<(), Fault> {
        let place = match self.name {
            "" => String::new(),
            name => format!(" in `{name}`"),
        };
        let is_known = |key: &str| known.iter().any(|keys| keys.contains(&key));
        for (index, entry) in self.entries.iter().enumerate() {
            let key = &entry.key;
            if !is_known(key) {
                let (key, hint) = (short(key), hint(key, known));
                let message = format!("unknown key `{key}`{place} ({hint})");
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
    fn refuse(&self, keys: &[&'static str], why: &str) -> Result<(), Fault> {
        let given = |key: &str| !self.value_is_null(key);
        match self
            .entries
            .iter()
            .find(|entry| keys.contains(&&*entry.key) && given(&entry.key))
        {
            Some(entry) => Err(Fault::new(
                entry.key_at,
                format!("`{}` {why} (remove it)", entry.key),
            )),
            None => Ok(()),
        }
    }

    fn value_is_null(&self, key: &str) -> bool {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        entry.is_none_or(|entry| entry.value.is_null())
    }

    fn seconds(&self, name: &'static str) -> Result<Option<Duration>, Fault> {
        self.get(name).map(Field::seconds).transpose()
    }

    fn count(&self, name: &'static str) -> Result<Option<u64>, Fault> {
        self.get(name).map(Field::count).transpose()
    }

    /// Where the field of an [`InvalidCall`] stands.
    fn locate(&self, field: &str) -> usize {
        let key = field.split('.').next().unwrap_or(field);
        let entry = self.entries.iter().find(|entry| entry.key == key);
        entry.map_or(self.at, |entry| entry.value.at)
    }
}

/// A value with the name users know it by.
#[derive(Clone, Copy)]
struct Field<'a> {
    name: &'static str,
    raw: Raw<'a>,
}

impl<'a> Field<'a> {
    fn fault(self, problem: impl Into<String>) -> Fault {
        let invalid = InvalidCall::new(self.name, problem);
        Fault::new(self.raw.at, invalid.to_string())
    }

    /// The value, if it begins as one of the wanted kind does.
    fn expect(self, first: char, wanted: &str) -> Result<Raw<'a>, Fault> {
        if self.raw.text.starts_with(first) {
            return Ok(self.raw);
        }
        Err(self.fault(format!("must be {wanted}, not {}", self.raw.kind())))
    }

    fn id(self) -> Result<Json, Fault> {
        match self.raw.value()? {
            id if id.is_string() || id.is_i64() || id.is_u64() => Ok(id),
            _ => Err(self.fault("must be a string or an integer of at most 64 bits")),
        }
    }

    fn string(self) -> Result<String, Fault> {
        self.expect('"', "a string")?.parse()
    }

    /// One of a few names.
    fn named<T: std::str::FromStr<Err = InvalidCall>>(self) -> Result<T, Fault> {
        self.string()?
            .parse()
            .map_err(|invalid: InvalidCall| self.fault(invalid.problem))
    }

    fn strings(self) -> Result<Vec<String>, Fault> {
        let items = self.expect('[', "an array of strings")?.items()?;
        let string = |raw| {
            let item = Field { raw, ..self };
            item.expect('"', "an array of strings")
                .map_err(|_| item.fault(format!("must hold strings only, not {}", raw.kind())))?
                .parse()
        };
        items.into_iter().map(string).collect()
    }

    fn variables(self) -> Result<BTreeMap<String, Option<String>>, Fault> {
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
            let value = entry.value.parse()?;
            if variables.insert(entry.key.to_string(), value).is_some() {
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

    fn seconds(self) -> Result<Duration, Fault> {
        seconds(self.name, self.number()?).map_err(|invalid| self.fault(invalid.problem))
    }

    fn seconds_or_zero(self) -> Result<Duration, Fault> {
        match self.number()? {
            0.0 => Ok(Duration::ZERO),
            _ => self.seconds(),
        }
    }

    fn count(self) -> Result<u64, Fault> {
        match self.count_or_zero()? {
            0 => Err(self.fault("must be greater than 0")),
            count => Ok(count),
        }
    }

    fn count_or_zero(self) -> Result<u64, Fault> {
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

/// Enough of a key to know it by, however long it is.
fn short(key: &str) -> String {
    const LONGEST: usize = 60;
    match key.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &key[..end]),
        None => key.into(),
    }
}

/// The nearest key, or all of them.
fn hint(key: &str, known: &[&[&str]]) -> String {
    let known = || known.iter().flat_map(|keys| keys.iter());
    let key = short(key);
    let nearest = known()
        .map(|candidate| (strsim::jaro_winkler(&key, candidate), candidate))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, candidate)) if likeness > 0.8 => format!("did you mean `{candidate}`?"),
        _ => {
            let keys: Vec<_> = known().map(|key| format!("`{key}`")).collect();
            format!("the keys are {}", keys.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_exec::{Isolation, ResultFormat};

    fn read(text: &str) -> (Json, Result<Call, Fault>) {
        CallReader::new("/base".into(), Level::None).read(text, 9)
    }

    fn fault_of(text: &str) -> String {
        let fault = read(text).1.expect_err(text);
        let (_, column) = fault.place(text);
        format!("{column}: {}", fault.message)
    }

    /// EX-102
    #[test]
    fn each_fault_has_its_column_and_a_hint() {
        let table = [
            (
                r#"{"argv": ["true"], "timeout_s": 1"#,
                "33: EOF while parsing an object (a line is one JSON object)",
            ),
            (
                r#"{"argv" ["true"]}"#,
                "9: expected `:` (a line is one JSON object)",
            ),
            (
                r#"{"argv": ["true"]} x"#,
                "20: trailing characters (a line is one JSON object)",
            ),
            (
                "[1]",
                "1: expected an object, not an array (a line is one JSON object)",
            ),
            ("nope", "1: expected value (a line is one JSON object)"),
            (
                r#"{"argv": ["true"], "timeout": 1}"#,
                "20: unknown key `timeout` (did you mean `timeout_s`?)",
            ),
            (
                r#"{"argv": ["true"], "limits": {"memory": 1}}"#,
                "31: unknown key `memory` in `limits` (did you mean `memory_bytes`?)",
            ),
            (
                r#"{"argv": ["true"], "limits": {"zzz": 1}}"#,
                "31: unknown key `zzz` in `limits` (the keys are `memory_bytes`, `cpu_s`, `processes`, `open_files`, \
                 `file_bytes`, `output_bytes`)",
            ),
            (
                r#"{"argv": ["true"], "argv": ["false"]}"#,
                "20: duplicate key `argv` (give it once)",
            ),
            (
                r#"{"argv": ["true"], "env": {"A": "1", "A": "2"}}"#,
                "38: duplicate key `A` in `env` (give it once)",
            ),
            (
                r#"{"source": "", "function": "f", "kwargs": {"a": 1, "a": 2}}"#,
                "52: duplicate key `a` (give it once)",
            ),
            (
                "{}",
                "1: nothing to run (give `source` or `file`, or `argv`)",
            ),
            (
                r#"{"source": "", "file": "a.py", "function": "f"}"#,
                "24: both `source` and `file` (give one of them)",
            ),
            (
                r#"{"source": ""}"#,
                "1: `function` is missing (name the function to call)",
            ),
            (
                r#"{"source": "", "function": ""}"#,
                "28: `function`: is empty; name the function to call",
            ),
            (
                r#"{"argv": ["true"], "preload": ["numpy"]}"#,
                "20: `preload` does not go with `argv` (remove it)",
            ),
            (
                r#"{"source": "", "function": "f", "stdin": ""}"#,
                "33: `stdin` goes with `argv` only (remove it)",
            ),
            (r#"{"argv": []}"#, "10: `argv`: names no program"),
            (
                r#"{"argv": "true"}"#,
                "10: `argv`: must be an array of strings, not a string",
            ),
            (
                r#"{"argv": ["true", 1]}"#,
                "19: `argv`: must hold strings only, not a number",
            ),
            (
                r#"{"argv": ["true"], "timeout_s": "5s"}"#,
                "33: `timeout_s`: must be a number of seconds, not a string",
            ),
            (
                r#"{"argv": ["true"], "timeout_s": -1}"#,
                "33: `timeout_s`: must be a positive number of seconds, not -1",
            ),
            (
                r#"{"argv": ["true"], "queue_timeout_s": 0}"#,
                "39: `queue_timeout_s`: must be a positive number of seconds, not 0",
            ),
            (
                r#"{"argv": ["true"], "timeout_s": 1e999}"#,
                "37: number out of range",
            ),
            (
                r#"{"argv": ["true"], "timeout_s": NaN}"#,
                "33: expected value (a line is one JSON object)",
            ),
            (
                r#"{"argv": ["true"], "limits": {"memory_bytes": -5}}"#,
                "47: `limits.memory_bytes`: must not be negative, as -5 is",
            ),
            (
                r#"{"argv": ["true"], "limits": {"processes": 0}}"#,
                "44: `limits.processes`: must be greater than 0",
            ),
            (
                r#"{"argv": ["true"], "limits": {"open_files": 1.5}}"#,
                "45: `limits.open_files`: must be a whole number, not 1.5",
            ),
            (
                r#"{"argv": ["true"], "limits": {"file_bytes": 99999999999999999999}}"#,
                "45: `limits.file_bytes`: 99999999999999999999 is out of range",
            ),
            (
                r#"{"argv": ["true"], "limits": []}"#,
                "30: `limits`: must be an object, not an array",
            ),
            (
                r#"{"argv": ["true"], "env": {"A": 1}}"#,
                "33: `env.A`: must be a string, or null to unset it, not a number",
            ),
            (
                r#"{"argv": ["true"], "env": {"A=B": "x"}}"#,
                "27: `env.A=B`: a variable's name is not empty and has no `=` or NUL",
            ),
            (
                r#"{"argv": ["true"], "sandbox": "strict"}"#,
                "31: `sandbox`: level `strict` is not available in this version; use `none`",
            ),
            (
                r#"{"argv": ["true"], "sandbox": "jail"}"#,
                "31: `sandbox`: unknown level `jail`; the levels are `none`, `limits` and `strict`",
            ),
            (
                r#"{"source": "", "function": "f", "isolation": "new"}"#,
                "46: `isolation`: `new` is neither `fresh` nor `reuse`",
            ),
            (
                r#"{"source": "", "function": "f", "args": {}}"#,
                "41: `args`: must be an array, not an object",
            ),
            (
                r#"{"source": "", "function": "f", "args": [], "kwargs": {"a": [{"$bytes": 3}]}}"#,
                "55: `$.kwargs.a[0].$bytes`: expected base64 text",
            ),
            (
                r#"{"source": "", "function": "f", "kwargs": 3}"#,
                "43: `kwargs`: must be an object, not a number",
            ),
            (
                r#"{"file": "missing.py", "function": "f"}"#,
                "10: `file`: cannot read `/base/missing.py`: No such file or directory (os error 2)",
            ),
            (
                r#"{"é": 1, "id": 1.5}"#,
                "16: `id`: must be a string or an integer of at most 64 bits",
            ),
        ];
        for (line, fault) in table {
            assert_eq!(fault_of(line), fault, "{line}");
        }
    }

    /// EX-99
    #[test]
    fn the_id_is_echoed_wherever_it_can_be_read_and_else_is_the_line() {
        assert_eq!(read(r#"{"id": "a", "argv": ["true"]}"#).0, json!("a"));
        assert_eq!(read(r#"{"id": -3, "argv": 1}"#).0, json!(-3));
        assert_eq!(read(r#"{"id": 7, "argv": ["tr"#).0, json!(7));
        assert_eq!(read(r#"{"argv": ["true"]}"#).0, json!(9));
        assert_eq!(read(r#"{"id": [1], "argv": ["true"]}"#).0, json!(9));
        assert_eq!(read("x").0, json!(9));
    }

    /// EX-99
    #[test]
    fn every_key_reaches_the_call_and_relative_paths_are_those_of_the_base() {
        let line = r#"{"source": "def f(): pass", "function": "f", "args": [1], "kwargs": {"k": 2},
            "python": "bin/python", "python_path": ["lib", "/abs"], "env": {"A": "1", "B": null}, "cwd": "w",
            "timeout_s": 1.5, "queue_timeout_s": 2, "term_grace_s": 0, "sandbox": "none", "isolation": "reuse",
            "preload": ["math"], "result": "pickle", "capture_bytes": 0,
            "limits": {"memory_bytes": 1, "cpu_s": 0.5, "processes": 2, "open_files": 3, "file_bytes": 4,
                       "output_bytes": 5}}"#;
        let mut wanted = Call::source(
            "def f(): pass",
            "f",
            value::arguments_from_json(&json!([1]), &json!({"k": 2})).unwrap(),
        );
        wanted.env = BTreeMap::from([("A".into(), Some("1".into())), ("B".into(), None)]);
        wanted.cwd = Some("/base/w".into());
        wanted.timeout = Some(Duration::from_millis(1500));
        wanted.queue_timeout = Some(Duration::from_secs(2));
        wanted.capture_bytes = 0;
        wanted.limits = Limits {
            memory_bytes: Some(1),
            cpu: Some(Duration::from_millis(500)),
            processes: Some(2),
            open_files: Some(3),
            file_bytes: Some(4),
            output_bytes: Some(5),
        };
        *wanted.python_mut().unwrap() = PythonTerms {
            python: "/base/bin/python".into(),
            python_path: vec!["/base/lib".into(), "/abs".into()],
            preload: vec!["math".into()],
            isolation: Isolation::Reuse,
            result: ResultFormat::Pickle,
        };
        assert_eq!(read(line).1, Ok(wanted));
    }

    #[test]
    fn a_null_counts_as_not_given() {
        let line = r#"{"id": null, "argv": ["cat"], "stdin": "x", "timeout_s": null, "preload": null, "limits": null}"#;
        let (id, call) = read(line);
        let mut wanted = Call::command(["cat"]);
        wanted.work = Work::Command(CommandWork {
            argv: vec!["cat".into()],
            stdin: b"x".to_vec(),
        });
        assert_eq!((id, call), (json!(9), Ok(wanted)));
    }
}
