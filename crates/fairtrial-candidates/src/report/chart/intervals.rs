//! Intervals in rows, over the blocks they are made of.

use fairtrial_document::html::{put, short};

use super::{Axis, Band, area, line, open};
use crate::report::figures::ratio;

const WIDTH: f64 = 960.0;
const ROW: f64 = 30.0;
const LEFT: f64 = 270.0;
/// Where the axis ends and figures begin.
const END: f64 = 760.0;
const TOP: f64 = 10.0;

/// One candidate.
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The class that colours it.
    pub(crate) class: &'static str,
    pub(crate) points: Vec<f64>,
}

/// A chart.
pub(crate) struct IntervalChart {
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) band: Band,
}

impl IntervalChart {
    /// Draws it; empty where there is nothing to draw.
    pub(crate) fn draw(&self) -> String {
        let Some((low, high)) = self.range() else {
            return String::new();
        };
        let axis = Axis::new(low / 1.02, high * 1.02, LEFT, END);
        let bottom = TOP + ROW * self.rows.len() as f64;
        let mut out = open("", WIDTH, bottom + 26.0, &self.title);
        let (from, to) = (axis.at(self.band.0), axis.at(self.band.1));
        area(&mut out, "band", (from, TOP), (to - from, bottom - TOP));
        for (value, label) in axis.ticks(7.0) {
            let x = axis.at(value);
            line(&mut out, "grid", (x, TOP), (x, bottom));
            put(
                &mut out,
                format_args!(
                    "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                    bottom + 17.0
                ),
            );
        }
        let one = axis.at(1.0);
        line(&mut out, "reference", (one, TOP), (one, bottom));
        for (place, row) in self.rows.iter().enumerate() {
            row.draw(&mut out, &axis, TOP + ROW * (place as f64 + 0.5));
        }
        out.push_str("</svg>\n");
        out
    }

    /// Of everything that is drawn. A few far blocks must not squeeze the rest: they are drawn at the edge.
    fn range(&self) -> Option<(f64, f64)> {
        let ends = self
            .rows
            .iter()
            .flat_map(|row| [row.ratio, row.low, row.high]);
        let ends = ends.filter(|value| value.is_finite() && *value > 0.0);
        let ends = ends.chain(
            (!self.rows.is_empty())
                .then_some([self.band.0, self.band.1, 1.0])
                .into_iter()
                .flatten(),
        );
        ends.fold(None, |range: Option<(f64, f64)>, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((low.min(value), high.max(value))),
        })
    }
}

impl Row {
    fn draw(&self, out: &mut String, axis: &Axis, y: f64) {
        let (label, whole) = (short(&self.label, 36), short(&self.label, 300));
        put(
            out,
            format_args!(
                "<text class=\"label\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}<title>{whole}</title></text>",
                LEFT - 14.0,
                y + 4.0
            ),
        );
        let mut path = String::new();
        for (place, value) in self.points.iter().enumerate() {
            // Spread over the row by the golden ratio: even, and the same every time.
            let spread = (place as f64 * 0.618_033_988_75).fract() - 0.5;
            put(
                &mut path,
                format_args!("M{:.1} {:.1}h0", axis.at(*value), y + spread * ROW * 0.6),
            );
        }
        let (from, to, x, class) = (
            axis.at(self.low),
            axis.at(self.high),
            axis.at(self.ratio),
            self.class,
        );
        put(
            out,
            format_args!(
                "<g class=\"{class}\"><path class=\"points\" d=\"{path}\"/>\
                 <path class=\"interval\" d=\"M{from:.1} {:.1}v10m0 -5H{to:.1}m0 -5v10\"/>\
                 <circle class=\"estimate\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\"/></g>\
                 <text class=\"figure\" x=\"{:.0}\" y=\"{:.1}\">{}<tspan class=\"range\"> [{}, {}]</tspan></text>",
                y - 5.0,
                END + 14.0,
                y + 4.0,
                ratio(self.ratio),
                ratio(self.low),
                ratio(self.high)
            ),
        );
    }
}
