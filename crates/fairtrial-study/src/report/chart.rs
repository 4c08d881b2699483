//! Charts as inline SVG: colours and fonts are the page's, so that they follow light, dark and print.

mod intervals;
mod strips;

use crate::html::{escape, put};
use crate::report::figures::number;

pub(crate) use intervals::{IntervalChart, Row};
pub(crate) use strips::strip;

/// All charts are drawn this wide and scaled to the page.
pub(crate) const WIDTH: f64 = 960.0;

/// A linear axis.
pub(crate) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    step: f64,
}

impl Axis {
    /// Shows at least `low` to `high` between the places `from` and `to`, with about `most` ticks.
    pub(crate) fn new(low: f64, high: f64, from: f64, to: f64, most: f64) -> Self {
        let (low, high) = match high > low {
            true => (low, high),
            // One value alone still has a place in the middle.
            false => (
                low - low.abs().max(1.0) * 0.5,
                high + high.abs().max(1.0) * 0.5,
            ),
        };
        let raw = (high - low) / most;
        let magnitude = 10_f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0];
        let step = steps
            .into_iter()
            .find(|step| step * magnitude >= raw)
            .unwrap_or(10.0)
            * magnitude;
        Self {
            low,
            high,
            from,
            to,
            step,
        }
    }

    /// Widened to whole ticks.
    pub(crate) fn rounded(mut self) -> Self {
        self.low = (self.low / self.step).floor() * self.step;
        self.high = (self.high / self.step).ceil() * self.step;
        self
    }

    /// The place of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Ticks with their labels.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let first = (self.low / self.step - 1e-9).ceil();
        let last = (self.high / self.step + 1e-9).floor();
        let count = (last - first).clamp(0.0, 50.0) as u32;
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        let label =
            |value: f64| match self.step < 1e-4 || self.high.abs().max(self.low.abs()) >= 1e6 {
                true => number(value),
                false => format!("{value:.decimals$}").replace('-', "−"),
            };
        let tick = |at: u32| {
            let value = (first + f64::from(at)) * self.step;
            (value, label(if value == 0.0 { 0.0 } else { value }))
        };
        (0..=count).map(tick).collect()
    }

    /// Lines from `top` to `bottom` at every tick, labels below.
    fn draw(&self, out: &mut String, top: f64, bottom: f64, unit: &str) {
        for (value, label) in self.ticks() {
            let x = self.at(value);
            let below = bottom + 17.0;
            put(
                out,
                format_args!(
                    "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{label}{unit}</text>"
                ),
            );
        }
    }
}

/// Begins a chart with a title for those who cannot see it.
fn open(height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{title}\">"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn ticks_are_round_and_hold_the_range() {
        for (low, high) in [
            (0.0, 1.0),
            (-3.2, 17.0),
            (0.0123, 0.0131),
            (5.0, 5.0),
            (0.0, 4e9),
            (-1e-7, 1e-7),
        ] {
            let axis = Axis::new(low, high, 0.0, 100.0, 6.0).rounded();
            let ticks = axis.ticks();
            assert!((2..=10).contains(&ticks.len()), "{low} {high}: {ticks:?}");
            let (first, last) = (ticks[0].0, ticks[ticks.len() - 1].0);
            let slack = (last - first) * 1e-9;
            assert!(
                first <= low + slack && last >= high - slack,
                "{low} {high}: {ticks:?}"
            );
            let labels: std::collections::HashSet<_> =
                ticks.iter().map(|(_, label)| label).collect();
            assert_eq!(labels.len(), ticks.len(), "{ticks:?}");
        }
    }
}
