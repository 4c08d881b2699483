//! Changes to messages, the same for the same seed.

/// A small generator (xorshift).
pub(crate) struct Chance(u64);

/// Lengths and counts that are wrong in an interesting way.
const WORDS: [u64; 12] = [
    0,
    1,
    2,
    8,
    255,
    1 << 16,
    1 << 31,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    /// One of the seeds with one to four changes.
    pub(crate) fn change(&mut self, seeds: &[Vec<u8>], tags: &[u8]) -> Vec<u8> {
        let mut bytes = self.of(seeds).clone();
        for _ in 0..=self.below(4) {
            self.change_once(&mut bytes, seeds, tags);
        }
        bytes
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], tags: &[u8]) {
        let at = self.below(bytes.len());
        let end = (at + self.below(24)).min(bytes.len());
        match self.below(10) {
            _ if bytes.is_empty() => bytes.extend(self.of(seeds)),
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = *self.of(tags),
            2 => bytes[at] = self.next() as u8,
            3 => bytes.truncate(at),
            4 => drop(bytes.splice(at..end, self.of(&WORDS).to_le_bytes())),
            5 => self.bend_a_length(bytes, at),
            6 => drop(bytes.splice(at..end, self.of(seeds).clone())),
            7 => {
                let again = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, again));
            }
            8 => drop(bytes.drain(at..end)),
            _ => bytes.extend(self.of(seeds)),
        }
    }

    /// Writes over what may be a length: a little more or less than it was, or far too much.
    fn bend_a_length(&mut self, bytes: &mut [u8], at: usize) {
        let Some(field) = bytes[at..].first_chunk_mut::<8>() else {
            return;
        };
        let was = u64::from_le_bytes(*field);
        let wrong = *self.of(&WORDS);
        let bent = *self.of(&[was.wrapping_add(1), was.wrapping_sub(1), was << 1, wrong]);
        *field = bent.to_le_bytes();
    }
}
