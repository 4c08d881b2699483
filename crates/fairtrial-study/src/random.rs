//! CPython's `random.Random`, as far as designs and orders need it.

use std::hash::{BuildHasher, Hasher, RandomState};

use num_bigint::BigInt;

use crate::canonical::{hash64, write_canonical};
use crate::value::Value;

const N: usize = 624;
const M: usize = 397;

/// MT19937, seeded and read as CPython does.
#[derive(Clone)]
pub struct Random {
    state: [u32; N],
    next: usize,
}

impl Random {
    /// `random.Random(seed)` for an integer; its sign does not matter.
    #[must_use]
    pub fn new(seed: &BigInt) -> Self {
        Self::from_key(&seed.magnitude().to_u32_digits())
    }

    /// A generator nobody can repeat.
    #[must_use]
    pub fn from_entropy() -> Self {
        // The standard library keys its hash maps from the operating system's entropy.
        let words = || RandomState::new().build_hasher().finish();
        let key: Vec<u32> = (0..4)
            .map(|_| words())
            .flat_map(|word| [word as u32, (word >> 32) as u32])
            .collect();
        Self::from_key(&key)
    }

    /// The stream of one purpose and key, so that no two groups share a permutation.
    #[must_use]
    pub fn stream(base_seed: &Value, purpose: &str, key: &Value) -> Self {
        let payload = Value::map([
            ("base_seed", base_seed.clone()),
            ("purpose", purpose.into()),
            ("key", key.clone()),
        ]);
        let mut text = String::new();
        write_canonical(&payload, &mut text);
        Self::new(&BigInt::from(hash64(&text)))
    }

    fn from_key(key: &[u32]) -> Self {
        let key = if key.is_empty() { &[0] } else { key };
        let mut state = SCRAMBLED;
        let (mut i, mut j) = (1, 0);
        for _ in 0..N.max(key.len()) {
            let mixed = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = (state[i] ^ mixed.wrapping_mul(1_664_525))
                .wrapping_add(key[j])
                .wrapping_add(j as u32);
            i = advance(i, &mut state);
            j = (j + 1) % key.len();
        }
        for _ in 0..N - 1 {
            let mixed = state[i - 1] ^ (state[i - 1] >> 30);
            state[i] = (state[i] ^ mixed.wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
            i = advance(i, &mut state);
        }
        state[0] = 0x8000_0000;
        Self { state, next: N }
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// `random()`: at least 0, below 1.
    pub fn unit(&mut self) -> f64 {
        let (high, low) = (self.u32() >> 5, self.u32() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u32) -> u32 {
        let bits = 32 - n.leading_zeros();
        loop {
            let drawn = self.u32() >> (32 - bits);
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `shuffle(items)`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let bound = u32::try_from(i + 1).expect("no list of a plan has 2^32 items");
            items.swap(i, self.below(bound) as usize);
        }
    }

    fn refill(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }
}

/// `init_genrand(19650218)`, where every key begins.
const SCRAMBLED: [u32; N] = {
    let mut state = [19_650_218; N];
    let mut i = 1;
    while i < N {
        let mixed: u32 = state[i - 1] ^ (state[i - 1] >> 30);
        state[i] = mixed.wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        i += 1;
    }
    state
};

fn advance(i: usize, state: &mut [u32; N]) -> usize {
    if i + 1 < N {
        return i + 1;
    }
    state[0] = state[N - 1];
    1
}
