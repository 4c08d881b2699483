//! The twenty studies of the fixtures.

use fairtrial_study::{Compat, Fresh, Plan, Study, TableRequest, Value, canonical_json};

use crate::{fixture, fixtures, items, text};

fn names() -> Vec<String> {
    let listed = std::fs::read_dir(fixtures().join("studies")).expect("the fixtures are there");
    let mut names: Vec<String> = listed
        .map(|entry| {
            entry
                .expect("it can be listed")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

fn plan_json(name: &str, compat: Compat) -> Value {
    let path = fixtures().join("studies").join(name).join("study.yaml");
    let study = Study::load(&path, Some(compat)).unwrap_or_else(|invalid| panic!("{invalid}"));
    let plan = Plan::build(&study, None).unwrap_or_else(|invalid| panic!("{invalid}"));
    let mut out = Vec::new();
    plan.write_json(&Fresh, &plan.warnings, &mut out)
        .expect("memory takes it");
    let text = String::from_utf8(out).expect("JSON is text");
    TableRequest::factors_from_json(name, &text).expect("a plan is JSON")
}

fn run_keys(run: &Value) -> Value {
    let keys = [
        "run_id",
        "condition_id",
        "replicate",
        "agent_id",
        "problem_id",
        "seed",
    ];
    Value::map(keys.map(|key| (key, run.get(key).cloned().expect("a run has it"))))
}

/// SF-63, SF-26 to SF-34, SF-40 to SF-44, SF-60, SF-61
#[test]
fn every_fixture_is_planned_as_dre_plans_it() {
    let names = names();
    assert_eq!(names.len(), 20);
    for name in names {
        let found = plan_json(&name, Compat::Dre);
        let expected = fixture(&format!("studies/{name}/plan.json"));
        for key in [
            "study_id",
            "standalone",
            "conditions",
            "digest_conditions",
            "digest_runs",
        ] {
            let of = |plan: &Value| canonical_json(plan.get(key).expect("a plan has it"));
            assert_eq!(of(&found), of(&expected), "{name}: {key}");
        }
        let runs = |plan: &Value| -> Vec<Value> {
            items(plan.get("runs").expect("a plan has runs"))
                .iter()
                .map(run_keys)
                .collect()
        };
        assert_eq!(runs(&found), runs(&expected), "{name}");
    }
}

/// SF-3
#[test]
fn a_study_without_accidents_has_one_plan_in_both_modes() {
    for name in ["design_full", "golden_mini", "design_lhs", "design_frac2_6"] {
        let (native, dre) = (
            plan_json(name, Compat::Native),
            plan_json(name, Compat::Dre),
        );
        for key in ["conditions", "digest_conditions", "digest_runs"] {
            assert_eq!(native.get(key), dre.get(key), "{name}: {key}");
        }
    }
}

/// SF-7: read, exported, read again gives an equal study.
#[test]
fn an_export_is_read_back_as_the_same_study() {
    for name in names() {
        for compat in [Compat::Dre, Compat::Native] {
            let path = fixtures().join("studies").join(&name).join("study.yaml");
            let Ok(study) = Study::load(&path, Some(compat)) else {
                assert_eq!(compat, Compat::Native, "{name}");
                continue; // it uses an accident of DRE
            };
            let exported = canonical_json(&study.exported());
            let again = Study::parse("again.json".as_ref(), &exported, None);
            let again = again.unwrap_or_else(|invalid| panic!("{name}: {invalid}"));
            assert_eq!(again.compat, compat, "{name}");
            assert_eq!(canonical_json(&again.exported()), exported, "{name}");
        }
    }
}

/// SF-7
#[test]
fn an_export_under_dre_has_its_21_keys_in_order() {
    let path = fixtures().join("studies/golden_mini/study.yaml");
    let study = Study::load(&path, None).expect("it is valid");
    let written = std::fs::read_to_string(&path).expect("it is there");
    let expected: Vec<&str> = written
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()))
        .filter_map(|line| line.split(':').next())
        .collect();
    let Value::Map(entries) = study.exported() else {
        panic!("a study is a mapping");
    };
    let keys: Vec<&str> = entries
        .iter()
        .filter_map(|(key, _)| key.as_text())
        .collect();
    assert_eq!(keys, expected);
    assert_eq!(keys.len(), 21);
}

/// ST-28
#[test]
fn the_json_of_a_plan_has_exactly_these_keys() {
    let plan = plan_json("golden_mini", Compat::Native);
    let keys = |value: &Value| -> Vec<String> {
        let Value::Map(entries) = value else {
            panic!("{value:?} is no mapping");
        };
        entries.iter().map(|(key, _)| key.to_str()).collect()
    };
    let expected = "format study_id compat standalone study_sha256 digest_conditions digest_runs order counts coverage \
                    warnings conditions runs";
    assert_eq!(keys(&plan).join(" "), expected);
    let of = |key: &str| plan.get(key).expect("a plan has it");
    assert_eq!(keys(of("order")), ["policy", "seed"]);
    assert_eq!(
        keys(of("counts")).join(" "),
        "conditions admissible runs run reuse evaluate rerun orphans"
    );
    assert_eq!(keys(of("coverage")), ["conditions", "agents", "problems"]);
    assert_eq!(
        keys(&items(of("warnings"))[0]).join(" "),
        "file line column code message"
    );
    assert_eq!(
        keys(&items(of("runs"))[0]).join(" "),
        "run_id condition_id replicate agent_id problem_id seed seed64 index order action reason"
    );
    let run = &items(of("runs"))[0];
    assert_eq!(
        (text(run, "action"), text(run, "reason")),
        ("run".into(), "new".into())
    );
    assert_eq!(
        canonical_json(of("counts")),
        r#"{"admissible":6,"conditions":8,"evaluate":0,"orphans":0,"rerun":0,"reuse":0,"run":12,"runs":12}"#
    );
}
