//! Blocks measured together: who is still in, what each look says, when it ends.

use super::block::{BlockResult, Ratios};
use super::looks::Look;
use super::median::{Interval, MedianLaw, Sample};
use super::run::{Metric, SeriesId, Side};
use super::settings::Settings;
use super::verdict::{Bar, Doubt, Judgement, Verdict};

/// How a series ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All is decided, or the last look was taken.
    Judged,
    /// The base differs from itself.
    ControlMissed,
    /// No more blocks were ever run.
    NotRecorded,
}

/// One candidate's way through a series.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) candidate: String,
    /// The latest.
    pub(crate) judgement: Option<Judgement>,
    pub(crate) failure: Option<String>,
    ratios: Vec<Ratios>,
    is_in: bool,
}

impl Lane {
    fn main(&self, blocks: usize) -> Vec<f64> {
        self.ratios[..blocks]
            .iter()
            .map(|ratios| ratios.main)
            .collect()
    }

    /// Whether in a quarter of the blocks the loops took no measurable time: then their ratio is none.
    fn is_unmeasurable(&self, blocks: u32) -> bool {
        let bounds = self.ratios[..blocks as usize].iter();
        let bounds = bounds.filter(|ratios| ratios.is_bound).count();
        bounds * 4 >= blocks as usize
    }

    fn leave(&mut self, verdict: Verdict, doubt: Option<Doubt>) {
        self.is_in = false;
        if let Some(judgement) = &mut self.judgement {
            judgement.settle((verdict, doubt));
        }
    }

    /// Leaves for want of blocks. What a look decided stands; the rest would have been looked at again.
    fn run_out(&mut self) {
        match &self.judgement {
            Some(judgement) if judgement.is_decided() => self.is_in = false,
            _ => self.leave(Verdict::Uncertain, Some(Doubt::NotRecorded)),
        }
    }

    /// Of the latest look; what has none comes last.
    pub(crate) fn ratio(&self) -> f64 {
        let judgement = self.judgement.as_ref();
        judgement.map_or(f64::INFINITY, |judgement| judgement.ratio)
    }
}

/// A series under way or ended.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) id: SeriesId,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) end: Option<End>,
    /// The A/A control's half-width at the latest look, as a logarithm.
    pub(crate) floor: Option<f64>,
    pub(crate) blocks: u32,
    control: Vec<f64>,
    looks: Vec<Look>,
    margin: f64,
    racing: bool,
    /// CPU time may contradict wall time, but no metric that was asked for by name.
    checks_cpu: bool,
}

impl Series {
    pub(crate) fn new(
        id: SeriesId,
        settings: &Settings,
        looks: &[Look],
        candidates: impl IntoIterator<Item = String>,
    ) -> Self {
        let lane = |candidate| Lane {
            candidate,
            judgement: None,
            failure: None,
            ratios: Vec::new(),
            is_in: true,
        };
        let lanes: Vec<Lane> = candidates.into_iter().map(lane).collect();
        Self {
            id,
            end: lanes.is_empty().then_some(End::Judged),
            lanes,
            floor: None,
            blocks: 0,
            control: Vec::new(),
            looks: looks.to_vec(),
            margin: settings.min_effect.ln_1p(),
            racing: settings.racing,
            checks_cpu: settings.metric == Metric::Wall,
        }
    }

    /// Who runs in the next block.
    pub(crate) fn sides(&self) -> Vec<Side> {
        let candidates = self
            .still_in()
            .map(|lane| Side::Candidate(lane.candidate.clone()));
        [Side::Base, Side::Control]
            .into_iter()
            .chain(candidates)
            .collect()
    }

    /// Takes a whole block. Gives the look, if it was one.
    pub(crate) fn add(&mut self, result: &BlockResult) -> Option<Look> {
        self.blocks = result.number;
        self.control.push(result.ratios[&Side::Control].main);
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_in) {
            let side = Side::Candidate(lane.candidate.clone());
            lane.failure = result.failed.get(&lane.candidate).cloned();
            match result.ratios.get(&side) {
                Some(ratios) => lane.ratios.push(*ratios),
                None => lane.run_out(),
            }
        }
        let look = self
            .looks
            .iter()
            .copied()
            .find(|look| look.blocks == self.blocks);
        match look {
            Some(look) => self.judge(look),
            None if self.still_in().next().is_none() => self.end = Some(End::Judged),
            None => {}
        }
        look
    }

    /// What a look said, of all it was about.
    pub(crate) fn judged_at(&self, look: Look) -> Vec<(String, Judgement)> {
        let judged = self.lanes.iter().filter_map(|lane| {
            let judgement = lane.judgement.clone()?;
            (judgement.blocks == look.blocks).then(|| (lane.candidate.clone(), judgement))
        });
        judged.collect()
    }

    /// There are no more blocks to be had.
    pub(crate) fn cut(&mut self) {
        let still_in = self.lanes.iter_mut().filter(|lane| lane.is_in);
        still_in.for_each(Lane::run_out);
        self.end = Some(End::NotRecorded);
    }

    /// No verdict is to be trusted: the base differs from itself.
    pub(crate) fn distrust(&mut self) {
        for lane in &mut self.lanes {
            lane.leave(Verdict::Uncertain, Some(Doubt::AaFailed));
        }
    }

    /// Whether a candidate cannot be told from another, within `min_effect`, by the blocks both ran.
    pub(crate) fn ties(&self, one: &Lane, other: &Lane) -> bool {
        let common = one.ratios.len().min(other.ratios.len());
        let look = self
            .looks
            .iter()
            .rev()
            .find(|look| look.blocks as usize <= common);
        look.is_some_and(|look| {
            let law = MedianLaw::new(look.blocks as usize);
            paired(&law, one, other, look.share).within(self.margin)
        })
    }

    fn still_in(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().filter(|lane| lane.is_in)
    }

    fn judge(&mut self, look: Look) {
        let law = MedianLaw::new(look.blocks as usize);
        let control = law.sample(&self.control).interval(look.share);
        let bar = Bar {
            margin: self.margin,
            floor: control.half_width(),
        };
        self.floor = Some(bar.floor);
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_in) {
            let cpu = self
                .checks_cpu
                .then(|| cpu_interval(&law, lane, look))
                .flatten();
            let sample = lane.main(look.blocks as usize);
            let mut judgement = Judgement::at(look, &law.sample(&sample), bar, cpu);
            if lane.is_unmeasurable(look.blocks) {
                judgement.doubt_all(Doubt::NoLoopTime);
            }
            lane.judgement = Some(judgement);
        }
        if control.above(0.0) || control.below(0.0) {
            self.end = Some(End::ControlMissed);
            return;
        }
        self.part_with_the_decided();
        if self.racing {
            self.eliminate(&law, look);
        }
        let is_last = self.looks.last() == Some(&look);
        if is_last || self.is_over(&law, look) {
            self.end = Some(End::Judged);
        }
    }

    /// A faster one races on, for the others are not behind it yet. It is judged anew at each look, so that its verdict is
    /// always that of the interval beside it.
    fn part_with_the_decided(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_in) {
            let judgement = lane.judgement.as_ref().expect("it was just judged");
            let races_on = self.racing && judgement.verdict == Verdict::Faster;
            lane.is_in = races_on || !judgement.is_decided();
        }
    }

    /// CA-69: those behind the leader, by Holm's step-down over all that are left.
    ///
    /// Who equals the leader within `min_effect` stays, even if surely behind: else, on a quiet machine, the smaller of
    /// two equal changes (CA-80) could never win.
    fn eliminate(&mut self, law: &MedianLaw, look: Look) {
        let Some(leader) = self.leader().cloned() else {
            return;
        };
        let rivals = self
            .lanes
            .iter_mut()
            .filter(|lane| lane.is_in && lane.candidate != leader.candidate);
        let mut left: Vec<(&mut Lane, Sample<'_>)> = rivals
            .map(|lane| {
                let behind = law.sample(&differences(law, lane, &leader));
                (lane, behind)
            })
            .collect();
        loop {
            let before = left.len();
            // Each one out leaves a larger share to the rest.
            let share = look.share / before.max(1) as f64;
            left.retain_mut(|(lane, behind)| {
                let is_out = behind.interval(share).above(0.0)
                    && !behind.interval(look.share).within(self.margin);
                if is_out {
                    lane.leave(Verdict::Eliminated, None);
                }
                !is_out
            });
            if left.len() == before {
                return;
            }
        }
    }

    fn leader(&self) -> Option<&Lane> {
        self.still_in()
            .min_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    }

    /// All are decided, and either one is left or nobody differs from the leader.
    fn is_over(&self, law: &MedianLaw, look: Look) -> bool {
        let Some(leader) = self.leader() else {
            return true;
        };
        let decided = |lane: &Lane| lane.judgement.as_ref().is_some_and(Judgement::is_decided);
        let level = |lane: &Lane| {
            lane.candidate == leader.candidate
                || paired(law, lane, leader, look.share).within(self.margin)
        };
        self.still_in().all(|lane| decided(lane) && level(lane))
    }
}

/// A candidate's time over another's.
fn paired(law: &MedianLaw, one: &Lane, other: &Lane, share: f64) -> Interval {
    law.sample(&differences(law, one, other)).interval(share)
}

/// Block by block.
fn differences(law: &MedianLaw, one: &Lane, other: &Lane) -> Vec<f64> {
    let both = one.ratios.iter().zip(&other.ratios).take(law.n());
    both.map(|(one, other)| one.main - other.main).collect()
}

/// Where every block has CPU time.
fn cpu_interval(law: &MedianLaw, lane: &Lane, look: Look) -> Option<Interval> {
    let cpu: Option<Vec<f64>> = lane.ratios.iter().map(|ratios| ratios.cpu).collect();
    Some(law.sample(&cpu?).interval(look.share))
}
