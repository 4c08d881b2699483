//! The statistics of reports: intervals, comparisons of two arms, adjusted p-values. Numbers in, numbers out.

mod adjust;
mod bootstrap;
mod compare;
mod interval;
mod moments;
mod proportion;
mod student;

pub(crate) use adjust::Adjustment;
pub(crate) use bootstrap::{median, median_interval};
pub(crate) use compare::{Comparison, Direction, MeanTest, Method, paired, welch};
pub(crate) use interval::{Interval, differ, mean_interval, wilson};
pub(crate) use moments::Moments;
pub(crate) use proportion::{Share, fisher, mcnemar};

/// The 97.5 % quantile of the normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;

#[cfg(test)]
mod scipy_tests;
