//! Directories of DRE: the same artifacts, and half-done ones finished.

use fairtrial_tests::Shell;

use super::{ask, ends, fixtures, run};

const GOLDEN_AGENTS: &str = r#"
def good(*, problem_packet, seed, condition):
    return {
        "output": {"text": f'hello, "{seed}"\nline2', "v": condition.factor_assignments["n"]},
        "metrics": {"cost_usd": 0.1, "input_tokens": "12", "extra": True},
        "events": [
            {"event_type": "tool_call", "text": "é", "actor_id": "me", "meta_json": {"b": 1, "a": [1.0, None]},
             "timestamp": "2026-01-01T00:00:00+00:00"},
            {"event_type": "step", "level": "tool-call", "timestamp": "2026-01-01T00:00:01+00:00"},
        ],
        "metadata": {"model_name": "m1"},
        "trace_refs": ["t/1.json"],
    }

def bad(*, problem_packet, seed):
    raise ValueError('nope, "quoted"')

def evaluate(output):
    return {"score": float(output["v"]), "ok": True, "higher_is_better": True, "skipme": "str"}
"#;

/// The study of the fixtures, its agents bound.
fn golden_study(shell: &Shell) {
    let study = fixtures().join("studies/golden_mini/study.yaml");
    let study = std::fs::read_to_string(study).expect("the fixture is there");
    shell.write("agents.py", GOLDEN_AGENTS);
    shell.write(
        "study.yaml",
        &format!(
            "{study}agents: {{good: 'agents.py:good', bad: 'agents.py:bad'}}\nproblems:\n  p1: {{family: fam, brief: \
             brief, evaluator: 'agents.py:evaluate'}}\n"
        ),
    );
}

/// By the fixtures' own comparison.
fn equals_golden(shell: &Shell, python: &std::ffi::OsStr, out: &str) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the fixtures' own comparison is run as it is"
    )]
    let compared = std::process::Command::new(python)
        .arg(fixtures().join("compare_artifacts.py"))
        .arg(fixtures().join("golden_mini_artifacts"))
        .arg(shell.path().join(out))
        .output()
        .expect("the interpreter runs");
    let said = [compared.stdout, compared.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said).trim(), "equal");
}

/// SF-66, SF-45 to SF-58
#[test]
fn artifacts_equal_those_of_dre() {
    let Some(python) = std::env::var_os("FAIRTRIAL_TEST_NUMPY") else {
        fairtrial_tests::note(
            "FAIRTRIAL_TEST_NUMPY names no interpreter with PyYAML: artifacts are not compared",
        );
        return;
    };
    let shell = Shell::new();
    golden_study(&shell);
    for jobs in ["1", "4"] {
        let out = format!("out-{jobs}");
        let done = run(
            &shell,
            &[
                "run",
                "study.yaml",
                "--compat",
                "dre-0.2",
                "--out",
                &out,
                "--sqlite",
                "-j",
                jobs,
            ],
        );
        ends(&done, 3);
        assert!(shell.path().join(&out).join("study.sqlite").exists());
        equals_golden(&shell, &python, &out);
    }
}

/// ST-84, ST-85, SF-56: a half-done directory of DRE's is finished, and equals a whole one.
#[test]
fn a_half_done_directory_of_dre_is_finished() {
    let Some(python) = std::env::var_os("FAIRTRIAL_TEST_NUMPY") else {
        fairtrial_tests::note(
            "FAIRTRIAL_TEST_NUMPY names no interpreter with PyYAML: artifacts are not compared",
        );
        return;
    };
    let shell = Shell::new();
    golden_study(&shell);
    let theirs = fixtures().join("golden_mini_artifacts/artifacts/checkpoints");
    let mut kept = Vec::new();
    for (number, entry) in std::fs::read_dir(theirs)
        .expect("the fixture is there")
        .enumerate()
    {
        let path = entry.expect("it can be listed").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let place = format!("out/artifacts/checkpoints/{name}");
        match number % 3 {
            _ if name == "runs.jsonl" => {}
            0 => {}
            1 => _ = shell.write(&place, &text[..text.len() / 2]),
            _ => {
                shell.write(&place, &text);
                kept.push(name);
            }
        }
    }
    let done = run(
        &shell,
        &[
            "run",
            "study.yaml",
            "--compat",
            "dre-0.2",
            "--out",
            "out",
            "--resume",
        ],
    );
    ends(&done, 3);
    assert!(done.stderr.contains("is no checkpoint"), "{}", done.stderr);
    let imported = ask(
        &shell,
        "out",
        "SELECT count(*) FROM finishes WHERE stage = 'imported'",
    );
    assert_eq!(imported, [kept.len().to_string()]);
    equals_golden(&shell, &python, "out");
    let again = run(
        &shell,
        &[
            "run",
            "study.yaml",
            "--compat",
            "dre-0.2",
            "--out",
            "out",
            "--resume",
        ],
    );
    assert!(again.stdout.contains("nothing to do"), "{}", again.stdout);
}
