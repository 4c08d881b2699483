//! Two arms compared: difference, effect size, p.

use super::student::{gamma_ratio, quantile, two_tails, upper_tail};
use super::{Interval, Moments, NORMAL_975};

/// What is claimed of left minus right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Direction {
    Greater,
    Less,
    Different,
    /// Within so much of each other: two one-sided tests.
    Equivalent(f64),
}

/// How two arms compare.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) method: Method,
    /// Left minus right.
    pub(crate) difference: f64,
    pub(crate) interval: Interval,
    /// What a test of means finds besides.
    pub(crate) means: Option<MeanTest>,
    pub(crate) p: f64,
}

/// By which test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Means of independent runs.
    Welch,
    /// Means of pairs.
    Paired,
    /// Proportions of independent runs.
    Fisher,
    /// Proportions of pairs.
    McNemar,
}

/// What a test of means finds besides difference and p.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeanTest {
    /// Hedges' g.
    pub(crate) effect: f64,
    pub(crate) effect_interval: Interval,
    pub(crate) t: f64,
    pub(crate) df: f64,
}

impl Comparison {
    /// Of proportions: no difference of theirs is beyond -1 and 1.
    pub(crate) fn of_proportions(mut self) -> Self {
        self.interval.low = self.interval.low.max(-1.0);
        self.interval.high = self.interval.high.min(1.0);
        self
    }
}

/// Welch's test; none where an arm has fewer than two numbers, or nothing varies.
pub(crate) fn welch(left: &Moments, right: &Moments, direction: Direction) -> Option<Comparison> {
    let (n, m) = (left.n as f64, right.n as f64);
    let (v, w) = (left.variance()?, right.variance()?);
    let (a, b) = (v / n, w / m);
    let df = (a + b) * (a + b) / (a * a / (n - 1.0) + b * b / (m - 1.0));
    let difference = left.mean - right.mean;
    let pooled_df = n + m - 2.0;
    let pooled = ((v * (n - 1.0) + w * (m - 1.0)) / pooled_df).sqrt();
    let d = difference / pooled;
    let spread = (n + m) / (n * m) + d * d / (2.0 * (n + m));
    let scale = Scale {
        method: Method::Welch,
        error: (a + b).sqrt(),
        df,
        effect: d * correction(pooled_df),
        effect_error: spread.sqrt() * correction(pooled_df),
    };
    scale.compare(difference, direction)
}

/// The paired test of equally many numbers; the effect is in units of the arms' average spread.
pub(crate) fn paired(left: &[f64], right: &[f64], direction: Direction) -> Option<Comparison> {
    let differences: Vec<f64> = left.iter().zip(right).map(|(l, r)| l - r).collect();
    let (of_left, of_right) = (Moments::from_iter(left), Moments::from_iter(right));
    let of_differences = Moments::from_iter(&differences);
    let (v, w, u) = (
        of_left.variance()?,
        of_right.variance()?,
        of_differences.variance()?,
    );
    let n = of_differences.n as f64;
    let df = n - 1.0;
    let d = of_differences.mean / f64::midpoint(v, w).sqrt();
    // Var(l - r) = Var l + Var r - 2 r sd(l) sd(r)
    let correlation = match (v * w).sqrt() {
        0.0 => 0.0,
        product => (v + w - u) / (2.0 * product),
    };
    let spread = (1.0 / n + d * d / (2.0 * n)) * 2.0 * (1.0 - correlation).max(0.0);
    let scale = Scale {
        method: Method::Paired,
        error: (u / n).sqrt(),
        df,
        effect: d * correction(df),
        effect_error: spread.sqrt() * correction(df),
    };
    scale.compare(of_differences.mean, direction)
}

/// Of Hedges: by how much d of a small sample is too large.
fn correction(df: f64) -> f64 {
    match df > 1.0 {
        true => gamma_ratio((df - 1.0) / 2.0) / (df / 2.0).sqrt(),
        false => 0.0, // the formula's limit: one degree of freedom says nothing of the size
    }
}

struct Scale {
    method: Method,
    error: f64,
    df: f64,
    effect: f64,
    effect_error: f64,
}

impl Scale {
    fn compare(&self, difference: f64, direction: Direction) -> Option<Comparison> {
        let Self { error, df, .. } = *self;
        if error.is_nan() || error <= 0.0 || !self.effect.is_finite() {
            return None;
        }
        let t = difference / error;
        let p = match direction {
            Direction::Greater => upper_tail(t, df),
            Direction::Less => upper_tail(-t, df),
            Direction::Different => two_tails(t, df),
            Direction::Equivalent(margin) => {
                let above = upper_tail((difference + margin) / error, df);
                let below = upper_tail((margin - difference) / error, df);
                above.max(below)
            }
        };
        Some(Comparison {
            difference,
            interval: Interval::around(difference, quantile(0.975, df) * error),
            method: self.method,
            means: Some(MeanTest {
                effect: self.effect,
                effect_interval: Interval::around(self.effect, NORMAL_975 * self.effect_error),
                t,
                df,
            }),
            p,
        })
    }
}
