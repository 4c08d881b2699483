//! Files with something wrong in them, one row per rule: the rows are in `broken/`. ST-18

mod format;
mod ours;

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
type Row = (&'static str, &'static str, In, &'static str, &'static str);

/// ST-18, ST-19, ST-20, ST-21, SF-4: kind and place of each fault, in the modes that refuse it.
#[test]
fn each_broken_file_is_refused_at_its_place() {
    let table = [format::ROWS, ours::ROWS].concat();
    assert!(table.len() >= 100);
    let mut wrong = Vec::new();
    for (old, new, modes, place, code) in &table {
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
