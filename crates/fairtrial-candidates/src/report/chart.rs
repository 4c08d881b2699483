//! Charts as inline SVG: colours and fonts are the page's, so that they follow light, dark and print.

mod intervals;
mod multiple;

use fairtrial_document::html::{put, short};

pub(crate) use intervals::{IntervalChart, Row};
pub(crate) use multiple::multiple;

/// What is too small to count lies between these.
pub(crate) type Band = (f64, f64);

/// An axis of ratios: as far from 1/2 to 1 as from 1 to 2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Shows `low` to `high`, both above 0, between the places `from` and `to`.
    pub(crate) fn new(low: f64, high: f64, from: f64, to: f64) -> Self {
        let (low, high) = (low.max(1e-9), high.max(1e-9));
        // One value alone still has a place in the middle.
        let (low, high) = match high / low > 1.0001 {
            true => (low, high),
            false => (low / 1.01, high * 1.01),
        };
        Self {
            low,
            high,
            from,
            to,
        }
    }

    /// The place of a ratio; those outside are at the ends.
    pub(crate) fn at(&self, ratio: f64) -> f64 {
        let share = (ratio.max(1e-9) / self.low).ln() / (self.high / self.low).ln();
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    pub(crate) fn holds(&self, ratio: f64) -> bool {
        (self.low..=self.high).contains(&ratio)
    }

    /// Round ratios with their labels, about `most` of them.
    pub(crate) fn ticks(&self, most: f64) -> Vec<(f64, String)> {
        match self.high / self.low > 4.0 {
            true => self.wide_ticks(most),
            false => self.even_ticks(most),
        }
    }

    /// 1, 2 and 5 of each power of ten; fewer where there are many powers.
    fn wide_ticks(&self, most: f64) -> Vec<(f64, String)> {
        let (first, last) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        let steps: &[f64] = match f64::from(last - first) * 3.0 > most * 1.5 {
            true => &[1.0],
            false => &[1.0, 2.0, 5.0],
        };
        let all = (first..=last)
            .flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        let label = |value: f64| {
            format!(
                "{value:.*}",
                (-value.log10().floor()).clamp(0.0, 9.0) as usize
            )
        };
        all.filter(|value| self.holds(*value))
            .map(|value| (value, label(value)))
            .collect()
    }

    fn even_ticks(&self, most: f64) -> Vec<(f64, String)> {
        let raw = (self.high - self.low) / most;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .find(|step| step * magnitude >= raw * 0.999);
        let step = step.unwrap_or(10.0) * magnitude;
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let (first, last) = ((self.low / step).ceil(), (self.high / step).floor());
        let count = (last - first).clamp(0.0, 50.0) as u32;
        let tick = |at: u32| {
            let value = (first + f64::from(at)) * step;
            (value, format!("{value:.decimals$}"))
        };
        (0..=count).map(tick).collect()
    }
}

/// Begins a chart with a title for those who cannot see it.
fn open(class: &str, width: f64, height: f64, title: &str) -> String {
    let title = short(title, 200);
    format!(
        "<svg class=\"chart {class}\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\">"
    )
}

/// A rectangle of a class.
fn area(out: &mut String, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
    put(
        out,
        format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ),
    );
}

/// A straight line of a class.
fn line(out: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    put(
        out,
        format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-82
    #[test]
    fn ticks_are_within_the_axis_and_tell_ratios_apart() {
        for (low, high) in [
            (0.97, 1.03),
            (0.3, 1.2),
            (0.05, 3.0),
            (1.0, 1.0),
            (0.001, 900.0),
            (0.9991, 1.0002),
        ] {
            let axis = Axis::new(low, high, 0.0, 100.0);
            let ticks = axis.ticks(6.0);
            assert!((1..=16).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            assert!(
                ticks.iter().all(|(value, _)| axis.holds(*value)),
                "{ticks:?}"
            );
            let labels: std::collections::HashSet<_> =
                ticks.iter().map(|(_, label)| label).collect();
            assert_eq!(labels.len(), ticks.len(), "{ticks:?}");
        }
        let axis = Axis::new(0.5, 2.0, 0.0, 100.0);
        assert!((axis.at(1.0) - 50.0).abs() < 1e-9);
    }
}
