//! What is said of a candidate's speed, and how sure it is.

use serde::{Deserialize, Serialize};

use super::looks::Look;
use super::median::{Interval, Sample};

/// Against the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// By more than `min_effect` and the noise floor.
    Faster,
    /// By more than `min_effect`.
    Slower,
    /// Within `min_effect`.
    Equal,
    /// None of these could be shown.
    Uncertain,
    /// Slower than the leader of its race.
    Eliminated,
}

/// To which side an uncertain candidate leans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leaning {
    /// Its ratio is below 1.
    Faster,
    /// Its ratio is above 1.
    Slower,
}

/// Why a verdict is uncertain where its interval alone would say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// Twice, the base differed from itself.
    AaFailed,
    /// CPU time says the opposite of wall time.
    CpuContradicts,
    /// The gain does not exceed the noise floor.
    WithinNoise,
    /// The blocks that would tell were never run.
    NotRecorded,
    /// In many blocks the loops took no measurable time.
    NoLoopTime,
}

/// What a look said of a candidate. Ratios are its time over the base's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// What is reported.
    pub verdict: Verdict,
    /// What its own comparison with the base says; differs from `verdict` in those eliminated or in doubt.
    pub against_base: Verdict,
    /// Of those uncertain.
    pub leaning: Option<Leaning>,
    /// Why the verdict is not that of the interval.
    pub doubt: Option<Doubt>,
    /// The median over blocks.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// The Hodges–Lehmann estimate.
    pub hodges_lehmann: f64,
    /// The confidence level of the interval, 1 minus the look's share.
    pub level: f64,
    /// Blocks it rests on.
    pub blocks: u32,
}

/// What an effect must exceed, as logarithms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    /// Of `min_effect`.
    pub(crate) margin: f64,
    /// Half the width of the A/A control's interval.
    pub(crate) floor: f64,
}

impl Judgement {
    /// At a look, of the candidate's own blocks; `cpu` is the interval of CPU time where it may contradict.
    pub(crate) fn at(look: Look, sample: &Sample<'_>, bar: Bar, cpu: Option<Interval>) -> Self {
        let interval = sample.interval(look.share);
        let median = sample.median();
        let mut judgement = Self {
            verdict: Verdict::Uncertain,
            against_base: Verdict::Uncertain,
            leaning: None,
            doubt: None,
            ratio: median.exp(),
            low: interval.low.exp(),
            high: interval.high.exp(),
            hodges_lehmann: sample.hodges_lehmann().exp(),
            level: 1.0 - look.share,
            blocks: look.blocks,
        };
        let said = compared(interval, bar.margin);
        judgement.settle(match said {
            Verdict::Faster if median >= -bar.floor => {
                (Verdict::Uncertain, Some(Doubt::WithinNoise))
            }
            Verdict::Uncertain => (said, None),
            _ if cpu.is_some_and(|cpu| contradict(interval, cpu)) => {
                (Verdict::Uncertain, Some(Doubt::CpuContradicts))
            }
            _ => (said, None),
        });
        judgement.against_base = judgement.verdict;
        judgement
    }

    /// What the ratio means: `7.7 times faster`. None where the comparison with the base does not say so.
    #[must_use]
    pub fn meaning(&self) -> Option<String> {
        let (factor, word) = match self.against_base {
            Verdict::Faster => (1.0 / self.ratio, "faster"),
            Verdict::Slower => (self.ratio, "slower"),
            _ => return None,
        };
        Some(match factor {
            factor if !factor.is_finite() => return None,
            factor if factor >= 10.0 => format!("{factor:.0} times {word}"),
            factor if factor >= 1.1 => format!("{factor:.1} times {word}"),
            factor => format!("{factor:.2} times {word}"),
        })
    }

    /// Another verdict than the interval's, and why.
    pub(crate) fn settle(&mut self, (verdict, doubt): (Verdict, Option<Doubt>)) {
        self.verdict = verdict;
        self.doubt = doubt;
        self.leaning = match verdict {
            Verdict::Uncertain if self.ratio < 1.0 => Some(Leaning::Faster),
            Verdict::Uncertain if self.ratio > 1.0 => Some(Leaning::Slower),
            _ => None,
        };
    }

    /// Neither the verdict nor the comparison with the base holds.
    pub(crate) fn doubt_all(&mut self, doubt: Doubt) {
        self.settle((Verdict::Uncertain, Some(doubt)));
        self.against_base = Verdict::Uncertain;
    }

    /// No later look is needed.
    pub(crate) fn is_decided(&self) -> bool {
        self.verdict != Verdict::Uncertain || self.doubt == Some(Doubt::CpuContradicts)
    }
}

/// CA-68, on logarithms.
fn compared(interval: Interval, margin: f64) -> Verdict {
    if interval.below(-margin) {
        Verdict::Faster
    } else if interval.above(margin) {
        Verdict::Slower
    } else if interval.within(margin) {
        Verdict::Equal
    } else {
        Verdict::Uncertain
    }
}

fn contradict(one: Interval, other: Interval) -> bool {
    (one.below(0.0) && other.above(0.0)) || (one.above(0.0) && other.below(0.0))
}

#[cfg(test)]
mod tests {
    use super::super::median::MedianLaw;
    use super::super::simulation::placing;
    use super::*;

    /// FA-20
    #[test]
    fn a_ratio_is_told_as_times_faster_or_slower() {
        let told = |verdict, ratio| placing("c-1", verdict, ratio).judgement.unwrap().meaning();
        for (verdict, ratio, words) in [
            (Verdict::Faster, 0.13, "7.7 times faster"),
            (Verdict::Faster, 0.018, "56 times faster"),
            (Verdict::Faster, 0.95, "1.05 times faster"),
            (Verdict::Slower, 1.3, "1.3 times slower"),
            (Verdict::Slower, 212.4, "212 times slower"),
        ] {
            assert_eq!(told(verdict, ratio).as_deref(), Some(words));
        }
        for verdict in [Verdict::Equal, Verdict::Uncertain] {
            assert_eq!(told(verdict, 0.7), None, "the data do not say so");
        }
        assert_eq!(told(Verdict::Faster, 0.0), None);
    }

    const LOOK: Look = Look {
        blocks: 8,
        share: 0.01,
    };

    fn bar(min_effect: f64) -> Bar {
        Bar {
            margin: min_effect.ln_1p(),
            floor: 0.0,
        }
    }

    /// Eight blocks between two ratios, which are then the interval.
    fn judged(low: f64, high: f64, bar: Bar, cpu: Option<(f64, f64)>) -> Judgement {
        let (low, high) = (low.ln(), high.ln());
        let values: Vec<f64> = (0..8)
            .map(|i| low + (high - low) * f64::from(i) / 7.0)
            .collect();
        let cpu = cpu.map(|(low, high)| Interval {
            low: low.ln(),
            high: high.ln(),
        });
        Judgement::at(LOOK, &MedianLaw::new(8).sample(&values), bar, cpu)
    }

    /// CA-68
    #[test]
    fn verdicts_follow_the_interval() {
        let verdict = |low, high| judged(low, high, bar(0.03), None).verdict;
        assert_eq!(verdict(0.90, 0.969), Verdict::Faster);
        assert_eq!(verdict(0.90, 0.975), Verdict::Uncertain, "1/1.03 is 0.9709");
        assert_eq!(verdict(1.031, 1.20), Verdict::Slower);
        assert_eq!(verdict(1.02, 1.20), Verdict::Uncertain);
        assert_eq!(verdict(0.98, 1.02), Verdict::Equal);
        assert_eq!(verdict(0.90, 1.10), Verdict::Uncertain);
    }

    /// CA-68
    #[test]
    fn without_a_margin_nothing_is_equal() {
        let verdict = |low, high| judged(low, high, bar(0.0), None).verdict;
        assert_eq!(verdict(1.0, 1.0), Verdict::Uncertain);
        assert_eq!(verdict(0.98, 0.999), Verdict::Faster);
        assert_eq!(verdict(1.001, 1.01), Verdict::Slower);
    }

    /// CA-68
    #[test]
    fn the_uncertain_lean_to_the_side_of_their_ratio() {
        let leaning = |low, high| judged(low, high, bar(0.0), None).leaning;
        assert_eq!(leaning(0.90, 1.05), Some(Leaning::Faster));
        assert_eq!(leaning(0.95, 1.10), Some(Leaning::Slower));
        assert_eq!(leaning(1.0, 1.0), None);
        assert_eq!(leaning(0.8, 0.9), None, "decided");
    }

    /// CA-70
    #[test]
    fn a_gain_below_the_noise_floor_is_not_faster() {
        let mut bar = bar(0.0);
        bar.floor = 0.05;
        let judgement = judged(0.96, 0.99, bar, None);
        assert_eq!(judgement.verdict, Verdict::Uncertain);
        assert_eq!(judgement.doubt, Some(Doubt::WithinNoise));
        assert_eq!(judged(0.90, 0.94, bar, None).verdict, Verdict::Faster);
        assert_eq!(judged(1.01, 1.04, bar, None).verdict, Verdict::Slower);
    }

    /// CA-72
    #[test]
    fn cpu_time_that_says_the_opposite_makes_it_uncertain() {
        let judgement = judged(0.5, 0.6, bar(0.03), Some((1.1, 1.2)));
        assert_eq!(judgement.verdict, Verdict::Uncertain);
        assert_eq!(judgement.doubt, Some(Doubt::CpuContradicts));
        assert!(judgement.is_decided());
        let slower = judged(1.5, 1.6, bar(0.03), Some((0.8, 0.9)));
        assert_eq!(slower.doubt, Some(Doubt::CpuContradicts));
        let unclear = judged(0.5, 0.6, bar(0.03), Some((0.9, 1.2)));
        assert_eq!(unclear.verdict, Verdict::Faster);
    }

    /// CA-79
    #[test]
    fn a_judgement_names_its_level_and_its_blocks() {
        let judgement = judged(0.9, 0.9, bar(0.03), None);
        assert_eq!((judgement.level, judgement.blocks), (0.99, 8));
        assert!((judgement.ratio - 0.9).abs() < 1e-12);
        assert!((judgement.hodges_lehmann - 0.9).abs() < 1e-12);
    }
}
