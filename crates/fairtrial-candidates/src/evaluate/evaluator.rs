//! The evaluation itself: base, tests, races, report, in this order.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fairtrial_exec::{EngineError, LocalBackend, LocalConfig, MachineLock, Store};
use tokio::sync::mpsc;

use super::asking::Asking;
use super::baseline::BaseRuns;
use super::checklist::Checklist;
use super::course::{Course, Start};
use super::directory::{Onset, PROPOSER_LOG};
use super::error::EvaluateError;
use super::event::Event;
use super::field::Field;
use super::means::Means;
use super::outputs::{write_proposed, write_report};
use super::prepare::{Places, Reception, Tools, base_of, freeze, given, list, protect};
use super::racing::Races;
use super::scene::{Scene, directory, facts};
use super::standing;
use super::telling::Audience;
use crate::evaluation::EvaluationReport;
use crate::search::{
    self, BadServer, Callable, CommandProposer, CommandTerms, FunctionProposer, HttpProposer,
    Proposer, Search,
};
use crate::spec::{self, Spec};
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
    /// How an engine is set up.
    config: LocalConfig,
    /// Who proposes instead of whom the file names.
    function: Option<Arc<Callable>>,
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
        let own = config.clone();
        let backend = Arc::new(LocalBackend::new(config));
        Ok(Self {
            tools: Tools::new(Arc::clone(&backend), &host_env),
            spec,
            backend,
            store,
            lock,
            host_env,
            node,
            config: own,
            function: None,
        })
    }

    /// Has a function of the caller's asked for candidates, whomever the file names, on the terms of its `timeout`.
    #[must_use]
    pub fn with_proposer(mut self, function: Callable) -> Self {
        self.function = Some(Arc::new(function));
        self
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
    pub async fn check(&self, onset: Onset) -> Result<Checklist, EvaluateError> {
        let places = Places::check(&self.spec)?;
        // The plan is of interest all the same.
        let taken = match self.past(&places.output, onset) {
            Err(taken @ EvaluateError::NotEmpty(_)) => Some(taken.to_string()),
            past => past.map(|_| None)?,
        };
        let newcomers = given(&self.spec)?;
        Means::find(&self.spec, &self.host_env)?;
        self.sweep()?;
        let root = self.store.workspace_dir()?;
        let room = directory(root.path(), "room")?;
        let listing = list(&self.spec, &places, &self.tools, &room).await?;
        self.find_programs(&places, &listing)?;
        // In a store of its own, which goes with the room: ids are those of the evaluation, and no file is left.
        let frozen = freeze(&Store::at(root.path().join("store")), &listing).await?;
        let base = base_of(frozen.path(), &listing);
        let terms = Terms {
            base_hash: frozen.hash().to_owned(),
            protect: protect(&self.spec)?,
            shared: places.shared_in_tree(),
        };
        let reception = Reception {
            backend: &self.backend,
            base: &base,
            terms: &terms,
        };
        let mut field = Field::default();
        let (_, warning) = reception.take_in(&mut field, newcomers).await?;
        let warnings = listing.warnings.iter().cloned().chain(warning);
        let warnings = warnings
            .chain(self.spec.idle_search())
            .chain(field.doubts(0))
            .chain(taken)
            .collect();
        Ok(Checklist::new(
            &self.spec,
            facts(&listing, frozen.hash()),
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
        onset: Onset,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<EvaluationReport, EvaluateError> {
        let audience = Audience(events);
        let places = Places::check(&self.spec)?;
        let newcomers = given(&self.spec)?;
        let means = Means::find(&self.spec, &self.host_env)?;
        let mut scene = self.begin(&places, onset, audience).await?;
        let usable = self.usable_base(means, &mut scene).await;
        if usable.is_err() {
            scene.forget();
        }
        let (base_runs, races) = usable?;
        let (asking, search) = self.search(&scene, races.is_some(), &places.output)?;
        let (base, terms) = (scene.base.clone(), scene.terms.clone());
        let mut course = Course::new(Start {
            reception: Reception {
                backend: &self.backend,
                base: &base,
                terms: &terms,
            },
            races,
            search,
            asking,
            baseline: base_runs.baseline,
            allowed: base_runs.touched,
            slots: self.spec.parallel.unwrap_or(1) as usize,
            scene: &mut scene,
        });
        course.welcome(newcomers).await?;
        course.recall().await?;
        course.run().await?;
        course.asking.close().await;
        course.scene.look_at_the_tree();
        let mut report = standing::report(&self.spec, &course)?;
        write_report(&places.output, &report)?;
        write_proposed(&places.output, &course.field)?;
        // What is found out stays, whatever becomes of this.
        report.profile = self.profile(course.scene, &course.field, &report).await;
        if report.profile.is_some() {
            write_report(&places.output, &report)?;
        }
        course.scene.telling.tell(Event::Done {
            winner: report.winner.clone(),
        });
        Ok(report)
    }

    /// The base tested, and each bench command tried on it: that there is nothing to compare with is found before any
    /// candidate is run.
    async fn usable_base(
        &self,
        means: Option<Means>,
        scene: &mut Scene,
    ) -> Result<(BaseRuns, Option<Races>), EvaluateError> {
        let base_runs = self.baseline(scene).await?;
        let races = means.map(|means| Races::new(&self.spec, means, &scene.past, &base_runs));
        let mut races = races.transpose()?;
        if let Some(races) = &mut races {
            let begun = Instant::now();
            races.rehearse(scene).await?;
            scene.costs.baseline_s += begun.elapsed().as_secs_f64();
        }
        Ok((base_runs, races))
    }

    /// Who is asked for more candidates, and what decides about it.
    fn search(
        &self,
        scene: &Scene,
        races: bool,
        output: &Path,
    ) -> Result<(Asking, Search), EvaluateError> {
        let proposer = self.proposer(output)?;
        let settings = self
            .spec
            .search
            .as_ref()
            .filter(|_| proposer.is_some())
            .map(|search| search.settings.clone());
        // Without a proposer nothing is asked.
        let settings = settings.unwrap_or_else(|| {
            let mut none = search::Settings::default();
            none.budget.requests = 0;
            none
        });
        let terms = search::Terms {
            races,
            shares_cpus: proposer.as_ref().is_some_and(Proposer::shares_cpus),
        };
        let wall = settings.budget.wall;
        let search = Search::replay(settings, terms, scene.past.search.iter().cloned());
        let asking = proposer.map_or_else(Asking::default, |proposer| Asking::new(proposer, wall));
        Ok((asking, search))
    }

    fn proposer(&self, output: &Path) -> Result<Option<Proposer>, EvaluateError> {
        let named = self
            .spec
            .search
            .as_ref()
            .and_then(|search| search.proposer.as_ref());
        Ok(match (&self.function, named) {
            (Some(function), _) => {
                let function = Arc::clone(function);
                let ask = move |request| function(request);
                let timeout = named.map_or(search::PROPOSER_TIMEOUT, spec::Proposer::timeout);
                let function = FunctionProposer::new(Box::new(ask), timeout);
                Some(Proposer::Function(function))
            }
            (None, None | Some(spec::Proposer::Function { .. })) => None,
            (None, Some(spec::Proposer::Command(command))) => {
                let mut config = self.config.clone();
                config.max_workers = 1;
                let terms = CommandTerms {
                    cwd: self.spec.places.directory().to_owned(),
                    env: self.host_env.clone(),
                    log: output.join(PROPOSER_LOG),
                };
                let backend = Arc::new(LocalBackend::new(config));
                Some(Proposer::Command(CommandProposer::new(
                    backend,
                    command.settings(),
                    terms,
                )))
            }
            (None, Some(spec::Proposer::Http(server))) => {
                let server = HttpProposer::new(server.clone(), &self.host_env);
                let bad = |problem: BadServer| spec_fault(&self.spec, &problem);
                Some(Proposer::Http(server.map_err(bad)?))
            }
        })
    }
}

fn spec_fault(spec: &Spec, problem: &BadServer) -> EvaluateError {
    let key = format!("search.proposer.{}", problem.key);
    spec.places.fault(&key, problem.problem.clone()).into()
}
