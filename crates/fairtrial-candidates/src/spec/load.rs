//! From a file, a text or what a program gives to a [`Spec`], or to everything that is wrong with it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairtrial_document::fault::{Invalid, short};
use fairtrial_document::file;
use fairtrial_document::node::{self, Node};
use fairtrial_exec::{DEFAULT_LEVEL, Limits, Sandbox};
use serde_json::Value as Json;

use super::field::Field;
use super::reader::{Reader, Record, TOP, invalid, later};
use super::{
    BaseRef, Baseline, Bench, Build, Env, Measure, Places, Profile, Search, Shared, Source, Spec,
    SpecPath, TestCommand, VERSION, Workspace, json_node, secrets, terms,
};
use crate::stage::DEFAULT_PROTECT;

/// All keys, in the order in which they are written down.
pub(super) const KEYS: &[&str] = &[
    "version",
    "repo",
    "base",
    "include",
    "exclude",
    "submodules",
    "shared",
    "candidates",
    "build",
    "tests",
    "baseline",
    "protect",
    "bench",
    "measure",
    "parallel",
    "limits",
    "sandbox",
    "env",
    "workspace",
    "profile",
    "search",
    "output",
];

/// What the results of an evaluation without a file are called.
const NAMELESS: &str = "evaluation";

impl Spec {
    /// Reads and checks an evaluation file.
    ///
    /// # Errors
    /// The file cannot be read, or whatever is wrong with it.
    pub fn load(path: &Path) -> Result<Self, Invalid> {
        let text =
            file::read_text(path, "name an evaluation file").map_err(|f| invalid(vec![f]))?;
        Self::parse(path, &text)
    }

    /// Reads and checks the text of an evaluation file. The path says its format, and what its paths are seen from.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Invalid> {
        let name: Arc<str> = Arc::from(path.display().to_string());
        let root = node::parse(path, &name, text).map_err(|fault| invalid(vec![fault]))?;
        let file = absolute(path);
        let directory = file.parent().unwrap_or(&file).to_owned();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        let output = format!("fairtrial-out/{stem}");
        read(&root, directory, &output, Some(file.clone()))
    }

    /// Reads and checks what a program gives. Its faults show the path of keys; its paths are seen from `directory`.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub fn from_json(json: Json, directory: &Path) -> Result<Self, Invalid> {
        let root = json_node::node_of(json).map_err(|fault| invalid(vec![fault]))?;
        let output = format!("fairtrial-out/{NAMELESS}");
        read(&root, absolute(directory), &output, None)
    }
}

/// Seen from where the process is; without such a place, as it is.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn read(
    root: &Node,
    directory: PathBuf,
    output: &str,
    file: Option<PathBuf>,
) -> Result<Spec, Invalid> {
    let secrets = secrets::secrets(root);
    if !secrets.is_empty() {
        return Err(invalid(secrets));
    }
    let reader = Reader::new(directory.clone());
    reader.repeated_keys(root);
    let top = reader.record(root, TOP, KEYS);
    match top.field("version") {
        Some(field) => drop(version(field)),
        None => top.missing("version", "add `version: 1`"),
    }
    let spec = Spec {
        repo: path_or(&top, "repo", "."),
        base: top
            .read("base", BaseRef::read)
            .unwrap_or(BaseRef::WorkingTree),
        include: top.read("include", Field::globs).unwrap_or_default(),
        exclude: top.read("exclude", Field::globs).unwrap_or_default(),
        submodules: top.read("submodules", Field::flag).unwrap_or(true),
        shared: list(&top, "shared", Shared::read),
        candidates: candidates(&top),
        build: top
            .field_or_none("build")
            .and_then(|field| Build::read(&field)),
        tests: tests(&top),
        baseline: top
            .field("baseline")
            .map(|field| Baseline::read(&field))
            .unwrap_or_default(),
        protect: top
            .read("protect", Field::globs)
            .unwrap_or_else(|| DEFAULT_PROTECT.map(String::from).to_vec()),
        bench: top
            .read("bench", |field| Bench::read(&field))
            .unwrap_or(Bench::None),
        measure: top
            .field("measure")
            .map(|field| Measure::read(&field))
            .unwrap_or_default(),
        parallel: top.read("parallel", |field| field.count(1..=1024)),
        limits: top
            .field("limits")
            .map_or_else(Limits::default, |field| terms::limits(&field)),
        sandbox: top
            .read("sandbox", terms::sandbox)
            .unwrap_or_else(|| Sandbox::new(DEFAULT_LEVEL)),
        env: top
            .field("env")
            .map(|field| Env::read(&field))
            .unwrap_or_default(),
        workspace: top
            .field("workspace")
            .map(|field| Workspace::read(&field))
            .unwrap_or_default(),
        profile: top.read("profile", Profile::read).unwrap_or_default(),
        search: top
            .field_or_none("search")
            .map(|field| Search::read(&field)),
        output: path_or(&top, "output", output),
        places: Places::of(root, file, directory),
    };
    check_reuse(&reader, &spec);
    let tests = spec.tests.iter().map(|test| &test.name);
    check_names(&reader, &spec.places, "tests", tests);
    if let Bench::Commands(commands) = &spec.bench {
        let commands = commands.iter().map(|bench| &bench.name);
        check_names(&reader, &spec.places, "bench", commands);
    }
    drop(top);
    reader.settle()?;
    Ok(spec)
}

fn version(field: Field<'_, '_>) -> Option<u64> {
    field.whole(VERSION..=VERSION)
}

fn path_or(top: &Record<'_, '_>, key: &'static str, default: &str) -> SpecPath {
    let given = top.read(key, |field| field.path());
    given.unwrap_or_else(|| SpecPath::new(default, top.directory()))
}

fn list<T>(
    top: &Record<'_, '_>,
    key: &'static str,
    read: impl Fn(&Field<'_, '_>) -> Option<T>,
) -> Vec<T> {
    let items = top.read(key, |field| field.items()).unwrap_or_default();
    items.iter().filter_map(read).collect()
}

fn candidates(top: &Record<'_, '_>) -> Vec<Source> {
    let sources = top.field("candidates").map(|field| field.one_or_many());
    let is_empty = sources.as_ref().is_none_or(Vec::is_empty);
    if is_empty && top.field_or_none("search").is_none() {
        let hint = "name a source, as in `candidates: {patches: DIR}`";
        match top.field("candidates") {
            Some(field) => field.fault("empty", "`candidates` must not be empty", hint),
            None => top.missing("candidates", hint),
        }
    }
    let sources = sources.unwrap_or_default();
    sources.iter().filter_map(Source::read).collect()
}

fn tests(top: &Record<'_, '_>) -> Vec<TestCommand> {
    if top.field("tests").is_none() {
        top.missing(
            "tests",
            "add a command that tests, as in `tests: [{command: ...}]`",
        );
    }
    let items = top.read("tests", |field| {
        let items = field.items()?;
        match items.is_empty() {
            true => field.refuse("empty", "must not be empty", "add a command that tests"),
            false => Some(items),
        }
    });
    let items = items.unwrap_or_default();
    let tests = items.iter().zip(1..);
    tests
        .map(|(item, nth)| TestCommand::read(item, nth))
        .collect()
}

/// CA-7: a judge's word on each measured run is not asked for.
fn check_reuse(reader: &Reader, spec: &Spec) {
    let judged = spec.tests.iter().position(|test| test.judge.is_some());
    if let (Bench::ReuseTests, Some(at)) = (&spec.bench, judged) {
        let name = &spec.tests[at].name;
        let message = format!("`bench: reuse-tests` cannot measure `{name}`, which has a judge");
        let judge = spec.places.place(&format!("tests[{at}].judge"));
        let place = later([spec.places.place("bench"), judge]).unwrap_or(judge);
        let hint = "write bench commands, or `none`";
        reader.fault(place, "contradiction", message, hint);
    }
}

/// Results are told apart by names.
fn check_names<'s>(
    reader: &Reader,
    places: &Places,
    key: &str,
    names: impl Iterator<Item = &'s String>,
) {
    let mut seen = HashSet::new();
    for (at, name) in names.enumerate() {
        if !seen.insert(name) {
            let place = places.place(&format!("{key}[{at}].name"));
            let message = format!("two of `{key}` are called `{}`", short(name));
            reader.fault(place, "repeated", message, "give each a name of its own");
        }
    }
}
