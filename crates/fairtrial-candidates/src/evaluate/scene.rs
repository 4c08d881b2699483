//! What an evaluation works with once its base is frozen and its record open.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use fairtrial_exec::{
    CopySlot, EntryKind, FrozenTree, Level, ScratchRoot, Shared, SharedMode, Snapshot, TreeWatch,
};

use super::base::DirectoryBase;
use super::correctness::{Checking, Guard};
use super::directory::{self, Holds, LOGS, Onset};
use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::event::Event;
use super::ground::{Ground, Kind};
use super::journal::{JOURNAL, Journal};
use super::layers::Layers;
use super::machine::available_memory;
use super::prepare::{Places, freeze, list, protect};
use super::provider::{self, How, Provided};
use super::record::{JOURNAL_VERSION, Past, Record};
use super::repository::Listing;
use super::slots::Slots;
use super::telling::{Audience, Telling};
use super::turns::Turns;
use super::worktrees::Worktrees;
use crate::cases::{PYTEST_PLUGIN, PYTEST_PLUGIN_FILE};
use crate::evaluation::{BaseFacts, Costs, Machine};
use crate::spec::{self, Git, Spec};
use crate::stage::{Terms, TreePath};

/// Everything an evaluation works with once its base is frozen.
pub(crate) struct Scene {
    pub(crate) checking: Arc<Checking>,
    pub(crate) base: DirectoryBase,
    pub(crate) terms: Terms,
    pub(crate) telling: Telling,
    pub(crate) past: Past,
    pub(crate) facts: BaseFacts,
    pub(crate) provided: Provided,
    pub(crate) machine: Machine,
    pub(crate) costs: Costs,
    pub(crate) warnings: Vec<String>,
    /// Held for as long as it is used.
    _snapshot: Snapshot,
    _root: ScratchRoot,
    _worktrees: Option<Worktrees>,
    /// The user's own tree, as it was.
    watch: Option<Watch>,
}

impl Scene {
    pub(crate) fn warn(&mut self, warning: Option<String>) {
        if let Some(warning) = warning {
            self.telling.audience.warn(warning.clone());
            self.warnings.push(warning);
        }
    }
}

impl Scene {
    /// The base cannot be used: the next evaluation here begins anew. What candidates did is never forgotten.
    pub(crate) fn forget(&mut self) {
        if self.past.checked.is_empty() {
            // If this cannot be written either, the base's own error says more.
            self.telling.keep(&Record::Forgotten).ok();
        }
    }

    /// Warns if the user's own tree was changed meanwhile (CA-30).
    pub(crate) fn look_at_the_tree(&mut self) {
        let Some(Watch { tree, scope }) = self.watch.take() else {
            return;
        };
        let changed = tree
            .changes(|path| scope.leaves_out(path))
            .unwrap_or_default();
        if let Some(first) = changed.first() {
            let count = changed.len();
            self.warn(Some(format!(
                "user_tree_changed: {count} paths of the repository were changed meanwhile, `{first}` first"
            )));
        }
    }
}

/// The record that is to be opened.
#[derive(Clone, Copy)]
struct Opening<'a> {
    places: &'a Places,
    past: &'a Past,
    onset: Onset,
}

/// The user's own tree, looked at before and after.
struct Watch {
    tree: TreeWatch,
    scope: Scope,
}

/// Which part of it.
struct Scope {
    left_out: Vec<Vec<u8>>,
    /// None stands for all.
    listed: Option<HashSet<Vec<u8>>>,
}

impl Scope {
    fn leaves_out(&self, path: &[u8]) -> bool {
        let is_below = |place: &Vec<u8>| {
            let rest = path.strip_prefix(&place[..]);
            rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
        };
        let is_listed = |listed: &HashSet<Vec<u8>>| listed.contains(path);
        self.left_out.iter().any(is_below) || !self.listed.as_ref().is_none_or(is_listed)
    }
}

/// Files, and the directories that lead to them.
fn with_directories(files: &[Vec<u8>]) -> HashSet<Vec<u8>> {
    let mut all = HashSet::new();
    for file in files {
        let slashes = file.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        all.extend(slashes.map(|(at, _)| file[..at].to_vec()));
        all.insert(file.clone());
    }
    all
}

impl Evaluator {
    /// What of the user's tree is to stay as it is while candidates run: all of it where one could change something there
    /// (without mounts, modes and times at the least), else the files that were taken, whoever changes them.
    fn watch(&self, places: &Places, listing: &Listing, mounted: bool) -> Option<Watch> {
        use std::os::unix::ffi::OsStrExt;
        let own = [&places.output, &places.root.join(".git/worktrees")];
        let inside = own
            .into_iter()
            .filter_map(|path| path.strip_prefix(&places.root).ok());
        let left_out = inside
            .map(|path| path.as_os_str().as_bytes().to_vec())
            .collect();
        let is_covered = self.spec.sandbox.level != Level::None && mounted;
        let listed = is_covered.then(|| with_directories(&listing.files));
        let scope = Scope { left_out, listed };
        let tree = TreeWatch::start(&places.root, |path| scope.leaves_out(path)).ok()?;
        Some(Watch { tree, scope })
    }

    /// Removes what engines left that were killed (CA-42).
    pub(super) fn sweep(&self) -> Result<(), EvaluateError> {
        for orphan in self.store.orphans()? {
            Worktrees::forget_those_of(&orphan);
            orphan.remove().ok(); // left for the next time
        }
        Ok(())
    }

    /// Freezes the base and opens the record.
    pub(super) async fn begin(
        &self,
        places: &Places,
        onset: Onset,
        audience: Audience,
    ) -> Result<Scene, EvaluateError> {
        let begun = Instant::now();
        let past = self.past(&places.output, onset)?;
        self.sweep()?;
        let root = self.store.workspace_dir()?;
        let room = directory(root.path(), "room")?;
        let listing = list(&self.spec, places, &self.tools, &room).await?;
        let mut snapshot = freeze(&self.store, &listing).await?;
        let mut warnings = listing.warnings.clone();
        warnings.extend(self.spec.idle_search());
        let mut facts = facts(&listing, snapshot.hash());
        if let Some(began) = past
            .begun
            .as_ref()
            .filter(|began| began.base.hash != snapshot.hash())
        {
            let recorded = Snapshot::open(&self.store, &began.base.hash)?;
            snapshot = recorded.ok_or_else(|| {
                EvaluateError::Failed(
                    "the base has changed, and what was frozen of it is gone: begin anew"
                        .to_owned(),
                )
            })?;
            facts = began.base.clone();
            warnings.push(
                "the repository has changed since: the base is as it was when the evaluation began"
                    .to_owned(),
            );
        }
        let provided = provider::choose(&self.spec, &self.backend, root.path()).await?;
        let history = self.history(&snapshot, root.path()).await?;
        let (mut missing, mut worktrees) = (Vec::new(), None);
        let mut layers = Layers::new(
            directory(root.path(), "layers")?,
            &snapshot,
            history.clone(),
        )
        .map_err(EvaluateError::attempting("making room for candidates"))?;
        let mounted = matches!(provided.how, How::Overlay(_));
        let kind = match provided.how {
            How::Overlay(namespace) => Kind::Overlay(namespace),
            How::Copy { .. } | How::Worktree => {
                let reflink = provided.how == How::Copy { reflink: true };
                let base = self
                    .base_copy(places, &snapshot, history, root.path(), reflink)
                    .await?;
                layers = layers.copying(Arc::clone(&base), reflink);
                if provided.how == How::Worktree {
                    worktrees = Some(self.worktrees(places, &facts, &root).await?);
                }
                let slots = Slots::make(root.path(), self.slots(), &base, reflink).await;
                let (slots, problems) = slots.map_err(EvaluateError::Failed)?;
                missing = problems;
                Kind::Copies(slots)
            }
        };
        warnings.extend(
            missing
                .into_iter()
                .map(|why| format!("one slot less: {why}")),
        );
        let files = snapshot
            .entries()
            .filter(|(_, entry)| entry.kind != EntryKind::Directory);
        let files = files.filter_map(|(path, _)| TreePath::new(path).ok());
        let guard = Guard::new(protect(&self.spec)?, files, places.shared_in_tree());
        let mut ground = self.ground(places, &root, &snapshot, kind)?;
        ground.hidden.extend(listing.history.clone());
        let checking = Checking {
            ground,
            layers,
            turns: Turns::new(self.lock.clone(), audience.clone()),
            guard: Arc::new(guard),
            build: self.spec.build.clone(),
            build_touches: OnceLock::new(),
            tests: self.spec.tests.clone(),
            plugin: plugin(root.path())?,
            built: directory(root.path(), "built")?,
            logs: places.output.join(LOGS),
            judged: directory(root.path(), "judged")?,
            processes: AtomicU64::new(0),
        };
        let machine = Machine::here(&self.node);
        let record = Opening {
            places,
            past: &past,
            onset,
        };
        let telling = self.record(&record, &facts, &provided, &machine, audience)?;
        telling.tell(Event::Snapshot {
            hash: facts.hash.clone(),
            base: facts.label.clone(),
            files: facts.files,
            provider: provided.facts.name.clone(),
        });
        for warning in &warnings {
            telling.audience.warn(warning.clone());
        }
        let files = snapshot
            .entries()
            .filter(|(_, entry)| entry.kind != EntryKind::Directory);
        Ok(Scene {
            base: DirectoryBase::new(
                snapshot.path().to_owned(),
                files.map(|(path, _)| path.to_vec()),
            ),
            terms: Terms {
                base_hash: snapshot.hash().to_owned(),
                protect: protect(&self.spec)?,
                shared: places.shared_in_tree(),
            },
            checking: Arc::new(checking),
            telling,
            past,
            facts,
            provided,
            machine,
            costs: Costs {
                snapshot_s: begun.elapsed().as_secs_f64(),
                ..Costs::default()
            },
            warnings,
            _snapshot: snapshot,
            _root: root,
            _worktrees: worktrees,
            watch: self.watch(places, &listing, mounted),
        })
    }

    /// What an earlier process left on record; checked before anything is made (CA-96).
    pub(super) fn past(&self, output: &Path, onset: Onset) -> Result<Past, EvaluateError> {
        directory::check(output)?;
        let place = || output.to_owned();
        match (onset, directory::look(output)) {
            (Onset::Begin, Holds::Evaluation(_)) => Err(EvaluateError::NotEmpty(place())),
            (Onset::Begin | Onset::Fresh, Holds::Others) => Err(EvaluateError::Occupied(place())),
            (Onset::Resume, Holds::Nothing | Holds::Others) => {
                Err(EvaluateError::NothingToResume(place()))
            }
            (Onset::Resume, Holds::Evaluation(past)) => self.same(*past?, output),
            (_, Holds::Nothing | Holds::Forgotten) | (Onset::Fresh, Holds::Evaluation(_)) => {
                Ok(Past::default())
            }
        }
    }

    /// What is on record, if it is of the same evaluation.
    fn same(&self, past: Past, output: &Path) -> Result<Past, EvaluateError> {
        let Some(begun) = &past.begun else {
            return Ok(past);
        };
        if begun.version != JOURNAL_VERSION {
            let problem = format!(
                "`{}` was written by another version of Fairtrial",
                output.join(JOURNAL).display()
            );
            return Err(EvaluateError::Invalid(problem));
        }
        let before = Spec::from_json(begun.spec.clone(), self.spec.places.directory())?;
        let changed = self.spec.changed_keys(&before);
        match changed.is_empty() {
            true => Ok(past),
            false => Err(EvaluateError::Invalid(format!(
                "the evaluation file has changed since it began: `{}` (put it back, or begin anew with `fresh`, or name another directory than `{}`)",
                changed.join("`, `"),
                output.display()
            ))),
        }
    }

    fn record(
        &self,
        opening: &Opening<'_>,
        base: &BaseFacts,
        provided: &Provided,
        machine: &Machine,
        audience: Audience,
    ) -> Result<Telling, EvaluateError> {
        let Opening {
            places,
            past,
            onset,
        } = *opening;
        let output = &places.output;
        directory::make(output)?;
        let journal = match past.begun {
            Some(_) => Journal::open::<Record>(&output.join(JOURNAL))?.0,
            None => {
                let mut journal = Journal::hold(&output.join(JOURNAL))?;
                // Another may have begun, and ended, while the base was being frozen.
                self.past(output, onset)?;
                directory::clear(output, &mut journal)?;
                journal
            }
        };
        let mut telling = Telling::new(journal, output, audience)?;
        let (base, machine) = (base.clone(), machine.clone());
        telling.keep(&match past.begun {
            Some(_) => Record::WentOn { machine },
            None => Record::Begun {
                version: JOURNAL_VERSION,
                spec: self.spec.to_json(),
                base,
                provider: provided.facts.clone(),
                machine,
            },
        })?;
        Ok(telling)
    }

    fn slots(&self) -> usize {
        self.spec.parallel.unwrap_or(1).max(1) as usize
    }

    /// Where changes go on disk; none while memory has room for all that run at once (CA-35).
    fn uppers(&self, root: &Path) -> Result<Option<PathBuf>, EvaluateError> {
        let needed = self
            .spec
            .workspace
            .upper_bytes
            .saturating_mul(self.slots() as u64);
        let on_disk = match self.spec.workspace.upper {
            spec::Upper::Auto => available_memory() < needed,
            spec::Upper::Tmpfs => false,
            spec::Upper::Disk => true,
        };
        on_disk.then(|| directory(root, "uppers")).transpose()
    }

    async fn worktrees(
        &self,
        places: &Places,
        facts: &BaseFacts,
        root: &ScratchRoot,
    ) -> Result<Worktrees, EvaluateError> {
        let git = self.tools.git();
        let (Some(tree), Some(commit)) = (git.work_tree(&places.root).await?, &facts.commit) else {
            let problem = format!(
                "worktree: `{}` is no git work tree with a commit",
                places.root.display()
            );
            return Err(EvaluateError::Failed(problem));
        };
        let slots = (0..self.slots()).map(|number| Slots::place(root.path(), number));
        Worktrees::add(&git, &tree, commit, slots.collect(), root).await
    }

    /// The base as copies are made of it: with its history, and with what is shared, which nothing can be mounted over.
    async fn base_copy(
        &self,
        places: &Places,
        snapshot: &Snapshot,
        history: Option<PathBuf>,
        root: &Path,
        reflink: bool,
    ) -> Result<Arc<FrozenTree>, EvaluateError> {
        if let Some(judge) = places.judges.first() {
            let problem = format!(
                "`{}` cannot be hidden without mounts: a judge needs an overlay",
                judge.display()
            );
            return Err(EvaluateError::Failed(problem));
        }
        // A link is enough where nobody can write through it (CA-32).
        let links = self.spec.sandbox.level != Level::None && self.backend.limits_writes();
        let shared: Vec<(PathBuf, bool)> = self
            .spec
            .shared
            .iter()
            .zip(&places.shared)
            .map(|(asked, path)| {
                (
                    path.clone(),
                    links && asked.mode == spec::SharedMode::ReadOnly,
                )
            })
            .collect();
        let (repository, tree, place) = (
            places.root.clone(),
            Arc::clone(snapshot.tree()),
            root.join("base"),
        );
        let copying = move || -> std::io::Result<FrozenTree> {
            CopySlot::make(tree, &place, reflink)?;
            if let Some(history) = history {
                let history = Arc::new(FrozenTree::record(&history.join(".git"))?);
                CopySlot::make(history, &place.join(".git"), reflink)?;
            }
            for (path, is_link) in shared {
                let target = place.join(path.strip_prefix(&repository).unwrap_or(&path));
                if let Some(above) = target.parent() {
                    fs::create_dir_all(above)?;
                }
                match is_link {
                    true => std::os::unix::fs::symlink(&path, target)?,
                    false => drop(CopySlot::make(
                        Arc::new(FrozenTree::record(&path)?),
                        &target,
                        reflink,
                    )?),
                }
            }
            FrozenTree::record(&place)
        };
        let copied = tokio::task::spawn_blocking(copying).await;
        let copied = copied.map_err(std::io::Error::other).flatten();
        copied
            .map(Arc::new)
            .map_err(EvaluateError::attempting("copying the base"))
    }

    /// A layer with a history of one commit (CA-31).
    async fn history(
        &self,
        snapshot: &Snapshot,
        root: &Path,
    ) -> Result<Option<PathBuf>, EvaluateError> {
        if self.spec.workspace.git == Git::None {
            return Ok(None);
        }
        let layer = directory(root, "history")?;
        let git_dir = layer.join(".git");
        self.tools
            .git()
            .one_commit(snapshot.path(), &git_dir)
            .await?;
        let exclude = git_dir.join("info");
        fs::create_dir_all(&exclude)
            .and_then(|()| fs::write(exclude.join("exclude"), ".fairtrial-*\n"))
            .map_err(EvaluateError::attempting("writing a history of one commit"))?;
        Ok(Some(layer))
    }

    fn ground(
        &self,
        places: &Places,
        root: &ScratchRoot,
        snapshot: &Snapshot,
        kind: Kind,
    ) -> Result<Ground, EvaluateError> {
        let spec = &self.spec;
        let shared = spec
            .shared
            .iter()
            .zip(&places.shared)
            .map(|(asked, path)| Shared {
                at: path.clone(),
                source: path.clone(),
                mode: match asked.mode {
                    spec::SharedMode::ReadOnly => SharedMode::ReadOnly,
                    spec::SharedMode::CopyOnWrite => SharedMode::CopyOnWrite { layers: Vec::new() },
                },
            });
        let passed = spec.env.pass.iter().filter_map(|name| {
            let (name, value) = self.host_env.get_key_value(std::ffi::OsStr::new(name))?;
            Some((name.clone(), value.clone()))
        });
        let set = spec
            .env
            .set
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let snapshots = snapshot.path().parent().and_then(Path::parent);
        let layers = ["layers", "history", "built", "judged", "room", "uppers"]
            .map(|name| root.path().join(name));
        let mut sandbox = spec.sandbox.clone();
        if sandbox.level == Level::Strict {
            sandbox.read.push(root.path().join(PLUGIN));
        }
        Ok(Ground {
            at: places.root.clone(),
            home: directory(root.path(), "home")?,
            shared: shared.collect(),
            hidden: layers
                .into_iter()
                .chain(snapshots.map(Path::to_owned))
                .chain(places.judges.iter().cloned())
                .chain(hidden_output(places, root))
                .collect(),
            limits: spec.limits.clone(),
            sandbox,
            env: passed.chain(set).collect(),
            upper_bytes: spec.workspace.upper_bytes,
            uppers: self.uppers(root.path())?,
            kind,
            backend: Arc::clone(&self.backend),
        })
    }
}

const PLUGIN: &str = "plugin";

/// What the base answered is in the output directory. It stays in sight only if there is something in it that is needed.
fn hidden_output(places: &Places, root: &ScratchRoot) -> Option<PathBuf> {
    let output = places.output.clone();
    let is_needed = [root.path(), &places.root].map(|place| place.starts_with(&output));
    (!is_needed.contains(&true)).then_some(output)
}

fn plugin(root: &Path) -> Result<PathBuf, EvaluateError> {
    let place = directory(root, PLUGIN)?;
    fs::write(place.join(PYTEST_PLUGIN_FILE), PYTEST_PLUGIN)
        .map_err(EvaluateError::attempting("writing the plug-in for pytest"))?;
    Ok(place)
}

pub(super) fn directory(root: &Path, name: &str) -> Result<PathBuf, EvaluateError> {
    let path = root.join(name);
    fs::create_dir_all(&path).map_err(EvaluateError::attempting(format!(
        "making `{}`",
        path.display()
    )))?;
    Ok(path)
}

pub(super) fn facts(listing: &Listing, hash: &str) -> BaseFacts {
    BaseFacts {
        hash: hash.to_owned(),
        label: listing.label(),
        commit: listing.commit.clone(),
        dirty: listing.dirty,
        files: listing.files.len() as u64,
    }
}
