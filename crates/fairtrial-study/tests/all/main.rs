//! Every number of the specification that planning has to do with, through the crate's public names.

mod broken;
mod designs;
mod engine_errors;
mod meanwhile;
mod modes;
mod peers;
mod plans;
mod studies;
mod vectors;

use std::path::{Path, PathBuf};

use fairtrial_study::{Compat, Fault, Invalid, Plan, Study, TableRequest, Value};

/// Where the fixtures are.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// A file of the fixtures, as a value.
fn fixture(path: &str) -> Value {
    let text = std::fs::read_to_string(fixtures().join(path)).expect("the fixture is there");
    TableRequest::factors_from_json(path, &text).expect("the fixture is JSON")
}

fn items(value: &Value) -> &[Value] {
    match value {
        Value::List(items) => items,
        other => panic!("{} is no list", other.kind()),
    }
}

fn text(value: &Value, key: &str) -> String {
    let found = value.get(key).and_then(Value::as_text);
    found
        .unwrap_or_else(|| panic!("`{key}` is text in {value:?}"))
        .into()
}

/// A study of a text.
fn study(text: &str, compat: Option<Compat>) -> Result<Study, Invalid> {
    Study::parse(Path::new("study.yaml"), text, compat)
}

/// A study and its plan, both valid.
fn planned<T>(text: &str, compat: Option<Compat>, look: impl FnOnce(&Plan<'_>) -> T) -> T {
    let study = study(text, compat).unwrap_or_else(|invalid| panic!("{invalid}"));
    let plan = Plan::build(&study, None).unwrap_or_else(|invalid| panic!("{invalid}"));
    look(&plan)
}

/// What is wrong with a text, in file or plan.
fn faults(text: &str, compat: Option<Compat>) -> Vec<Fault> {
    let invalid = match study(text, compat) {
        Err(invalid) => invalid,
        Ok(study) => match Plan::build(&study, None) {
            Err(invalid) => invalid,
            Ok(_) => return Vec::new(),
        },
    };
    invalid.faults
}
