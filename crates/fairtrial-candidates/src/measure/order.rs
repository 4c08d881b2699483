//! In which order the sides of a block run, and under which hash seed.

use super::random::Random;
use super::run::{SeriesId, Side};

/// The order for one bench command of one block; drawn, never that of completion.
///
/// Each block is shuffled by itself. What the machine does then makes both signs of a ratio alike likely, however it
/// drifts. Where only one rival is left beside the base, the two go ABBA over two blocks, and which begins is drawn for
/// each such pair.
pub(crate) fn order(
    seed: u64,
    series: &SeriesId,
    (block, repeat): (u32, u32),
    bench: &str,
    sides: &[Side],
) -> Vec<Side> {
    let stream = |purpose: &str, numbers: &[u64]| {
        Random::stream(seed, &format!("{purpose} {series} {bench}"), numbers)
    };
    let mut random = stream("order", &[block.into(), repeat.into()]);
    let mut drawn = sides.to_vec();
    let control = sides.iter().position(|side| *side == Side::Control);
    if sides.len() - usize::from(control.is_some()) != 2 {
        random.shuffle(&mut drawn);
        return drawn;
    }
    let control = control.map(|place| drawn.remove(place));
    let pair = (block - 1) / 2;
    let second_half = block % 2 == 0;
    if stream("pair", &[pair.into()]).coin() != second_half {
        drawn.reverse();
    }
    if let Some(control) = control {
        drawn.insert(random.below(drawn.len() + 1), control);
    }
    drawn
}

/// Whether each side's run of few loops comes before that of many, in one bench command of one block. The same for all
/// sides of the block: a drift of the machine then changes their net times alike.
pub(crate) fn few_loops_first(
    seed: u64,
    series: &SeriesId,
    (block, repeat): (u32, u32),
    bench: &str,
) -> bool {
    let numbers = [block.into(), repeat.into()];
    Random::stream(seed, &format!("loops {series} {bench}"), &numbers).coin()
}

/// The hash seed of a block; no two blocks of a series have the same.
pub(crate) fn hash_seed(seed: u64, series: &SeriesId, block: u32) -> u32 {
    let start = Random::stream(seed, &format!("hash seed {series}"), &[]).u64() as u32;
    // An odd factor maps different blocks to different numbers.
    start.wrapping_add(block.wrapping_mul(0x9e37_79b1))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn series(text: &str) -> SeriesId {
        text.parse().unwrap()
    }

    fn sides(candidates: usize) -> Vec<Side> {
        let candidates = (0..candidates).map(|i| Side::Candidate(format!("c-{i}")));
        [Side::Base, Side::Control]
            .into_iter()
            .chain(candidates)
            .collect()
    }

    fn orders(seed: u64, sides: &[Side], blocks: u32) -> Vec<Vec<Side>> {
        let race = series("1/race/1");
        (1..=blocks)
            .map(|block| order(seed, &race, (block, 0), "b", sides))
            .collect()
    }

    /// CA-63
    #[test]
    fn orders_come_from_the_seed_and_use_every_side_once() {
        let sides = sides(5);
        let drawn = orders(3, &sides, 10);
        assert_eq!(drawn, orders(3, &sides, 10));
        assert_ne!(drawn, orders(4, &sides, 10));
        let whole: BTreeSet<&Side> = sides.iter().collect();
        for order in &drawn {
            assert_eq!(order.iter().collect::<BTreeSet<_>>(), whole);
        }
    }

    /// CA-63
    #[test]
    fn a_side_stands_in_each_place_alike_often() {
        for candidates in [1, 3] {
            let sides = sides(candidates);
            let mut places = BTreeMap::new();
            for order in orders(0, &sides, 3000) {
                for (place, side) in order.into_iter().enumerate() {
                    *places.entry((side, place)).or_insert(0) += 1;
                }
            }
            let even = 3000 / sides.len();
            assert_eq!(places.len(), sides.len() * sides.len());
            for (what, count) in places {
                assert!(
                    count > even * 85 / 100 && count < even * 115 / 100,
                    "{what:?} {count}"
                );
            }
        }
    }

    /// CA-63
    #[test]
    fn two_sides_go_abba_with_or_without_the_control() {
        for all in [
            sides(1),
            vec![Side::Base, Side::Candidate("c-0".to_owned())],
        ] {
            let mut drawn = orders(1, &all, 40);
            for order in &mut drawn {
                order.retain(|side| *side != Side::Control);
            }
            for pair in drawn.chunks(2) {
                assert_eq!(pair[0][0], pair[1][1], "the second block mirrors the first");
            }
            let starts: BTreeSet<&Side> = drawn.iter().step_by(2).map(|order| &order[0]).collect();
            assert_eq!(starts.len(), 2, "which begins is drawn");
        }
    }

    /// CA-63
    #[test]
    fn hash_seeds_differ_between_blocks() {
        let seeds = |name: &str| -> BTreeSet<u32> {
            (1..=1000)
                .map(|block| hash_seed(0, &series(name), block))
                .collect()
        };
        assert_eq!(seeds("1/race/1").len(), 1000);
        assert!(seeds("1/race/1").is_disjoint(&seeds("1/confirm/c-1/1")));
    }
}
