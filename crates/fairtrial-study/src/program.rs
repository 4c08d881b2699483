//! A binding made ready to run: its files read, its environment put together, its content hashed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::value::{Value as Data, encode};
use fairtrial_exec::{
    Call, CommandWork, DEFAULT_LEVEL, Isolation, Level, PickledWork, PythonTerms, ResultFormat,
    Sandbox, SourceWork, Time, Work,
};

use num_bigint::BigInt;

use crate::binding::{Binding, Contract, EntryPoint};
use crate::canonical::{canonical_json, sha256_hex};
use crate::fault::{Fault, fault};
use crate::files::{file_sha256, read_file};
use crate::host::HostFunction;
use crate::pickle;
use crate::value::Value;

/// Python text whose `__fairtrial_dre__` calls a function, or one that it finds by name, as DRE calls it: appended to
/// files.
pub const DRE_CALLER: &str = include_str!("contract/dre.py");
const DRE_FUNCTION: &str = "__fairtrial_dre__";
/// In the number of a pickle's buffers: its function comes before it (see the worker protocol).
const FUNCTION_BY_VALUE: u64 = 1 << 63;

/// A binding, ready to run.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) binding: Binding,
    /// Of Python: its text and what tracebacks call it.
    source: Option<(Arc<str>, String)>,
    python_path: Vec<PathBuf>,
    directory: PathBuf,
    /// What it is (ST-65): kind, entry, content, environment.
    pub(crate) content: Value,
    /// On which terms, as far as they can change a result.
    pub(crate) terms: Value,
}

impl Program {
    /// Reads what the binding names. `directory` is the study file's.
    pub(crate) fn load(binding: &Binding, directory: &Path) -> Result<Self, Fault> {
        // Calls run elsewhere.
        let here = std::env::current_dir().unwrap_or_default();
        let directory = &here.join(directory);
        let unreadable = |path: &Path, error: std::io::Error| {
            let message = format!("cannot read `{}`: {error}", path.display());
            fault(&binding.place, "file", message, "")
        };
        let mut python_path: Vec<_> = binding
            .terms
            .python_path
            .iter()
            .map(|path| directory.join(path))
            .collect();
        let source = match &binding.entry {
            EntryPoint::Python { file, .. } => {
                let path = directory.join(file);
                let text = read_file(&path).map_err(|error| unreadable(&path, error))?;
                let text = String::from_utf8(text)
                    .map_err(|error| unreadable(&path, std::io::Error::other(error)))?;
                // As for a script: what lies beside it can be imported.
                python_path.extend(path.parent().map(Path::to_owned));
                Some((Arc::from(text), path.display().to_string()))
            }
            EntryPoint::Source { source, .. } => {
                Some((Arc::from(source.as_str()), "<source>".to_owned()))
            }
            EntryPoint::Command(_) | EntryPoint::Host(_) => None,
        };
        let mut globs = binding.terms.files.clone();
        if let EntryPoint::Command(argv) = &binding.entry {
            // A script that an interpreter is given is as much the program as the interpreter.
            let named = argv.iter().enumerate();
            let named = named.filter(|(place, text)| is_path(*place, text));
            globs.extend(named.map(|(_, text)| glob::Pattern::escape(text)));
        }
        let files =
            hashed_files(&globs, directory).map_err(|(path, error)| unreadable(&path, error))?;
        let content = content(binding, source.as_ref().map(|(text, _)| &**text), files);
        Ok(Self {
            terms: terms(binding),
            binding: binding.clone(),
            source,
            python_path,
            directory: directory.to_owned(),
            content,
        })
    }

    /// How its function is called.
    pub(crate) fn contract(&self) -> Contract {
        match self.binding.entry {
            EntryPoint::Command(_) => Contract::Run,
            _ => self.binding.terms.contract,
        }
    }

    /// A call with one plain value: the run, or what is to be evaluated. `seed` is the run's.
    pub(crate) fn call(&self, argument: &Value, seed: u64) -> Call {
        let work = match &self.source {
            None if let EntryPoint::Host(function) = &self.binding.entry => {
                self.host_work(function, [argument])
            }
            None => Work::Command(CommandWork {
                argv: self.argv(),
                stdin: [canonical_json(argument).as_bytes(), b"\n"].concat(),
            }),
            Some((text, filename)) => Work::Source(SourceWork {
                source: text.to_string(),
                filename: filename.clone(),
                function: self.function().to_owned(),
                arguments: arguments(vec![to_data(argument)]).into(),
                python: self.python(),
            }),
        };
        self.on_terms(work, seed)
    }

    /// A call of a function that expects DRE's objects (SF-45), or its evaluator.
    pub(crate) fn dre_call(&self, parts: [&Value; 3], evaluates: bool, seed: u64) -> Call {
        if let EntryPoint::Host(function) = &self.binding.entry {
            let [packet, condition, run] = parts;
            let evaluates = Value::Bool(evaluates);
            let work = self.host_work(function, [packet, condition, run, &evaluates]);
            return self.on_terms(work, seed);
        }
        let (text, filename) = match &self.source {
            Some((text, filename)) => (&**text, filename.clone()),
            None => ("", String::new()),
        };
        let mut arguments_of_it = vec![Data::Str(self.function().to_owned())];
        arguments_of_it.extend(parts.map(to_data));
        arguments_of_it.push(Data::Bool(evaluates));
        let work = Work::Source(SourceWork {
            source: format!("{text}{DRE_CALLER}"),
            filename,
            function: DRE_FUNCTION.into(),
            arguments: arguments(arguments_of_it).into(),
            python: self.python(),
        });
        self.on_terms(work, seed)
    }

    /// A call of the host's function; one that is called as DRE calls it is wrapped in what does so.
    fn host_work<'v>(
        &self,
        function: &HostFunction,
        arguments: impl IntoIterator<Item = &'v Value>,
    ) -> Work {
        let arguments = pickle::arguments(arguments);
        let numbers = [
            arguments.len() as u64,
            FUNCTION_BY_VALUE,
            function.pickle.len() as u64,
        ];
        let head = numbers.map(u64::to_le_bytes).concat();
        let body = [&head, &*function.pickle, &arguments].concat();
        Work::Pickled(PickledWork {
            body: body.into(),
            python: self.python(),
        })
    }

    fn on_terms(&self, work: Work, seed: u64) -> Call {
        let terms = &self.binding.terms;
        let mut call = Call::new(work);
        let env = terms.env.iter();
        call.env = env
            .map(|(name, value)| (name.into(), Some(value.into())))
            .collect();
        call.pass_env = terms.pass_env.iter().map(OsString::from).collect();
        if matches!(self.binding.entry, EntryPoint::Host(_)) {
            // As files' functions have it of the engine (ST-38); a host's other calls hash as their host does.
            let seed = call.env.entry("PYTHONHASHSEED".into());
            seed.or_insert_with(|| Some("0".into()));
        }
        call.env
            .insert("FAIRTRIAL_SEED".into(), Some(seed.to_string().into()));
        call.timeout = terms.timeout;
        call.time = terms.time;
        call.queue_timeout = terms.queue_timeout;
        call.limits = terms.limits.clone();
        let usual = || Sandbox::from_env().ok().flatten();
        if let Some(sandbox) = terms.sandbox.clone().or_else(usual) {
            call.sandbox = sandbox;
            call.sandbox.resolve(&self.directory);
        }
        call
    }

    fn function(&self) -> &str {
        match &self.binding.entry {
            EntryPoint::Python { function, .. } | EntryPoint::Source { function, .. } => function,
            EntryPoint::Command(_) | EntryPoint::Host(_) => "",
        }
    }

    /// What is written as a path is beside the study file (ST-5): a program with a `/`, an argument that begins with
    /// `./` or `../`. The call itself runs in a directory of its own.
    fn argv(&self) -> Vec<OsString> {
        let EntryPoint::Command(argv) = &self.binding.entry else {
            return Vec::new();
        };
        let resolved = argv
            .iter()
            .enumerate()
            .map(|(place, text)| match is_path(place, text) {
                true => self.directory.join(text).into_os_string(),
                false => text.into(),
            });
        resolved.collect()
    }

    /// A path is beside the study file; a name is searched for.
    fn interpreter(&self) -> String {
        match &self.binding.terms.interpreter {
            None => PythonTerms::default().python,
            Some(name) if name.contains('/') => self.directory.join(name).display().to_string(),
            Some(name) => name.clone(),
        }
    }

    fn python(&self) -> PythonTerms {
        let terms = &self.binding.terms;
        if let EntryPoint::Host(function) = &self.binding.entry {
            return self.host_python(&function.python);
        }
        PythonTerms {
            python: self.interpreter(),
            python_path: self.python_path.clone(),
            preload: terms.preload.clone(),
            preload_shared: terms.preload_shared.clone(),
            isolation: terms.isolation,
            result: ResultFormat::Data,
            host: None,
        }
    }
}

impl Program {
    /// The host's interpreter, on the binding's terms.
    fn host_python(&self, of_host: &PythonTerms) -> PythonTerms {
        let terms = &self.binding.terms;
        let mut python = of_host.clone();
        python.python_path.extend(self.python_path.iter().cloned());
        python.preload.extend(terms.preload.iter().cloned());
        python.preload_shared = terms.preload_shared.clone();
        python.isolation = terms.isolation;
        python.result = ResultFormat::Data;
        let level = terms.sandbox.as_ref().map_or(DEFAULT_LEVEL, |s| s.level);
        if level != Level::None
            && let Some(host) = &mut python.host
        {
            // Who is not trusted with the machine is not trusted with the host's connections.
            Arc::make_mut(host).authkey = None;
        }
        python
    }
}

/// Whether a word of a command is a path beside the study file.
pub(crate) fn is_path(place: usize, text: &str) -> bool {
    text.starts_with("./") || text.starts_with("../") || (place == 0 && text.contains('/'))
}

/// Positional arguments as the worker protocol wants them.
fn arguments(arguments: Vec<Data>) -> Vec<u8> {
    encode(&Data::Tuple(vec![
        Data::Tuple(arguments),
        Data::Dict(Vec::new()),
    ]))
}

/// A plain value as a worker gets it.
pub(crate) fn to_data(value: &Value) -> Data {
    match value {
        Value::Null => Data::None,
        Value::Bool(truth) => Data::Bool(*truth),
        Value::Int(int) => match i64::try_from(int) {
            Ok(int) => Data::Int(int),
            Err(_) => Data::BigInt(int.to_signed_bytes_le()),
        },
        Value::Float(float) => Data::Float(*float),
        Value::Text(text) => Data::Str(text.clone()),
        Value::Moment(moment) => Data::Str(moment.to_string()),
        Value::List(items) => Data::List(items.iter().map(to_data).collect()),
        Value::Map(entries) => Data::Dict(
            entries
                .iter()
                .map(|(key, value)| (to_data(key), to_data(value)))
                .collect(),
        ),
    }
}

/// The files that globs name, with their hashes, in order; each once.
pub(crate) fn hashed_files(globs: &[String], directory: &Path) -> Result<Value, Unreadable> {
    let mut found = BTreeMap::new();
    for pattern in globs {
        for path in matching(pattern, directory)? {
            let path = path?;
            let hash = file_sha256(&path).map_err(|error| (path.clone(), error))?;
            let name = path.strip_prefix(directory).unwrap_or(&path);
            let hash = hash.unwrap_or_default(); // gone since it was found
            found.insert(name.display().to_string(), Value::Text(hash));
        }
    }
    Ok(Value::map(found))
}

/// The files that a glob names, from a directory.
pub(crate) fn matching(
    pattern: &str,
    directory: &Path,
) -> Result<impl Iterator<Item = Result<PathBuf, Unreadable>>, Unreadable> {
    let place = glob::Pattern::escape(&directory.display().to_string());
    let paths = glob::glob(&format!("{place}/{pattern}")).map_err(|error| {
        let at = error.pos.saturating_sub(place.chars().count() + 1);
        let problem = format!("it is no pattern: at {at}: {}", error.msg);
        (PathBuf::from(pattern), std::io::Error::other(problem))
    })?;
    let paths = paths.map(|path| path.map_err(|error| (error.path().to_owned(), error.into())));
    Ok(paths.filter(|path| path.as_ref().map_or(true, |path| path.is_file())))
}

/// What could not be read, and why.
pub(crate) type Unreadable = (PathBuf, std::io::Error);

fn content(binding: &Binding, source: Option<&str>, files: Value) -> Value {
    let terms = &binding.terms;
    let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::Text);
    let (kind, entry) = match &binding.entry {
        EntryPoint::Python { file, function } => ("python", Value::texts([file, function])),
        EntryPoint::Source { function, .. } => ("source", Value::text(function)),
        EntryPoint::Command(argv) => ("command", Value::texts(argv)),
        EntryPoint::Host(function) => ("host", Value::text(&function.name)),
    };
    let source = match &binding.entry {
        EntryPoint::Host(function) => text(&function.content_sha256),
        _ => source.map_or(Value::Null, |text| Value::Text(sha256_hex(text.as_bytes()))),
    };
    let contract = match terms.contract {
        Contract::Run => "run",
        Contract::Dre => "dre",
    };
    Value::map([
        ("kind", Value::text(kind)),
        ("entry", entry),
        ("source", source),
        ("files", files),
        (
            "env",
            Value::map(
                terms
                    .env
                    .iter()
                    .map(|(name, value)| (name.clone(), Value::text(value))),
            ),
        ),
        ("interpreter", text(&terms.interpreter)),
        ("contract", Value::text(contract)),
        ("version", text(&terms.version)),
    ])
}

fn terms(binding: &Binding) -> Value {
    let terms = &binding.terms;
    let limits = &terms.limits;
    let seconds =
        |time: Option<Duration>| time.map_or(Value::Null, |time| Value::Float(time.as_secs_f64()));
    let count = |count: Option<u64>| count.map_or(Value::Null, |n| Value::Int(BigInt::from(n)));
    let sandbox = match &terms.sandbox {
        None => DEFAULT_LEVEL.to_string(),
        Some(sandbox) if *sandbox == Sandbox::new(sandbox.level) => sandbox.level.to_string(),
        Some(sandbox) => format!("{sandbox:?}"),
    };
    let isolation = match terms.isolation {
        Isolation::Fresh => "fresh",
        Isolation::Reuse => "reuse",
    };
    let wall = [
        ("timeout", seconds(terms.timeout)),
        ("memory", count(limits.memory_bytes)),
        ("cpu", seconds(limits.cpu)),
        ("processes", count(limits.processes)),
        ("open_files", count(limits.open_files)),
        ("file_size", count(limits.file_bytes)),
        ("output", count(limits.output_bytes)),
        ("sandbox", Value::Text(sandbox)),
        ("isolation", Value::text(isolation)),
    ];
    // Runs of studies that count wall time are the same as before there was a choice.
    let cpu = (terms.time == Time::Cpu).then(|| ("time", Value::text("cpu")));
    Value::map(wall.into_iter().chain(cpu))
}
