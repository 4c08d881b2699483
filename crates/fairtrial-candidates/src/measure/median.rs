//! The median of a series' blocks and its interval.
//!
//! The interval is the wider, at each end, of two: the percentile bootstrap of the median, and the order-statistic
//! interval, which holds its level whatever the noise looks like.
//!
//! The bootstrap draws nothing. The median of a resample is a number of the sample, or the midpoint of two, and the chance
//! of each such pair depends on n alone. Resampling 10,000 times would only estimate these chances, with 50 resamples in
//! a tail of 0.005; here they are exact, no seed can move a verdict, and a look at 40 blocks costs some 820 pairs.

/// An interval of logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Interval {
    pub(crate) fn above(self, bound: f64) -> bool {
        self.low > bound
    }

    pub(crate) fn below(self, bound: f64) -> bool {
        self.high < bound
    }

    /// Between `-margin` and `margin`; never for no margin.
    pub(crate) fn within(self, margin: f64) -> bool {
        margin > 0.0 && self.low >= -margin && self.high <= margin
    }

    pub(crate) fn half_width(self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// What medians of n numbers have in common.
pub(crate) struct MedianLaw {
    n: usize,
    /// The two middle ranks of a resample, from 0, and their chance.
    pairs: Vec<(usize, usize, f64)>,
    /// The chance of at most k heads among n coins.
    coins: Vec<f64>,
}

impl MedianLaw {
    /// For `n` numbers, at least 1.
    pub(crate) fn new(n: usize) -> Self {
        let binomial = Binomial::new(n);
        let pairs = if n % 2 == 1 {
            middle_of_odd(&binomial)
        } else {
            middles_of_even(&binomial)
        };
        Self {
            n,
            pairs,
            coins: binomial.at_most(0.5),
        }
    }

    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// The sample these are.
    pub(crate) fn sample(&self, values: &[f64]) -> Sample<'_> {
        assert_eq!(values.len(), self.n, "a law serves samples of its size");
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let middle =
            |(i, j, chance): &(usize, usize, f64)| (f64::midpoint(sorted[*i], sorted[*j]), *chance);
        let mut resampled: Vec<(f64, f64)> = self.pairs.iter().map(middle).collect();
        resampled.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Sample {
            law: self,
            sorted,
            resampled,
        }
    }

    /// How many numbers at each end the order-statistic interval leaves out, and one more; none if n is too small.
    fn rank(&self, share: f64) -> Option<usize> {
        // So that a share of exactly 2/2^n is not lost to rounding.
        let tail = share / 2.0 * (1.0 + 1e-12);
        let left_out = self.coins.iter().take_while(|chance| **chance <= tail);
        left_out.count().checked_sub(1)
    }
}

/// Numbers of which the median is asked.
pub(crate) struct Sample<'a> {
    law: &'a MedianLaw,
    sorted: Vec<f64>,
    /// Medians of resamples, in order, with their chances.
    resampled: Vec<(f64, f64)>,
}

impl Sample<'_> {
    pub(crate) fn median(&self) -> f64 {
        median(&self.sorted)
    }

    /// The median of the means of all pairs, each number with itself too.
    pub(crate) fn hodges_lehmann(&self) -> f64 {
        let from = |i: usize| self.sorted[i..].iter().map(move |other| (i, other));
        let mut means: Vec<f64> = (0..self.sorted.len())
            .flat_map(from)
            .map(|(i, other)| f64::midpoint(self.sorted[i], *other))
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        median(&means)
    }

    /// Missed by the true median with a chance of at most `share`; without bounds where n is too small for that.
    pub(crate) fn interval(&self, share: f64) -> Interval {
        let Some(rank) = self.law.rank(share) else {
            return Interval {
                low: f64::NEG_INFINITY,
                high: f64::INFINITY,
            };
        };
        let tail = share / 2.0;
        let last = self.sorted.len() - 1;
        Interval {
            low: self.sorted[rank].min(reach(self.resampled.iter(), tail)),
            high: self.sorted[last - rank].max(reach(self.resampled.iter().rev(), tail)),
        }
    }
}

/// Where the chances, added up, reach `tail`.
fn reach<'a>(mut resampled: impl Iterator<Item = &'a (f64, f64)>, tail: f64) -> f64 {
    let mut sum = 0.0;
    let found = resampled.find(|(_, chance)| {
        sum += chance;
        sum >= tail
    });
    found.expect("all chances add up to 1, a tail is less").0
}

/// Of sorted numbers, at least one.
fn median(sorted: &[f64]) -> f64 {
    let last = sorted.len() - 1;
    f64::midpoint(sorted[last / 2], sorted[last.div_ceil(2)])
}

/// One middle: rank i if at least half of the resample is at most i, and not so for i - 1.
fn middle_of_odd(binomial: &Binomial) -> Vec<(usize, usize, f64)> {
    let below = ranks_of_middle(binomial, binomial.n.div_ceil(2));
    let pair = |(i, chance): (usize, f64)| (i, i, chance);
    below.into_iter().enumerate().map(pair).collect()
}

/// Two middles, i and j: half of the resample is at most i with i its greatest, half at least j with j its least.
fn middles_of_even(binomial: &Binomial) -> Vec<(usize, usize, f64)> {
    let n = binomial.n;
    let half = n / 2;
    // The logarithm of the chance that the greatest of `half` numbers has this rank; by symmetry also that of the least.
    let greatest: Vec<f64> = (1..=n)
        .map(|rank| {
            let at_most = half as f64 * (rank as f64 / n as f64).ln();
            let not_less = ((rank - 1) as f64 / rank as f64).powf(half as f64);
            at_most + (-not_less).ln_1p()
        })
        .collect();
    let ways = binomial.ln_ways(half);
    let mut pairs = Vec::new();
    for (i, whole) in ranks_of_middle(binomial, half).into_iter().enumerate() {
        let mut both_here = whole;
        for j in i + 1..n {
            let chance = (ways + greatest[i] + greatest[n - 1 - j]).exp();
            both_here -= chance;
            pairs.push((i, j, chance));
        }
        pairs.push((i, i, both_here.max(0.0)));
    }
    // Rare ones cost time and change nothing: all together less than 1e-12 for any n of use.
    pairs.retain(|(_, _, chance)| *chance > 1e-18);
    pairs
}

/// The chance of each rank to be the `middle`-th smallest of a resample.
fn ranks_of_middle(binomial: &Binomial, middle: usize) -> Vec<f64> {
    let n = binomial.n;
    let reached = |rank: usize| 1.0 - binomial.at_most(rank as f64 / n as f64)[middle - 1];
    let reached: Vec<f64> = (0..n).map(reached).chain([1.0]).collect();
    reached.windows(2).map(|two| two[1] - two[0]).collect()
}

/// Counts of n independent draws.
struct Binomial {
    n: usize,
    ln_factorials: Vec<f64>,
}

impl Binomial {
    fn new(n: usize) -> Self {
        let sum = |sum: &mut f64, k: usize| {
            *sum += (k.max(1) as f64).ln();
            Some(*sum)
        };
        Self {
            n,
            ln_factorials: (0..=n).scan(0.0, sum).collect(),
        }
    }

    fn ln_ways(&self, k: usize) -> f64 {
        self.ln_factorials[self.n] - self.ln_factorials[k] - self.ln_factorials[self.n - k]
    }

    /// The chance of at most k hits, for every k, of `n` draws that hit with chance `p`.
    fn at_most(&self, p: f64) -> Vec<f64> {
        if p == 0.0 {
            return vec![1.0; self.n + 1];
        }
        let (hit, miss) = (p.ln(), (-p).ln_1p());
        let add = |sum: &mut f64, k: usize| {
            *sum += (self.ln_ways(k) + k as f64 * hit + (self.n - k) as f64 * miss).exp();
            Some(*sum)
        };
        (0..=self.n).scan(0.0, add).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::random::Random;
    use super::*;

    fn numbers(n: usize, seed: u64) -> Vec<f64> {
        let mut random = Random::stream(seed, "numbers", &[]);
        (0..n)
            .map(|_| random.below(1_000_000) as f64 / 1e6)
            .collect()
    }

    /// CA-66
    #[test]
    fn chances_add_up_to_one() {
        for n in [1, 2, 7, 8, 12, 27, 40, 90, 203, 1000] {
            let law = MedianLaw::new(n);
            let sum: f64 = law.pairs.iter().map(|(_, _, chance)| chance).sum();
            assert!((sum - 1.0).abs() < 1e-9, "{n}: {sum}");
        }
    }

    /// CA-66: 10,000 resamples estimate what is exact here.
    #[test]
    fn resampling_gives_the_same_interval_within_its_own_error() {
        for n in [8, 27, 40] {
            let values = numbers(n, n as u64);
            let law = MedianLaw::new(n);
            let sample = law.sample(&values);
            let mut random = Random::stream(1, "resamples", &[]);
            let mut medians: Vec<f64> = (0..10_000)
                .map(|_| {
                    let mut drawn: Vec<f64> = (0..n).map(|_| values[random.below(n)]).collect();
                    drawn.sort_unstable_by(f64::total_cmp);
                    median(&drawn)
                })
                .collect();
            medians.sort_unstable_by(f64::total_cmp);
            for tail in [0.005, 0.025, 0.2] {
                // The share of resamples at or below the exact bound is near the tail.
                let bound = reach(sample.resampled.iter(), tail);
                let below = medians.iter().filter(|median| **median < bound).count() as f64;
                let upto = medians.iter().filter(|median| **median <= bound).count() as f64;
                let error = 5.0 * (tail / 10_000.0_f64).sqrt();
                assert!(below / 1e4 <= tail + error, "{n} {tail}: {below}");
                assert!(upto / 1e4 >= tail - error, "{n} {tail}: {upto}");
            }
        }
    }

    /// CA-66: ranks of the sign test, from its tables.
    #[test]
    fn ranks_of_the_order_statistic_interval_are_those_of_the_tables() {
        let rank = |n, share| MedianLaw::new(n).rank(share).map(|rank| rank + 1);
        assert_eq!(rank(8, 0.05), Some(1));
        assert_eq!(rank(12, 0.05), Some(3));
        assert_eq!(rank(40, 0.05), Some(14));
        assert_eq!(rank(40, 0.01), Some(12));
        assert_eq!(rank(8, 2.0 / 256.0), Some(1));
        assert_eq!(rank(8, 0.0077), None);
    }

    /// CA-66
    #[test]
    fn estimates_of_known_numbers() {
        let law = MedianLaw::new(4);
        let sample = law.sample(&[9.0, 1.0, 4.0, 2.0]);
        assert_eq!(sample.median(), 3.0);
        // Means: 1 1.5 2 2.5 3 4 5 5.5 6.5 9.
        assert_eq!(sample.hodges_lehmann(), 3.5);
    }

    proptest! {
        /// CA-66
        #[test]
        fn an_interval_holds_both_middles_and_is_never_narrower_than_that_of_order_statistics(
            values in prop::collection::vec(-1.0..1.0_f64, 8..60),
            share in 0.01..0.2_f64,
        ) {
            let law = MedianLaw::new(values.len());
            let sample = law.sample(&values);
            let interval = sample.interval(share);
            prop_assert!(interval.low <= sample.median() && sample.median() <= interval.high);
            let rank = law.rank(share).expect("8 blocks do for 0.01");
            prop_assert!(interval.low <= sample.sorted[rank]);
            prop_assert!(interval.high >= sample.sorted[values.len() - 1 - rank]);
            let wider = sample.interval(share / 1.2);
            prop_assert!(wider.low <= interval.low && interval.high <= wider.high);
        }

        /// CA-66: swapping base and candidate mirrors what is said of them.
        #[test]
        fn swapped_sides_mirror_the_interval(values in prop::collection::vec(-1.0..1.0_f64, 8..41)) {
            let law = MedianLaw::new(values.len());
            let interval = law.sample(&values).interval(0.01);
            let negated: Vec<f64> = values.iter().map(|value| -value).collect();
            let mirrored = law.sample(&negated).interval(0.01);
            prop_assert!((interval.low + mirrored.high).abs() < 1e-9);
            prop_assert!((interval.high + mirrored.low).abs() < 1e-9);
        }
    }
}
