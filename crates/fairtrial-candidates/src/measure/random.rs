//! Seeded numbers that are the same on every machine. Not for secrets.

/// SplitMix64: small, and good for shuffles of a few sides.
pub(crate) struct Random(u64);

impl Random {
    /// The stream of one purpose, so that drawing for one never moves another.
    pub(crate) fn stream(seed: u64, purpose: &str, numbers: &[u64]) -> Self {
        // FNV-1a. Text is closed by a byte that UTF-8 never has, so no two streams spell alike.
        let text = purpose.bytes().chain([0xff]);
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        let bytes = seed.to_le_bytes().into_iter().chain(text).chain(numbers);
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    /// The next 64 bits.
    pub(crate) fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        // The bias of the high word is below n / 2^64.
        ((u128::from(self.u64()) * n as u128) >> 64) as usize
    }

    /// Heads or tails.
    pub(crate) fn coin(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Every order alike likely.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-63
    #[test]
    fn a_stream_repeats_itself_and_no_other() {
        let first = |seed, purpose, numbers: &[u64]| Random::stream(seed, purpose, numbers).u64();
        assert_eq!(first(0, "order", &[1]), first(0, "order", &[1]));
        assert_ne!(first(0, "order", &[1]), first(0, "order", &[2]));
        assert_ne!(first(0, "order", &[1]), first(1, "order", &[1]));
        assert_ne!(first(0, "order", &[1]), first(0, "other", &[1]));
    }

    /// CA-63
    #[test]
    fn all_orders_of_three_come_alike_often() {
        let mut counts = std::collections::BTreeMap::new();
        let mut random = Random::stream(7, "test", &[]);
        for _ in 0..6000 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            *counts.entry(items).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)));
    }
}
