//! Where native mode and `dre-0.2` differ, and what a file means in each.

use fairtrial_study::{
    Compat, Contract, EntryPoint, FailureTrigger, Format, OrderPolicy, Study, Value, canonical_json,
};

use crate::{faults, planned, study};

const HEAD: &str = "study_id: s\ntitle: t\nproblem_ids: [p]\nagent_specs: [a]\n";

fn accepted(text: &str, compat: Compat) -> bool {
    faults(text, Some(compat)).is_empty()
}

fn warns(text: &str, compat: Compat, code: &str) -> bool {
    planned(text, Some(compat), |plan| {
        plan.warnings.iter().any(|warning| warning.code == code)
    })
}

/// SF-1, SF-2
#[test]
fn the_mode_is_the_flags_else_the_files_else_its_versions() {
    let table = [
        ("", None, Compat::Native),
        ("schema_version: 0.2.0\n", None, Compat::Dre),
        ("schema_version: 0.1.0\n", None, Compat::Dre),
        (
            "schema_version: 0.2.0\ncompat: native\n",
            None,
            Compat::Native,
        ),
        ("compat: dre-0.2\n", None, Compat::Dre),
        ("compat: dre-0.2\n", Some(Compat::Native), Compat::Native),
    ];
    for (keys, flag, expected) in table {
        let study = study(&format!("{HEAD}{keys}"), flag).expect("valid");
        assert_eq!(study.compat, expected, "{keys}");
    }
    assert!("dre".parse::<Compat>().is_err());
}

/// SF-62 a, c, e, j; SF-6, SF-7, SF-9 to SF-13: accidents of DRE pass with a warning, and are refused natively.
#[test]
fn accidents_are_refused_natively_and_pass_with_a_warning() {
    let table = [
        ("unknown: 1\n", "unknown_key"),
        ("authors: me\n", "type"),
        ("description: 5\n", "type"),
        ("title: again\n", "repeated_key"),
        ("seed_policy: {base_seed: null}\n", "base_seed"),
        ("design_spec: {randomize: 'false'}\n", "type"),
        ("design_spec: {n_samples: 4}\n", "ignored_option"),
        (
            "design_spec: {randomize: true, counterbalance: true}\n",
            "ignored_option",
        ),
        (
            "constraints: [{constraint_id: c, expression: 'True', severity: fatal}]\n",
            "severity",
        ),
        (
            "blocks: [{name: B, levels: [1]}, {name: b, levels: [1]}]\n",
            "column",
        ),
    ];
    for (keys, code) in table {
        let text = format!("{HEAD}{keys}");
        assert!(!accepted(&text, Compat::Native), "{keys}");
        assert!(warns(&text, Compat::Dre, code), "{keys}");
    }
    let text =
        format!("{HEAD}factors: [{{name: x, dtype: int, levels: [{{name: a, value: b}}]}}]\n");
    assert!(
        !accepted(&text, Compat::Native) && accepted(&text, Compat::Dre),
        "dtype"
    );
}

/// SF-7
#[test]
fn dre_makes_text_of_scalars_and_characters_of_text() {
    let text = "study_id: 5\ntitle: null\nauthors: me\nproblem_ids: [p]\n";
    let study = study(text, Some(Compat::Dre)).expect("valid");
    let exported = study.exported();
    let of = |key: &str| canonical_json(exported.get(key).expect("it is exported"));
    assert_eq!(
        (of("study_id"), of("title")),
        ("\"5\"".into(), "\"None\"".into())
    );
    assert_eq!(of("authors"), r#"["m","e"]"#);
    assert_eq!(of("output_dir"), "\"artifacts/5\"");
}

/// SF-62 b
#[test]
fn shorthand_is_native_and_exported_in_full() {
    let text = format!("{HEAD}factors: {{x: [1, lo, 0.5]}}\n");
    assert_eq!(faults(&text, Some(Compat::Dre))[0].code, "type");
    let short = study(&text, Some(Compat::Native)).expect("valid");
    let levels = &short.factors[0].levels;
    let names: Vec<_> = levels.iter().map(|level| level.name.as_str()).collect();
    assert_eq!(names, ["1", "lo", "0.5"]);
    let long =
        format!("{HEAD}factors:\n- name: x\n  levels: [1, lo, {{name: '0.5', value: 0.5}}]\n");
    let long = study(&long, Some(Compat::Native)).expect("valid");
    assert_eq!(
        canonical_json(&short.exported()),
        canonical_json(&long.exported())
    );
}

/// ST-20
#[test]
fn equal_levels_are_refused_natively_at_their_place_and_by_their_runs_under_dre() {
    let text = format!(
        "{HEAD}factors:\n- name: x\n  levels: [{{name: a, value: 1}}, {{name: b, value: 1}}, {{name: c, value: 1.0}}]\n"
    );
    let native = faults(&text, Some(Compat::Native));
    assert_eq!(
        native[0].to_string(),
        "study.yaml:7:33: two levels of `x` have the value 1; give each its own value"
    );
    assert_eq!(native.len(), 1, "1 and 1.0 are two values");
    let short = faults(
        &format!("{HEAD}factors: {{x: [1, 2, 1]}}\n"),
        Some(Compat::Native),
    );
    let codes: Vec<_> = short.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, ["repeated_level", "equal_levels"]);
    assert_eq!(faults(&text, Some(Compat::Dre))[0].code, "plan");
}

/// ST-22
#[test]
fn scalars_that_two_versions_of_yaml_read_differently_are_named() {
    let text = format!(
        "{HEAD}factors:\n  x: [no, 1e-5, '1:30', 010, \"yes\", 1, 0.5, null]\nblocks: [{{name: b, levels: [1_000, 1:30]}}]\n"
    );
    planned(&text, None, |plan| {
        let found: Vec<String> = plan
            .warnings
            .iter()
            .filter(|w| w.code == "yaml_version")
            .map(|w| {
                format!(
                    "{}:{} {}; {}",
                    w.place.line, w.place.column, w.message, w.hint
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "6:7 `no` is False here, as YAML 1.1 has it, and the text `no` in YAML 1.2; write `\"no\"` for text, or `false` for this value".replace("False", "false"),
                "6:11 `1e-5` is the text `1e-5` here, as YAML 1.1 has it, and 1e-05 in YAML 1.2; write `\"1e-5\"` for text, or `'1e-5'` for this value".into(),
                "6:25 `010` is 8 here, as YAML 1.1 has it, and 10 in YAML 1.2; write `\"010\"` for text, or `8` for this value".into(),
                "7:29 `1_000` is 1000 here, as YAML 1.1 has it, and the text `1_000` in YAML 1.2; write `\"1_000\"` for text, or `1000` for this value".into(),
                "7:36 `1:30` is 90 here, as YAML 1.1 has it, and the text `1:30` in YAML 1.2; write `\"1:30\"` for text, or `90` for this value".into(),
            ]
        );
    });
}

/// SF-18: merge keys and anchors.
#[test]
fn merge_keys_work_and_own_keys_win() {
    let text = format!(
        "{HEAD}provenance_metadata:\n  base: &b {{a: 1, b: 2}}\n  other: {{<<: *b, b: 3}}\n  both: {{<<: [{{c: 1}}, *b], d: *b}}\n"
    );
    let study = study(&text, None).expect("valid");
    let found = canonical_json(
        study
            .exported()
            .get("provenance_metadata")
            .expect("exported"),
    );
    assert_eq!(
        found,
        r#"{"base":{"a":1,"b":2},"both":{"a":1,"b":2,"c":1,"d":{"a":1,"b":2}},"other":{"a":1,"b":3}}"#
    );
}

/// SF-8
#[test]
fn a_legacy_list_says_which_outcomes_are_primary() {
    let outcome =
        |name: &str| format!("{{name: {name}, source_table: runs, column: c, aggregation: mean}}");
    let text = format!(
        "{HEAD}outcomes: [{}, {}]\nprimary_outcomes: [o2]\n",
        outcome("o1"),
        outcome("o2")
    );
    let exported = study(&text, Some(Compat::Dre)).expect("valid").exported();
    let outcomes = crate::items(exported.get("outcomes").expect("exported")).to_vec();
    let primary: Vec<_> = outcomes.iter().map(|o| o.get("primary").cloned()).collect();
    assert_eq!(primary, [Some(Value::Bool(false)), Some(Value::Bool(true))]);
}

const BOUND: &str = "\
study_id: s
title: t
defaults: {timeout: 5m, retries: 2, env: {A: b}}
agents:
  fast: agent.py:solve
  slow: {command: [./slow, '1'], timeout: 30, limits: {memory: 512M, cpu: 2s, output: none}, sandbox: strict}
  text: {source: 'def f(run): ...', function: f, contract: dre, pass_env: [KEY]}
problems:
  p1: {family: f, brief: b, payload: {n: 3, d: 2026-01-02}, evaluator: 'score.py:score'}
  p2: {}
evaluator: score.py:other
order: {policy: within_block, seed: 9}
on_failure: {above: 0.25, grace: 10s, drain: true}
export: [sqlite]
";

/// ST-1 to ST-6
#[test]
fn bindings_and_policies_are_read_with_their_defaults() {
    let study = study(BOUND, None).expect("valid");
    let agents = study.bindings.agents.as_ref().expect("given");
    let ids: Vec<&str> = agents.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["fast", "slow", "text"]);
    assert_eq!(study.agents, ids.map_values());
    assert_eq!(study.problems, ["p1", "p2"].map(Value::from));
    let [fast, slow, text] = [0, 1, 2].map(|at| &agents[at].1);
    assert!(
        matches!(&fast.entry, EntryPoint::Python { file, function } if file == "agent.py" && function == "solve")
    );
    assert_eq!(fast.terms.timeout.map(|t| t.as_secs()), Some(300));
    assert_eq!(
        (fast.terms.retries, fast.terms.contract),
        (2, Contract::Run)
    );
    assert_eq!(fast.terms.env, [("A".to_owned(), "b".to_owned())]);
    assert_eq!(
        slow.entry,
        EntryPoint::Command(vec!["./slow".into(), "1".into()])
    );
    assert_eq!(slow.terms.timeout.map(|t| t.as_secs()), Some(30));
    assert_eq!(
        (
            slow.terms.limits.memory_bytes,
            slow.terms.limits.output_bytes
        ),
        (Some(512 << 20), None)
    );
    assert_eq!(
        (text.terms.contract, text.terms.pass_env.as_slice()),
        (Contract::Dre, &["KEY".to_owned()][..])
    );
    let (_, p1) = &study.bindings.problems.as_ref().expect("given")[0];
    assert_eq!((p1.family.as_str(), p1.evaluator.is_some()), ("f", true));
    assert!(
        matches!(p1.payload.get("d"), Some(Value::Moment(_))),
        "payloads keep their types"
    );
    assert_eq!(
        (study.order.policy, &study.order.seed),
        (OrderPolicy::WithinBlock, &9.into())
    );
    assert_eq!(
        study.on_failure.trigger,
        FailureTrigger::Above {
            fraction: 0.25,
            min_runs: 20
        }
    );
    assert!(study.on_failure.drain && study.on_failure.grace.as_secs() == 10);
    let formats: Vec<_> = study.export.iter().map(|(format, _)| *format).collect();
    assert_eq!(formats, [Format::Sqlite]);
    let under_dre = crate::study(BOUND, Some(Compat::Dre)).expect("valid");
    let (_, fast) = &under_dre.bindings.agents.as_ref().expect("given")[0];
    assert_eq!(fast.terms.contract, Contract::Dre);
}

trait MapValues {
    fn map_values(&self) -> Vec<Value>;
}

impl MapValues for Vec<&str> {
    fn map_values(&self) -> Vec<Value> {
        self.iter().copied().map(Value::from).collect()
    }
}

/// ST-2
#[test]
fn an_unused_binding_is_a_warning_and_an_absent_one_the_hosts() {
    let text = BOUND.replace("title: t", "title: t\nagent_specs: [fast]");
    assert!(warns(&text, Compat::Native, "unused_binding"));
    assert!(warns(HEAD, Compat::Native, "unbound"));
}

/// ST-5: paths are relative to the file.
#[test]
fn paths_are_relative_to_the_study_file() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    std::fs::write(dir.path().join("problems.json"), r#"{"q": {"brief": "x"}}"#)
        .expect("it can be written");
    let text = "study_id: s\ntitle: t\nagents: {a: 'a.py:f'}\nproblems: problems.json\n";
    let path = dir.path().join("study.yaml");
    std::fs::write(&path, text).expect("it can be written");
    let study = Study::load(&path, None).expect("valid");
    assert_eq!(study.problems, ["q".into()]);
    assert_eq!(study.resolve("a.py"), dir.path().join("a.py"));
    std::fs::write(dir.path().join("problems.json"), "{\"q\":\n {\"brif\": 1}}")
        .expect("it can be written");
    let invalid = Study::load(&path, None).expect_err("refused");
    let place = &invalid.faults[0].place;
    assert!(
        place.file.ends_with("problems.json") && (place.line, place.column) == (2, 3),
        "{invalid}"
    );
}

/// SF-43, ST-6
#[test]
fn a_study_without_problems_and_runner_is_standalone() {
    let head = "study_id: s\ntitle: t\n";
    for (keys, compat, standalone) in [
        ("", Compat::Native, true),
        ("agents: {a: 'a.py:f'}\n", Compat::Native, false),
        ("agents: {a: 'a.py:f'}\n", Compat::Dre, true),
        (
            "factors: [{name: problem, levels: [{name: p, value: q}]}]\n",
            Compat::Dre,
            false,
        ),
        ("problem_ids: [p]\nrunner: 'r.py:f'\n", Compat::Native, true),
    ] {
        planned(&format!("{head}{keys}"), Some(compat), |plan| {
            assert_eq!(plan.is_standalone, standalone, "{keys}");
            let run = plan.runs().next().expect("there is a run");
            assert_eq!(run.problem_id() == &Value::Null, standalone, "{keys}");
        });
    }
    let text = format!("{head}agents: {{a: 'a.py:f'}}\n");
    planned(&text, None, |plan| {
        let run = plan.runs().next().expect("there is a run");
        assert_eq!(
            (run.agent_id(), run.problem_id()),
            (&"a".into(), &"default-problem".into())
        );
    });
    assert!(warns(head, Compat::Dre, "standalone"));
}

/// SF-62 d, SF-42
#[test]
fn a_plan_beyond_its_budget_is_cut_under_dre_and_refused_natively() {
    let text = format!("{HEAD}factors: {{x: [1, 2, 3]}}\nrun_budget: {{max_runs: 2}}\n");
    assert_eq!(faults(&text, Some(Compat::Native))[0].code, "plan");
    let long = text.replace("factors: {x: [1, 2, 3]}", "factors: [{name: x, levels: [{name: a, value: 1}, {name: b, value: 2}, {name: c, value: 3}]}]");
    assert_eq!(planned(&long, Some(Compat::Dre), |plan| plan.len()), 2);
    assert_eq!(
        planned(&format!("{text}sample: first\n"), None, |plan| plan.len()),
        2
    );
}

/// SF-62 i
#[test]
fn natively_rules_are_checked_before_planning_and_cut_short() {
    let rule = |rule: &str| {
        format!(
            "{HEAD}factors: [{{name: x, levels: [{{name: z, value: 0}}]}}]\nconstraints: [{{constraint_id: c, expression: \"{rule}\"}}]\n"
        )
    };
    for (expression, native, dre) in [
        ("x == 0 or nope", false, false),
        ("1 > x > 0 > nope", false, true),
        ("x != 0 and 1 / x > 0", true, false),
        ("factors.nope == None", false, true),
        ("x.real == 0", false, true),
    ] {
        assert_eq!(
            accepted(&rule(expression), Compat::Native),
            native,
            "{expression}"
        );
        assert_eq!(
            accepted(&rule(expression), Compat::Dre),
            dre,
            "{expression}"
        );
    }
}

/// SF-62 o, ST-34
#[test]
fn the_default_order_is_interleaved_natively_and_the_plans_under_dre() {
    let of = |compat| study(HEAD, Some(compat)).expect("valid").order.policy;
    assert_eq!(
        (of(Compat::Native), of(Compat::Dre)),
        (OrderPolicy::Interleaved, OrderPolicy::Plan)
    );
    let parallelism = |compat| {
        let exported = study(HEAD, Some(compat)).expect("valid").exported();
        exported
            .get("run_budget")
            .and_then(|b| b.get("parallelism").cloned())
    };
    assert_eq!(parallelism(Compat::Dre), Some(1.into()));
    assert_eq!(parallelism(Compat::Native), Some(Value::Null));
}

/// ST-26
#[test]
fn bindings_that_lead_nowhere_are_named() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let put = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("it can be written")
    };
    put("agent.py", "def solve(run):\n    return {}\n");
    put("bad.py", "def solve(run:\n");
    put("plain.sh", "#!/bin/sh\n");
    let text = "study_id: s\ntitle: t\nagents:
  good: agent.py:solve
  misspelt: agent.py:slove
  unparsed: bad.py:solve
  missing: none.py:solve
  shell: {command: [sh]}
  plain: {command: [./plain.sh]}
  source: {source: 'f = 1', function: g}
  interpreter: {python: 'agent.py:solve', interpreter: python9}
problems: {p: {evaluator: 'agent.py:score'}}
";
    let study = Study::parse(&dir.path().join("study.yaml"), text, None).expect("valid");
    let invalid = study.resolve_bindings().expect_err("some lead nowhere");
    let found: Vec<String> = invalid
        .faults
        .iter()
        .map(|f| {
            format!(
                "{}:{} {}; {}",
                f.place.line, f.place.column, f.message, f.hint
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "5:13 `agent.py` binds no `slove` at module level; did you mean `solve`?",
            "6:13 `bad.py` is not Python: line 1: a bracket does not close; ",
            "7:12 cannot read `none.py`: No such file or directory; paths are relative to the study file",
            "9:10 `./plain.sh` is no program that can be run; name an executable file relative to the study file, or a program in PATH",
            "10:11 `source` binds no `g` at module level; known are `f`",
            "11:16 there is no interpreter `python9`; name one that is there",
            "12:27 `agent.py` binds no `score` at module level; known are `solve`",
        ]
    );
}
