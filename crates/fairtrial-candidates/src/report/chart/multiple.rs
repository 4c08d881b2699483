//! A small chart of one side's blocks in their order: drift, outliers and disturbed blocks show here.

use fairtrial_document::html::put;

use super::{Axis, Band, area, line, open};
use crate::report::blocks::Point;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 118.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 292.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 98.0;

/// Draws blocks on a scale of their own, at least 6 % high: else quiet ones would look like noise.
pub(crate) fn multiple(title: &str, class: &str, points: &[Point], band: Band) -> String {
    let Some(last) = points.iter().map(|point| point.block).max() else {
        return String::new();
    };
    let middle = median(points);
    let far = points.iter().map(|point| (point.ratio / middle).ln().abs());
    let reach = far.fold(0.03_f64.ln_1p(), f64::max) * 1.08;
    let axis = Axis::new(middle * (-reach).exp(), middle * reach.exp(), BOTTOM, TOP);
    let mut out = open("small", WIDTH, HEIGHT, title);
    let (lower, upper) = (axis.at(band.0), axis.at(band.1));
    if lower - upper > 0.1 {
        area(
            &mut out,
            "band",
            (LEFT, upper),
            (RIGHT - LEFT, lower - upper),
        );
    }
    for (value, label) in axis.ticks(3.0) {
        let y = axis.at(value);
        line(&mut out, "grid", (LEFT, y), (RIGHT, y));
        put(
            &mut out,
            format_args!(
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 6.0,
                y + 4.0
            ),
        );
    }
    if axis.holds(1.0) {
        line(
            &mut out,
            "reference",
            (LEFT, axis.at(1.0)),
            (RIGHT, axis.at(1.0)),
        );
    }
    put(&mut out, format_args!("<g class=\"{class}\">"));
    line(
        &mut out,
        "median",
        (LEFT, axis.at(middle)),
        (RIGHT, axis.at(middle)),
    );
    let step = (RIGHT - LEFT) / f64::from(last);
    let place = |point: &Point| {
        (
            LEFT + step * (f64::from(point.block) - 0.5),
            axis.at(point.ratio),
        )
    };
    let mut path = String::new();
    for point in points {
        let (x, y) = place(point);
        match point.flagged {
            true => put(
                &mut out,
                format_args!("<circle class=\"flagged\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\"/>"),
            ),
            false => put(&mut path, format_args!("M{x:.1} {y:.1}h0")),
        }
    }
    put(
        &mut out,
        format_args!("<path class=\"points\" d=\"{path}\"/>"),
    );
    out.push_str("</g>");
    for (block, anchor, x) in [(1, "start", LEFT), (last, "end", RIGHT)] {
        put(
            &mut out,
            format_args!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{block}</text>",
                HEIGHT - 4.0
            ),
        );
    }
    out.push_str("</svg>");
    out
}

fn median(points: &[Point]) -> f64 {
    let mut ratios: Vec<f64> = points.iter().map(|point| point.ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len() / 2;
    match ratios.len() % 2 {
        0 => (ratios[middle - 1] * ratios[middle]).sqrt(),
        _ => ratios[middle],
    }
}
