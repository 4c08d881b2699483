//! When results may be judged, and at which share of the error rate.

use thiserror::Error;

/// A moment when results may be judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// After so many blocks.
    pub blocks: u32,
    /// Its part of `alpha`.
    pub share: f64,
}

/// Too few blocks for any judgement at this error rate.
#[derive(Clone, Debug, Error, PartialEq)]
#[error(
    "`max_blocks` of {max_blocks} leaves no look at `alpha` {alpha}; at least {least} are needed"
)]
pub struct NoLook {
    /// What was asked for.
    pub max_blocks: u32,
    /// The error rate.
    pub alpha: f64,
    /// The fewest blocks that would do.
    pub least: u32,
}

/// The looks of a series.
///
/// ```
/// let looks = fairtrial_candidates::measure::looks(0.05, 40)?;
/// let blocks: Vec<u32> = looks.iter().map(|look| look.blocks).collect();
/// assert_eq!(blocks, [8, 12, 18, 27, 40]);
/// # Ok::<(), fairtrial_candidates::measure::NoLook>(())
/// ```
///
/// # Errors
/// No look is left: every share is below what its blocks can show.
pub fn looks(alpha: f64, max_blocks: u32) -> Result<Vec<Look>, NoLook> {
    let kept = kept(alpha, max_blocks);
    if kept.is_empty() {
        let least = (1..64).find(|blocks| !self::kept(alpha, *blocks).is_empty());
        return Err(NoLook {
            max_blocks,
            alpha,
            least: least.unwrap_or(u32::MAX),
        });
    }
    Ok(kept)
}

fn kept(alpha: f64, max_blocks: u32) -> Vec<Look> {
    let all = moments(max_blocks);
    // Skipped looks keep their share: `alpha` is split before anything is left out.
    let share = alpha / all.len() as f64;
    let look = |blocks| Look { blocks, share };
    let can_show = |look: &Look| look.share >= smallest_share(look.blocks);
    all.into_iter().map(look).filter(can_show).collect()
}

/// That of n blocks all on one side, were it a matter of chance.
fn smallest_share(blocks: u32) -> f64 {
    2.0 * 0.5_f64.powi(blocks.min(1000).cast_signed())
}

fn moments(max_blocks: u32) -> Vec<u32> {
    const FIRST: [u32; 5] = [8, 12, 18, 27, 40];
    let later = std::iter::successors(Some(60), |blocks: &u32| Some((blocks * 3).div_ceil(2)));
    let mut moments: Vec<u32> = FIRST
        .into_iter()
        .chain(later)
        .take_while(|blocks| *blocks < max_blocks)
        .collect();
    moments.push(max_blocks);
    moments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(alpha: f64, max_blocks: u32) -> Vec<u32> {
        let looks = looks(alpha, max_blocks).unwrap();
        looks.iter().map(|look| look.blocks).collect()
    }

    /// CA-65
    #[test]
    fn looks_grow_by_half_and_end_at_max_blocks() {
        assert_eq!(blocks(0.05, 40), [8, 12, 18, 27, 40]);
        assert_eq!(blocks(0.05, 20), [8, 12, 18, 20]);
        assert_eq!(blocks(0.1, 210), [8, 12, 18, 27, 40, 60, 90, 135, 203, 210]);
    }

    /// CA-65
    #[test]
    fn alpha_is_split_over_all_looks_skipped_ones_too() {
        let looks = looks(0.01, 40).unwrap();
        assert_eq!(looks[0].blocks, 12, "0.002 is below 2/2^8");
        assert!(looks.iter().all(|look| look.share == 0.01 / 5.0));
    }

    /// CA-7, CA-65
    #[test]
    fn too_few_blocks_for_a_look_is_an_error_that_says_how_many_do() {
        assert_eq!(looks(0.05, 5).unwrap_err().least, 6);
        assert!(looks(0.05, 6).is_ok());
        assert!(looks(0.05, 0).is_err());
        assert!(looks(0.0, 40).is_err());
        assert_eq!(
            looks(0.05, 3).unwrap_err().to_string(),
            "`max_blocks` of 3 leaves no look at `alpha` 0.05; at least 6 are needed"
        );
    }
}
