//! The evaluation itself: base, tests, races, report, in this order.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

use fairtrial_exec::{EngineError, LocalBackend, LocalConfig, MachineLock, Store};
use tokio::sync::mpsc;

use super::checklist::Checklist;
use super::error::EvaluateError;
use super::event::Event;
use super::field::Field;
use super::outputs::write_report;
use super::prepare::{Places, Reception, Tools, base_of, given, list, protect};
use super::scene::{directory, facts};
use super::standing;
use super::telling::Audience;
use crate::evaluation::EvaluationReport;
use crate::measure::Side;
use crate::spec::Spec;
use crate::stage::Terms;

/// An evaluation that can be made.
pub struct Evaluator {
    pub(super) spec: Spec,
    pub(super) backend: Arc<LocalBackend>,
    pub(super) store: Store,
    pub(super) tools: Tools,
    pub(super) host_env: BTreeMap<OsString, OsString>,
    pub(super) lock: MachineLock,
    pub(super) node: String,
}

impl Evaluator {
    /// An evaluation of what `spec` says, by an engine that is set up as `config` says. Starts nothing.
    ///
    /// # Errors
    /// The user has no cache directory.
    pub fn new(mut spec: Spec, mut config: LocalConfig) -> Result<Self, EngineError> {
        let store = Store::of(&config)?;
        let lock = MachineLock::of(&config);
        let host_env = config.host_env.clone();
        match spec.parallel {
            Some(slots) => config.max_workers = usize::try_from(slots).unwrap_or(usize::MAX),
            None => spec.parallel = u32::try_from(config.max_workers).ok(),
        }
        // What commands find is listed (CA-49); what the host has besides is none of their business.
        config.host_env.retain(|name, _| name == "PATH");
        let node = config.node_id.clone();
        let backend = Arc::new(LocalBackend::new(config));
        Ok(Self {
            tools: Tools::new(Arc::clone(&backend), &host_env),
            spec,
            backend,
            store,
            lock,
            host_env,
            node,
        })
    }

    /// Who runs its commands: to be shut down by whoever made it.
    #[must_use]
    pub fn backend(&self) -> &Arc<LocalBackend> {
        &self.backend
    }

    /// Checks the file against the disk, applies and compares candidates. Starts none of them, and leaves no file.
    ///
    /// # Errors
    /// Something is not as the file says.
    pub async fn check(&self) -> Result<Checklist, EvaluateError> {
        let places = Places::check(&self.spec)?;
        let newcomers = given(&self.spec)?;
        let root = self.store.workspace_dir()?;
        let room = directory(root.path(), "room")?;
        let listing = list(&self.spec, &places, &self.tools, &room).await?;
        let base = base_of(&listing.root, &listing);
        let terms = Terms {
            base_hash: String::new(),
            protect: protect(&self.spec)?,
        };
        let reception = Reception {
            backend: &self.backend,
            base: &base,
            terms: &terms,
        };
        let mut field = Field::default();
        let (_, warning) = reception.take_in(&mut field, newcomers).await?;
        let warnings = listing.warnings.iter().cloned().chain(warning).collect();
        Ok(Checklist::new(
            &self.spec,
            facts(&listing, ""),
            &field,
            warnings,
        ))
    }

    /// Makes the evaluation, or goes on with it. `events` hears what happens.
    ///
    /// Dropping the future ends whatever runs; what is on record stays, and can be gone on with.
    ///
    /// # Errors
    /// The evaluation cannot be made. That candidates fail is none.
    pub async fn evaluate(
        &self,
        resume: bool,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<EvaluationReport, EvaluateError> {
        let audience = Audience(events);
        let places = Places::check(&self.spec)?;
        let newcomers = given(&self.spec)?;
        let mut scene = self.begin(&places, resume, audience).await?;
        let mut field = Field::default();
        let reception = Reception {
            backend: &self.backend,
            base: &scene.base,
            terms: &scene.terms,
        };
        let (todo, warning) = reception.take_in(&mut field, newcomers).await?;
        scene.warn(warning);
        for entry in &field.entries {
            scene.telling.tell(Event::Candidate {
                id: entry.id(),
                name: entry.name.clone(),
                state: entry.state,
            });
        }
        let (baseline, base_tree, allowed) = self.baseline(&mut scene).await?;
        let (baseline, allowed) = (Arc::new(baseline), Arc::new(allowed));
        let mut trees = HashMap::from([(Side::Base, base_tree)]);
        let begun = Instant::now();
        self.check_all(
            &mut scene, &mut field, todo, &baseline, &allowed, &mut trees,
        )
        .await?;
        scene.costs.correctness_s = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let measured = self.race(&mut scene, &mut field, trees).await?;
        scene.costs.measurement_s = begun.elapsed().as_secs_f64();
        scene.costs.processes = scene
            .checking
            .processes
            .load(std::sync::atomic::Ordering::Relaxed);
        let report = standing::report(standing::Known {
            spec: &self.spec,
            base: scene.facts.clone(),
            machine: scene.machine.clone(),
            provider: scene.provided.facts.clone(),
            baseline: &baseline,
            field: &field,
            measured,
            costs: scene.costs,
            warnings: scene.warnings.clone(),
            proposals: scene.past.proposals.clone(),
        });
        write_report(&places.output, &report)?;
        scene.telling.tell(Event::Done {
            winner: report.winner.clone(),
        });
        Ok(report)
    }
}
