//! Intervals in rows, over the values they are made of.

use super::{Axis, WIDTH, open};
use crate::html::{put, short};
use crate::report::figures::brief;
use crate::stats::Interval;

/// Rows that one chart holds.
const MOST_ROWS: usize = 60;
const ROW: f64 = 30.0;
const LEFT: f64 = 316.0;
/// At least so much is left for figures, and at most.
const RIGHT: (f64, f64) = (186.0, 320.0);
/// From the axis to the figures.
const GAP: f64 = 14.0;
/// What a character of a figure may take; fonts differ.
const CHARACTER: f64 = 8.0;
const TOP: f64 = 10.0;

/// One row.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) value: Option<f64>,
    pub(crate) interval: Option<Interval>,
}

/// A chart.
pub(crate) struct IntervalChart<'c> {
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
    /// Row and value.
    pub(crate) points: &'c [(u32, f64)],
    /// A value with a line of its own.
    pub(crate) reference: Option<f64>,
}

impl IntervalChart<'_> {
    /// Draws it; empty where there is nothing to draw. Says how many rows it left out.
    pub(crate) fn draw(&self) -> (String, usize) {
        let shown = self.rows.len().min(MOST_ROWS);
        let Some((low, high)) = self.range(shown) else {
            return (String::new(), 0);
        };
        let rows = self.rows.iter().take(shown);
        let longest = rows.map(|row| row.figure().chars().count()).max();
        let room = GAP + CHARACTER * longest.unwrap_or(0) as f64;
        let end = WIDTH - room.clamp(RIGHT.0, RIGHT.1);
        let axis = Axis::new(low, high, LEFT, end, 7.0).rounded();
        let bottom = TOP + ROW * shown as f64;
        let mut out = open(bottom + 26.0, &self.title);
        axis.draw(&mut out, TOP, bottom, "");
        if let Some(reference) = self.reference {
            let x = axis.at(reference);
            put(
                &mut out,
                format_args!(
                    "<line class=\"reference\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
                ),
            );
        }
        self.draw_points(&mut out, &axis, shown);
        for (place, row) in self.rows.iter().take(shown).enumerate() {
            let y = TOP + ROW * (place as f64 + 0.5);
            row.draw(&mut out, &axis, y, end + GAP);
        }
        out.push_str("</svg>\n");
        (out, self.rows.len() - shown)
    }

    /// Of everything that is drawn.
    fn range(&self, shown: usize) -> Option<(f64, f64)> {
        let ends = |row: &Row| {
            [
                row.value,
                row.interval.map(|i| i.low),
                row.interval.map(|i| i.high),
            ]
        };
        let rows = self.rows.iter().take(shown).flat_map(ends).flatten();
        let points = self
            .points
            .iter()
            .filter(|(row, _)| (*row as usize) < shown);
        let all = rows
            .chain(points.map(|(_, value)| *value))
            .chain(self.reference);
        let all = all.filter(|value| value.is_finite());
        all.fold(None, |range: Option<(f64, f64)>, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((low.min(value), high.max(value))),
        })
    }

    /// All points are one path of dots without length: twelve bytes each.
    fn draw_points(&self, out: &mut String, axis: &Axis, shown: usize) {
        let mut path = String::new();
        for (place, (row, value)) in self.points.iter().enumerate() {
            if *row as usize >= shown {
                continue;
            }
            // Spread over the row by the golden ratio: even, and the same every time.
            let spread = (place as f64 * 0.618_033_988_75).fract() - 0.5;
            let y = TOP + ROW * (f64::from(*row) + 0.5 + spread * 0.66);
            put(&mut path, format_args!("M{:.1} {y:.1}h0", axis.at(*value)));
        }
        if !path.is_empty() {
            put(out, format_args!("<path class=\"points\" d=\"{path}\"/>"));
        }
    }
}

impl Row {
    /// Its figures as they are written, for their length.
    fn figure(&self) -> String {
        let value = self.value.map_or(String::new(), brief);
        value + &self.range()
    }

    fn range(&self) -> String {
        self.interval.map_or(String::new(), |interval| {
            format!(" [{}, {}]", brief(interval.low), brief(interval.high))
        })
    }

    /// `figures`: where those begin.
    fn draw(&self, out: &mut String, axis: &Axis, y: f64, figures: f64) {
        let (label, whole) = (short(&self.label, 42), short(&self.label, 300));
        put(
            out,
            format_args!(
                "<text class=\"label\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}<title>{whole}</title></text>",
                LEFT - 14.0,
                y + 4.0
            ),
        );
        let Some(value) = self.value else {
            put(
                out,
                format_args!(
                    "<text class=\"tick\" x=\"{:.0}\" y=\"{:.1}\">no values</text>",
                    LEFT + 8.0,
                    y + 4.0
                ),
            );
            return;
        };
        if let Some(interval) = self.interval {
            let (from, to) = (axis.at(interval.low), axis.at(interval.high));
            put(
                out,
                format_args!(
                    "<path class=\"interval\" d=\"M{from:.1} {:.1}v10m0 -5H{to:.1}m0 -5v10\"/>",
                    y - 5.0
                ),
            );
        }
        let x = axis.at(value);
        put(
            out,
            format_args!("<circle class=\"estimate\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/>"),
        );
        put(
            out,
            format_args!(
                "<text class=\"figure\" x=\"{figures:.0}\" y=\"{:.1}\">{}<tspan class=\"range\">{}</tspan></text>",
                y + 4.0,
                brief(value),
                self.range()
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-81
    #[test]
    fn figures_end_before_the_chart_does() {
        for value in [1.0_f64, 0.009_523, -0.000_123_4, -1.234e-300] {
            let (low, high) = (value - value.abs() * 0.071, value + value.abs() * 0.072);
            let chart = IntervalChart {
                title: String::new(),
                rows: vec![Row {
                    label: "a".into(),
                    value: Some(value),
                    interval: Some(Interval { low, high }),
                }],
                points: &[],
                reference: None,
            };
            let (drawn, _) = chart.draw();
            let figure = drawn.split("class=\"figure\" x=\"").nth(1).unwrap();
            let begin: f64 = figure.split('"').next().unwrap().parse().unwrap();
            let length = chart.rows[0].figure().chars().count();
            assert!(figure.contains("]</tspan>"), "{figure}");
            // A wide font's digits take 0.62 of 12.5 pixels.
            assert!(begin + 7.75 * length as f64 <= WIDTH, "{begin} {length}");
        }
    }
}
