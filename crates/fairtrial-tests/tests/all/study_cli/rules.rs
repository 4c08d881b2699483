//! Constraints that are functions of the user's.

use fairtrial_tests::Shell;
use serde_json::Value as Json;

use super::{ends, run};

const RULES: &str = "
import os
SIZES = {'small': 1, 'large': 9}
def fits(factors, blocks):
    blocks['changed'] = factors.pop('size')  # copies: nobody else sees it
    return SIZES[blocks['changed']] <= blocks['room']
class Rules:
    @staticmethod
    def is_small(factors, blocks):
        return [] if factors['size'] == 'large' else 'yes'
def raises(factors, blocks):
    raise LookupError('no rule for ' + factors['size'])
def leaves(factors, blocks):
    os._exit(0)
number = 5
";

fn study(reference: &str) -> String {
    format!(
        "study_id: r\ntitle: R\nfactors:\n- {{name: size, levels: [{{name: small, value: small}}, {{name: large, value: large}}]}}\nblocks: [{{name: room, levels: [2, 10]}}]\nconstraints:\n- \
         {{constraint_id: c, description: must fit, callable_ref: '{reference}'}}\n"
    )
}

/// ST-25, SF-39, SF-40: in both modes, beside the study file, from whatever directory.
#[test]
fn a_function_decides_which_conditions_are_admissible() {
    let shell = Shell::new();
    shell.write("here/rules.py", RULES);
    for (reference, admissible) in [
        ("rules:fits", [true, true, false, true]),
        ("rules:Rules.is_small", [true, true, false, false]),
    ] {
        shell.write("here/study.yaml", &study(reference));
        for mode in ["native", "dre-0.2"] {
            let done = run(
                &shell,
                &["plan", "here/study.yaml", "--json", "--compat", mode],
            );
            ends(&done, 0);
            let plan: Json = serde_json::from_str(&done.stdout).expect("a plan is JSON");
            let conditions = plan["conditions"].as_array().expect("a list");
            let found: Vec<_> = conditions.iter().map(|c| &c["admissible"]).collect();
            assert_eq!(found, admissible, "{reference}, {mode}");
            let refused = conditions.iter().find(|c| c["admissible"] == false);
            let refused = refused.expect("one is");
            assert_eq!(refused["constraint_messages"][0], "c: must fit");
            assert_eq!(refused["factors"]["size"], "large");
        }
    }
    assert!(shell.processes().is_empty());
}

/// ST-25, ST-23: one line that names constraint and function, and where there is one the condition.
#[test]
fn a_function_that_cannot_be_asked_is_a_fault_of_the_file() {
    let shell = Shell::new();
    shell.write("rules.py", RULES);
    for (reference, said) in [
        ("rules:nothing", "AttributeError"),
        ("nowhere:fits", "No module named 'nowhere'"),
        ("rules:number", "`rules:number` is not callable"),
        ("rules:raises", "LookupError: no rule for small"),
        (
            "rules:leaves",
            "`rules:leaves` cannot be called (no_result)",
        ),
    ] {
        shell.write("study.yaml", &study(reference));
        let done = run(&shell, &["plan", "study.yaml"]);
        ends(&done, 2);
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
        assert!(
            done.stderr.starts_with("study.yaml:7:"),
            "{reference}: {}",
            done.stderr
        );
        assert!(
            done.stderr.contains("constraint `c`") && done.stderr.contains(said),
            "{reference}: {}",
            done.stderr
        );
    }
    assert!(shell.processes().is_empty());
}
