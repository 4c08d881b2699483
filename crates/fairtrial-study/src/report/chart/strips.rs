//! When the runs of an invocation ran.

use super::{Axis, WIDTH, open};
use crate::html::put;
use crate::journal::Status;
use crate::report::figures::duration;
use crate::report::timeline::{MOST_BARS, STATUSES, Strip};

const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
/// More lanes than this are counted instead.
const MOST_LANES: usize = 32;
const TOP: f64 = 8.0;

/// Draws a strip: runs as bars, each in the lane of a slot, or counts over time where they are many.
pub(crate) fn strip(strip: &Strip, title: &str) -> String {
    let span = ((strip.end_ns - strip.begin_ns) as f64 / 1e9).max(1e-6);
    let (unit, scale) = match span {
        span if span < 1.0 => (" ms", 1e3),
        span if span < 300.0 => (" s", 1.0),
        span if span < 18_000.0 => (" min", 1.0 / 60.0),
        _ => (" h", 1.0 / 3600.0),
    };
    let time = Time {
        axis: Axis::new(0.0, span * scale, LEFT, WIDTH - RIGHT, 8.0),
        unit,
        scale,
        begin_ns: strip.begin_ns,
    };
    let (bars, lanes) = strip.lanes();
    match strip.runs <= MOST_BARS as u64 && lanes <= MOST_LANES {
        true => bars_of(&time, &bars, lanes, title),
        false => counts_of(&time, strip, title),
    }
}

struct Time {
    axis: Axis,
    unit: &'static str,
    scale: f64,
    begin_ns: i64,
}

impl Time {
    fn at(&self, ns: i64) -> f64 {
        self.axis.at((ns - self.begin_ns) as f64 / 1e9 * self.scale)
    }
}

fn bars_of(time: &Time, bars: &[(usize, i64, i64, Status)], lanes: usize, title: &str) -> String {
    let lane = if lanes > 8 { 12.0 } else { 20.0 };
    let bottom = TOP + lane * lanes as f64;
    let mut out = open(bottom + 26.0, title);
    time.axis.draw(&mut out, TOP, bottom, time.unit);
    for slot in 0..lanes {
        let y = TOP + lane * (slot as f64 + 0.5) + 4.0;
        if lanes <= 8 || slot % 4 == 0 {
            put(
                &mut out,
                format_args!(
                    "<text class=\"tick\" x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\">slot {}</text>",
                    LEFT - 10.0,
                    slot + 1
                ),
            );
        }
    }
    // One path for each status: the file stays small.
    for status in STATUSES {
        let mut path = String::new();
        for (slot, begin, end, _) in bars.iter().filter(|bar| bar.3 == status) {
            let (from, to) = (time.at(*begin), time.at(*end));
            let (y, width) = (TOP + lane * *slot as f64 + 2.0, (to - from).max(1.2));
            let height = lane - 4.0;
            put(
                &mut path,
                format_args!("M{from:.1} {y:.1}h{width:.1}v{height:.0}h-{width:.1}z"),
            );
        }
        if !path.is_empty() {
            put(
                &mut out,
                format_args!("<path class=\"bar {status}\" d=\"{path}\"/>"),
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

fn counts_of(time: &Time, strip: &Strip, title: &str) -> String {
    const HEIGHT: f64 = 120.0;
    let bottom = TOP + HEIGHT;
    let most = strip
        .steps
        .iter()
        .map(|step| step.iter().sum::<u64>())
        .max()
        .unwrap_or(1);
    let amount = Axis::new(0.0, most as f64, bottom, TOP, 4.0).rounded();
    let mut out = open(bottom + 26.0, title);
    time.axis.draw(&mut out, TOP, bottom, time.unit);
    for (value, label) in amount.ticks() {
        let y = amount.at(value) + 4.0;
        put(
            &mut out,
            format_args!(
                "<text class=\"tick\" x=\"{:.0}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 10.0
            ),
        );
    }
    for (place, status) in STATUSES.into_iter().enumerate() {
        let mut path = String::new();
        for (step, counts) in strip.steps.iter().enumerate() {
            let below: u64 = counts[..place].iter().sum();
            if counts[place] == 0 {
                continue;
            }
            let begin = strip.begin_ns + strip.step_ns * step as i64;
            let (from, to) = (time.at(begin), time.at(begin + strip.step_ns));
            let (y, top) = (
                amount.at(below as f64),
                amount.at((below + counts[place]) as f64),
            );
            let width = (to - from - 0.6).max(0.6);
            put(
                &mut path,
                format_args!("M{from:.1} {y:.1}h{width:.1}V{top:.1}h-{width:.1}z"),
            );
        }
        if !path.is_empty() {
            put(
                &mut out,
                format_args!("<path class=\"bar {status}\" d=\"{path}\"/>"),
            );
        }
    }
    out.push_str("</svg>\n");
    put(
        &mut out,
        format_args!(
            "<p class=\"note\">runs that ended in each {}</p>",
            duration(strip.step_ns as f64 / 1e9)
        ),
    );
    out
}
