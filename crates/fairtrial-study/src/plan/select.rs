//! Which runs stay when a plan is larger than its budget.

use crate::compat::Compat;
use crate::design::Design;
use crate::random::Random;
use crate::study::{Sample, Study};
use crate::value::Value;

/// Runs of the whole plan that are kept.
#[derive(Debug)]
pub(super) enum Selection {
    All,
    First(u64),
    /// A bit for each run of the whole plan.
    Some(Vec<u64>),
}

impl Selection {
    /// `sizes` are the runs of each admissible condition; at most `most` are kept.
    pub(super) fn of(study: &Study, design: &Design, sizes: &[(usize, u64)], most: u64) -> Self {
        // DRE knows no other cut, and its plan is what `dre-0.2` promises.
        if study.sample != Some(Sample::Balanced) || study.compat == Compat::Dre {
            return Self::First(most);
        }
        let quotas = quotas(sizes, most);
        let total: u64 = sizes.iter().map(|(_, size)| size).sum();
        let mut bits = vec![0_u64; (total as usize).div_ceil(64)];
        let mut start = 0;
        for ((condition, size), quota) in sizes.iter().zip(quotas) {
            let key = Value::Text(design.condition(*condition).id().to_string());
            let mut runs: Vec<u32> = (0..*size as u32).collect();
            Random::stream(&study.base_seed(), "sample", &key).shuffle(&mut runs);
            for run in &runs[..quota as usize] {
                let bit = start + *run as usize;
                bits[bit / 64] |= 1 << (bit % 64);
            }
            start += *size as usize;
        }
        Self::Some(bits)
    }

    pub(super) fn holds(&self, run: usize) -> bool {
        match self {
            Self::All => true,
            Self::First(most) => (run as u64) < *most,
            Self::Some(bits) => bits[run / 64] >> (run % 64) & 1 == 1,
        }
    }
}

/// Round by round, each condition in turn yields one run while it has any.
fn quotas(sizes: &[(usize, u64)], most: u64) -> Vec<u64> {
    let mut quotas = vec![0; sizes.len()];
    let mut left = most;
    while left > 0 {
        let open: Vec<usize> = (0..sizes.len())
            .filter(|at| quotas[*at] < sizes[*at].1)
            .collect();
        if open.is_empty() {
            break;
        }
        // As many whole rounds at once as every open condition can give.
        let smallest = open
            .iter()
            .map(|at| sizes[*at].1 - quotas[*at])
            .min()
            .unwrap_or(1);
        let rounds = smallest.min(left / open.len() as u64);
        if rounds == 0 {
            for at in open.iter().take(left as usize) {
                quotas[*at] += 1;
            }
            break;
        }
        for at in &open {
            quotas[*at] += rounds;
        }
        left -= rounds * open.len() as u64;
    }
    quotas
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-31
    #[test]
    fn quotas_differ_by_at_most_one_unless_a_condition_is_exhausted() {
        assert_eq!(quotas(&[(0, 5), (1, 5), (2, 5)], 7), [3, 2, 2]);
        assert_eq!(quotas(&[(0, 1), (1, 5), (2, 5)], 7), [1, 3, 3]);
        assert_eq!(quotas(&[(0, 2), (1, 2)], 9), [2, 2]);
    }
}
