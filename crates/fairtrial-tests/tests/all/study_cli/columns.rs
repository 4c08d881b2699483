//! Columns and files: which there are, in what order, natively and under `dre-0.2`.

use fairtrial_tests::Shell;
use serde_json::{Value as Json, json};

use super::{ends, files, run};

const RUNS: &str = "study_id,condition_id,run_id,problem_id,problem_family,agent_id,agent_kind,pattern_name,model_name,seed,\
    replicate,status,start_time,end_time,latency_s,input_tokens,output_tokens,cost_usd,primary_outcome,trace_path,manifest_path";
const NATIVE: &str = "attempts,verdict,stage,evaluation_status,order_index,seed64,identity,warnings,queue_s,start_s,\
    evaluate_s,user_s,system_s,peak_rss_bytes,exit_code,signal,node_id";
const EVENTS: &str = "timestamp,record_id,text,session_id,actor_id,event_type,meta_json";
const MORE_EVENTS: &str =
    "level,study_id,run_id,condition_id,trial_id,step_id,tool_name,evaluation_id";
const EVALUATIONS: &str =
    "run_id,evaluator_id,metric_name,metric_value,metric_unit,aggregation_level,notes_json";
const CONDITIONS: &str =
    "study_id,condition_id,admissible,constraint_messages,assignment_meta_json";

fn header(shell: &Shell, name: &str) -> String {
    let text = shell.read(name);
    text.split("\r\n").next().unwrap_or_default().to_owned()
}

/// The keys of the first level of a YAML file of ours.
fn keys(shell: &Shell, name: &str) -> Vec<String> {
    let text = shell.read(name);
    let lines = text
        .lines()
        .filter(|line| line.starts_with(char::is_alphabetic));
    let key = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
    lines.map(key).collect()
}

const STUDY: &str = "study_id: s\ntitle: t\nfactors:\n\
    - {name: zeta, levels: [{name: a, value: 1}]}\n- {name: alpha, levels: [{name: b, value: 2}]}\n\
    blocks: [{name: site, levels: [north]}]\nproblem_ids: [p]\nagent_specs: [a]\n\
    problems: {p: {evaluator: 'agents.py:score'}}\nagents: {a: {python: 'agents.py:go', contract: run}}\n";
const AGENT: &str = "def go(run): return {'output': {'text': 'x'}}\n\
    def score(task): return 1\ndef fails(run): raise ValueError('no')\n";

/// ST-75, SF-51, SF-52, SF-53, SF-54: natively further columns follow DRE's, and further files are there.
#[test]
fn native_tables_have_dres_columns_and_then_their_own() {
    let shell = Shell::new();
    shell.write("agents.py", AGENT);
    shell.write("study.yaml", &format!("{STUDY}export: [sqlite]\n"));
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    assert_eq!(
        header(&shell, "out/runs.csv"),
        format!("{RUNS},error_info,{NATIVE}")
    );
    assert_eq!(
        header(&shell, "out/events.csv"),
        format!("{EVENTS},{MORE_EVENTS}")
    );
    assert_eq!(header(&shell, "out/evaluations.csv"), EVALUATIONS);
    let conditions = format!("{CONDITIONS},zeta,alpha,block_site");
    assert_eq!(header(&shell, "out/conditions.csv"), conditions);
    let found: Vec<_> = files(&shell, "out").into_keys().collect();
    assert_eq!(
        found,
        [
            "analysis_plan.json",
            "attempts.csv",
            "conditions.csv",
            "evaluations.csv",
            "events.csv",
            "fairtrial.json",
            "hypotheses.json",
            "journal.lock",
            "journal.sqlite",
            "manifest.json",
            "runs.csv",
            "study.input.yaml",
            "study.sqlite",
            "study.yaml",
        ]
    );
    assert_eq!(shell.read("out/study.input.yaml"), shell.read("study.yaml"));
    let keys = keys(&shell, "out/study.yaml");
    assert_eq!(keys[20..22], ["agent_specs", "compat"], "{keys:?}");
    assert!(keys.contains(&"export".to_owned()), "{keys:?}");
    assert!(shell.read("out/study.yaml").contains("compat: native\n"));
}

/// ST-75, SF-51, SF-53, SF-54: under `dre-0.2` there is nothing that DRE does not write.
#[test]
fn dre_tables_have_nothing_else() {
    let shell = Shell::new();
    shell.write("agents.py", AGENT);
    let study = STUDY.replace("agents.py:score", "agents.py:judge");
    shell.write("study.yaml", &format!("schema_version: 0.2.0\n{study}"));
    shell.write(
        "agents.py",
        &format!("{AGENT}def judge(output): return {{'score': 1}}\n"),
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 0);
    assert_eq!(header(&shell, "out/runs.csv"), format!("{RUNS},error_info"));
    assert_eq!(
        header(&shell, "out/events.csv"),
        format!("{EVENTS},{MORE_EVENTS}")
    );
    assert_eq!(header(&shell, "out/evaluations.csv"), EVALUATIONS);
    let found = files(&shell, "out");
    for name in ["attempts.csv", "study.input.yaml"] {
        assert!(!found.contains_key(name), "{name}");
    }
    assert_eq!(keys(&shell, "out/study.yaml").len(), 21);
    // Without a row, only what is required.
    let fails = shell
        .read("study.yaml")
        .replace("agents.py:go", "agents.py:fails");
    shell.write("study.yaml", &fails);
    ends(&run(&shell, &["run", "study.yaml", "--out", "none"]), 3);
    assert_eq!(header(&shell, "none/events.csv"), EVENTS);
    assert_eq!(header(&shell, "none/evaluations.csv"), EVALUATIONS);
    assert_eq!(
        header(&shell, "none/runs.csv"),
        format!("{RUNS},error_info")
    );
}

const STANDALONE: &str = "
def play(run):
    if run['condition']['factors']['f'] == 3:
        raise ValueError('no')
    metrics = {'primary_outcome': 5, 'cost_usd': 2}
    if run['condition']['factors']['f'] == 2:
        metrics['latency_s'] = 99
    return {'output': {'x': 1}, 'metrics': metrics}
";

/// SF-45, SF-47, SF-49, SF-56: of a standalone run, as DRE keeps it.
#[test]
fn a_standalone_run_is_kept_as_dre_keeps_it() {
    let shell = Shell::new();
    shell.write("play.py", STANDALONE);
    shell.write(
        "study.yaml",
        "schema_version: 0.2.0\nstudy_id: s\ntitle: t\nfactors:\n\
         - {name: f, levels: [{name: a, value: 1}, {name: b, value: 2}, {name: c, value: 3}]}\n\
         runner: {python: 'play.py:play', contract: run}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let text = shell.read("out/artifacts/checkpoints/runs.jsonl");
    let kept: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let [plain, slow, failed] = kept.as_slice() else {
        panic!("{text}")
    };
    for checkpoint in &kept {
        let metadata = checkpoint["run_spec"]["execution_metadata"].as_object();
        let metadata = metadata.expect("an object");
        let names: Vec<_> = metadata.keys().collect();
        assert_eq!(names, ["agent_id", "condition_fingerprint", "problem_id"]);
        assert!(metadata["agent_id"].is_null() && metadata["problem_id"].is_null());
        assert_eq!(checkpoint["run_spec"]["problem_id"], "");
        assert!(checkpoint["run_spec"]["problem_spec_ref"].is_null());
        for name in ["observations", "evaluator_outputs", "trace_refs"] {
            assert_eq!(checkpoint[name], json!([]), "{name}");
        }
    }
    let mode = json!({"execution_mode": "condition_runner"});
    assert_eq!(
        (&plain["provenance_info"], &slow["provenance_info"]),
        (&mode, &mode)
    );
    assert_eq!(
        failed["provenance_info"],
        json!({"agent_id": null, "execution_mode": "condition_runner"})
    );
    // Nothing is added to what it reports but how long it took, where it does not say.
    let names = |checkpoint: &Json| -> Vec<String> {
        let metrics = checkpoint["metrics"].as_object().expect("an object");
        metrics.keys().cloned().collect()
    };
    assert_eq!(names(plain), ["cost_usd", "latency_s", "primary_outcome"]);
    assert_eq!(slow["metrics"]["latency_s"], 99);
    assert!(
        slow["latency"]
            .as_f64()
            .is_some_and(|latency| latency < 50.0)
    );
    assert_eq!(
        (&plain["cost"], &failed["cost"]),
        (&json!(2.0), &json!(0.0))
    );
    assert_eq!(names(failed), ["latency_s"]);
    assert_eq!(failed["error_info"], "ValueError: no");
}

/// SF-49: metrics and provenance of agents' runs, as DRE composes them.
#[test]
fn metrics_and_provenance_are_dres() {
    let shell = Shell::new();
    shell.write(
        "agents.py",
        "def go(*, problem_packet): return {'output': {'answer': 1}, 'metrics': {'latency_s': 99, 'input_tokens': '12', \
         'output_tokens': 'many', 'tool_call_count': 7}, 'events': [{'event_type': 'tool_call', 'actor_id': 'me'}, \
         {'event_type': 'step'}, {'event_type': 'other'}], 'metadata': {'model_name': 'm', 'trace_dir': ''}}\n\
         def fails(*, problem_packet): raise KeyError('k')\n\
         def judge(answer): return {'score': 4, 'ok': True}\n",
    );
    shell.write(
        "study.yaml",
        "schema_version: 0.2.0\nstudy_id: s\ntitle: t\nproblem_ids: [p]\nagent_specs: [a, b]\n\
         problems: {p: {family: fam, evaluator: 'agents.py:judge'}}\n\
         agents: {a: 'agents.py:go', b: 'agents.py:fails'}\n",
    );
    ends(&run(&shell, &["run", "study.yaml", "--out", "out"]), 3);
    let text = shell.read("out/artifacts/checkpoints/runs.jsonl");
    let kept: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let metrics = &kept[0]["metrics"];
    let latency = metrics["latency_s"].as_f64().expect("a number");
    assert!(latency < 50.0, "measured, not reported: {latency}");
    for (name, expected) in [
        ("tool_call_count", json!(1)),
        ("step_event_count", json!(2)),
        ("unique_actor_count", json!(2)),
        ("cost_usd", json!(0.0)),
        ("input_tokens", json!(12.0)),
        ("output_tokens", json!(0)),
        ("primary_outcome", json!(4)),
    ] {
        assert_eq!(metrics[name], expected, "{name}");
    }
    let provenance = &kept[0]["provenance_info"];
    for (name, expected) in [
        ("agent_id", json!("a")),
        ("problem_id", json!("p")),
        ("problem_family", json!("fam")),
        ("model_name", json!("m")),
        ("model_provider", Json::Null),
        ("request_id", Json::Null),
        ("trace_dir", json!("")),
        ("trace_path", Json::Null),
    ] {
        assert_eq!(provenance[name], expected, "{name}");
    }
    let metadata = provenance["execution_metadata"].as_str().expect("text");
    let metadata: Json = serde_json::from_str(metadata).expect("JSON");
    assert_eq!(metadata, kept[0]["run_spec"]["execution_metadata"]);
    assert_eq!(metadata["model_name"], "m");
    assert_eq!(kept[1]["provenance_info"], json!({"agent_id": "b"}));
    assert_eq!(kept[1]["error_info"], "KeyError: 'k'");
    assert_eq!(kept[1]["cost"], json!(0.0));
    for name in ["outputs", "observations", "evaluator_outputs"] {
        let held = &kept[1][name];
        assert!(held.as_array().is_none_or(Vec::is_empty), "{name}: {held}");
    }
    assert_eq!(
        kept[1]["metrics"].as_object().map(serde_json::Map::len),
        Some(1)
    );
}
