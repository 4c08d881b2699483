//! From the evaluation file to what is to be run: the base listed and frozen, candidates applied and compared, before any
//! of them starts a process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fairtrial_exec::{LocalBackend, Snapshot, Store};

use super::base::DirectoryBase;
use super::error::EvaluateError;
use super::field::{Field, Newcomer, Number, apply, changes};
use super::git::Git;
use super::python_keys;
use super::repository::{self, Listing, Wanted};
use super::sources::read_sources;
use super::unseen::unseen;
use crate::spec::{BaseRef, Spec};
use crate::stage::{Base, Origin, Protect, StageError, Terms};

/// Variables by which git finds its user's configuration.
const GIT_VARIABLES: [&str; 5] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "PATH",
];

/// The evaluation's own tools.
pub(crate) struct Tools {
    pub(crate) backend: Arc<LocalBackend>,
    /// Variables by which git finds its user's configuration.
    pub(crate) git_env: BTreeMap<OsString, OsString>,
}

impl Tools {
    pub(crate) fn new(backend: Arc<LocalBackend>, host_env: &BTreeMap<OsString, OsString>) -> Self {
        let known = GIT_VARIABLES.iter().filter_map(|name| {
            let (name, value) = host_env.get_key_value(std::ffi::OsStr::new(name))?;
            Some((name.clone(), value.clone()))
        });
        Self {
            git_env: known.collect(),
            backend,
        }
    }

    pub(crate) fn git(&self) -> Git<'_, LocalBackend> {
        Git::new(&self.backend, &self.git_env)
    }
}

/// What the file says about paths, checked against the disk (CA-8).
#[derive(Debug)]
pub(crate) struct Places {
    /// The repository, without links.
    pub(crate) root: PathBuf,
    pub(crate) output: PathBuf,
    /// Dependency directories: where each appears, and what appears.
    pub(crate) shared: Vec<PathBuf>,
    /// The files of judges, which no candidate sees.
    pub(crate) judges: Vec<PathBuf>,
    /// What the base never has.
    never: Vec<PathBuf>,
}

impl Places {
    pub(crate) fn check(spec: &Spec) -> Result<Self, EvaluateError> {
        let root = &spec.repo.path;
        let missing = |key: &str, path: &Path| {
            let problem = format!("`{}` is not a directory", path.display());
            EvaluateError::from(spec.places.fault(key, problem))
        };
        let root = root
            .canonicalize()
            .ok()
            .filter(|root| root.is_dir())
            .ok_or_else(|| missing("repo", root))?;
        let mut shared = Vec::new();
        for (number, one) in spec.shared.iter().enumerate() {
            let key = format!("shared[{number}]");
            let path = root.join(&one.path.path);
            if !path.is_dir() {
                return Err(missing(&key, &path));
            }
            if !path.starts_with(&root) || path == root {
                let problem = format!("`{}` is not inside the repository", path.display());
                return Err(spec.places.fault(&key, problem).into());
            }
            shared.push(path);
        }
        let output = absolute(&spec.output.path);
        let sources = spec
            .candidates
            .iter()
            .map(|source| source.path().path.clone());
        let mut judges = Vec::new();
        for (number, test) in spec.tests.iter().enumerate() {
            if let Some(files) = test.judge.as_ref().and_then(|judge| judge.files.as_ref()) {
                let key = format!("tests[{number}].judge.files");
                let found = files
                    .path
                    .canonicalize()
                    .ok()
                    .filter(|files| files.is_dir());
                judges.push(found.ok_or_else(|| missing(&key, &files.path))?);
            }
        }
        let own = spec.places.file.iter().cloned().chain([output.clone()]);
        let never = sources
            .chain(judges.iter().cloned())
            .chain(own)
            .map(|path| absolute(&path));
        let never = never.chain(shared.iter().cloned()).collect();
        Ok(Self {
            root,
            output,
            shared,
            judges,
            never,
        })
    }
}

/// Without links as far as it is there.
fn absolute(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), _, _) => path,
        (Err(_), Some(parent), Some(name)) => absolute(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Lists the base's files; a commit's are written to `room` for that.
pub(crate) async fn list(
    spec: &Spec,
    places: &Places,
    tools: &Tools,
    room: &Path,
) -> Result<Listing, EvaluateError> {
    let globs = |key: &str, globs: &[String]| {
        Protect::new(globs)
            .map_err(|fault| EvaluateError::from(spec.places.fault(key, fault.to_string())))
    };
    let wanted = Wanted {
        root: &places.root,
        commit: match &spec.base {
            BaseRef::WorkingTree => None,
            BaseRef::Commit(name) => Some(name),
        },
        include: &globs("include", &spec.include)?,
        exclude: &globs("exclude", &spec.exclude)?,
        submodules: spec.submodules,
        never: &places.never,
        room,
        places: &spec.places,
    };
    let mut listing = repository::list(&tools.git(), &wanted).await?;
    let path = tools.git_env.get(std::ffi::OsStr::new("PATH"));
    let unseen = unseen(spec, places, &listing.files, path.map(OsString::as_os_str));
    listing.warnings.extend(unseen);
    Ok(listing)
}

/// Freezes what was listed.
pub(crate) async fn freeze(store: &Store, listing: &Listing) -> Result<Snapshot, EvaluateError> {
    let (store, root, files) = (store.clone(), listing.root.clone(), listing.files.clone());
    let taking =
        tokio::task::spawn_blocking(move || Snapshot::take(&store, &root, files, |_| false));
    let taken = taking
        .await
        .map_err(EvaluateError::attempting("freezing the base"))?;
    taken.map_err(|error| {
        let cause = std::error::Error::source(&error)
            .map_or_else(String::new, |cause| format!(": {cause}"));
        EvaluateError::Failed(format!("freezing the base: {error}{cause}"))
    })
}

/// The base's files as staging asks for them.
pub(crate) fn base_of(root: &Path, listing: &Listing) -> DirectoryBase {
    DirectoryBase::new(root.to_owned(), listing.files.iter().cloned())
}

/// Candidates as they are taken in.
pub(crate) struct Reception<'a> {
    pub(crate) backend: &'a LocalBackend,
    pub(crate) base: &'a (dyn Base + Sync),
    pub(crate) terms: &'a Terms,
}

impl Reception<'_> {
    /// Applies and compares newcomers; gives who is to be tried, and what people should be told.
    pub(crate) async fn take_in(
        &self,
        field: &mut Field,
        newcomers: Vec<Newcomer>,
    ) -> Result<(Vec<Number>, Option<String>), EvaluateError> {
        let unreadable = |error: StageError| EvaluateError::Failed(error.to_string());
        let applied = apply(newcomers, self.base, self.terms).map_err(unreadable)?;
        let texts = field
            .python
            .wanted(changes(&applied), self.base)
            .map_err(unreadable)?;
        let problem = match texts.is_empty() {
            true => None,
            false => python_keys::learn(self.backend, &mut field.python, texts).await,
        };
        let warning =
            problem.map(|why| format!("Python files are compared by their exact text: {why}"));
        Ok((field.add(applied, self.base).map_err(unreadable)?, warning))
    }
}

/// What may not be touched.
pub(crate) fn protect(spec: &Spec) -> Result<Protect, EvaluateError> {
    Protect::new(&spec.protect)
        .map_err(|fault| spec.places.fault("protect", fault.to_string()).into())
}

/// The candidates that are given.
pub(crate) fn given(spec: &Spec) -> Result<Vec<Newcomer>, EvaluateError> {
    let read = read_sources(spec)?;
    Ok(read
        .into_iter()
        .map(|given| Newcomer {
            given,
            origin: Origin::Given,
        })
        .collect())
}
