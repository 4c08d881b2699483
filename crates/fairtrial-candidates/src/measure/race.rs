//! A race from calibration to confirmation: says which run is next, is told what came of it.

use thiserror::Error;

use super::block::{BenchLimits, Block};
use super::contamination::{CALIBRATION_RUNS, Limits};
use super::looks::{Look, NoLook, looks};
use super::order::hash_seed;
use super::rank::Confirmation;
use super::run::{Measured, Purpose, Run, RunOrder, SeriesId, Side};
use super::series::Series;
use super::settings::{Bench, Entrant, Settings, Terms};

mod closing;
mod event;
mod standing;
mod tie;

pub use event::Event;
pub use standing::{Report, Tally};
pub use tie::Counts;

/// The base itself failed: nothing can be compared with it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("bench command `{bench}` failed in the base: {why}")]
pub struct BaseFailed {
    /// Which command.
    pub bench: String,
    /// How.
    pub why: String,
}

/// A race under way. Ask [`Race::next_run`], run it, tell [`Race::record`]; at the end read [`Race::report`].
///
/// ```
/// use fairtrial_candidates::measure::{Bench, Entrant, Measured, Race, Settings, Side};
///
/// let benches = vec![Bench { name: "topo".to_owned(), weight: 1.0, ..Bench::default() }];
/// let entrants = vec![Entrant { id: "c-91ab03".to_owned(), changed_lines: 13 }];
/// let mut race = Race::new(Settings::default(), 1, benches, entrants)?;
/// while let Some(order) = race.next_run() {
///     let is_base = matches!(order.side, Side::Base | Side::Control);
///     let wall_s = Some(if is_base { 0.100 } else { 0.071 });
///     race.record(Measured { wall_s, ..Measured::default() })?;
/// }
/// assert_eq!(race.report().winner.as_deref(), Some("c-91ab03"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Race {
    settings: Settings,
    terms: Terms,
    round: u32,
    entrants: Vec<Entrant>,
    looks: Vec<Look>,
    /// One per bench command; none while calibrating.
    limits: Vec<BenchLimits>,
    calibration: Vec<Run>,
    stage: Stage,
    /// The series that counts.
    raced: Option<Series>,
    confirmations: Vec<(String, Option<Confirmation>)>,
    /// By candidate; none at all where ties are left as they are.
    counts: Option<Counts>,
    aa_failed: bool,
    tally: Tally,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
enum Stage {
    Calibrating(RunOrder),
    Measuring(Box<(Series, Block)>),
    /// Those that equal the leader are to be counted.
    Tied,
    Over,
}

impl Race {
    /// A race of `entrants`; `round` tells apart the races of one evaluation.
    ///
    /// # Errors
    /// `max_blocks` leaves no look.
    pub fn new(
        settings: Settings,
        round: u32,
        benches: Vec<Bench>,
        entrants: Vec<Entrant>,
    ) -> Result<Self, NoLook> {
        let looks = looks(settings.alpha, settings.max_blocks)?;
        let terms = Terms::new(&settings, benches);
        let mut race = Self {
            settings,
            terms,
            round,
            looks,
            limits: Vec::new(),
            calibration: Vec::new(),
            stage: Stage::Over,
            raced: None,
            confirmations: Vec::new(),
            counts: None,
            aa_failed: false,
            tally: Tally::default(),
            events: Vec::new(),
            entrants,
        };
        if let Some(first) = race.calibration_order(0)
            && !race.entrants.is_empty()
        {
            race.stage = Stage::Calibrating(first);
        }
        Ok(race)
    }

    /// What to run next; nothing when the race is over, or waits for [`Race::take_counts`]. The block is complete when the next run is of another.
    #[must_use]
    pub fn next_run(&self) -> Option<&RunOrder> {
        match &self.stage {
            Stage::Calibrating(order) => Some(order),
            Stage::Measuring(measuring) => measuring.1.next(),
            Stage::Tied | Stage::Over => None,
        }
    }

    /// Takes the result of [`Race::next_run`]; gives the line to be kept.
    ///
    /// # Errors
    /// The base failed. The race can go no further.
    ///
    /// # Panics
    /// No run was asked for.
    pub fn record(&mut self, measured: Measured) -> Result<Run, BaseFailed> {
        let order = self
            .next_run()
            .expect("a run is recorded that was asked for")
            .clone();
        self.refuse_failed_base(&order, &measured)?;
        self.tally.runs += 1;
        let run = match &mut self.stage {
            Stage::Measuring(measuring) => measuring.1.record(&self.terms, &self.limits, measured),
            _ => self.calibrate(order, measured),
        };
        self.close_block();
        Ok(run)
    }

    /// What happened since this was last asked.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The run that is asked for was never made and never will be: judge without it.
    pub(crate) fn go_without(&mut self) {
        match &mut self.stage {
            Stage::Calibrating(_) => {
                self.limits.clear();
                self.begin(Purpose::Race, 1);
            }
            Stage::Measuring(measuring) => {
                let (series, block) = measuring.as_mut();
                match block.next().map(|order| order.side.clone()) {
                    Some(side @ Side::Candidate(_)) => block.drop_side(&self.terms, &side),
                    _ => series.cut(),
                }
                self.close_block();
            }
            Stage::Tied => self.take_counts(&Counts::new()),
            Stage::Over => {}
        }
    }

    fn refuse_failed_base(&self, order: &RunOrder, measured: &Measured) -> Result<(), BaseFailed> {
        let failure = self.terms.failure(measured);
        match (&order.side, failure) {
            (Side::Base | Side::Control, Some(why)) => Err(BaseFailed {
                bench: order.bench.clone(),
                why,
            }),
            _ => Ok(()),
        }
    }

    /// Of all runs that show what is usual, the one after so many; none once all were made.
    fn calibration_order(&self, done: usize) -> Option<RunOrder> {
        let series = self.series(Purpose::Calibration, 1);
        let benches = self.terms.benches.iter();
        let mut orders = benches.flat_map(|bench| {
            let counts = bench.slopes.of(&Side::Base);
            let loops = match counts {
                None => vec![None],
                Some(counts) => vec![Some(counts.low), Some(counts.high)],
            };
            let series = &series;
            (1..=CALIBRATION_RUNS).flat_map(move |block| {
                let loops = loops.clone().into_iter().zip(0..);
                loops.map(move |(loops, position)| RunOrder {
                    block,
                    position,
                    side: Side::Base,
                    bench: bench.name.clone(),
                    hash_seed: hash_seed(self.terms.seed, series, block),
                    repeat: 0,
                    partner_of: None,
                    loops,
                    series: series.clone(),
                })
            })
        });
        orders.nth(done)
    }

    fn calibrate(&mut self, order: RunOrder, measured: Measured) -> Run {
        let run = Run {
            order,
            measured,
            contamination: Vec::new(),
        };
        self.calibration.push(run.clone());
        match self.calibration_order(self.calibration.len()) {
            Some(next) => self.stage = Stage::Calibrating(next),
            None => {
                self.limits = self
                    .terms
                    .benches
                    .iter()
                    .map(|bench| self.usual(bench))
                    .collect();
                self.begin(Purpose::Race, 1);
            }
        }
        run
    }

    /// Each bench command has limits of its own: what is usual for one is a disturbance of another.
    fn usual(&self, bench: &Bench) -> BenchLimits {
        let limits = |is_low: bool| {
            let runs = self.calibration.iter().filter(|run| {
                run.order.bench == bench.name && bench.slopes.is_low(&run.order) == is_low
            });
            let runs: Vec<Measured> = runs.map(|run| run.measured.clone()).collect();
            Limits::from_calibration(&runs)
        };
        BenchLimits {
            low: limits(true),
            high: limits(false),
        }
    }

    fn series(&self, purpose: Purpose, attempt: u32) -> SeriesId {
        SeriesId {
            round: self.round,
            purpose,
            attempt,
        }
    }

    fn begin(&mut self, purpose: Purpose, attempt: u32) {
        let candidates: Vec<String> = match &purpose {
            Purpose::Confirmation(id) => vec![id.clone()],
            _ => self.unfailed().collect(),
        };
        let id = self.series(purpose, attempt);
        let series = Series::new(id, &self.settings, &self.looks, candidates);
        self.stage = Stage::Over;
        if series.end.is_none() {
            self.next_block(series);
        }
    }

    /// A candidate that failed in the first attempt does not run again in the second.
    fn unfailed(&self) -> impl Iterator<Item = String> {
        let failed = |id: &str| self.lane(id).is_some_and(|lane| lane.failure.is_some());
        let ids = self.entrants.iter().map(|entrant| entrant.id.clone());
        ids.filter(move |id| !failed(id))
    }

    fn next_block(&mut self, series: Series) {
        let block = Block::new(&self.terms, &series.id, series.blocks + 1, series.sides());
        self.stage = Stage::Measuring(Box::new((series, block)));
    }

    fn close_block(&mut self) {
        let is_open =
            |(series, block): &(Series, Block)| series.end.is_none() && block.next().is_some();
        let (mut series, block) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Measuring(measuring) if !is_open(&measuring) => *measuring,
            other => return self.stage = other,
        };
        if series.end.is_none() {
            self.judge_block(&mut series, &block);
        }
        match series.end {
            None => self.next_block(series),
            Some(end) => self.close_series(series, end),
        }
    }

    fn judge_block(&mut self, series: &mut Series, block: &Block) {
        let result = block.result(&self.terms);
        self.tally.blocks += 1;
        self.tally.repeated += u64::from(result.repeated);
        self.tally.flagged += u64::from(result.flagged);
        self.events.push(Event::Block {
            series: series.id.clone(),
            block: result.number,
        });
        if let Some(look) = series.add(&result) {
            self.events.push(Event::Look {
                series: series.id.clone(),
                look,
                judgements: series.judged_at(look),
            });
        }
    }
}

#[cfg(test)]
mod tests;
