//! Every key: its default, and another value than that.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairtrial_exec::{Level, Limits, Network, Resource, Sandbox, Time};
use serde_json::json;

use crate::measure::{self, Metric};
use crate::search::{Adaptive, Budget, HttpSettings, Refine, Repair, Settings};
use crate::spec::{
    BaseRef, Baseline, Bench, BenchCommand, Build, Command, CommandProposer, Env, Git, Judge,
    Loops, Measure, OutputCheck, Pin, Profile, Proposer, Provider, ResultsKind, Search, Shared,
    SharedMode, Source, Spec, SpecPath, TestCommand, Tiebreak, Upper, Workspace,
};
use crate::stage::{DEFAULT_PROTECT, TreePath};

fn parse(text: &str) -> Spec {
    Spec::parse(Path::new("/project/EVAL.yaml"), text).unwrap()
}

fn path(text: &str) -> SpecPath {
    SpecPath::new(text, Path::new("/project"))
}

fn argv(words: &[&str]) -> Command {
    Command::Argv(words.iter().map(|word| (*word).into()).collect())
}

fn shell(text: &str) -> Command {
    Command::Shell(text.into())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).into()).collect()
}

fn variables(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.into(), value.into())])
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn tree(path: &str) -> Option<TreePath> {
    Some(TreePath::new(path).unwrap())
}

fn plain_test() -> TestCommand {
    TestCommand {
        name: "test-1".into(),
        command: shell("t"),
        timeout: seconds(600),
        time: Time::Wall,
        case_timeout: None,
        results: ResultsKind::Exit,
        junit_path: None,
        cwd: None,
        env: BTreeMap::new(),
        output: OutputCheck::Ignore,
        judge: None,
    }
}

/// The table of section 2.
#[test]
fn a_file_of_the_required_keys_has_every_default() {
    let spec = parse("{version: 1, candidates: {trees: c}, tests: [{command: t}]}");
    let expected = Spec {
        repo: path("."),
        base: BaseRef::WorkingTree,
        include: vec![],
        exclude: vec![],
        submodules: true,
        shared: vec![],
        candidates: vec![Source::Trees(path("c"))],
        build: None,
        tests: vec![plain_test()],
        baseline: Baseline {
            runs: 3,
            must_pass: vec![],
        },
        protect: texts(&DEFAULT_PROTECT),
        bench: Bench::None,
        measure: Measure {
            metrics: vec![Metric::Wall],
            min_effect: 0.03,
            alpha: 0.05,
            max_blocks: 40,
            pin: Pin::Auto,
            racing: true,
            confirm: true,
            repeats: 2,
            tiebreak: Tiebreak::None,
            seed: 0,
        },
        parallel: None,
        limits: Limits::default(),
        sandbox: Sandbox::new(Level::Limits),
        env: Env {
            pass: vec![],
            set: BTreeMap::new(),
        },
        workspace: Workspace {
            provider: Provider::Auto,
            upper: Upper::Auto,
            upper_bytes: 1 << 30,
            git: Git::OneCommit,
        },
        profile: Profile::Auto,
        search: None,
        output: path("fairtrial-out/EVAL"),
        places: spec.places.clone(),
    };
    assert_eq!(spec, expected);
    assert_eq!(spec.repo.path, Path::new("/project"));
    assert_eq!(spec.places.file, Some(PathBuf::from("/project/EVAL.yaml")));
    assert_eq!(spec.places.directory(), Path::new("/project"));
    assert_eq!(
        spec.measure.settings(Metric::Wall),
        measure::Settings::default()
    );
}

/// The table of section 2, in what has keys of its own.
#[test]
fn what_is_optional_has_its_own_defaults() {
    let text = "{version: 1, search: {proposer: {base_url: 'https://x', model: m}}, shared: [a], build: {command: b}, \
        tests: [{command: t, judge: {command: j}}], bench: [{command: b}]}";
    let spec = parse(text);
    assert_eq!(spec.candidates, []);
    let shared = Shared {
        path: path("a"),
        mode: SharedMode::ReadOnly,
    };
    assert_eq!(spec.shared, [shared]);
    let build = Build {
        command: shell("b"),
        timeout: seconds(600),
    };
    assert_eq!(spec.build, Some(build));
    let judge = Judge {
        command: shell("j"),
        files: None,
        outputs: vec![],
        timeout: seconds(600),
    };
    assert_eq!(spec.tests[0].judge, Some(judge));
    let bench = BenchCommand {
        name: "bench-1".into(),
        command: shell("b"),
        timeout: seconds(60),
        weight: 1.0,
        loops: Loops::Fixed(1),
        cwd: None,
        env: BTreeMap::new(),
    };
    assert_eq!(spec.bench, Bench::Commands(vec![bench]));
    let search = Search {
        proposer: Some(Proposer::Http(HttpSettings {
            base_url: "https://x".into(),
            model: "m".into(),
            api_key_env: "OPENAI_API_KEY".into(),
            timeout: seconds(120),
            retries: 4,
            max_tokens: None,
            temperature: None,
        })),
        settings: Settings {
            concurrency: 4,
            repair: Repair {
                max: 3,
                stop_at_correct: 2,
                max_diff_share: 0.3,
            },
            refine: Refine {
                top: 3,
                batch: true,
            },
            adaptive: Adaptive {
                per_lineage: 2,
                total: 4,
            },
            budget: Budget {
                candidates: 50,
                requests: 100,
                wall: None,
                tokens: None,
            },
        },
    };
    assert_eq!(spec.search, Some(search));
    let command = parse(&text.replace("base_url: 'https://x', model: m", "command: p"));
    let proposer = CommandProposer {
        command: shell("p"),
        timeout: seconds(120),
        restarts: 3,
    };
    let search = command.search.unwrap();
    assert_eq!(search.proposer, Some(Proposer::Command(proposer)));
}

/// Every key, with another value than its default.
pub(super) const EVERYTHING: &str = r#"
version: 1
repo: ../other
base: HEAD
include: ["*.log"]
exclude: [big/]
submodules: no
shared: [.venv, {path: /opt/lib, mode: cow}]
candidates: [{patches: a}, {trees: b}, {jsonl: c.jsonl}]
build: {command: [make, -j2], timeout: 90s}
tests:
  - {name: unit, command: [pytest], timeout: 250ms, time: cpu, case_timeout: 1.5, results: junit, junit_path: out/r.xml,
     cwd: ./pkg/, env: {A: b}, output: compare, judge: {command: judge, files: hidden, outputs: ["*.json"], timeout: 1h}}
baseline: {runs: 5, must_pass: ["unit::*"]}
protect: []
bench: [{name: topo, command: "run {loops}", timeout: 5m, weight: 2.5, loops: 7, cwd: ., env: {B: c}}]
measure: {metric: [instructions, cpu], min_effect: 0.1%, alpha: 1e-2, max_blocks: 60, pin: [2, 3], racing: off,
  confirm: false, repeats: 0, tiebreak: callgrind, seed: 18446744073709551615}
parallel: 8
limits: {memory: 2G, cpu: 30s, processes: none, open_files: 64, file_size: none, output: 1M}
sandbox: {level: strict, network: loopback, read: [data], scratch_bytes: none, cpus: [0, 1]}
env: {pass: [CC], set: {LC_ALL: C}}
workspace: {provider: overlay-userns, upper: disk, upper_size: 512M, git: none}
profile: off
search: {concurrency: 2, repair: {max: 1, stop_at_correct: 0, max_diff_share: 50%}, refine: {top: 1, batch: false},
  adaptive: {per_lineage: 0, total: 0}, budget: {candidates: 5, requests: 6, wall: 2h, tokens: 1000}}
output: results
"#;

/// Section 2: units, words and lists, each with another value than its default.
#[test]
fn every_key_is_read() {
    let spec = parse(EVERYTHING);
    let mut limits = Limits {
        cpu: Some(seconds(30)),
        ..Limits::default()
    };
    limits.set(Resource::Memory, Some(2 << 30));
    limits.set(Resource::Processes, None);
    limits.set(Resource::OpenFiles, Some(64));
    limits.set(Resource::FileSize, None);
    limits.set(Resource::Output, Some(1 << 20));
    let expected = Spec {
        repo: path("/project/../other"),
        base: BaseRef::Commit("HEAD".into()),
        include: texts(&["*.log"]),
        exclude: texts(&["big/"]),
        submodules: false,
        shared: vec![
            Shared {
                path: path(".venv"),
                mode: SharedMode::ReadOnly,
            },
            Shared {
                path: path("/opt/lib"),
                mode: SharedMode::CopyOnWrite,
            },
        ],
        candidates: vec![
            Source::Patches(path("a")),
            Source::Trees(path("b")),
            Source::Jsonl(path("c.jsonl")),
        ],
        build: Some(Build {
            command: argv(&["make", "-j2"]),
            timeout: seconds(90),
        }),
        tests: vec![TestCommand {
            name: "unit".into(),
            command: argv(&["pytest"]),
            timeout: Duration::from_millis(250),
            time: Time::Cpu,
            case_timeout: Some(Duration::from_millis(1500)),
            results: ResultsKind::Junit,
            junit_path: tree("out/r.xml"),
            cwd: tree("pkg"),
            env: variables("A", "b"),
            output: OutputCheck::Compare,
            judge: Some(Judge {
                command: shell("judge"),
                files: Some(path("hidden")),
                outputs: texts(&["*.json"]),
                timeout: seconds(3600),
            }),
        }],
        baseline: Baseline {
            runs: 5,
            must_pass: texts(&["unit::*"]),
        },
        protect: vec![],
        bench: Bench::Commands(vec![BenchCommand {
            name: "topo".into(),
            command: shell("run {loops}"),
            timeout: seconds(300),
            weight: 2.5,
            loops: Loops::Fixed(7),
            cwd: None,
            env: variables("B", "c"),
        }]),
        measure: Measure {
            metrics: vec![Metric::Instructions, Metric::Cpu],
            min_effect: 0.001,
            alpha: 0.01,
            max_blocks: 60,
            pin: Pin::Cpus(vec![2, 3]),
            racing: false,
            confirm: false,
            repeats: 0,
            tiebreak: Tiebreak::Callgrind,
            seed: u64::MAX,
        },
        parallel: Some(8),
        limits,
        sandbox: Sandbox {
            network: Network::Loopback,
            read: vec!["/project/data".into()],
            scratch_bytes: None,
            cpus: Some(vec![0, 1]),
            ..Sandbox::new(Level::Strict)
        },
        env: Env {
            pass: texts(&["CC"]),
            set: variables("LC_ALL", "C"),
        },
        workspace: Workspace {
            provider: Provider::OverlayUserns,
            upper: Upper::Disk,
            upper_bytes: 512 << 20,
            git: Git::None,
        },
        profile: Profile::Off,
        search: Some(Search {
            proposer: None,
            settings: Settings {
                concurrency: 2,
                repair: Repair {
                    max: 1,
                    stop_at_correct: 0,
                    max_diff_share: 0.5,
                },
                refine: Refine {
                    top: 1,
                    batch: false,
                },
                adaptive: Adaptive {
                    per_lineage: 0,
                    total: 0,
                },
                budget: Budget {
                    candidates: 5,
                    requests: 6,
                    wall: Some(seconds(7200)),
                    tokens: Some(1000),
                },
            },
        }),
        output: path("results"),
        places: spec.places.clone(),
    };
    assert_eq!(spec, expected);
    assert_eq!(spec.repo.text, "../other");
    let missing = spec.missing_proposer().unwrap().to_string();
    assert_eq!(
        missing,
        "/project/EVAL.yaml:25:9: `proposer` is missing in `search`"
    );
}

/// CA-6
#[test]
fn words_may_stand_for_nothing() {
    let text = "{version: 1, candidates: {trees: c}, build: none, bench: none, search: none, parallel: null, \
        tests: [{command: t, judge: none, case_timeout: none}]}";
    let plain = parse("{version: 1, candidates: {trees: c}, tests: [{command: t}]}");
    assert_eq!(parse(text), plain);
    assert_eq!(plain.missing_proposer(), None);
}

/// CA-4: a dictionary that was read from YAML has `off` as false.
#[test]
fn what_a_program_gives_is_what_a_file_says() {
    let file = "{version: 1, candidates: {trees: c}, tests: [{command: [a, b], timeout: 1.5}], profile: off, \
        measure: {pin: off}, sandbox: 'strict,read=data', limits: {memory: 1K}}";
    let given = json!({
        "version": 1, "candidates": {"trees": "c"}, "tests": [{"command": ["a", "b"], "timeout": 1.5}],
        "profile": false, "measure": {"pin": false}, "sandbox": {"level": "strict", "read": ["data"]},
        "limits": {"memory": 1024},
    });
    let mut given = Spec::from_json(given, Path::new("/project")).unwrap();
    assert_eq!(given.output, path("fairtrial-out/evaluation"));
    given.output = path("fairtrial-out/EVAL");
    assert_eq!(given, parse(file));
    assert_eq!(given.places.file, None);
}

/// Times have one name, and are read under the one that calls have for them.
#[test]
fn a_time_may_be_called_as_in_calls() {
    let given = |key: &str| {
        format!("{{version: 1, candidates: {{trees: c}}, tests: [{{command: t, {key}: 1.5}}]}}")
    };
    assert_eq!(parse(&given("timeout_s")), parse(&given("timeout")));
    let both = given("timeout_s: 2, timeout");
    let refused = Spec::parse(Path::new("EVAL.yaml"), &both)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("say the same"), "{refused}");
}

/// The example of section 2.
#[test]
fn the_example_is_read() {
    let text = r#"
version: 1
candidates: {patches: patches/}
shared: [.venv]
tests:
  - {command: [.venv/bin/python, -m, pytest, -q], results: pytest, timeout: 5m}
bench:
  - {command: [.venv/bin/python, bench/topo.py, "{loops}"], loops: auto}
"#;
    let spec = parse(text);
    assert_eq!(spec.candidates, [Source::Patches(path("patches"))]);
    assert_eq!(spec.candidates[0].path().text, "patches/");
    let test = TestCommand {
        command: argv(&[".venv/bin/python", "-m", "pytest", "-q"]),
        results: ResultsKind::Pytest,
        timeout: seconds(300),
        ..plain_test()
    };
    assert_eq!(spec.tests, [test]);
    let Bench::Commands(commands) = &spec.bench else {
        panic!("it has a bench command");
    };
    assert_eq!(commands[0].loops, Loops::Auto);
    let filled = commands[0].command.with_loops(40).to_argv();
    assert_eq!(filled, [".venv/bin/python", "bench/topo.py", "40"]);
}
