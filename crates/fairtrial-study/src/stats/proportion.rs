//! Outcomes of 0 and 1: exact tests of two proportions, and score intervals of their difference, which stay within
//! [-1, 1].

use super::compare::{Comparison, Direction, Method};
use super::student::upper_tail;
use super::{Interval, NORMAL_975};

/// Probabilities within so much of each other are equal: they are computed by different products.
const EQUAL: f64 = 1e-7;
/// So many degrees of freedom make Student's t the normal distribution, to 1e-6 of a tail.
const NORMAL_DF: f64 = 1e7;
/// Nothing lies so many standard deviations out.
const FARTHEST: f64 = 38.0;

/// Hits of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) hits: u64,
    pub(crate) n: u64,
}

impl Share {
    fn rate(self) -> f64 {
        self.hits as f64 / self.n as f64
    }
}

/// Independent runs compared: Fisher's exact test, Newcombe's hybrid score interval. None where an arm is empty.
pub(crate) fn fisher(left: Share, right: Share, direction: Direction) -> Option<Comparison> {
    if left.n == 0 || right.n == 0 {
        return None;
    }
    let (p, q) = (left.rate(), right.rate());
    let interval = |z: f64| {
        let (of_left, of_right) = (score(p, left.n as f64, z), score(q, right.n as f64, z));
        newcombe((p, of_left), (q, of_right), 0.0)
    };
    let p_value = match direction {
        Direction::Equivalent(margin) => equivalence(p - q, interval, margin),
        _ => exact(&Tails::of_table(left, right), direction),
    };
    Some(Comparison {
        method: Method::Fisher,
        difference: p - q,
        interval: interval(NORMAL_975),
        means: None,
        p: p_value,
    })
}

/// Pairs compared, each a run or the mean of a cell: McNemar's exact test, which is that of the signs of differences, and
/// Newcombe's interval for pairs. None without a pair.
pub(crate) fn mcnemar(left: &[f64], right: &[f64], direction: Direction) -> Option<Comparison> {
    if left.is_empty() {
        return None;
    }
    let n = left.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / n;
    let (p, q) = (mean(left), mean(right));
    let pairs = || left.iter().zip(right);
    let product =
        |of: &dyn Fn(f64, f64) -> f64| pairs().map(|(l, r)| of(l - p, r - q)).sum::<f64>();
    let spread = (product(&|l, _| l * l) * product(&|_, r| r * r)).sqrt();
    let correlation = match spread > 0.0 {
        true => product(&|l, r| l * r) / spread,
        false => 0.0,
    };
    let interval = |z: f64| {
        newcombe(
            (p, score(p, n, z)),
            (q, score(q, n, z)),
            correlation.clamp(-1.0, 1.0),
        )
    };
    let count = |of: &dyn Fn(f64) -> bool| pairs().filter(|(l, r)| of(**l - **r)).count() as u64;
    let (more, less) = (count(&|d| d > 0.0), count(&|d| d < 0.0));
    let p_value = match direction {
        Direction::Equivalent(margin) => equivalence(p - q, interval, margin),
        _ => exact(&Tails::of_signs(more, less), direction),
    };
    Some(Comparison {
        method: Method::McNemar,
        difference: p - q,
        interval: interval(NORMAL_975),
        means: None,
        p: p_value,
    })
}

/// Wilson's score interval of a rate over `n`, so many standard deviations wide.
pub(super) fn score(rate: f64, n: f64, z: f64) -> Interval {
    let z2 = z * z;
    let centre = (rate + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let spread = (rate * (1.0 - rate) / n + z2 / (4.0 * n * n)).sqrt();
    let interval = Interval::around(centre, z * spread / (1.0 + z2 / n));
    // At the ends it is exact, whatever rounding says.
    Interval {
        low: if rate <= 0.0 { 0.0 } else { interval.low },
        high: if rate >= 1.0 { 1.0 } else { interval.high },
    }
}

/// Newcombe's interval of a difference, of two rates with their own intervals.
pub(super) fn newcombe(
    left: (f64, Interval),
    right: (f64, Interval),
    correlation: f64,
) -> Interval {
    let ((p, a), (q, b)) = (left, right);
    let reach = |one: f64, other: f64| {
        (one * one - 2.0 * correlation * one * other + other * other)
            .max(0.0)
            .sqrt()
    };
    Interval {
        low: (p - q - reach(p - a.low, b.high - q)).max(-1.0),
        high: (p - q + reach(a.high - p, q - b.low)).min(1.0),
    }
}

/// Two one-sided tests: how wide an interval may be and still be within the margin.
fn equivalence(difference: f64, interval: impl Fn(f64) -> Interval, margin: f64) -> f64 {
    let beyond = |bound: &dyn Fn(f64) -> f64| {
        let (mut low, mut high) = (0.0, FARTHEST);
        for _ in 0..100 {
            let z = f64::midpoint(low, high);
            match bound(z) < margin {
                true => low = z,
                false => high = z,
            }
        }
        upper_tail(low, NORMAL_DF)
    };
    let above = match difference < margin {
        true => beyond(&|z| interval(z).high),
        false => 1.0 - beyond(&|z| 2.0 * margin - interval(z).low),
    };
    let below = match -difference < margin {
        true => beyond(&|z| -interval(z).low),
        false => 1.0 - beyond(&|z| 2.0 * margin + interval(z).high),
    };
    above.max(below)
}

/// The distribution of a count if the arms are alike, and the count that was found.
struct Tails {
    /// From the least possible count on.
    weights: Vec<f64>,
    found: usize,
}

impl Tails {
    /// Hits on the left, given all hits: hypergeometric.
    fn of_table(left: Share, right: Share) -> Self {
        let hits = left.hits + right.hits;
        let least = hits.saturating_sub(right.n);
        let most = hits.min(left.n);
        let ratio = |k: u64| {
            let (k, n, m, hits) = (k as f64, left.n as f64, right.n as f64, hits as f64);
            (hits - k) * (n - k) / ((k + 1.0) * (m - hits + k + 1.0))
        };
        Self::by_ratios(least, most, left.hits, ratio)
    }

    /// Pairs that differ in favour of the left, of those that differ: binomial.
    fn of_signs(more: u64, less: u64) -> Self {
        let n = more + less;
        let ratio = |k: u64| (n - k) as f64 / (k + 1) as f64;
        Self::by_ratios(0, n, more, ratio)
    }

    /// `ratio(k)` is how much likelier `k + 1` is than `k`. Summed in logarithms: no weight overflows.
    fn by_ratios(least: u64, most: u64, found: u64, ratio: impl Fn(u64) -> f64) -> Self {
        let mut log = 0.0;
        let mut logs = vec![log];
        for k in least..most {
            log += ratio(k).ln();
            logs.push(log);
        }
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|log| (log - top).exp()).collect();
        let total: f64 = weights.iter().sum();
        Self {
            weights: weights.iter().map(|weight| weight / total).collect(),
            found: (found - least) as usize,
        }
    }
}

fn exact(tails: &Tails, direction: Direction) -> f64 {
    let weights = &tails.weights;
    let sum: f64 = match direction {
        Direction::Greater => weights[tails.found..].iter().sum(),
        Direction::Less => weights[..=tails.found].iter().sum(),
        Direction::Different | Direction::Equivalent(_) => {
            let limit = weights[tails.found] * (1.0 + EQUAL);
            weights.iter().filter(|weight| **weight <= limit).sum()
        }
    };
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::wilson;
    use super::*;

    fn share(hits: u64, n: u64) -> Share {
        Share { hits, n }
    }

    fn p(left: (u64, u64), right: (u64, u64), direction: Direction) -> f64 {
        let found = fisher(share(left.0, left.1), share(right.0, right.1), direction);
        found.unwrap().p
    }

    /// FA-21: Fisher's tea tasting (1935), criminal twins (Fisher 1925), and what R says of them.
    #[test]
    fn fishers_test_gives_the_published_values() {
        for (left, right, greater, different) in [
            ((3, 4), (1, 4), 0.242_857_142_857, 0.485_714_285_714),
            ((10, 13), (2, 17), 0.000_465_180_943, 0.000_536_724_119),
        ] {
            assert!((p(left, right, Direction::Greater) - greater).abs() < 1e-11);
            assert!((p(right, left, Direction::Less) - greater).abs() < 1e-11);
            assert!((p(left, right, Direction::Different) - different).abs() < 1e-11);
        }
        assert!((p((8, 8), (8, 8), Direction::Different) - 1.0).abs() < 1e-12);
        assert!((p((8, 8), (0, 8), Direction::Different) - 2.0 / 12_870.0).abs() < 1e-12);
        assert!(
            p(
                (600_000, 1_000_000),
                (400_000, 1_000_000),
                Direction::Different
            ) < 1e-300
        );
    }

    /// FA-21: table II of Newcombe, Statistics in Medicine 17 (1998), method 10.
    #[test]
    fn intervals_of_differences_are_newcombes() {
        for (left, right, low, high) in [
            ((56, 70), (48, 80), 0.0524, 0.3339),
            ((9, 10), (3, 10), 0.1705, 0.8090),
            ((6, 7), (2, 7), 0.0582, 0.8062),
            ((5, 56), (0, 29), -0.0381, 0.1926),
            ((0, 10), (0, 20), -0.1611, 0.2775),
            ((0, 10), (0, 10), -0.2775, 0.2775),
            ((10, 10), (0, 20), 0.6791, 1.0),
            ((10, 10), (0, 10), 0.6075, 1.0),
        ] {
            let (left, right) = (share(left.0, left.1), share(right.0, right.1));
            let found = fisher(left, right, Direction::Different).unwrap().interval;
            assert!(
                (found.low - low).abs() < 5e-5,
                "{left:?} {right:?} {found:?}"
            );
            assert!(
                (found.high - high).abs() < 5e-5,
                "{left:?} {right:?} {found:?}"
            );
        }
    }

    /// FA-21: by the binomial distribution; 10 of 12 pairs is p = 79 / 2048.
    #[test]
    fn mcnemars_test_is_that_of_pairs_that_differ() {
        let pairs = |more: usize, less: usize, equal: usize| {
            let of = |a: usize, b: usize| [vec![1.0; a], vec![0.0; b], vec![1.0; equal]].concat();
            (
                of(more, less),
                [vec![0.0; more], vec![1.0; less], vec![1.0; equal]].concat(),
            )
        };
        let (left, right) = pairs(10, 2, 20);
        let test = |direction| mcnemar(&left, &right, direction).unwrap().p;
        assert!((test(Direction::Different) - 158.0 / 4096.0).abs() < 1e-12);
        assert!((test(Direction::Greater) - 79.0 / 4096.0).abs() < 1e-12);
        let (left, right) = pairs(6, 0, 0);
        let found = mcnemar(&left, &right, Direction::Different).unwrap();
        assert!((found.p - 2.0 / 64.0).abs() < 1e-12);
        assert_eq!((found.difference, found.interval.high), (1.0, 1.0));
        assert!(
            found.interval.low > 0.3 && found.interval.low < 0.6,
            "{found:?}"
        );
    }

    fn binomial(n: u64, rate: f64) -> Vec<f64> {
        let choose = |k: u64| (0..k).fold(1.0, |c, i| c * (n - i) as f64 / (i + 1) as f64);
        (0..=n)
            .map(|k| choose(k) * rate.powi(k as i32) * (1.0 - rate).powi((n - k) as i32))
            .collect()
    }

    /// FA-21: over all outcomes of so many runs, for rates of 0.01 to 0.99.
    #[test]
    fn wilsons_interval_covers_the_rate_as_often_as_it_says() {
        for n in [3, 5, 8, 10, 20, 40] {
            let rates = (1..100).map(|percent| f64::from(percent) / 100.0);
            let covered: Vec<f64> = rates
                .map(|rate| {
                    let chances = binomial(n, rate);
                    let is_in = |k: u64| {
                        let interval = wilson(k, n).unwrap();
                        assert!(interval.low >= 0.0 && interval.high <= 1.0);
                        interval.low <= rate && rate <= interval.high
                    };
                    (0..=n)
                        .filter(|k| is_in(*k))
                        .map(|k| chances[k as usize])
                        .sum()
                })
                .collect();
            let mean = covered.iter().sum::<f64>() / covered.len() as f64;
            let least = covered.iter().copied().fold(1.0, f64::min);
            assert!(
                (0.945..0.98).contains(&mean) && least > 0.83,
                "{n}: {mean} {least}"
            );
        }
    }

    /// FA-21: over all outcomes of two arms, the interval covers the difference, and the test finds one where there is
    /// none no more often than it says.
    #[test]
    fn two_arms_are_covered_and_alike_arms_are_not_told_apart() {
        for (n, m) in [(4, 4), (8, 8), (5, 12), (20, 20)] {
            let table = |k, l| fisher(share(k, n), share(l, m), Direction::Different).unwrap();
            let found: Vec<Vec<Comparison>> = (0..=n)
                .map(|k| (0..=m).map(|l| table(k, l)).collect())
                .collect();
            let (mut sum, mut least, mut count) = (0.0, 1.0_f64, 0);
            for (i, j) in (1..20).flat_map(|i| (1..20).map(move |j| (i, j))) {
                let (p, q) = (f64::from(i) / 20.0, f64::from(j) / 20.0);
                let (of_left, of_right) = (binomial(n, p), binomial(m, q));
                let (mut covered, mut rejected) = (0.0, 0.0);
                for (row, chance) in found.iter().zip(&of_left) {
                    for (test, other) in row.iter().zip(&of_right) {
                        let Interval { low, high } = test.interval;
                        assert!(low >= -1.0 && high <= 1.0 && low <= test.difference);
                        let is_in = low <= p - q + 1e-12 && p - q - 1e-12 <= high;
                        covered += chance * other * f64::from(u8::from(is_in));
                        rejected += chance * other * f64::from(u8::from(test.p <= 0.05));
                    }
                }
                assert!(i != j || rejected <= 0.05, "{n} {m} {p}: {rejected}");
                (sum, least, count) = (sum + covered, least.min(covered), count + 1);
            }
            let mean = sum / f64::from(count);
            assert!(mean > 0.945 && least > 0.86, "{n} {m}: {mean} {least}");
        }
    }

    /// FA-21
    #[test]
    fn two_rates_are_equivalent_when_their_interval_is_within_the_margin() {
        let test = |left, right, margin| p(left, right, Direction::Equivalent(margin));
        assert!(test((500, 1000), (500, 1000), 0.1) < 1e-4);
        assert!(test((5, 10), (5, 10), 0.1) > 0.3);
        assert!(test((9, 10), (1, 10), 0.1) > 0.99);
        // 5 % where the interval of 90 % touches the margin.
        let (left, right) = (share(40, 80), share(44, 80));
        let z90 = 1.644_853_626_951_472;
        let of = |one: Share| (one.rate(), score(one.rate(), one.n as f64, z90));
        let low = newcombe(of(left), of(right), 0.0).low;
        let found = fisher(left, right, Direction::Equivalent(-low)).unwrap().p;
        assert!((found - 0.05).abs() < 1e-5, "{found}");
    }
}
