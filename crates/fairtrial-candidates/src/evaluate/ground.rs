//! Where commands run: the frozen base, what a side lays over it, and the terms that all sides share.
//!
//! Nothing of one command reaches the next: each has a workspace of its own, made for it and gone with it (CA-33), and
//! the same argv, path and environment whoever's code it is (CA-49, CA-64).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairtrial_exec::{
    Backend, Call, ChangeKind, Counted, DEFAULT_OUTPUT_BYTES, EngineError, FrozenTree, Level,
    Limits, LocalBackend, Outcome, Sandbox, Shared, SharedMode, Time, Upper, Workspace,
    WorkspaceNamespace, remove_tree,
};

use super::counting::{LOG_FILE, LOG_VARIABLE};
use super::git::below;
use super::layers::digest;
use super::logs::to_files;
use super::slots::{HeldSlot, Slots};
use crate::profile::{PROFILE_FILE, PROFILE_VARIABLE};
use crate::spec::Command;
use crate::stage::TreePath;

/// Variables that keep libraries to one thread: a benchmark on many would measure its neighbours.
const ONE_THREAD: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
];

/// Where the plug-in's lines go: in the tree, whose changes are looked at afterwards.
pub(crate) const CASES_FILE: &str = ".fairtrial-cases.jsonl";

/// Tells the plug-in.
const CASES_VARIABLE: &str = "FAIRTRIAL_CASES";

/// The hash seed of tests; benches have one per block.
pub(crate) const TEST_HASH_SEED: u32 = 0;

/// What the base's own tree is called.
pub(crate) const BASE: &str = "base";

/// The tree that a command runs on.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// Whose it is: `base`, or a candidate's id.
    pub(crate) name: String,
    /// Topmost first.
    pub(crate) layers: Vec<PathBuf>,
    /// Of what it is made of.
    pub(crate) hash: String,
    /// The layer that a candidate's files are in, and what that holds.
    pub(crate) own: Option<(PathBuf, String)>,
    /// Where what its build wrote is kept.
    pub(crate) built: Option<PathBuf>,
    /// The whole of it, where copies are made.
    pub(crate) frozen: Option<Arc<FrozenTree>>,
}

impl Tree {
    pub(crate) fn is_base(&self) -> bool {
        self.name == BASE
    }

    /// Whether it is still what was written (CA-75).
    pub(crate) fn verify(&self) -> Result<(), String> {
        if let Some(frozen) = &self.frozen {
            return frozen.check().map_err(|damaged| damaged.to_string());
        }
        let Some((layer, written)) = &self.own else {
            return Ok(());
        };
        match digest(layer) {
            Ok(found) if found == *written => Ok(()),
            Ok(_) => Err("its files are not those that were staged".to_owned()),
            Err(error) => Err(format!("its files cannot be read: {error}")),
        }
    }
}

/// What all commands of an evaluation share.
pub(crate) struct Ground {
    /// Where the tree appears: the repository's own path.
    pub(crate) at: PathBuf,
    /// HOME and TMPDIR: the same place for every command, and empty for each.
    pub(crate) home: PathBuf,
    /// Directories of the host that appear inside.
    pub(crate) shared: Vec<Shared>,
    /// Places that no candidate sees.
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) sandbox: Sandbox,
    /// What every command finds, besides what it is told by itself.
    pub(crate) env: BTreeMap<OsString, OsString>,
    pub(crate) upper_bytes: u64,
    /// Where changes go, each command's into a directory of its own; none if they go into memory.
    pub(crate) uppers: Option<PathBuf>,
    pub(crate) kind: Kind,
    pub(crate) backend: Arc<LocalBackend>,
}

/// How a command is given its tree.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Mounted at the repository's own path.
    Overlay(WorkspaceNamespace),
    /// Copied to a slot.
    Copies(Arc<Slots>),
}

/// A command that ended, and what it left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    /// Where it ran, if that was a copy: held until it has been looked at.
    slot: Option<HeldSlot>,
    /// Where its changes are, if that is on disk: likewise.
    _upper: Option<DiskUpper>,
}

/// A directory that goes when nobody looks at it any more.
#[derive(Debug)]
struct DiskUpper(PathBuf);

impl DiskUpper {
    fn make(above: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = above.join(format!("upper-{number:012}"));
        fs::create_dir(&place)?;
        Ok(Self(place))
    }
}

impl Drop for DiskUpper {
    fn drop(&mut self) {
        let place = std::mem::take(&mut self.0);
        let remove = move || drop(remove_tree(&place)); // else it goes with the evaluation
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl Ran {
    /// The bytes of a regular file that is new or changed; at most so many.
    pub(crate) fn read(&self, path: &Path, most_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        match (&self.outcome.upper, &self.slot) {
            (Some(upper), _) => upper.read(path, most_bytes),
            (None, Some(slot)) => slot.read(path, most_bytes),
            (None, None) => Ok(None),
        }
    }

    /// A regular file that is new or changed. Copies have none to open: no judge looks at them.
    pub(crate) fn open(&self, path: &Path) -> io::Result<Option<fs::File>> {
        let upper = self.outcome.upper.as_ref();
        upper.map_or(Ok(None), |upper| upper.open(path))
    }

    /// Tells of each path that is wanted and was changed.
    pub(crate) fn visit(
        &self,
        wanted: impl Fn(&Path) -> bool,
        mut each: impl FnMut(&Path, ChangeKind),
    ) -> io::Result<()> {
        match (&self.outcome.upper, &self.slot) {
            (Some(upper), _) => {
                upper.visit(|path, kind| {
                    if wanted(path) {
                        each(path, kind);
                    }
                })?;
                Ok(())
            }
            (None, Some(slot)) => slot.visit(wanted, each),
            (None, None) => Ok(()),
        }
    }

    /// The directory that it ran in, if that was a copy, and its HOME.
    pub(crate) fn copy(&self) -> Option<(&Path, &Path)> {
        self.slot.as_ref().map(|slot| (slot.path(), slot.home()))
    }
}

/// What one command has of its own.
#[derive(Debug, Clone)]
pub(crate) struct Errand<'a> {
    pub(crate) command: &'a Command,
    pub(crate) cwd: Option<&'a TreePath>,
    pub(crate) env: Option<&'a BTreeMap<String, String>>,
    /// Set last: nobody else says it.
    pub(crate) own_env: Vec<(OsString, OsString)>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) time: Time,
    pub(crate) hash_seed: u32,
    /// The only processors it may use, before others.
    pub(crate) cpus: Option<Vec<usize>>,
    /// What is to be counted of it.
    pub(crate) counted: &'a [Counted],
    /// A directory that keeps what it writes; none where that is of no use.
    pub(crate) kept_in: Option<PathBuf>,
    /// Whether all it writes to its streams is kept, up to its limit.
    pub(crate) whole_output: bool,
    /// Where all that it writes to its streams goes.
    pub(crate) log: Option<PathBuf>,
    /// Hidden places that it sees all the same: a judge's files.
    pub(crate) shows: Vec<PathBuf>,
}

impl<'a> Errand<'a> {
    /// A command at the root of the tree, without anything of its own.
    pub(crate) fn new(command: &'a Command) -> Self {
        Self {
            command,
            cwd: None,
            env: None,
            own_env: Vec::new(),
            timeout: None,
            time: Time::Wall,
            hash_seed: TEST_HASH_SEED,
            cpus: None,
            counted: &[],
            kept_in: None,
            whole_output: false,
            log: None,
            shows: Vec::new(),
        }
    }
}

impl Ground {
    /// Runs a command on a tree.
    ///
    /// # Errors
    /// The engine failed, or a copy cannot be put back.
    pub(crate) async fn execute(
        &self,
        tree: &Tree,
        errand: &Errand<'_>,
    ) -> Result<Ran, EngineError> {
        let slot = match (&self.kind, &tree.frozen) {
            (Kind::Copies(slots), Some(frozen)) => {
                let failed = || EngineError::io("putting back a workspace");
                let held = slots.acquire().await.map_err(failed())?;
                Some(held.put_back(frozen).await.map_err(failed())?)
            }
            _ => None,
        };
        let upper = match (&self.uppers, &slot, &errand.kept_in) {
            (Some(above), None, None) => {
                let made = DiskUpper::make(above);
                Some(made.map_err(EngineError::io("making room for changes"))?)
            }
            _ => None,
        };
        let call = match &slot {
            Some(slot) => self.call_in(slot, errand),
            None => self.call_on(tree, errand, upper.as_ref().map(|upper| upper.0.as_path())),
        };
        let outcome = match &errand.log {
            None => self.backend.execute(call).await?,
            Some(place) => {
                let (streams, writing) = to_files(place.clone());
                let outcome = self.backend.submit_with(call, streams)?.await;
                writing.await.ok(); // what could not be written is in the outcome, as far as that goes
                outcome?
            }
        };
        Ok(Ran {
            outcome,
            slot,
            _upper: upper,
        })
    }

    /// Whether a command can be given processors: not without any confinement.
    pub(crate) fn can_pin(&self) -> bool {
        self.sandbox.level != Level::None || matches!(self.kind, Kind::Overlay(_))
    }

    /// On a tree that is mounted.
    fn call_on(&self, tree: &Tree, errand: &Errand<'_>, upper: Option<&Path>) -> Call {
        let mut call = self.call(&self.at, &self.home, errand);
        let Kind::Overlay(namespace) = self.kind else {
            return call;
        };
        call.workspace = Some(Arc::new(Workspace {
            upper: match errand.kept_in.as_deref().or(upper) {
                Some(directory) => Upper::Disk {
                    directory: directory.to_owned(),
                },
                None => Upper::Memory {
                    bytes: self.upper_bytes,
                },
            },
            private: Some(self.home.clone()),
            shared: self.shared_on(tree, errand),
            hidden: self.hidden_from(errand),
            namespace,
            ..Workspace::new(self.at.clone(), tree.layers.clone())
        }));
        call
    }

    /// In a copy.
    fn call_in(&self, slot: &HeldSlot, errand: &Errand<'_>) -> Call {
        let mut call = self.call(slot.path(), slot.home(), errand);
        // The copy belongs to this user, as all that is mounted does.
        call.as_caller = true;
        if call.sandbox.level != Level::None {
            call.sandbox
                .write
                .extend([slot.path().to_owned(), slot.home().to_owned()]);
        }
        if call.sandbox.level >= Level::Confined {
            // Some of it is there as links.
            let shared = self.shared.iter().map(|shared| shared.source.clone());
            call.sandbox.read.extend(shared);
        }
        call
    }

    fn call(&self, at: &Path, home: &Path, errand: &Errand<'_>) -> Call {
        let mut call = Call::command(errand.command.to_argv());
        call.cwd = Some(match errand.cwd {
            Some(place) => below(at, place.as_bytes()),
            None => at.to_owned(),
        });
        call.timeout = errand.timeout;
        call.time = errand.time;
        call.limits = self.limits.clone();
        call.sandbox = self.sandbox.clone();
        if errand.cpus.is_some() {
            call.sandbox.cpus = errand.cpus.clone();
            call.ahead = true;
        }
        call.counted = errand.counted.to_vec();
        if errand.whole_output {
            call.capture_bytes = call.limits.output_bytes.unwrap_or(DEFAULT_OUTPUT_BYTES);
        }
        if call.sandbox.level >= Level::Confined {
            call.sandbox.read.extend(errand.shows.iter().cloned());
        }
        call.env = self.environment(at, home, errand);
        call
    }

    fn hidden_from(&self, errand: &Errand<'_>) -> Vec<PathBuf> {
        let is_shown =
            |place: &&PathBuf| !errand.shows.iter().any(|shown| shown.starts_with(place));
        self.hidden.iter().filter(is_shown).cloned().collect()
    }

    /// What is shared, with what the tree's build wrote there, and what is shown of the repository besides.
    fn shared_on(&self, tree: &Tree, errand: &Errand<'_>) -> Vec<Shared> {
        let mut all = self.shared.clone();
        let inside = errand
            .shows
            .iter()
            .filter(|place| place.starts_with(&self.at));
        all.extend(inside.map(|place| Shared {
            at: place.clone(),
            source: place.clone(),
            mode: SharedMode::ReadOnly,
        }));
        let Some(kept) = &tree.built else {
            return all;
        };
        let kept = Upper::Disk {
            directory: kept.clone(),
        };
        for (number, shared) in all.iter_mut().enumerate() {
            if let SharedMode::CopyOnWrite { layers } = &mut shared.mode {
                layers.extend(kept.of_shared(number));
            }
        }
        all
    }

    /// A variable as a command with these of its own finds it.
    pub(crate) fn variable(&self, name: &str, own: &BTreeMap<String, String>) -> Option<String> {
        let shared = || {
            Some(
                self.env
                    .get(std::ffi::OsStr::new(name))?
                    .to_string_lossy()
                    .into_owned(),
            )
        };
        own.get(name).cloned().or_else(shared)
    }

    fn environment(
        &self,
        at: &Path,
        home: &Path,
        errand: &Errand<'_>,
    ) -> BTreeMap<OsString, Option<OsString>> {
        let fixed = [
            ("LANG", "C.UTF-8".into()),
            ("TZ", "UTC".into()),
            ("HOME", home.as_os_str().to_owned()),
            ("TMPDIR", home.as_os_str().to_owned()),
            ("PWD", at.as_os_str().to_owned()),
            ("PYTHONHASHSEED", errand.hash_seed.to_string().into()),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ];
        let fixed = fixed.map(|(name, value)| (OsString::from(name), value));
        let threads = ONE_THREAD.map(|name| (OsString::from(name), OsString::from("1")));
        let own = errand
            .env
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.into(), value.into()));
        let all = threads
            .into_iter()
            .chain(fixed)
            .chain(self.env.clone())
            .chain(own)
            .chain(errand.own_env.clone());
        let mut env: BTreeMap<OsString, Option<OsString>> =
            all.map(|(name, value)| (name, Some(value))).collect();
        // They are in the tree, wherever that is.
        for (variable, file) in [
            (CASES_VARIABLE, CASES_FILE),
            (PROFILE_VARIABLE, PROFILE_FILE),
            (LOG_VARIABLE, LOG_FILE),
        ] {
            if let Some(place) = env.get_mut(OsStr::new(variable)) {
                *place = Some(at.join(file).into_os_string());
            }
        }
        // They name the process or the machine: no two runs would have the same environment.
        for name in ["FAIRTRIAL_WORKER_ID", "FAIRTRIAL_NODE_ID"] {
            env.insert(name.into(), None);
        }
        env
    }
}
