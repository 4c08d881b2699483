//! 95 % intervals of means and rates.

use super::proportion::{newcombe, score};
use super::student::quantile;
use super::{Moments, NORMAL_975};

/// An interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    /// `centre` and so much to both sides.
    pub(crate) fn around(centre: f64, reach: f64) -> Self {
        Self {
            low: centre - reach,
            high: centre + reach,
        }
    }
}

/// Of a mean, by Student's t; none of fewer than two numbers.
pub(crate) fn mean_interval(moments: &Moments) -> Option<Interval> {
    let n = moments.n as f64;
    let error = (moments.variance()? / n).sqrt();
    Some(Interval::around(
        moments.mean,
        quantile(0.975, n - 1.0) * error,
    ))
}

/// Of a rate, by Wilson's score.
pub(crate) fn wilson(hits: u64, n: u64) -> Option<Interval> {
    if n == 0 {
        return None;
    }
    Some(score(hits as f64 / n as f64, n as f64, NORMAL_975))
}

/// Whether two rates differ: Newcombe's interval of their difference leaves out 0.
pub(crate) fn differ(left: (u64, u64), right: (u64, u64)) -> bool {
    let (Some(a), Some(b)) = (wilson(left.0, left.1), wilson(right.0, right.1)) else {
        return false;
    };
    let rate = |(hits, n): (u64, u64)| hits as f64 / n as f64;
    let Interval { low, high } = newcombe((rate(left), a), (rate(right), b), 0.0);
    low > 0.0 || high < 0.0
}
