//! What is written down and read again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairtrial_exec::{Level, Limits, Network, OnMissing, Resource, Sandbox, Time};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::json;

use crate::measure::{Metric, looks};
use crate::search::{Adaptive, Budget, HttpSettings, Refine, Repair, Settings};
use crate::spec::load::KEYS;
use crate::spec::{
    BaseRef, Baseline, Bench, BenchCommand, Build, Command, CommandProposer, Env, Git, Judge,
    Loops, Measure, OutputCheck, Pin, Profile, Proposer, Provider, ResultsKind, Search, Shared,
    SharedMode, Source, Spec, SpecPath, TestCommand, Tiebreak, Upper, Workspace,
};
use crate::stage::TreePath;

const HERE: &str = "/project";

fn smallest() -> Spec {
    let text = "{version: 1, candidates: {trees: c}, tests: [{command: t}]}";
    Spec::parse(&Path::new(HERE).join("EVAL.yaml"), text).unwrap()
}

/// Text that nothing is read into; never blank.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        "[ -~]{0,12}x",
        "\\PC{0,6}é",
        Just("none".into()),
        Just("off".into()),
        Just("010".into()),
        Just("true".into()),
        Just("null".into()),
        Just("auto".into()),
    ]
}

fn path() -> impl Strategy<Value = SpecPath> {
    let written = prop_oneof!["[a-z .]{1,9}", "/[a-z]{1,9}", "\\.\\./[a-z]{1,9}/", text()];
    written.prop_map(|written| SpecPath::new(written, Path::new(HERE)))
}

fn tree_path() -> impl Strategy<Value = TreePath> {
    "[a-z]{1,5}(/[a-z.]{1,5}x){0,2}".prop_map(|path| TreePath::new(path).unwrap())
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (text(), vec("\\PC{0,8}", 0..3)).prop_map(|(program, arguments)| {
            Command::Argv([vec![program], arguments].concat())
        }),
        (text(), "\\n?\\PC{0,20}").prop_map(|(first, rest)| Command::Shell(first + &rest)),
    ]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..100_000_u64).prop_map(Duration::from_millis),
        (1..31_000_000_u64).prop_map(Duration::from_secs),
        (1e-9..31_000_000.0).prop_map(Duration::from_secs_f64),
    ]
}

fn globs() -> impl Strategy<Value = Vec<String>> {
    vec("!?[a-z*?]{1,6}(/[a-z*]{1,4}){0,2}/?", 0..3)
}

fn variables() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map("[A-Za-z_. ]{1,6}", "\\PC{0,6}", 0..3)
}

fn shared() -> impl Strategy<Value = Shared> {
    let mode = prop_oneof![Just(SharedMode::ReadOnly), Just(SharedMode::CopyOnWrite)];
    (path(), mode).prop_map(|(path, mode)| Shared { path, mode })
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        path().prop_map(Source::Patches),
        path().prop_map(Source::Trees),
        path().prop_map(Source::Jsonl),
    ]
}

fn build() -> impl Strategy<Value = Build> {
    (command(), duration()).prop_map(|(command, timeout)| Build { command, timeout })
}

fn judge() -> impl Strategy<Value = Judge> {
    let parts = (command(), option::of(path()), globs(), duration());
    parts.prop_map(|(command, files, outputs, timeout)| Judge {
        command,
        files,
        outputs,
        timeout,
    })
}

fn test_command() -> impl Strategy<Value = TestCommand> {
    let results = prop_oneof![
        Just((ResultsKind::Exit, None)),
        Just((ResultsKind::Pytest, None)),
        tree_path().prop_map(|path| (ResultsKind::Junit, Some(path))),
    ];
    let output = prop_oneof![Just(OutputCheck::Ignore), Just(OutputCheck::Compare)];
    let time = prop_oneof![Just(Time::Wall), Just(Time::Cpu)];
    (
        (text(), command(), duration(), time, option::of(duration())),
        results,
        (
            option::of(tree_path()),
            variables(),
            output,
            option::of(judge()),
        ),
    )
        .prop_map(
            |((name, command, timeout, time, case_timeout), results, (cwd, env, output, judge))| {
                TestCommand {
                    name,
                    command,
                    timeout,
                    time,
                    case_timeout,
                    results: results.0,
                    junit_path: results.1,
                    cwd,
                    env,
                    output,
                    judge,
                }
            },
        )
}

fn bench_command() -> impl Strategy<Value = BenchCommand> {
    let loops = prop_oneof![Just(Loops::Auto), (1..=u32::MAX).prop_map(Loops::Fixed)];
    (
        (text(), command(), duration()),
        (1e-300..1e300),
        loops,
        (option::of(tree_path()), variables()),
    )
        .prop_map(|((name, command, timeout), weight, loops, (cwd, env))| {
            let command = match loops {
                Loops::Auto => Command::Shell("run {loops}".into()),
                Loops::Fixed(_) => command,
            };
            BenchCommand {
                name,
                command,
                timeout,
                weight,
                loops,
                cwd,
                env,
            }
        })
}

/// Names are made unlike.
fn bench() -> impl Strategy<Value = Bench> {
    prop_oneof![
        Just(Bench::None),
        vec(bench_command(), 1..4).prop_map(|mut commands| {
            for (at, bench) in commands.iter_mut().enumerate() {
                bench.name += &at.to_string();
            }
            Bench::Commands(commands)
        }),
    ]
}

fn measure() -> impl Strategy<Value = Measure> {
    let metrics = Just([Metric::Wall, Metric::Cpu, Metric::Instructions])
        .prop_shuffle()
        .prop_flat_map(|metrics| (1..=3_usize).prop_map(move |some| metrics[..some].to_vec()));
    let pin = prop_oneof![
        Just(Pin::Auto),
        Just(Pin::Off),
        vec(0..8192_u32, 1..4).prop_map(Pin::Cpus),
    ];
    let tiebreak = prop_oneof![Just(Tiebreak::None), Just(Tiebreak::Callgrind)];
    (
        metrics,
        (0.0..=1.0, 1e-9..1.0, 1..100_000_u32),
        pin,
        any::<(bool, bool, u64)>(),
        (0..1000_u32, tiebreak),
    )
        .prop_map(
            |(metrics, (min_effect, alpha, max_blocks), pin, flags, (repeats, tiebreak))| Measure {
                metrics,
                min_effect,
                alpha,
                max_blocks,
                pin,
                racing: flags.0,
                confirm: flags.1,
                repeats,
                tiebreak,
                seed: flags.2,
            },
        )
        .prop_filter("some look is left", |measure| {
            looks(measure.alpha, measure.max_blocks).is_ok()
        })
}

fn limits() -> impl Strategy<Value = Limits> {
    let said = vec(option::of(option::of(1..=u64::MAX)), Resource::ALL.len());
    (said, option::of(duration())).prop_map(|(said, cpu)| {
        let mut limits = Limits {
            cpu,
            ..Limits::default()
        };
        for (resource, said) in Resource::ALL.into_iter().zip(said) {
            if let Some(limit) = said {
                limits.set(resource, limit);
            }
        }
        limits
    })
}

fn sandbox() -> impl Strategy<Value = Sandbox> {
    let paths = || vec("/[a-z]{1,6}(/[a-z]{1,3})?", 0..3);
    let level = proptest::sample::select(&Level::ALL[..]);
    let network = prop_oneof![
        Just(Network::None),
        Just(Network::Loopback),
        Just(Network::Host)
    ];
    let quota = || option::of(1..=u64::MAX);
    (
        (level, any::<bool>(), network),
        (paths(), paths()),
        (quota(), quota(), quota()),
        (any::<bool>(), option::of(vec(0..8192_usize, 1..4))),
    )
        .prop_map(
            |((level, fail, network), (read, write), quotas, (nvidia, cpus))| {
                let mut sandbox = Sandbox::new(level);
                sandbox.on_missing = if fail {
                    OnMissing::Fail
                } else {
                    OnMissing::Degrade
                };
                let own = |paths: Vec<String>| paths.into_iter().map(PathBuf::from).collect();
                if level >= Level::Limits {
                    sandbox.write = own(write);
                    sandbox.cpus = cpus;
                    sandbox.address_space = quotas.2;
                }
                if level >= Level::Confined {
                    sandbox.read = own(read);
                }
                if level == Level::Strict {
                    sandbox.network = network;
                    (sandbox.scratch_bytes, sandbox.scratch_inodes) = (quotas.0, quotas.1);
                    if nvidia && sandbox.address_space.is_none() {
                        sandbox.devices = vec!["nvidia".into()];
                    }
                }
                sandbox
            },
        )
}

fn workspace() -> impl Strategy<Value = Workspace> {
    let provider = prop_oneof![
        Just(Provider::Auto),
        Just(Provider::OverlayUserns),
        Just(Provider::OverlayRoot),
        Just(Provider::Reflink),
        Just(Provider::Copy),
        Just(Provider::Worktree),
    ];
    let upper = prop_oneof![Just(Upper::Auto), Just(Upper::Tmpfs), Just(Upper::Disk)];
    let git = prop_oneof![Just(Git::OneCommit), Just(Git::None)];
    (provider, upper, 1..=u64::MAX, git).prop_map(|(provider, upper, upper_bytes, git)| Workspace {
        provider,
        upper,
        upper_bytes,
        git,
    })
}

fn profile() -> impl Strategy<Value = Profile> {
    prop_oneof![
        Just(Profile::Auto),
        Just(Profile::Off),
        command().prop_map(Profile::Command),
    ]
}

fn proposer() -> impl Strategy<Value = Proposer> {
    let process = (command(), duration(), 0..1000_u32);
    let service = (
        (
            "https?://[a-z.]{1,9}(:[0-9]{1,5})?(/[a-z0-9]{0,4}){0,2}",
            text(),
            "[A-Z_]{1,9}",
        ),
        (duration(), 0..100_u32),
        (option::of(1..=u32::MAX), option::of(0.0..=2.0)),
    );
    prop_oneof![
        process.prop_map(|(command, timeout, restarts)| {
            Proposer::Command(CommandProposer {
                command,
                timeout,
                restarts,
            })
        }),
        service.prop_map(
            |((base_url, model, api_key_env), (timeout, retries), (max_tokens, temperature))| {
                Proposer::Http(HttpSettings {
                    base_url,
                    model,
                    api_key_env,
                    timeout,
                    retries,
                    max_tokens: max_tokens.map(u64::from),
                    temperature,
                })
            },
        ),
    ]
}

fn search() -> impl Strategy<Value = Search> {
    (
        option::of(proposer()),
        1..=1024_usize,
        (count(0), count(0), 0.0..=1.0),
        (count(0), any::<bool>()),
        (count(0), count(0)),
        (
            count(1),
            count(1),
            option::of(duration()),
            option::of(1..=u64::MAX),
        ),
    )
        .prop_map(
            |(proposer, concurrency, repair, refine, adaptive, budget)| Search {
                proposer,
                settings: Settings {
                    concurrency,
                    repair: Repair {
                        max: repair.0,
                        stop_at_correct: repair.1,
                        max_diff_share: repair.2,
                    },
                    refine: Refine {
                        top: refine.0,
                        batch: refine.1,
                    },
                    adaptive: Adaptive {
                        per_lineage: adaptive.0,
                        total: adaptive.1,
                    },
                    budget: Budget {
                        candidates: budget.0,
                        requests: budget.1,
                        wall: budget.2,
                        tokens: budget.3,
                    },
                },
            },
        )
}

/// What a file may say of how many.
fn count(least: usize) -> impl Strategy<Value = usize> {
    least..=u32::MAX as usize
}

fn base() -> impl Strategy<Value = BaseRef> {
    prop_oneof![
        Just(BaseRef::WorkingTree),
        "[a-zA-Z0-9~^@{}/]{1,12}".prop_map(BaseRef::Commit),
    ]
}

fn spec() -> impl Strategy<Value = Spec> {
    let baseline = (1..=1000_u32, vec(text(), 0..3));
    let env = (vec("[A-Z_]{1,6}", 0..3), variables());
    (
        (path(), base(), globs(), globs(), any::<bool>()),
        (
            vec(shared(), 0..3),
            vec(source(), 1..4),
            option::of(build()),
        ),
        (vec(test_command(), 1..4), baseline, globs()),
        (bench(), measure(), option::of(1..=1024_u32)),
        (limits(), sandbox(), env, workspace()),
        (profile(), option::of(search()), path()),
    )
        .prop_map(|(tree, sources, tests, bench, terms, rest)| {
            let mut spec = Spec {
                repo: tree.0,
                base: tree.1,
                include: tree.2,
                exclude: tree.3,
                submodules: tree.4,
                shared: sources.0,
                candidates: sources.1,
                build: sources.2,
                tests: tests.0,
                baseline: Baseline {
                    runs: tests.1.0,
                    must_pass: tests.1.1,
                },
                protect: tests.2,
                bench: bench.0,
                measure: bench.1,
                parallel: bench.2,
                limits: terms.0,
                sandbox: terms.1,
                env: Env {
                    pass: terms.2.0,
                    set: terms.2.1,
                },
                workspace: terms.3,
                profile: rest.0,
                search: rest.1,
                output: rest.2,
                places: smallest().places,
            };
            for (at, test) in spec.tests.iter_mut().enumerate() {
                test.name += &at.to_string();
            }
            if spec.tests.iter().all(|test| test.judge.is_none()) && spec.bench == Bench::None {
                spec.bench = Bench::ReuseTests;
            }
            spec
        })
}

proptest! {
    /// CA-10
    #[test]
    fn a_spec_that_is_written_down_means_the_same(spec in spec()) {
        let json = spec.to_json();
        let back = Spec::from_json(json.clone(), Path::new("/elsewhere"));
        prop_assert_eq!(back.map_err(|invalid| invalid.to_string()), Ok(spec.clone()));
        let file = Spec::parse(Path::new("/elsewhere/resolved.json"), &json.to_string());
        let file = file.expect("what was written down is read");
        prop_assert_eq!(file.to_json(), json);
        prop_assert_eq!(spec.changed_keys(&file), Vec::<String>::new());
    }
}

/// CA-10: every key that is read, in the order of the table.
#[test]
fn a_resolved_spec_has_every_key() {
    let json = smallest().to_json();
    let keys: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys, KEYS);
    assert_eq!(json["repo"], json!("/project"));
    assert_eq!(json["tests"][0]["timeout"], json!(600));
    assert_eq!(json["sandbox"]["level"], json!("limits"));
}

fn changed(change: impl FnOnce(&mut Spec)) -> Vec<String> {
    let mut spec = smallest();
    spec.search = Some(Search::default());
    let before = spec.clone();
    change(&mut spec);
    let (there, back) = (before.changed_keys(&spec), spec.changed_keys(&before));
    assert_eq!(there, back);
    there
}

/// CA-96
#[test]
fn keys_that_changed_are_named() {
    let test = |spec: &mut Spec| spec.tests.push(spec.tests[0].clone());
    assert_eq!(changed(|_| {}), [""; 0]);
    assert_eq!(changed(|spec| spec.measure.alpha = 0.01), ["measure.alpha"]);
    assert_eq!(
        changed(|spec| spec.tests[0].timeout *= 2),
        ["tests[0].timeout"]
    );
    assert_eq!(changed(test), ["tests"]);
    assert_eq!(
        changed(|spec| spec.tests[0].command = Command::Argv(vec!["t".into()])),
        ["tests[0].command"]
    );
    assert_eq!(changed(|spec| spec.search = None), ["search"]);
    assert_eq!(
        changed(|spec| {
            spec.base = BaseRef::Commit("HEAD".into());
            spec.env.set.insert("A".into(), "b".into());
            spec.limits.set(Resource::Memory, None);
        }),
        ["base", "limits.memory", "env.set.A"]
    );
    let moved = SpecPath::new("c", Path::new("/elsewhere"));
    assert_eq!(
        changed(|spec| spec.candidates = vec![Source::Trees(moved)]),
        ["candidates[0].trees"]
    );
}

/// CA-96
#[test]
fn budgets_and_parallel_may_change() {
    let changed = changed(|spec| {
        spec.parallel = Some(3);
        let search = spec.search.as_mut().unwrap();
        search.settings.budget = Budget {
            candidates: 1,
            requests: 2,
            wall: Some(Duration::from_secs(3)),
            tokens: Some(4),
        };
    });
    assert_eq!(changed, [""; 0]);
}

/// Paths that lead to one place are one path, however written (CA-4).
#[test]
fn a_path_is_where_it_leads() {
    let here = Path::new(HERE);
    let path = SpecPath::new("./a//b/", here);
    assert_eq!(path, SpecPath::new("/project/a/b", Path::new("/")));
    assert_eq!(path.text, "./a//b/");
    assert_eq!(path.path.to_str(), Some("/project/a/b"));
    assert_eq!(SpecPath::new(".", here).path.to_str(), Some("/project"));
    assert_ne!(SpecPath::new("a/../b", here), SpecPath::new("b", here));
}
