//! Medians, and their intervals by the percentile bootstrap.
//!
//! The median of a resample is a number of the sample whose rank is that of a middle one among n uniform numbers. So the
//! rank is drawn, not the resample: the same distribution, at a cost that does not grow with n.

use num_bigint::BigInt;

use super::Interval;
use crate::random::Random;

const RESAMPLES: usize = 2000;
const SEED: u32 = 20_240_229;

/// The median of sorted numbers; none of no number.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)]))
}

/// The 95 % interval of the median of sorted numbers; none of fewer than two.
pub(crate) fn median_interval(sorted: &[f64]) -> Option<Interval> {
    let n = sorted.len();
    if n < 2 {
        return None;
    }
    let mut random = Random::new(&BigInt::from(SEED));
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| resampled(sorted, &mut random))
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    Some(Interval {
        low: percentile(&medians, 0.025),
        high: percentile(&medians, 0.975),
    })
}

/// The median of one resample.
fn resampled(sorted: &[f64], random: &mut Random) -> f64 {
    let n = sorted.len();
    let middle = n.div_ceil(2);
    let (before, behind) = (
        gamma(middle as f64, random),
        gamma((n - middle + 1) as f64, random),
    );
    let low = before / (before + behind);
    let at = |place: f64| sorted[((place * n as f64) as usize).min(n - 1)];
    if n % 2 == 1 {
        return at(low);
    }
    // Of an even number there are two in the middle: the next is the least of those behind.
    let step = 1.0 - random.unit().powf(1.0 / (n - middle) as f64);
    f64::midpoint(at(low), at(low + (1.0 - low) * step))
}

/// A number of the gamma distribution of a shape of at least 1, by Marsaglia and Tsang's method.
fn gamma(shape: f64, random: &mut Random) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (radius, angle) = (1.0 - random.unit(), random.unit());
        let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let v = (1.0 + c * normal).powi(3);
        let u = 1.0 - random.unit();
        if v > 0.0 && u.ln() < normal * normal / 2.0 + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Of sorted numbers, between the nearest two.
fn percentile(sorted: &[f64], p: f64) -> f64 {
    let place = p * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn ranks_that_are_drawn_are_those_of_resamples() {
        for n in [5_u32, 8, 31] {
            let sorted: Vec<f64> = (0..n).map(f64::from).collect();
            let mut random = Random::new(&BigInt::from(1));
            let drawn: f64 = (0..20_000).map(|_| resampled(&sorted, &mut random)).sum();
            let mut squares = 0.0;
            let mut direct = 0.0;
            for _ in 0..20_000 {
                let mut resample: Vec<f64> =
                    (0..n).map(|_| sorted[random.below(n) as usize]).collect();
                resample.sort_unstable_by(f64::total_cmp);
                let found = median(&resample).unwrap();
                direct += found;
                squares += found * found;
            }
            let (drawn, direct, squares) = (drawn / 2e4, direct / 2e4, squares / 2e4);
            let error = ((squares - direct * direct) / 1e4).sqrt();
            assert!(
                (drawn - direct).abs() < 5.0 * error,
                "{n}: {drawn} {direct}"
            );
        }
    }

    /// ST-81
    #[test]
    fn the_interval_of_a_median_is_repeatable_and_holds_it() {
        let sorted: Vec<f64> = (0..101).map(f64::from).collect();
        let interval = median_interval(&sorted).unwrap();
        assert_eq!(median_interval(&sorted), Some(interval));
        // Ranks of the binomial interval are 40 and 60, give or take one.
        assert!(
            (interval.low - 40.0).abs() <= 2.0 && (interval.high - 60.0).abs() <= 2.0,
            "{interval:?}"
        );
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
        assert_eq!((median(&[]), median_interval(&[1.0])), (None, None));
    }
}
