//! Looking for a run of lines in a file, in time that grows with their number alone (Knuth, Morris and Pratt): patches come
//! from strangers, and a file of equal lines must not stop the engine.

/// The first two places at or after `from` where `wanted`, which is not empty, is in `lines` and `fits`.
pub(super) fn find_two<T: PartialEq>(
    lines: &[T],
    wanted: &[T],
    from: usize,
    fits: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let borders = borders(wanted);
    let mut found = Vec::new();
    let mut matched = 0;
    for (at, line) in lines.iter().enumerate().skip(from) {
        while matched > 0 && (matched == wanted.len() || wanted[matched] != *line) {
            matched = borders[matched - 1];
        }
        if wanted[matched] == *line {
            matched += 1;
        }
        if matched == wanted.len() && fits(at + 1 - matched) {
            found.push(at + 1 - matched);
            if found.len() == 2 {
                break;
            }
        }
    }
    found
}

/// For each beginning of `wanted`, how much of its own beginning it ends with.
fn borders<T: PartialEq>(wanted: &[T]) -> Vec<usize> {
    let mut borders = vec![0; wanted.len()];
    let mut matched = 0;
    for at in 1..wanted.len() {
        while matched > 0 && wanted[matched] != wanted[at] {
            matched = borders[matched - 1];
        }
        if wanted[matched] == wanted[at] {
            matched += 1;
        }
        borders[at] = matched;
    }
    borders
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_places_are_those_of_a_plain_search(
            lines in prop::collection::vec(0..3u8, 0..30),
            wanted in prop::collection::vec(0..3u8, 1..6),
            from in 0..5usize,
        ) {
            let plain: Vec<_> = (from..lines.len())
                .filter(|at| lines[*at..].starts_with(&wanted))
                .take(2)
                .collect();
            prop_assert_eq!(find_two(&lines, &wanted, from, |_| true), plain);
        }
    }
}
