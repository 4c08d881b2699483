//! The call that flags describe, checked as far as it can be before anything starts.

use std::path::Path;

use fairtrial_exec::{
    Call, CommandWork, InvalidCall, PythonTerms, Resource, Sandbox, SourceWork, Time, Work, value,
};
use serde_json::Value as Json;

use crate::args::{Cap, ExecArgs, PythonArgs};
use crate::call_json::{is_of_kwargs, read_source, resolve_python};
use crate::engine;
use crate::failure::{Failure, reason};
use crate::json::{Fault, Raw};

/// The call; relative paths are those of `base`.
pub(super) fn from_args(args: &ExecArgs, base: &Path) -> Result<Call, Failure> {
    let mut call = Call::new(if args.argv.is_empty() {
        source_work(args, base)?
    } else {
        command_work(args)?
    });
    set_terms(&mut call, args, base)?;
    call.validate().map_err(|invalid| usage(&invalid))?;
    Ok(call)
}

fn source_work(args: &ExecArgs, base: &Path) -> Result<Work, Failure> {
    let Some(file) = &args.file else {
        let message = "fairtrial: nothing to run (give FILE.py, or a command after `--`)";
        return Err(Failure::Usage(message.into()));
    };
    let place = file.display().to_string();
    let source = read_source(file).map_err(|problem| {
        let what = format!("cannot read it: {problem} (give the path of a Python file)");
        Failure::usage(&place, what)
    })?;
    let python = &args.python;
    let Some(function) = &python.function else {
        return Err(Failure::usage(
            "--function",
            "is missing (name the function to call; a script: `exec --cwd . -- python3 FILE.py`)",
        ));
    };
    Ok(Work::Source(SourceWork {
        source,
        filename: place,
        function: function.clone(),
        arguments: arguments(python)?.into(),
        python: python_terms(python, base),
    }))
}

fn python_terms(python: &PythonArgs, base: &Path) -> PythonTerms {
    let default = PythonTerms::default();
    let interpreter = python.python.clone().unwrap_or(default.python.clone());
    PythonTerms {
        python: resolve_python(base, interpreter),
        python_path: python
            .python_path
            .iter()
            .map(|dir| base.join(dir))
            .collect(),
        preload: python.preload.clone(),
        preload_shared: python.preload_shared.clone(),
        ..default
    }
}

fn arguments(python: &PythonArgs) -> Result<Vec<u8>, Failure> {
    if python.args.as_deref() == Some("@-") && python.kwargs.as_deref() == Some("@-") {
        let problem = "`@-` is given for both `--args` and `--kwargs` (standard input is one JSON text; use a file)";
        return Err(Failure::Usage(format!("--kwargs: {problem}")));
    }
    let args = JsonOption::read("--args", python.args.as_deref(), "[]")?;
    let args = args.value("[]", "an array")?;
    let kwargs = JsonOption::read("--kwargs", python.kwargs.as_deref(), "{}")?;
    let kwargs = kwargs.value("{}", "an object")?;
    value::arguments_from_json(&args, &kwargs).map_err(|error| {
        let option = if is_of_kwargs(&error) {
            "--kwargs"
        } else {
            "--args"
        };
        Failure::usage(option, error)
    })
}

/// The JSON text of an option, and its place for messages: the option itself, a file or standard input.
struct JsonOption {
    place: String,
    text: String,
}

impl JsonOption {
    /// The text as given, or what `@FILE` or `@-` holds.
    fn read(option: &str, given: Option<&str>, default: &str) -> Result<Self, Failure> {
        let given = given.unwrap_or(default);
        let Some(file) = given.strip_prefix('@') else {
            return Ok(Self {
                place: option.into(),
                text: given.into(),
            });
        };
        let read = match file {
            "-" => std::io::read_to_string(std::io::stdin()),
            file => std::fs::read_to_string(file),
        };
        let place = match file {
            "-" => "<stdin>",
            file => file,
        };
        let text = read.map_err(|error| {
            let hint = "`@FILE` names a file that holds JSON, `@-` is standard input";
            let problem = reason(&error);
            Failure::usage(option, format!("cannot read `{place}`: {problem} ({hint})"))
        })?;
        let text = text
            .strip_prefix('\u{feff}')
            .map(str::to_owned)
            .unwrap_or(text);
        let place = place.to_owned();
        Ok(Self { place, text })
    }

    /// Its value, which is to be of the `wanted` kind.
    fn value(&self, example: &str, wanted: &str) -> Result<Json, Failure> {
        let raw = Raw::whole(&self.text);
        let value = raw.value().map_err(|fault| self.placed(&fault))?;
        if raw.kind() == wanted {
            return Ok(value);
        }
        let message = format!("must be {wanted}, not {} (as in `{example}`)", raw.kind());
        let start = self.text.len() - self.text.trim_start().len();
        Err(self.placed(&Fault::new(start, message)))
    }

    fn placed(&self, fault: &Fault) -> Failure {
        let (line, column) = fault.place(&self.text);
        Failure::usage(&format!("{}:{line}:{column}", self.place), &fault.message)
    }
}

fn command_work(args: &ExecArgs) -> Result<Work, Failure> {
    let python = &args.python;
    let python_only = [
        ("FILE.py", args.file.is_some()),
        ("--function", python.function.is_some()),
        ("--args", python.args.is_some()),
        ("--kwargs", python.kwargs.is_some()),
        ("--interpreter", python.python.is_some()),
        ("--python-path", !python.python_path.is_empty()),
        ("--preload", !python.preload.is_empty()),
        ("--preload-shared", !python.preload_shared.is_empty()),
    ];
    if let Some((name, _)) = python_only.iter().find(|(_, given)| *given) {
        return Err(Failure::usage(
            name,
            "does not go with a command after `--` (remove one of them)",
        ));
    }
    Ok(Work::Command(CommandWork {
        argv: args.argv.iter().map(Into::into).collect(),
        stdin: Vec::new(),
    }))
}

fn set_terms(call: &mut Call, args: &ExecArgs, base: &Path) -> Result<(), Failure> {
    let (terms, limits) = (&args.terms, &args.limits);
    call.timeout = terms.timeout.or(terms.cpu_timeout);
    if terms.cpu_timeout.is_some() {
        call.time = Time::Cpu;
    }
    if let Some(sandbox) = &terms.sandbox {
        call.sandbox = sandbox.clone();
        call.sandbox.resolve(base);
    } else if let Some(sandbox) = engine::default_sandbox()? {
        call.sandbox = sandbox;
    }
    let variables = terms.env.iter().cloned();
    let variables = variables.map(|(name, value)| (name.into(), Some(value.into())));
    call.env = variables.collect();
    call.cwd = terms.cwd.as_ref().map(|dir| base.join(dir));
    call.limits.cpu = limits.cpu.and_then(|cap| cap.0);
    for (resource, cap) in [
        (Resource::Memory, limits.memory),
        (Resource::Processes, limits.processes),
        (Resource::OpenFiles, limits.open_files),
        (Resource::FileSize, limits.file_size),
        (Resource::Output, limits.output),
    ] {
        if let Some(Cap(limit)) = cap {
            call.limits.set(resource, limit);
        }
    }
    let passed_through = matches!(call.work, Work::Command(_)) && !args.json;
    if let Some(bytes) = terms.capture {
        call.capture_bytes = bytes;
    } else if passed_through {
        call.capture_bytes = 0; // all of it goes by, and nobody looks at it again
    }
    Ok(())
}

/// Names the option instead of the field.
fn usage(invalid: &InvalidCall) -> Failure {
    let option = match invalid.field.split('.').next_back().unwrap_or_default() {
        _ if invalid.field.starts_with("env.") => "--env",
        _ if invalid.field.starts_with("sandbox") => {
            return Failure::usage("--sandbox", Sandbox::worded(invalid));
        }
        "timeout_s" => "--timeout",
        "time" => "--cpu-timeout",
        "memory_bytes" => "--memory",
        "cpu_s" => "--cpu",
        "processes" => "--processes",
        "open_files" => "--open-files",
        "file_bytes" => "--file-size",
        "output_bytes" => "--output",
        "cwd" => "--cwd",
        "python" => "--interpreter",
        "preload" => "--preload",
        "preload_shared" => "--preload-shared",
        "function" => "--function",
        "argv" => "ARGV",
        other => return Failure::usage(other, &invalid.problem),
    };
    Failure::usage(option, &invalid.problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use fairtrial_exec::{DEFAULT_LEVEL, Level, OnMissing};
    use serde_json::json;
    use std::time::Duration;

    fn parsed(words: &[&str]) -> Result<Call, String> {
        let words = ["fairtrial", "exec"].iter().chain(words);
        let Command::Exec(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("the command is exec")
        };
        from_args(&args, Path::new("/base")).map_err(|failure| match failure {
            Failure::Usage(line) => line,
            other => panic!("{other:?}"),
        })
    }

    /// EX-97
    #[test]
    fn bad_input_is_one_line_that_names_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.py");
        std::fs::write(&file, "def f(): pass\n").unwrap();
        let file = file.to_str().unwrap();
        let table: [(&[&str], &str); 13] = [
            (
                &[],
                "fairtrial: nothing to run (give FILE.py, or a command after `--`)",
            ),
            (
                &["missing.py", "--function", "f"],
                "missing.py: cannot read it: No such file or directory (give the path of a Python file)",
            ),
            (
                &[file],
                "--function: is missing (name the function to call; a script: `exec --cwd . -- python3 FILE.py`)",
            ),
            (
                &[file, "--function", "f", "--args", "[1, x]"],
                "--args:1:5: expected value",
            ),
            (
                &[file, "--function", "f", "--args", "3"],
                "--args:1:1: must be an array, not a number (as in `[]`)",
            ),
            (
                &[file, "--function", "f", "--kwargs", "[]"],
                "--kwargs:1:1: must be an object, not an array (as in `{}`)",
            ),
            (
                &[
                    file,
                    "--function",
                    "f",
                    "--kwargs",
                    "{\"a\": 1,\n \"a\": 2}",
                ],
                "--kwargs:2:2: duplicate key `a` (give it once)",
            ),
            (
                &[file, "--function", ""],
                "--function: is empty; name the function to call",
            ),
            (
                &["--sandbox", "limits,network=none", "--", "true"],
                "--sandbox: `network`: level `limits` cannot do that; use `confined`, or leave it out",
            ),
            (
                &[
                    "--sandbox",
                    "strict,devices=nvidia,address_space=4G",
                    "--",
                    "true",
                ],
                "--sandbox: `address_space`: does not go with device `nvidia`, whose driver reserves far more than it \
                 uses; leave one of them out",
            ),
            (
                &["--preload", "numpy", "--", "true"],
                "--preload: does not go with a command after `--` (remove one of them)",
            ),
            (
                &[file, "--", "true"],
                "FILE.py: does not go with a command after `--` (remove one of them)",
            ),
            (&["--", ""], "ARGV: names no program"),
        ];
        for (words, message) in table {
            assert_eq!(parsed(words).unwrap_err(), message, "{words:?}");
        }
    }

    /// Python takes a file with a byte order mark, so must we.
    #[test]
    fn a_byte_order_mark_is_no_part_of_the_source() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.py");
        std::fs::write(&file, "\u{feff}def f(): pass\n").unwrap();
        assert_eq!(read_source(&file).unwrap(), "def f(): pass\n");
        std::fs::write(&file, b"# \xe9\n").unwrap();
        let problem = read_source(&file).unwrap_err();
        assert_eq!(problem, "it is not UTF-8 text; save it as UTF-8");
    }

    /// EX-97
    #[test]
    fn every_option_reaches_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.py");
        std::fs::write(&file, "x = 1\n").unwrap();
        let file = file.to_str().unwrap();
        let words = format!(
            "{file} --function f --args [1] --kwargs {{\"k\":2}} --timeout 5s --memory 512M --cpu 2s --processes 3 \
             --open-files 4 --file-size 5K --output 6K --sandbox none --python bin/py --python-path lib \
             --python-path /abs --preload math --preload-shared math --env A=1=2 --cwd w --capture 7"
        );
        let mut wanted = Call::source(
            "x = 1\n",
            "f",
            value::arguments_from_json(&json!([1]), &json!({"k": 2})).unwrap(),
        );
        let Work::Source(work) = &mut wanted.work else {
            panic!("made as source")
        };
        work.filename = file.into();
        work.python.python = "/base/bin/py".into();
        work.python.python_path = vec!["/base/lib".into(), "/abs".into()];
        work.python.preload = vec!["math".into()];
        work.python.preload_shared = vec!["math".into()];
        wanted.timeout = Some(Duration::from_secs(5));
        wanted.limits.memory_bytes = Some(512 << 20);
        wanted.limits.cpu = Some(Duration::from_secs(2));
        wanted.limits.processes = Some(3);
        wanted.limits.open_files = Some(4);
        wanted.limits.file_bytes = Some(5 << 10);
        wanted.limits.output_bytes = Some(6 << 10);
        wanted.env.insert("A".into(), Some("1=2".into()));
        wanted.cwd = Some("/base/w".into());
        wanted.capture_bytes = 7;
        wanted.sandbox = Sandbox::new(Level::None);
        let words: Vec<_> = words.split_whitespace().collect();
        assert_eq!(parsed(&words), Ok(wanted));
    }

    /// SB-14, SB-15
    #[test]
    fn a_sandbox_is_the_calls_own_and_else_the_default() {
        let sandbox = |words: &[&str]| parsed(words).map(|call| call.sandbox);
        assert_eq!(sandbox(&["--", "true"]), Ok(Sandbox::new(DEFAULT_LEVEL)));
        let mut wanted = Sandbox::new(Level::None);
        wanted.on_missing = OnMissing::Fail;
        let words = ["--sandbox", "none,on_missing=fail", "--", "true"];
        assert_eq!(sandbox(&words), Ok(wanted));
    }

    /// SB-16
    #[test]
    fn a_limit_can_be_lifted() {
        let words = "--memory none --cpu none --processes 3 --file-size none --output none -- true";
        let words: Vec<_> = words.split(' ').collect();
        let limits = parsed(&words).unwrap().limits;
        let lifted = [Resource::Memory, Resource::FileSize, Resource::Output];
        assert_eq!(limits.lifted, lifted.into());
        let filled = limits.filled(Level::Limits, 10 << 30, None);
        assert_eq!((filled.memory_bytes, filled.cpu), (None, None));
        assert_eq!((filled.file_bytes, filled.output_bytes), (None, None));
        assert_eq!((filled.processes, filled.open_files), (Some(3), Some(1024)));
    }

    /// EX-98
    #[test]
    fn of_a_command_that_is_passed_through_nothing_is_kept() {
        let capture = |words: &[&str]| parsed(words).unwrap().capture_bytes;
        assert_eq!(capture(&["--", "true"]), 0);
        assert_eq!(
            capture(&["--json", "--", "true"]),
            fairtrial_exec::DEFAULT_CAPTURE_BYTES
        );
        assert_eq!(capture(&["--capture", "9", "--", "true"]), 9);
    }
}
