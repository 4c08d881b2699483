//! Whether the bindings of a study lead anywhere: files, functions, programs, interpreters. Looks, but starts nothing.

mod python_names;

use std::collections::BTreeSet;
use std::path::Path;

use crate::binding::{Binding, EntryPoint};
use crate::design::Design;
use crate::fault::{Fault, Findings, Invalid, Place, short, suggestion};
use crate::plan::Plan;
use crate::program::{is_path, matching};
use crate::study::Study;

use python_names::{Names, ReadError, names_of};

impl Plan<'_> {
    /// The plan of a study all of whose programs are there; with all that is wrong with either, and all that is odd.
    pub fn resolved(study: Study) -> Result<Plan<'static>, Invalid> {
        let (odd, planned) = match study.resolve_bindings() {
            Ok(odd) => (odd, Plan::own(study, None)),
            Err(mut invalid) => {
                let planned = match study.calls_rules() {
                    true => Design::unjudged(&study).map(drop),
                    false => Plan::own(study, None).map(drop),
                };
                let later = planned.err().into_iter();
                invalid
                    .faults
                    .extend(later.flat_map(|invalid| invalid.faults));
                invalid.faults.sort_by(|a, b| a.place.cmp(&b.place));
                return Err(invalid);
            }
        };
        let mut plan = planned?;
        plan.warnings.extend(odd);
        plan.warnings.sort_by(|a, b| a.place.cmp(&b.place));
        Ok(plan)
    }
}

impl Study {
    /// Looks up every binding and format; an error names all that lead nowhere. Tells what is odd.
    pub fn resolve_bindings(&self) -> Result<Vec<Fault>, Invalid> {
        let mut findings = Findings::default();
        for binding in self.all_bindings() {
            self.look_up(binding, &mut findings);
            self.look_for(&binding.terms.files, &binding.place, &mut findings);
        }
        self.look_for_variables(&mut findings);
        for (_, packet) in self.bindings.problems.iter().flatten() {
            self.look_for(&packet.files, &packet.place, &mut findings);
        }
        let absent = self
            .export
            .iter()
            .filter(|(format, _)| !format.is_built_in());
        for (format, place) in absent {
            let message = format!("`{format}` is not built into this fairtrial");
            let hint = format!("build it with `--features {format}`, or leave the format out");
            findings.fault(place, "not_built_in", message, hint);
        }
        findings.settle()
    }

    /// Whether constraints are functions, which a worker calls.
    fn calls_rules(&self) -> bool {
        let mut constraints = self.constraints.iter();
        constraints.any(|constraint| constraint.callable_ref.is_some())
    }

    fn all_bindings(&self) -> impl Iterator<Item = &Binding> {
        let bound = &self.bindings;
        let agents = bound.agents.iter().flatten().map(|(_, binding)| binding);
        let problems = bound.problems.iter().flatten();
        let own = problems.filter_map(|(_, packet)| packet.evaluator.as_ref());
        agents
            .chain(own)
            .chain(&bound.evaluator)
            .chain(&bound.runner)
    }

    fn look_up(&self, binding: &Binding, findings: &mut Findings) {
        let place = &binding.place;
        match &binding.entry {
            EntryPoint::Python { file, function } => {
                let path = self.resolve(file);
                match std::fs::read_to_string(&path) {
                    Ok(source) => look_in(&source, file, function, binding, findings),
                    Err(error) => {
                        let error = error.to_string();
                        let why = error.split(" (os error").next().unwrap_or(&error);
                        let message = format!("cannot read `{}`: {why}", short(file));
                        let hint = "paths are relative to the study file";
                        findings.fault(place, "binding_file", message, hint);
                    }
                }
            }
            EntryPoint::Source { source, function } => {
                look_in(source, "source", function, binding, findings);
            }
            EntryPoint::Host(_) => {}
            EntryPoint::Command(argv) => {
                if !self.is_program(&argv[0]) {
                    let message = format!("`{}` is no program that can be run", short(&argv[0]));
                    let hint =
                        "name an executable file relative to the study file, or a program in PATH";
                    findings.fault(place, "binding_command", message, hint);
                }
                let named = argv.iter().enumerate().skip(1);
                let named = named.filter(|(index, text)| is_path(*index, text));
                for (_, text) in named.filter(|(_, text)| !self.resolve(text).exists()) {
                    let message = format!("there is no `{}` beside the study file", short(text));
                    let hint = "what begins with `./` is looked for there";
                    findings.fault(place, "binding_command", message, hint);
                }
            }
        }
        if let Some(interpreter) = &binding.terms.interpreter
            && !self.is_program(interpreter)
        {
            let message = format!("there is no interpreter `{}`", short(interpreter));
            findings.fault(
                place,
                "binding_interpreter",
                message,
                "name one that is there",
            );
        }
    }

    /// Variables that are passed and are not set here: where agents run the study, theirs count. One in `defaults` is
    /// named by many bindings.
    fn look_for_variables(&self, findings: &mut Findings) {
        let named = self.all_bindings().flat_map(|binding| {
            let terms = &binding.terms;
            let own = |name: &String| terms.env.iter().any(|(set, _)| set == name);
            let names = terms.pass_env.iter().filter(move |name| !own(name));
            names.map(|name| (&terms.pass_env_place, name))
        });
        for (place, name) in named.collect::<BTreeSet<_>>() {
            let is_set = std::env::vars_os().any(|(set, _)| set == name.as_str());
            if !is_set {
                let message = format!("`pass_env` names `{}`, which is not set here", short(name));
                let hint = "set it where the study is run: here, or for its agents";
                findings.warn(place, "unset_variable", message, hint);
            }
        }
    }

    /// What `files` name belongs to the identity of runs: a slip of the pen would leave it out without a word.
    fn look_for(&self, globs: &[String], place: &Place, findings: &mut Findings) {
        for glob in globs {
            let found = matching(glob, &self.directory).map(|mut found| found.next());
            match found {
                Ok(Some(Ok(_))) => {}
                Ok(None) => {
                    let message = format!("`files` names `{}`, and there is none", short(glob));
                    let hint = "patterns are relative to the study file";
                    findings.warn(place, "no_files", message, hint);
                }
                Ok(Some(Err((path, error)))) | Err((path, error)) => {
                    let path = path.display().to_string();
                    let message = format!("`files`: `{}`: {error}", short(&path));
                    findings.fault(place, "files", message, "");
                }
            }
        }
    }

    /// A name with a slash is a path, others are searched in PATH.
    fn is_program(&self, name: &str) -> bool {
        if name.contains('/') {
            return is_executable(&self.resolve(name));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| is_executable(&directory.join(name)))
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let facts = std::fs::metadata(path);
    facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

fn look_in(source: &str, file: &str, function: &str, binding: &Binding, findings: &mut Findings) {
    let place = &binding.place;
    match names_of(source) {
        Ok(Names { known, has_star }) => {
            if !has_star && !known.contains(function) {
                let message = format!(
                    "`{}` binds no `{}` at module level",
                    short(file),
                    short(function)
                );
                let hint = suggestion(function, known.iter().map(String::as_str));
                findings.fault(place, "binding_function", message, hint);
            }
        }
        Err(ReadError { line, what }) => {
            let message = format!("`{}` is not Python: line {line}: {what}", short(file));
            findings.fault(place, "binding_file", message, "");
        }
    }
}
