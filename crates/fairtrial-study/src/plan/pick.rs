//! Any run of a plan by its place, for runs do not start in plan order.

use super::run_spec::Hasher;
use super::select::Selection;
use super::walk::{self, Step};
use super::{Plan, RunSpec};

/// Makes runs by their places.
pub struct Picker<'p> {
    plan: &'p Plan<'p>,
    /// Of each admissible condition, its index, and where its runs begin in the whole plan.
    starts: Vec<(usize, u64)>,
    /// Where runs were left out: how many are kept before each 64 of the whole plan.
    kept: Vec<u32>,
    hasher: Hasher<'p>,
}

impl<'p> Picker<'p> {
    pub(super) fn new(plan: &'p Plan<'p>) -> Self {
        let sizes = walk::sizes(&plan.design, &plan.cast, plan.study.budget.replicates);
        let starts = sizes.iter().scan(0, |end, (condition, size)| {
            let start = *end;
            *end += size;
            Some((*condition, start))
        });
        let kept = match &plan.selection {
            Selection::Some(bits) => bits
                .iter()
                .scan(0, |before, word| {
                    let here = *before;
                    *before += word.count_ones();
                    Some(here)
                })
                .collect(),
            Selection::All | Selection::First(_) => Vec::new(),
        };
        Self {
            starts: starts.collect(),
            kept,
            hasher: Hasher::new(plan),
            plan,
        }
    }

    /// The run at a place in the plan, which has that many.
    pub fn run(&mut self, index: u32) -> RunSpec<'p> {
        let step = self.step(self.raw(index));
        self.hasher.run(&step, index as usize)
    }

    /// The place in the whole plan of the `index`th run that is kept.
    fn raw(&self, index: u32) -> u64 {
        let Selection::Some(bits) = &self.plan.selection else {
            return index.into();
        };
        let word = self.kept.partition_point(|before| *before <= index) - 1;
        let mut rest = bits[word];
        for _ in self.kept[word]..index {
            rest &= rest - 1; // without its lowest bit
        }
        word as u64 * 64 + u64::from(rest.trailing_zeros())
    }

    fn step(&self, raw: u64) -> Step<'p> {
        let place = self.starts.partition_point(|(_, start)| *start <= raw) - 1;
        let (condition, start) = self.starts[place];
        let plan = self.plan;
        walk::step_at(&plan.design, &plan.cast, condition, raw - start)
    }
}
