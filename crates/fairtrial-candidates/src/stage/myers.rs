//! How many lines two texts have not in common. Only the number is wanted, so the path that Myers' algorithm finds is
//! never kept.

use std::collections::HashMap;

/// Beyond so many differences the count is no longer the least possible: time grows with their square.
const MOST_DIFFERENCES: usize = 4_000;

/// How many lines come and how many go.
pub(crate) fn added_and_removed(old: &[u8], new: &[u8]) -> (usize, usize) {
    let (old, new) = (lines(old), lines(new));
    let ends = common_ends(&old, &new);
    let middle = |all: &[&[u8]]| all[ends.0..all.len() - ends.1].len();
    let (old_middle, new_middle) = (middle(&old), middle(&new));
    let (old, new) = numbered(
        &old[ends.0..ends.0 + old_middle],
        &new[ends.0..ends.0 + new_middle],
    );
    let common = common_lines(&old, &new);
    (new_middle - common, old_middle - common)
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// How many lines are the same at the beginning, and then at the end.
fn common_ends(old: &[&[u8]], new: &[&[u8]]) -> (usize, usize) {
    let same = |pair: &(&&[u8], &&[u8])| pair.0 == pair.1;
    let first = old.iter().zip(new).take_while(same).count();
    let (old, new) = (&old[first..], &new[first..]);
    let last = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(same)
        .count();
    (first, last)
}

/// Lines as numbers, without those that only one side has: they cannot be in common.
fn numbered(old: &[&[u8]], new: &[&[u8]]) -> (Vec<usize>, Vec<usize>) {
    let number_all = |lines: &[&[u8]]| -> HashMap<Vec<u8>, usize> {
        lines
            .iter()
            .enumerate()
            .map(|(at, line)| (line.to_vec(), at))
            .collect()
    };
    let (of_old, of_new) = (number_all(old), number_all(new));
    let old = old.iter().filter_map(|line| of_new.get(*line).copied());
    let new = new
        .iter()
        .filter(|line| of_old.contains_key(**line))
        .filter_map(|line| of_new.get(*line).copied());
    (old.collect(), new.collect())
}

/// The length of the longest common subsequence: Myers' greedy search, by the number of differences.
fn common_lines(old: &[usize], new: &[usize]) -> usize {
    let most = (old.len() + new.len()).min(MOST_DIFFERENCES);
    // How far along `old` the search is on each diagonal `k`, kept at `k + most + 1`.
    let mut reached = vec![0usize; 2 * most + 3];
    let mut best = 0;
    for differences in 0..=most {
        let mut k = -(differences as isize);
        while k <= differences as isize {
            let at = (k + most as isize + 1) as usize;
            let down = k == -(differences as isize)
                || (k != differences as isize && reached[at - 1] < reached[at + 1]);
            let mut x = if down {
                reached[at + 1]
            } else {
                reached[at - 1] + 1
            };
            let mut y = (x as isize - k) as usize;
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            reached[at] = x;
            // On the way so far, all but the differences were in common.
            best = best.max((x.min(old.len()) + y.min(new.len())).saturating_sub(differences) / 2);
            if x >= old.len() && y >= new.len() {
                return (old.len() + new.len() - differences) / 2;
            }
            k += 2;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The textbook's table.
    fn longest_common(old: &[u8], new: &[u8]) -> usize {
        let mut above = vec![0; new.len() + 1];
        for one in old {
            let mut row = vec![0];
            for (at, other) in new.iter().enumerate() {
                let best = if one == other {
                    above[at] + 1
                } else {
                    row[at].max(above[at + 1])
                };
                row.push(best);
            }
            above = row;
        }
        above[new.len()]
    }

    fn text(letters: &[u8]) -> Vec<u8> {
        letters.iter().flat_map(|letter| [*letter, b'\n']).collect()
    }

    proptest! {
        #[test]
        fn the_count_is_the_least_possible(
            old in prop::collection::vec(b'a'..b'e', 0..40),
            new in prop::collection::vec(b'a'..b'f', 0..40),
        ) {
            let common = longest_common(&old, &new);
            let counted = added_and_removed(&text(&old), &text(&new));
            prop_assert_eq!(counted, (new.len() - common, old.len() - common));
        }
    }

    #[test]
    fn a_huge_rewrite_takes_no_time_to_count() {
        let forth: Vec<u8> = (0..200_000)
            .flat_map(|n| format!("{n}\n").into_bytes())
            .collect();
        let back: Vec<u8> = (0..200_000)
            .rev()
            .flat_map(|n| format!("{n}\n").into_bytes())
            .collect();
        let (added, removed) = added_and_removed(&forth, &back);
        assert_eq!(added, removed);
        assert!((190_000..=200_000).contains(&added), "{added}");
    }
}
