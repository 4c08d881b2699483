//! What an evaluation works with once its base is frozen and its record open.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use fairtrial_exec::{EntryKind, Level, ScratchRoot, Shared, SharedMode, Snapshot};

use super::base::DirectoryBase;
use super::correctness::{Checking, Guard};
use super::directory::{LOGS, Onset};
use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::event::Event;
use super::ground::{Ground, Kind};
use super::machine::available_memory;
use super::opening::Opening;
use super::prepare::{Places, freeze, list, protect};
use super::provider::{self, How, Provided};
use super::record::{Past, Record};
use super::repository::Listing;
use super::telling::{Audience, Telling};
use super::turns::Turns;
use super::watch::Watch;
use super::worktrees::Worktrees;
use crate::cases::{PYTEST_PLUGIN, PYTEST_PLUGIN_FILE};
use crate::evaluation::{BaseFacts, Costs, Machine};
use crate::spec;
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

    /// The base cannot be used: the next evaluation here begins anew. What candidates did is never forgotten.
    pub(crate) fn forget(&mut self) {
        if self.past.checked.is_empty() {
            // If this cannot be written either, the base's own error says more.
            self.telling.keep(&Record::Forgotten).ok();
        }
    }

    /// Warns if the user's own tree was changed meanwhile (CA-30).
    pub(crate) fn look_at_the_tree(&mut self) {
        let warning = self.watch.take().and_then(|watch| watch.warning());
        self.warn(warning);
    }
}

impl Evaluator {
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
        let (snapshot, facts, mut warnings) = self.frozen(&listing, &past).await?;
        let provided = provider::choose(&self.spec, &self.backend, root.path()).await?;
        let laid = self.lay(places, &snapshot, &facts, &root, provided.how);
        let laid = laid.await?;
        warnings.extend(laid.warnings);
        let mut ground = self.ground(places, &root, &snapshot, laid.kind)?;
        ground.hidden.extend(listing.history.clone());
        let checking = Checking {
            ground,
            layers: laid.layers,
            turns: Turns::new(self.lock.clone(), audience.clone()),
            guard: Arc::new(self.guard(places, &snapshot)?),
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
        let mounted = matches!(provided.how, How::Overlay(_));
        let files = files_of(&snapshot).map(<[u8]>::to_vec);
        Ok(Scene {
            base: DirectoryBase::new(snapshot.path().to_owned(), files),
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
            _worktrees: laid.worktrees,
            watch: self.watch(places, &listing, mounted),
        })
    }

    /// The base, frozen as it is; or as it was when the evaluation began. And what to warn of.
    async fn frozen(
        &self,
        listing: &Listing,
        past: &Past,
    ) -> Result<(Snapshot, BaseFacts, Vec<String>), EvaluateError> {
        let snapshot = freeze(&self.store, listing).await?;
        let mut warnings = listing.warnings.clone();
        warnings.extend(self.spec.idle_search());
        let began = past.begun.as_ref();
        let Some(began) = began.filter(|began| began.base.hash != snapshot.hash()) else {
            let facts = facts(listing, snapshot.hash());
            return Ok((snapshot, facts, warnings));
        };
        let Some(snapshot) = Snapshot::open(&self.store, &began.base.hash)? else {
            let problem = "the base has changed, and what was frozen of it is gone: begin anew";
            return Err(EvaluateError::Failed(problem.to_owned()));
        };
        warnings.push(
            "the repository has changed since: the base is as it was when the evaluation began"
                .to_owned(),
        );
        Ok((snapshot, began.base.clone(), warnings))
    }

    /// Looks at what candidates may not touch.
    fn guard(&self, places: &Places, snapshot: &Snapshot) -> Result<Guard, EvaluateError> {
        let files = files_of(snapshot).filter_map(|path| TreePath::new(path).ok());
        Ok(Guard::new(
            protect(&self.spec)?,
            files,
            places.shared_in_tree(),
        ))
    }

    /// How many sides stand at once.
    pub(super) fn slots(&self) -> usize {
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
        if sandbox.level >= Level::Confined {
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

/// Paths of the base, without directories.
fn files_of(snapshot: &Snapshot) -> impl Iterator<Item = &[u8]> {
    let files = snapshot
        .entries()
        .filter(|(_, entry)| entry.kind != EntryKind::Directory);
    files.map(|(path, _)| path)
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
