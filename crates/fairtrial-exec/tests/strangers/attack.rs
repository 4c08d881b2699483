//! The attack itself: what is kept first, then what chance makes of valid messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::chance::Chance;

/// A decoder and what it is usually given.
pub(crate) struct Door {
    /// The name of its directory of kept inputs.
    pub(crate) name: &'static str,
    /// Valid messages.
    pub(crate) seeds: Vec<Vec<u8>>,
    /// Bytes that mean something to it: tags, kinds.
    pub(crate) tags: &'static [u8],
    /// Gives it bytes; panics if it does not stand them.
    pub(crate) open: fn(&[u8]),
}

/// Every byte held by the process is counted, so doors are attacked one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const FIRST_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const ROUNDS: u64 = 100_000;

impl Door {
    /// Shows it the seeds alone, as they are.
    pub(crate) fn show(&self) {
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        self.seeds.iter().for_each(|seed| (self.open)(seed));
    }

    /// Fails the test if there are bytes that the door does not stand.
    pub(crate) fn attack(&self) {
        self.show();
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        self.replay();
        let (rounds, mut seed) = (
            setting("FAIRTRIAL_FUZZ_ROUNDS", ROUNDS),
            setting("FAIRTRIAL_FUZZ_SEED", FIRST_SEED),
        );
        for _ in 0..rounds {
            let mut chance = Chance::new(seed);
            let bytes = chance.change(&self.seeds, self.tags);
            self.try_one(&bytes, seed);
            seed = chance.next();
        }
    }

    fn replay(&self) {
        let mut kept: Vec<PathBuf> = std::fs::read_dir(self.kept())
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        kept.sort();
        for path in kept {
            let bytes = std::fs::read(&path).expect("a kept input can be read");
            let stood = catch_unwind(AssertUnwindSafe(|| (self.open)(&bytes)));
            assert!(stood.is_ok(), "`{}` breaks it again", path.display());
        }
    }

    fn try_one(&self, bytes: &[u8], seed: u64) {
        if catch_unwind(AssertUnwindSafe(|| (self.open)(bytes))).is_ok() {
            return;
        }
        let path = self.kept().join(format!("found-{seed:016x}"));
        std::fs::create_dir_all(self.kept()).expect("a directory can be made");
        std::fs::write(&path, bytes).expect("an input can be kept");
        panic!(
            "seed {seed}: {} bytes broke `{}`; kept as `{}`",
            bytes.len(),
            self.name,
            path.display()
        );
    }

    fn kept(&self) -> PathBuf {
        let all = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/strangers");
        PathBuf::from(all).join(self.name)
    }
}

fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().expect("a number"))
}
