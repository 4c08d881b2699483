//! Kinds and options of designs that no fixture uses.

use fairtrial_study::{Compat, Plan, Study, Value, canonical_json};

use crate::{faults, planned, study};

const HEAD: &str = "study_id: s\ntitle: t\nproblem_ids: [p]\nagent_specs: [a]\n";

/// The conditions' assignments, in order.
fn assignments(plan: &Plan<'_>) -> Vec<String> {
    let values = |c: fairtrial_study::Condition<'_>| -> String {
        let all = c
            .factors()
            .chain(c.blocks())
            .map(|(_, value)| value.to_str());
        all.collect::<Vec<_>>().join(" ")
    };
    plan.design.conditions().map(values).collect()
}

fn of(text: &str, compat: Compat) -> Vec<String> {
    planned(&format!("{HEAD}{text}"), Some(compat), assignments)
}

const THREE: &str = "factors:
- {name: r, levels: [{name: r0, value: 0}, {name: r1, value: 1}, {name: r2, value: 2}]}
- {name: c, levels: [{name: c0, value: 0}, {name: c1, value: 1}, {name: c2, value: 2}]}
- {name: t, levels: [{name: x, value: x}, {name: y, value: y}, {name: z, value: z}]}
design_spec: {kind: latin_square, options: {row_factor: r, column_factor: c, treatment_factor: t}}
";

/// SF-30
#[test]
fn a_latin_square_rotates_its_treatments() {
    let expected = [
        "0 0 x", "0 1 y", "0 2 z", "1 0 y", "1 1 z", "1 2 x", "2 0 z", "2 1 x", "2 2 y",
    ];
    assert_eq!(of(THREE, Compat::Dre), expected);
    planned(&format!("{HEAD}{THREE}"), None, |plan| {
        let metadata = plan.design.condition(5).metadata();
        let id = Value::map([
            (
                "factors",
                Value::map([("r", 1.into()), ("c", 2.into()), ("t", "x".into())]),
            ),
            ("blocks", Value::Map(Vec::new())),
            (
                "metadata",
                Value::map([
                    ("design_kind", "latin_square".into()),
                    ("latin_square_row", 1.into()),
                    ("latin_square_col", 2.into()),
                ]),
            ),
        ]);
        let id = fairtrial_study::stable_id("cond", &id);
        assert_eq!(plan.design.condition(5).id().to_string(), id);
        assert_eq!(metadata.get("latin_square_row"), Some(&1.into()));
    });
    let unequal = THREE.replace(", {name: z, value: z}", "");
    assert_eq!(faults(&format!("{HEAD}{unequal}"), None)[0].code, "design");
    let more = format!("{HEAD}{THREE}blocks: [{{name: b, levels: [1]}}]\n");
    assert_eq!(
        faults(&more, Some(Compat::Native))[0].code,
        "ignored_option"
    );
    assert!(faults(&more, Some(Compat::Dre)).is_empty());
}

fn with_matrix(name: &str, matrix: &str, compat: Compat) -> Result<Vec<String>, Vec<String>> {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let path = dir.path().join(name);
    std::fs::write(&path, matrix).expect("it can be written");
    // Natively relative to the study file, under `dre-0.2` to the current directory.
    let named = match compat {
        Compat::Native => name.to_owned(),
        Compat::Dre => path.display().to_string(),
    };
    let text = format!(
        "{HEAD}factors:\n- {{name: x, levels: [{{name: lo, value: 0.5}}, {{name: hi, value: 1}}]}}\n- {{name: y, levels: [{{name: a, value: a}}, {{name: b, value: b}}]}}\nblocks: [{{name: site, levels: [n, 7]}}]\ndesign_spec: {{kind: custom_matrix, matrix_path: '{named}'}}\n"
    );
    let lines = |invalid: fairtrial_study::Invalid| -> Vec<String> {
        invalid
            .faults
            .iter()
            .map(|fault| {
                format!(
                    "{}:{} {}",
                    fault.place.line, fault.place.column, fault.message
                )
            })
            .collect()
    };
    let study = Study::parse(&dir.path().join("study.yaml"), &text, Some(compat)).map_err(lines)?;
    let plan = Plan::build(&study, None).map_err(lines)?;
    Ok(plan.design.conditions().map(|c| c.fingerprint()).collect())
}

/// SF-31, SF-62 h, ST-23
#[test]
fn a_matrix_is_text_under_dre_and_levels_natively() {
    let csv = "x,y,site,note\r\n0.5,a,n,\"1,2\"\r\nhi,b,7,\r\n";
    let dre = with_matrix("m.csv", csv, Compat::Dre).expect("valid");
    assert_eq!(
        dre[1],
        r#"{"blocks":{"site":"7"},"factors":{"x":"hi","y":"b"}}"#
    );
    let csv = "x,y,site\r\n0.5,a,n\r\nhi,b,7\r\n";
    let native = with_matrix("m.csv", csv, Compat::Native).expect("valid");
    assert_eq!(
        native[0],
        r#"{"blocks":{"site":"n"},"factors":{"x":0.5,"y":"a"}}"#
    );
    assert_eq!(
        native[1],
        r#"{"blocks":{"site":7},"factors":{"x":1,"y":"b"}}"#
    );
    let json = r#"[{"y": "a", "x": 0.5, "site": "n"}, {"x": 1, "y": "b", "site": 7}]"#;
    assert_eq!(
        with_matrix("m.json", json, Compat::Native).expect("valid"),
        native
    );
    let wrong =
        with_matrix("m.csv", "x,y,sight\n0.5,a,n\n0.7,b,7\n", Compat::Native).expect_err("refused");
    assert_eq!(
        wrong,
        [
            "2:1 row 1: column `site` is missing",
            "2:7 row 1, column `sight`: no factor or block has this name",
            "3:1 row 2, column `x`: `0.7` is no level",
            "3:1 row 2: column `site` is missing",
            "3:7 row 2, column `sight`: no factor or block has this name",
        ]
    );
    assert!(with_matrix("m.json", "{}", Compat::Dre).is_err());
    assert!(with_matrix("m.json", "[1]", Compat::Dre).is_err());
}

const TWO: &str = "factors:
- {name: x, levels: [{name: x0, value: 0}, {name: x1, value: 1}]}
- {name: y, levels: [{name: y0, value: 10}, {name: y1, value: 20}]}
";

/// SF-32, SF-33
#[test]
fn a_latin_hypercube_has_one_point_in_each_slice() {
    let text = format!(
        "{TWO}design_spec: {{kind: lhs, n_samples: 8, options: {{bounds: {{q: [0, 8]}}}}}}\n"
    );
    let mut slices: Vec<u32> = of(&text, Compat::Native)
        .iter()
        .map(|value| value.parse::<f64>().expect("a number") as u32)
        .collect();
    slices.sort_unstable();
    assert_eq!(slices, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// SF-32, SF-34: repeats, a centre that is the most frequent value, counterbalance after blocks.
#[test]
fn a_fraction_is_repeated_centred_and_counterbalanced() {
    let text = "factors:
- {name: x, levels: [{name: x0, value: 0}, {name: x1, value: 1}]}
- {name: y, levels: [{name: y0, value: p}, {name: y1, value: q}]}
blocks: [{name: b, levels: [u, v]}]
design_spec: {kind: frac2, center_points: 1, counterbalance: true}
";
    let expected = [
        "0 p u", "0 q u", "1 p u", "1 q u", "0.5 p u", "0.5 p v", "1 q v", "1 p v", "0 q v",
        "0 p v",
    ];
    assert_eq!(of(text, Compat::Dre), expected);
    let seven: String = (0..7)
        .map(|n| {
            format!("- {{name: f{n}, levels: [{{name: a, value: 0}}, {{name: b, value: 1}}]}}\n")
        })
        .collect();
    let text = format!("{HEAD}factors:\n{seven}design_spec: {{kind: frac2}}\n");
    assert_eq!(faults(&text, None)[0].code, "design");
}

/// SF-32, SF-62 g: under DRE each group begins the same stream, natively its own.
#[test]
fn groups_are_shuffled_apart() {
    let text = "factors:
- {name: g, levels: [{name: g0, value: u}, {name: g1, value: v}]}
- {name: y, levels: [{name: y0, value: 10}, {name: y1, value: 20}]}
design_spec: {kind: frac2, replicates: 8, randomize: true, block_randomization_key: g}
";
    let halves = |compat| {
        let rows = of(text, compat);
        let values: Vec<String> = rows.iter().map(|row| row[2..].to_owned()).collect();
        assert!(rows[..16].iter().all(|row| row.starts_with('u')));
        (values[..16].to_vec(), values[16..].to_vec())
    };
    let (first, second) = halves(Compat::Dre);
    assert_eq!(first, second);
    let (first, second) = halves(Compat::Native);
    assert_ne!(first, second);
}

/// SF-29, SF-62 f
#[test]
fn a_randomized_block_is_shuffled_whole_under_dre_and_by_block_natively() {
    let text = format!(
        "{TWO}blocks: [{{name: b, levels: [u, v, w]}}]\ndesign_spec: {{kind: randomized_block}}\n"
    );
    let blocks = |compat| -> String {
        of(&text, compat)
            .iter()
            .filter_map(|row| row.chars().last())
            .collect()
    };
    assert_eq!(blocks(Compat::Native), "uuuuvvvvwwww");
    assert_ne!(blocks(Compat::Dre), "uuuuvvvvwwww");
    let rows = of(&text, Compat::Native);
    let parts: Vec<Vec<String>> = rows
        .chunks(4)
        .map(|part| part.iter().map(|row| row[..4].to_owned()).collect())
        .collect();
    assert!(
        parts[0] != parts[1] || parts[1] != parts[2],
        "each block has a permutation of its own"
    );
}

/// SF-29: even positions, then odd ones reversed; always for repeated measures, whose metadata says the order.
#[test]
fn repeated_measures_are_counterbalanced() {
    let text = format!(
        "{HEAD}factors: {{x: [1, 2, 3, 4, 5]}}\ndesign_spec: {{kind: repeated_measures}}\n"
    );
    planned(&text, None, |plan| {
        assert_eq!(assignments(plan), ["1", "3", "5", "4", "2"]);
        let metadata = plan.design.condition(3).metadata();
        assert_eq!(metadata.get("within_subject_order"), Some(&3.into()));
        assert_eq!(
            metadata.get("design_kind"),
            Some(&"repeated_measures".into())
        );
    });
    let none = planned(HEAD, None, assignments);
    assert_eq!(none, [""], "no factors: one empty assignment");
}

/// ST-33, SF-62 n: the numbers are those of `scipy.stats.qmc.Sobol(scramble=False)`, in 5 dimensions.
#[test]
fn sobol_points_are_scipys() {
    let text = format!(
        "{HEAD}design_spec: {{kind: sobol, n_samples: 8, options: {{bounds: {{a: [0, 1], b: [0, 1], c: [0, 1], d: [0, 1], e: [0, 2]}}}}}}\n"
    );
    let expected = [
        "0.0 0.0 0.0 0.0 0.0",
        "0.5 0.5 0.5 0.5 1.0",
        "0.75 0.25 0.25 0.25 1.5",
        "0.25 0.75 0.75 0.75 0.5",
        "0.375 0.375 0.625 0.875 0.75",
        "0.875 0.875 0.125 0.375 1.75",
        "0.625 0.125 0.875 0.625 1.25",
        "0.125 0.625 0.375 0.125 0.25",
    ];
    planned(&text, None, |plan| {
        assert_eq!(assignments(plan), expected);
        assert!(plan.warnings.iter().all(|w| w.code != "sobol"));
    });
    let odd = text.replace("n_samples: 8", "n_samples: 7");
    planned(&odd, None, |plan| {
        assert!(plan.warnings.iter().any(|w| w.code == "sobol"))
    });
    let scrambled = text.replace("options: {", "options: {scramble: true, ");
    planned(&scrambled, None, |plan| {
        let mut random = fairtrial_study::Random::new(&0.into());
        let mask = f64::from(random.u32()) / 4_294_967_296.0;
        assert_eq!(
            plan.design.condition(0).factor("a"),
            Some(&Value::Float(mask))
        );
    });
}

/// SF-40
#[test]
fn messages_stand_in_the_order_of_constraints_whatever_their_severity() {
    let text = format!(
        "{HEAD}factors: {{x: [1, 2]}}\nconstraints:\n- {{constraint_id: w, description: W, expression: 'x == 1', severity: warning}}\n- {{constraint_id: e, description: E, expression: 'x < 2'}}\n"
    );
    planned(&text, None, |plan| {
        let condition = plan.design.condition(1);
        assert_eq!(condition.messages(), ["w: W", "e: E"]);
        assert!(!condition.is_admissible() && plan.design.condition(0).is_admissible());
        assert_eq!((plan.admissible(), plan.len()), (1, 1));
    });
}

/// ST-25: rules by reference are judged by the caller, and both rules must hold.
#[test]
fn a_callable_rule_is_evaluated_by_the_caller() {
    let text = format!(
        "{HEAD}factors: {{x: [1, 2, 3]}}\nconstraints:\n- {{constraint_id: c, callable_ref: 'm:f', expression: 'x > 1'}}\n"
    );
    let study = study(&text, None).expect("valid");
    let mut caller = |constraint: &fairtrial_study::Constraint,
                      design: &fairtrial_study::Design| {
        assert_eq!(constraint.callable_ref.as_deref(), Some("m:f"));
        Ok(design
            .conditions()
            .map(|c| c.factor("x") != Some(&3.into()))
            .collect())
    };
    let plan = Plan::build(&study, Some(&mut caller)).expect("valid");
    assert_eq!(plan.admissible(), 1);
    let mut broken =
        |_: &fairtrial_study::Constraint, _: &fairtrial_study::Design| Err("it raised".into());
    let invalid = Plan::build(&study, Some(&mut broken)).expect_err("refused");
    assert!(
        invalid.to_string().contains("constraint `c`: it raised"),
        "{invalid}"
    );
}

/// SF-27, SF-52, ST-32
#[test]
fn conditions_are_written_as_a_table() {
    let text = format!("{HEAD}factors: {{x: [1, 'a,b']}}\nblocks: [{{name: b, levels: [2.5]}}]\n");
    planned(&text, None, |plan| {
        let mut out = Vec::new();
        plan.write_conditions(&mut out).expect("memory takes it");
        let table = String::from_utf8(out).expect("CSV is text");
        let id = plan.design.condition(1).id();
        let metadata = canonical_json(&plan.design.condition(1).metadata()).replace('"', "\"\"");
        let mut lines = table.split("\r\n");
        assert_eq!(
            lines.next(),
            Some(
                "study_id,condition_id,admissible,constraint_messages,assignment_meta_json,x,block_b"
            )
        );
        assert_eq!(
            lines.nth(1),
            Some(format!("s,{id},True,[],\"{metadata}\",\"a,b\",2.5").as_str())
        );
    });
}
