//! A fair sample of a stream, of bounded size.

use num_bigint::BigInt;

use crate::random::Random;

/// Keeps each of the items with the same chance; equal streams give equal samples.
#[derive(Clone)]
pub(crate) struct Reservoir<T> {
    pub(crate) kept: Vec<T>,
    most: usize,
    /// Items that came.
    pub(crate) seen: u64,
    random: Random,
}

impl<T> Reservoir<T> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            kept: Vec::new(),
            most,
            seen: 0,
            random: Random::new(&BigInt::from(1)),
        }
    }

    pub(crate) fn add(&mut self, item: T) {
        self.seen += 1;
        if self.kept.len() < self.most {
            self.kept.push(item);
            return;
        }
        let place = (self.random.unit() * self.seen as f64) as usize;
        if let Some(kept) = self.kept.get_mut(place) {
            *kept = item;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn a_reservoir_is_bounded_fair_and_repeatable() {
        let fill = || {
            let mut reservoir = Reservoir::new(2000);
            (0..100_000).for_each(|item| reservoir.add(item));
            reservoir.kept
        };
        let kept = fill();
        assert_eq!((kept.len(), &kept), (2000, &fill()));
        let late = kept.iter().filter(|item| **item >= 50_000).count();
        assert!((850..1150).contains(&late), "{late}");
    }
}
