//! Against SciPy: `tests/fixtures/stats.py` wrote what is compared with.

use super::student::{quantile, two_tails, upper_tail};
use super::*;
use crate::json_text::parse_value;
use crate::value::Value;

fn fixture() -> Value {
    let text = include_str!("../../tests/fixtures/stats.json");
    parse_value("stats.json", text).expect("the fixture is JSON")
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    match value.get(key) {
        Some(Value::List(items)) => items,
        other => panic!("`{key}` is a list, not {other:?}"),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::List(items) => items.iter().filter_map(Value::as_number).collect(),
        other => panic!("{other:?} is a list"),
    }
}

fn number(value: &Value, key: &str) -> f64 {
    value
        .get(key)
        .and_then(Value::as_number)
        .unwrap_or_else(|| panic!("`{key}`"))
}

#[track_caller]
fn close(found: f64, expected: f64) {
    let error = (found - expected).abs();
    let is_close = error <= 1e-9 * expected.abs() || error < 1e-300;
    assert!(is_close, "{found:e}, not {expected:e}");
}

fn close_interval(found: Interval, expected: &Value) {
    let expected = numbers(expected);
    // An end near 0 is the difference of larger numbers: as exact as those are.
    let size = expected[0].abs().max(expected[1].abs());
    assert!(
        (found.low - expected[0]).abs() <= 1e-9 * size,
        "{found:?}, not {expected:?}"
    );
    assert!(
        (found.high - expected[1]).abs() <= 1e-9 * size,
        "{found:?}, not {expected:?}"
    );
}

/// ST-82
#[test]
fn students_distribution_is_that_of_scipy() {
    let fixture = fixture();
    for row in list(&fixture, "tails") {
        let row = numbers(row);
        close(upper_tail(row[0], row[1]), row[2]);
        close(two_tails(row[0], row[1]), row[3]);
    }
    for row in list(&fixture, "quantiles") {
        let row = numbers(row);
        close(quantile(row[0], row[1]), row[2]);
    }
}

/// ST-82
#[test]
fn welch_and_paired_tests_are_those_of_scipy() {
    for sample in list(&fixture(), "samples") {
        let (left, right) = (
            numbers(&sample.get("left").unwrap().clone()),
            numbers(sample.get("right").unwrap()),
        );
        let (x, y) = (Moments::from_iter(&left), Moments::from_iter(&right));
        let margin = number(sample, "margin");
        let k = left.len().min(right.len());
        for (name, direction) in [
            ("greater", Direction::Greater),
            ("less", Direction::Less),
            ("different", Direction::Different),
            ("equivalent", Direction::Equivalent(margin)),
        ] {
            check(welch(&x, &y, direction), sample.get("welch").unwrap(), name);
            if let Some(expected) = sample.get("paired") {
                check(paired(&left[..k], &right[..k], direction), expected, name);
            }
        }
        close_interval(
            mean_interval(&x).unwrap(),
            sample.get("mean_interval").unwrap(),
        );
    }
}

fn check(found: Option<Comparison>, expected: &Value, direction: &str) {
    let found = found.expect("the numbers vary");
    let means = found.means.expect("a test of means");
    close(means.t, number(expected, "t"));
    close(means.df, number(expected, "df"));
    close(found.p, number(expected.get("p").unwrap(), direction));
    close(means.effect, number(expected, "effect"));
    close_interval(found.interval, expected.get("interval").unwrap());
    close_interval(
        means.effect_interval,
        expected.get("effect_interval").unwrap(),
    );
}

/// ST-81
#[test]
fn intervals_of_rates_are_those_of_scipy() {
    for row in list(&fixture(), "rates") {
        let row = numbers(row);
        let found = wilson(row[0] as u64, row[1] as u64).unwrap();
        assert!(
            (found.low - row[2]).abs() < 1e-12 && (found.high - row[3]).abs() < 1e-12,
            "{found:?} {row:?}"
        );
    }
    assert_eq!(wilson(0, 0), None);
}

/// ST-82
#[test]
fn adjusted_values_are_those_of_scipy() {
    for family in list(&fixture(), "families") {
        let p = numbers(family.get("p").unwrap());
        for name in ["bonferroni", "holm", "bh"] {
            let adjusted = Adjustment::from_name(name).unwrap().adjust(&p);
            let expected = numbers(family.get(name).unwrap());
            adjusted
                .iter()
                .zip(&expected)
                .for_each(|(found, expected)| close(*found, *expected));
        }
        assert_eq!(Adjustment::None.adjust(&p), p);
    }
}

/// ST-83
#[test]
fn rates_differ_when_the_interval_of_their_difference_leaves_out_zero() {
    assert!(differ((1, 40), (15, 40)) && differ((15, 40), (1, 40)));
    assert!(!differ((3, 40), (5, 40)) && !differ((0, 0), (5, 40)));
}

/// ST-82
#[test]
fn numbers_that_do_not_vary_give_no_test() {
    let same = Moments::from_iter(&[2.0, 2.0]);
    assert!(welch(&same, &same, Direction::Different).is_none());
    assert!(welch(&Moments::from_iter(&[1.0]), &same, Direction::Different).is_none());
    assert!(paired(&[1.0, 2.0], &[0.0, 1.0], Direction::Different).is_none());
}
