//! Files with something wrong in them: one table, one row per rule. ST-18

use fairtrial_study::Compat;

use crate::faults;

/// A file that is valid natively; a row changes it.
const GOOD: &str = "\
study_id: s
title: t
factors:
- name: x
  levels: [{name: lo, value: 0}, {name: hi, value: 1}]
- name: y
  levels: [{name: a, value: a}, {name: b, value: b}]
blocks:
- name: site
  levels: [n, m]
problem_ids: [p1, p2]
agent_specs: [a1]
";

/// Both modes, native only, `dre-0.2` only.
#[derive(Clone, Copy, PartialEq)]
enum In {
    Both,
    Native,
    Dre,
}
use In::{Both, Dre, Native};

/// What replaces what (nothing: appended), in which modes it is refused, where (`line:column` of the changed file), and
/// the kind of fault.
const TABLE: &[(&str, &str, In, &str, &str)] = &[
    // SF-1, SF-6
    ("", "compat: dre-0.1\n", Both, "13:9", "compat"),
    ("study_id: s", "- a", Both, "2:1", "syntax"),
    ("title: t", "title: [t", Both, "3:8", "syntax"),
    ("", "--- \na: 1\n", Both, "13:1", "syntax"),
    ("", "notes: *x\n", Both, "13:8", "syntax"),
    ("", "notes: =\n", Both, "13:8", "syntax"),
    (
        "",
        "notes: !!python/name:os.system x\n",
        Both,
        "13:8",
        "tag",
    ),
    ("", "notes: 2026-13-45\n", Both, "13:8", "scalar"),
    ("", "<<: [1]\n", Both, "13:5", "merge"),
    ("", "? [a]\n: 1\n", Both, "13:3", "key"),
    // SF-7
    ("study_id: s\n", "", Both, "1:1", "missing_key"),
    ("study_id: s", "study_id: ' '", Both, "1:11", "blank"),
    ("study_id: s", "study_id: 5", Native, "1:11", "type"),
    ("title: t\n", "", Both, "1:1", "missing_key"),
    ("title: t", "title: ''", Both, "2:8", "blank"),
    ("title: t", "title: null", Native, "2:8", "type"),
    ("", "description: 5\n", Native, "13:14", "type"),
    ("", "authors: me\n", Native, "13:10", "type"),
    ("", "authors: null\n", Both, "13:10", "type"),
    ("", "tags: [1]\n", Native, "13:8", "type"),
    ("", "design_spec: full\n", Both, "13:14", "type"),
    ("", "design_spec: null\n", Both, "13:14", "type"),
    ("", "provenance_metadata: []\n", Both, "13:22", "type"),
    ("", "output_dir: 5\n", Native, "13:13", "type"),
    (
        "",
        "schema_version: 0.9.0\n",
        Native,
        "13:17",
        "schema_version",
    ),
    (
        "problem_ids: [p1, p2]",
        "problem_ids: [p1, 2]",
        Native,
        "11:19",
        "type",
    ),
    // SF-8
    (
        "",
        "primary_outcomes: [nope]\n",
        Both,
        "13:19",
        "unknown_name",
    ),
    (
        "",
        "outcomes: [{name: o, source_table: runs, column: c, aggregation: mean, primary: true}]\nsecondary_outcomes: [o]\n",
        Both,
        "14:21",
        "contradiction",
    ),
    (
        "",
        "outcomes: [{name: o, source_table: runs, column: c, aggregation: mean}]\nprimary_outcomes: [o]\nsecondary_outcomes: [o]\n",
        Both,
        "15:21",
        "contradiction",
    ),
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l, statement: s, linked_analysis_plan_id: nope}]\n",
        Both,
        "13:82",
        "unknown_name",
    ),
    // SF-9
    ("- name: x", "- nme: x", Both, "4:3", "missing_key"),
    ("- name: x", "- name: ''", Both, "4:9", "blank"),
    (
        "- name: x\n",
        "- name: x\n  kind: causal\n",
        Both,
        "5:9",
        "choice",
    ),
    (
        "[{name: lo, value: 0}, {name: hi, value: 1}]",
        "[]",
        Both,
        "4:9",
        "no_levels",
    ),
    ("name: hi", "name: lo", Both, "5:34", "repeated_level"),
    ("value: 1}", "value: 0}", Both, "", ""),
    (
        "[{name: lo, value: 0}, {name: hi, value: 1}]",
        "lo",
        Both,
        "5:11",
        "type",
    ),
    (
        "- name: x\n",
        "- name: x\n  dtype: flot\n",
        Native,
        "5:10",
        "dtype",
    ),
    (
        "- name: y\n",
        "- name: y\n  dtype: float\n",
        Native,
        "8:12",
        "dtype",
    ),
    ("factors:", "factors: null\nold:", Both, "3:10", "type"),
    // SF-10
    ("- name: site", "- nme: site", Both, "9:3", "missing_key"),
    ("levels: [n, m]", "levels: []", Both, "10:11", "empty"),
    (
        "  levels: [n, m]",
        "  metadata: {}",
        Both,
        "9:3",
        "missing_key",
    ),
    // SF-11
    (
        "",
        "constraints: [{constraint_id: c}]\n",
        Both,
        "13:15",
        "no_rule",
    ),
    (
        "",
        "constraints: [{expression: 'True'}]\n",
        Both,
        "13:15",
        "missing_key",
    ),
    (
        "",
        "constraints: [{constraint_id: c, expression: 'x <'}]\n",
        Both,
        "13:46",
        "constraint",
    ),
    (
        "",
        "constraints: [{constraint_id: c, expression: 'True', severity: fatal}]\n",
        Native,
        "13:64",
        "severity",
    ),
    (
        "",
        "constraints: [{constraint_id: c, callable_ref: rules}]\n",
        Both,
        "13:48",
        "callable_ref",
    ),
    (
        "",
        "constraints: [{constraint_id: c, expression: 'True'}, {constraint_id: c, expression: 'True'}]\n",
        Native,
        "13:86",
        "repeated_name",
    ),
    ("", "constraints: {}\n", Both, "13:14", "type"),
    // SF-12
    (
        "",
        "design_spec: {kind: fulll}\n",
        Both,
        "13:21",
        "design_kind",
    ),
    (
        "",
        "design_spec: {kind: sobol, n_samples: 4, options: {bounds: {x: [0, 1]}}}\n",
        Dre,
        "13:21",
        "design_kind",
    ),
    ("", "design_spec: {replicates: 0}\n", Both, "13:27", "range"),
    (
        "",
        "design_spec: {replicates: two}\n",
        Both,
        "13:27",
        "type",
    ),
    (
        "",
        "design_spec: {randomize: 'false'}\n",
        Native,
        "13:26",
        "type",
    ),
    ("", "design_spec: {n_samples: 0}\n", Both, "13:26", "range"),
    (
        "",
        "design_spec: {center_points: -1}\n",
        Both,
        "13:30",
        "range",
    ),
    (
        "",
        "design_spec: {options: {zzz: 1}}\n",
        Native,
        "13:25",
        "unknown_key",
    ),
    // SF-13
    (
        "",
        "run_budget: {replicate: 2}\n",
        Both,
        "13:14",
        "unknown_key",
    ),
    ("", "run_budget: {replicates: 0}\n", Both, "13:26", "range"),
    ("", "run_budget: {max_runs: 0}\n", Both, "13:24", "range"),
    ("", "run_budget: {parallelism: 0}\n", Both, "13:27", "range"),
    (
        "",
        "run_budget: {fail_fast: 'yes'}\n",
        Both,
        "13:25",
        "type",
    ),
    ("", "run_budget: {replicates: '2'}\n", Both, "13:26", "type"),
    ("", "seed_policy: {base: 1}\n", Both, "13:15", "unknown_key"),
    ("", "seed_policy: {base_seed: 1.5}\n", Both, "13:26", "type"),
    (
        "",
        "seed_policy: {base_seed: true}\n",
        Both,
        "13:26",
        "type",
    ),
    (
        "",
        "seed_policy: {base_seed: null}\n",
        Native,
        "13:26",
        "base_seed",
    ),
    (
        "",
        "seed_policy: {per_run_offset: null}\n",
        Both,
        "13:31",
        "type",
    ),
    // SF-14, SF-15, SF-16
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l}]\n",
        Both,
        "13:14",
        "missing_key",
    ),
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l, statement: s, kind: hunch}]\n",
        Both,
        "13:63",
        "choice",
    ),
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l, statement: s, direction: up}]\n",
        Both,
        "13:68",
        "choice",
    ),
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l, statement: s, contrast: {left: a}}]\n",
        Both,
        "13:67",
        "missing_key",
    ),
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l, statement: s, minimum_effect_of_interest: big}]\n",
        Both,
        "13:85",
        "type",
    ),
    (
        "",
        "outcomes: [{name: o, source_table: runs, column: c}]\n",
        Both,
        "13:12",
        "missing_key",
    ),
    (
        "",
        "outcomes: [{name: o, source_table: '', column: c, aggregation: mean}]\n",
        Both,
        "13:36",
        "blank",
    ),
    (
        "",
        "analysis_plans: [{analysis_plan_id: a, tests: [ttest]}]\n",
        Both,
        "13:18",
        "missing_key",
    ),
    (
        "",
        "analysis_plans: [{analysis_plan_id: a, hypothesis_ids: [], tests: [ttest]}]\n",
        Both,
        "13:56",
        "empty",
    ),
    // SF-17
    ("- name: y", "- name: x", Both, "6:9", "repeated_name"),
    (
        "  levels: [n, m]\n",
        "  levels: [n, m]\n- name: site\n  levels: [1]\n",
        Both,
        "11:9",
        "repeated_name",
    ),
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l, statement: s, independent_vars: [site]}]\n",
        Both,
        "13:75",
        "unknown_name",
    ),
    (
        "",
        "hypotheses: [{hypothesis_id: h, label: l, statement: s, dependent_vars: [x]}]\n",
        Both,
        "13:73",
        "unknown_name",
    ),
    (
        "",
        "analysis_plans: [{analysis_plan_id: a, hypothesis_ids: [h], tests: [ttest]}]\n",
        Both,
        "13:56",
        "unknown_name",
    ),
    (
        "",
        "outcomes: [{name: o, source_table: r, column: c, aggregation: m}, {name: o, source_table: r, column: c, aggregation: m}]\n",
        Both,
        "13:74",
        "repeated_name",
    ),
    ("", "run_budget: {max_runs: 1}\n", Both, "13:24", "max_runs"),
    // SF-30 to SF-34
    (
        "",
        "design_spec: {kind: latin_square}\n",
        Both,
        "13:14",
        "design",
    ),
    (
        "",
        "design_spec: {kind: latin_square, options: {row_factor: z, column_factor: x, treatment_factor: y}}\n",
        Both,
        "13:57",
        "design",
    ),
    (
        "",
        "design_spec: {kind: custom_matrix}\n",
        Both,
        "13:14",
        "design",
    ),
    (
        "",
        "design_spec: {kind: custom_matrix, matrix_path: missing.csv}\n",
        Both,
        "13:49",
        "design",
    ),
    (
        "",
        "design_spec: {kind: custom_matrix, matrix_path: a.xls}\n",
        Both,
        "13:49",
        "design",
    ),
    (
        "",
        "design_spec: {kind: lhs, options: {bounds: {x: [0, 1]}}}\n",
        Both,
        "13:14",
        "design",
    ),
    (
        "",
        "design_spec: {kind: lhs, n_samples: 3}\n",
        Both,
        "13:14",
        "design",
    ),
    (
        "",
        "design_spec: {kind: lhs, n_samples: 3, options: {bounds: {x: [1, 0]}}}\n",
        Both,
        "13:58",
        "design",
    ),
    (
        "",
        "design_spec: {kind: lhs, n_samples: 3, options: {bounds: {x: [a, b]}}}\n",
        Both,
        "13:58",
        "design",
    ),
    (
        "",
        "design_spec: {kind: lhs, n_samples: 3, options: {bounds: {x: [0, 1]}, backend: scipy}}\n",
        Both,
        "13:80",
        "design",
    ),
    (
        "",
        "design_spec: {kind: frac2, options: {resolution: IV}}\n",
        Both,
        "13:50",
        "design",
    ),
    (
        "[{name: lo, value: 0}, {name: hi, value: 1}]",
        "[{name: lo, value: 0}]\ndesign_spec: {kind: frac2}\nold:",
        Both,
        "4:9",
        "design",
    ),
    (
        "",
        "design_spec: {kind: lhs, n_samples: 3, randomize: true, block_randomization_key: q, options: {bounds: {x: [0, 1]}}}\n",
        Both,
        "13:82",
        "design",
    ),
    // SF-38, ST-23
    (
        "",
        "constraints: [{constraint_id: c, expression: 'x'}]\n",
        Both,
        "13:46",
        "constraint",
    ),
    (
        "",
        "constraints: [{constraint_id: c, expression: 'zz == 1'}]\n",
        Both,
        "13:46",
        "constraint",
    ),
    (
        "",
        "constraints: [{constraint_id: c, expression: 'x ** 2 == 1'}]\n",
        Both,
        "13:46",
        "constraint",
    ),
    (
        "",
        "constraints: [{constraint_id: c, expression: '1 / x > 1'}]\n",
        Both,
        "13:46",
        "constraint",
    ),
    // ST-1 to ST-6
    ("", "agents: {a2: 'a.py:f'}\n", Both, "12:15", "unbound"),
    ("", "agents: [a1]\n", Both, "13:9", "type"),
    ("", "agents: {a1: {}}\n", Both, "13:14", "binding"),
    (
        "",
        "agents: {a1: {python: 'a.py:f', command: [a]}}\n",
        Both,
        "13:14",
        "binding",
    ),
    ("", "agents: {a1: a.py}\n", Both, "13:14", "binding"),
    (
        "",
        "agents: {a1: {command: ./agent --fast}}\n",
        Both,
        "13:24",
        "type",
    ),
    ("", "agents: {a1: {command: [1]}}\n", Both, "13:24", "type"),
    (
        "",
        "agents: {a1: {source: 'x = 1'}}\n",
        Both,
        "13:14",
        "binding",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', timout: 5}}\n",
        Both,
        "13:33",
        "unknown_key",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', timeout: soon}}\n",
        Both,
        "13:42",
        "duration",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', timeout: 0}}\n",
        Both,
        "13:42",
        "duration",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', limits: {memry: 5M}}}\n",
        Both,
        "13:42",
        "unknown_key",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', limits: {memory: lots}}}\n",
        Both,
        "13:50",
        "limit",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', sandbox: jail}}\n",
        Both,
        "13:42",
        "sandbox",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', isolation: some}}\n",
        Both,
        "13:44",
        "choice",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', retries: -1}}\n",
        Both,
        "13:42",
        "range",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', retry_on: [success]}}\n",
        Both,
        "13:44",
        "choice",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', env: {A: 1}}}\n",
        Both,
        "13:42",
        "type",
    ),
    (
        "",
        "agents: {a1: {python: 'a.py:f', contract: other}}\n",
        Both,
        "13:43",
        "choice",
    ),
    ("", "problems: {p1: {}}\n", Both, "11:19", "unbound"),
    (
        "",
        "problems: missing.yaml\n",
        Both,
        "13:11",
        "problem_file",
    ),
    (
        "",
        "problems: {p1: {brif: x}, p2: {}}\n",
        Both,
        "13:17",
        "unknown_key",
    ),
    (
        "",
        "runner: 'r.py:f'\nagents: {a1: 'a.py:f'}\n",
        Both,
        "14:9",
        "contradiction",
    ),
    (
        "",
        "defaults: {python: 'a.py:f'}\n",
        Both,
        "13:20",
        "binding",
    ),
    ("", "order: {policy: random}\n", Both, "13:17", "choice"),
    ("", "order: shuffled\n", Both, "13:8", "type"),
    ("", "on_failure: halt\n", Both, "13:13", "choice"),
    ("", "on_failure: {after: 0}\n", Both, "13:21", "range"),
    ("", "on_failure: {above: 2}\n", Both, "13:21", "range"),
    ("", "on_failure: {}\n", Both, "13:13", "on_failure"),
    ("", "sample: balanced\n", Both, "13:9", "ignored_option"),
    ("", "export: [xls]\n", Both, "13:10", "choice"),
    // ST-19
    ("title: t", "titel: t", Both, "1:1", "missing_key"),
    ("", "problem_idz: [p1]\n", Native, "13:1", "unknown_key"),
    (
        "  levels: [n, m]",
        "  levels: [n, m]\n  level: 2",
        Native,
        "11:3",
        "unknown_key",
    ),
    // ST-20
    ("agent_specs: [a1]", "agent_specs: [a1, a1]", Both, "", ""),
    ("", "title: again\n", Native, "13:1", "repeated_key"),
    ("- name: x", "- name: study_id", Both, "4:9", "column"),
    ("- name: x", "- name: Admissible", Native, "4:9", "column"),
    ("- name: x", "- name: block_site", Both, "9:9", "column"),
    ("- name: x", "- name: Y", Native, "6:9", "column"),
    ("- name: x", "- name: site", Native, "9:9", "repeated_name"),
    // ST-21
    (
        "",
        "design_spec: {matrix_path: m.csv}\n",
        Native,
        "13:28",
        "ignored_option",
    ),
    (
        "",
        "design_spec: {replicates: 2}\n",
        Native,
        "13:27",
        "ignored_option",
    ),
    (
        "",
        "design_spec: {n_samples: 5}\n",
        Native,
        "13:26",
        "ignored_option",
    ),
    (
        "",
        "design_spec: {options: {resolution: III}}\n",
        Native,
        "13:37",
        "ignored_option",
    ),
    (
        "",
        "design_spec: {randomize: true, counterbalance: true}\n",
        Native,
        "13:48",
        "ignored_option",
    ),
    (
        "",
        "design_spec: {kind: repeated_measures, randomize: true}\n",
        Native,
        "13:51",
        "ignored_option",
    ),
    (
        "",
        "design_spec: {kind: randomized_block, counterbalance: true}\n",
        Native,
        "13:55",
        "ignored_option",
    ),
    // ST-31
    ("", "run_budget: {max_runs: 3}\n", Native, "13:24", "plan"),
];

/// ST-18, ST-19, ST-20, ST-21, SF-4: kind and place of each fault, in the modes that refuse it.
#[test]
fn each_broken_file_is_refused_at_its_place() {
    assert!(TABLE.len() >= 100);
    let mut wrong = Vec::new();
    for (old, new, modes, place, code) in TABLE {
        let text = match *old {
            "" => format!("{GOOD}{new}"),
            old => {
                assert_eq!(GOOD.matches(old).count().min(1), 1, "{old}");
                GOOD.replacen(old, new, 1)
            }
        };
        for compat in [Compat::Native, Compat::Dre] {
            let refused = match modes {
                Both => true,
                Native => compat == Compat::Native,
                Dre => compat == Compat::Dre,
            };
            let flag = if *code == "compat" {
                None
            } else {
                Some(compat)
            };
            let found = faults(&text, flag);
            let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
            let case = format!("{compat}: {new:?}: {shown:#?}");
            let expected = found.iter().find(|fault| fault.code == *code);
            let at = expected.map(|fault| format!("{}:{}", fault.place.line, fault.place.column));
            let as_expected = match refused {
                true if code.is_empty() => !found.is_empty(),
                true => at.as_deref() == Some(*place),
                false => found.is_empty(),
            };
            if !as_expected {
                wrong.push(case);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// ST-18: all faults in one pass, in the order of their places, each a line.
#[test]
fn all_faults_are_found_in_one_pass() {
    let text = GOOD
        .replace("title: t", "titel: t")
        .replace("agent_specs: [a1]", "agent_specs: [a1, a1]\nconstraints: [{constraint_id: c, expression: 'q > 1'}]\nrun_budget: {replicate: 2}\ndesign_spec: {kind: lhs}");
    let found = faults(&text, Some(Compat::Native));
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    let expected = [
        "study.yaml:1:1: `title` is missing in the study; add it",
        "study.yaml:2:1: unknown key `titel` in the study; did you mean `title`?",
        "study.yaml:12:19: `a1` is given twice in `agent_specs`; keep one",
        "study.yaml:13:46: constraint `c`: unknown_name at column 1 of the expression: `q` is no factor or block (known are `x`, `y`, `site`)",
        "study.yaml:14:14: unknown key `replicate` in `run_budget`; did you mean `replicates`?",
        "study.yaml:15:14: `n_samples` is missing: a sampled design needs it; add `n_samples`",
    ];
    assert_eq!(lines, expected);
}

/// ST-18, ST-26: a file that is refused is refused with its bindings, too.
#[test]
fn bindings_are_looked_up_in_the_same_pass() {
    let text = format!("{GOOD}agents: {{a1: 'none.py:f'}}\nnotez: x\n");
    let codes: Vec<_> = faults(&text, Some(Compat::Native))
        .iter()
        .map(|fault| fault.code)
        .collect();
    assert_eq!(codes, ["binding_file", "unknown_key"]);
}

/// ST-18: whatever the bytes, an answer and no panic.
#[test]
fn no_text_makes_a_panic() {
    let mut random = fairtrial_study::Random::new(&7.into());
    let pieces = [
        "a",
        ": ",
        "\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "&x ",
        "*x",
        "<<",
        "\"",
        "'",
        "|",
        ">",
        "#",
        "!!",
        "1",
        "~",
        "study_id",
        "factors",
        "levels",
        "design_spec",
        "é",
        "\t",
        "?",
        "%",
        "---",
        "null",
        "constraints",
        "expression",
    ];
    for _ in 0..3000 {
        let length = random.below(40);
        let text: String = (0..length)
            .map(|_| pieces[random.below(pieces.len() as u32) as usize])
            .collect();
        faults(&text, None);
        faults(&format!("{GOOD}{text}"), None);
        let expression = fairtrial_study::Expression::parse(&text);
        drop(expression);
    }
    for deep in ["[", "{a: ", "- ", "(", "not ", "-", "x[", "lambda: "] {
        let text = deep.repeat(100_000);
        faults(&text, None);
        assert!(fairtrial_study::Expression::parse(&text).is_err());
        assert!(fairtrial_study::TableRequest::factors_from_json("x", &text).is_err());
    }
    let laughs: String = (0..40)
        .map(|n| format!("a{n}: &a{n} [*a{m}, *a{m}]\n", m = n.max(1) - 1))
        .collect();
    let found = faults(&laughs.replacen("[*a0, *a0]", "[x]", 1), None);
    assert_eq!(found[0].code, "size");
}

/// SF-6
#[test]
fn the_extension_decides_the_format() {
    let json = r#"{"study_id": "s", "title": "t", "problem_ids": ["p"], "factors": {"x": [1e3]}}"#;
    for (name, is_valid) in [
        ("s.json", true),
        ("s.JSON", true),
        ("s.yml", true),
        ("s.YAML", true),
        ("s.toml", false),
        ("s", false),
    ] {
        let read = fairtrial_study::Study::parse(name.as_ref(), json, None);
        assert_eq!(read.is_ok(), is_valid, "{name}");
        // In JSON it is a number, in YAML 1.1 a text.
        let Ok(study) = read else { continue };
        let is_number = study.factors[0].levels[0].value.as_number().is_some();
        assert_eq!(is_number, name.to_lowercase().ends_with("json"), "{name}");
    }
    let twice = r#"{"study_id": "s", "study_id": "u", "title": "t"}"#;
    let invalid = fairtrial_study::Study::parse("s.json".as_ref(), twice, None).unwrap_err();
    assert_eq!(
        invalid.faults[0].to_string(),
        "s.json:1:19: `study_id` is given twice; keep one; the last would win"
    );
    let empty = fairtrial_study::Study::parse("s.yaml".as_ref(), "", None).unwrap_err();
    assert_eq!(empty.faults[0].code, "missing_key");
}
