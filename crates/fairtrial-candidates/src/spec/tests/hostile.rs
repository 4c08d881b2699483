//! Whatever is given, it is read or refused, and the refusal can be shown.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::defaults::EVERYTHING;
use crate::spec::{Invalid, Spec};

/// Each fault is one line that no terminal acts upon.
fn check(read: Result<Spec, Invalid>) -> Result<(), TestCaseError> {
    if let Err(invalid) = read {
        prop_assert!(!invalid.faults.is_empty());
        for fault in &invalid.faults {
            let line = fault.to_string();
            prop_assert!(!line.contains(char::is_control), "{line:?}");
            prop_assert!(line.len() < 3000, "{} bytes", line.len());
        }
    }
    Ok(())
}

fn scalar() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        any::<String>().prop_map(Json::from),
        "[0-9.]{0,9}[a-z%\\n]{0,3}".prop_map(Json::from),
        "(strict|limits),[a-z=,\\n]{0,9}".prop_map(Json::from),
        "[\\x00-\\x1f]{0,400}".prop_map(Json::from),
        Just(json!("\u{1b}[31m5 parsecs\n".repeat(100))),
    ]
}

fn anything() -> impl Strategy<Value = Json> {
    scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
}

/// Every value there is, those inside others included.
fn count(json: &Json) -> usize {
    let below = match json {
        Json::Array(items) => items.iter().map(count).sum(),
        Json::Object(entries) => entries.values().map(count).sum(),
        _ => 0,
    };
    1 + below
}

/// Puts something else in the place of the `at`th value.
fn replace(json: &mut Json, at: &mut usize, with: &Json) {
    if *at == 0 {
        *json = with.clone();
    }
    *at = at.wrapping_sub(1);
    match json {
        Json::Array(items) => items.iter_mut().for_each(|item| replace(item, at, with)),
        Json::Object(entries) => entries
            .values_mut()
            .for_each(|value| replace(value, at, with)),
        _ => {}
    }
}

proptest! {
    /// CA-6
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), yaml in "[-a-z0-9:{}\\[\\], \\n&*<!'\"%]{0,60}") {
        for text in [&text, &yaml] {
            check(Spec::parse(Path::new("e.yaml"), text))?;
            check(Spec::parse(Path::new("e.json"), text))?;
        }
    }

    /// CA-6
    #[test]
    fn any_value_in_the_place_of_another_is_read_or_refused(at in any::<prop::sample::Index>(), with in anything()) {
        let spec = Spec::parse(Path::new("/project/EVAL.yaml"), EVERYTHING);
        let mut json = spec.expect("it is an evaluation").to_json();
        let mut at = at.index(count(&json));
        replace(&mut json, &mut at, &with);
        check(Spec::from_json(json.clone(), Path::new("/project")))?;
        check(Spec::parse(Path::new("/project/e.json"), &json.to_string()))?;
    }
}
