//! The JSON of a call, as one line of `batch` holds it: every fault has a place and a hint. Starts nothing.
//!
//! A key whose value is `null` counts as not given, but for limits and quotas, which it lifts.

mod field;
mod object;
mod sandbox;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use fairtrial_exec::value::{self, FromJsonError};
use fairtrial_exec::{Call, CommandWork, Limits, PythonTerms, Resource, Sandbox, SourceWork, Work};
use serde_json::{Value as Json, json};

use crate::failure::reason;
use crate::json::{Fault, Raw};
use field::Field;
use object::Object;

/// Keys of every call.
const COMMON_KEYS: [&str; 10] = [
    "id",
    "env",
    "cwd",
    "timeout_s",
    "time",
    "queue_timeout_s",
    "term_grace_s",
    "limits",
    "sandbox",
    "capture_bytes",
];
/// Keys of a function in source text.
const PYTHON_KEYS: [&str; 11] = [
    "source",
    "file",
    "function",
    "args",
    "kwargs",
    "python",
    "python_path",
    "isolation",
    "preload",
    "preload_shared",
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
    /// Of calls that do not say, if not their kind's default.
    sandbox: Option<Sandbox>,
    /// The file read last: batches often name one file on every line.
    last_file: Option<(PathBuf, String)>,
}

impl CallReader {
    /// `sandbox` takes the place of the default for calls that do not say.
    pub(crate) fn new(base: PathBuf, sandbox: Option<Sandbox>) -> Self {
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
            .and_then(|()| object.read_as("interpreter", "python"))
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
            arguments: arguments(object)?.into(),
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
            let text = read_source(&path).map_err(|problem| {
                let shown = path.display();
                let hint = "a relative path starts where the file of calls is";
                file.fault(format!("cannot read `{shown}`: {problem} ({hint})"))
            })?;
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
        if let Some(shared) = object.get("preload_shared") {
            terms.preload_shared = shared.strings()?;
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
            let cwd = self.base.join(cwd.string()?);
            // Where calls see a part of the files only, a way there by `..` may lead through what they do not see.
            call.cwd = Some(cwd.canonicalize().unwrap_or(cwd));
        }
        call.timeout = object.seconds("timeout_s")?;
        if let Some(time) = object.get("time") {
            call.time = time.named()?;
        }
        call.queue_timeout = object.seconds("queue_timeout_s")?;
        if let Some(grace) = object.get("term_grace_s") {
            call.term_grace = grace.seconds_or_zero()?;
        }
        if let Some(given) = object.get("limits") {
            call.limits = limits(given)?;
        }
        if let Some(given) = object.get("sandbox") {
            call.sandbox = sandbox::sandbox(given, &self.base)?;
        } else if let Some(sandbox) = &self.sandbox {
            call.sandbox = sandbox.clone();
        }
        if let Some(bytes) = object.get("capture_bytes") {
            call.capture_bytes = bytes.count_or_zero()?;
        }
        Ok(())
    }
}

/// The text of a source file, or why there is none. A byte order mark is dropped, as by Python.
pub(crate) fn read_source(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| reason(&error))?;
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text; save it as UTF-8")?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
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
        argv: argv.strings()?.into_iter().map(Into::into).collect(),
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
    let mut limits = Limits {
        cpu: object.seconds("limits.cpu_s")?,
        ..Limits::default()
    };
    for resource in Resource::ALL {
        if let Some(limit) = object.liftable(resource.field(), Field::count)? {
            limits.set(resource, limit);
        }
    }
    Ok(limits)
}
