//! What candidates learn of the host's environment (EX-38 to EX-44).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fairtrial_exec::{Backend, EngineError};
use fairtrial_tests::bare;
use fairtrial_tests::{Cli, Story, json, note};
use serde_json::{Value as Json, json as j};

/// Among them one whose name nobody could have listed.
const SECRETS: [&str; 14] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GCP_PROJECT",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "LANGFUSE_SECRET_KEY",
    "WANDB_API_KEY",
    "HF_TOKEN",
    "STRIPE_SECRET_KEY",
    "SUPABASE_SERVICE_ROLE_KEY",
    "XQ7_ZKPWMV",
];

const SNOOP: &str = include_str!("../../programs/snoop_environments.py");

/// EX-38, EX-39: the host is the command line, so that the secrets are in a real environment.
#[test]
fn no_secret_of_the_host_is_in_any_environment_below_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let calls = [
        j!({"source": SNOOP, "function": "wait_for_three", "args": [dir.path(), "a"]}),
        j!({"source": SNOOP, "function": "wait_for_three", "args": [dir.path(), "b"], "isolation": "reuse"}),
        j!({"argv": ["python3", "-c", format!("{SNOOP}\nprint(json.dumps(wait_for_three({:?}, 'c')))", dir.path())]}),
    ];
    let lines: Vec<_> = calls.iter().map(Json::to_string).collect();
    let mut cli =
        Cli::new(["batch", "-", "-j", "3"]).env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"));
    for name in SECRETS {
        cli = cli.env(name, format!("hush-{name}"));
    }
    let finished = cli.run_with(&lines.join("\n"));
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for line in finished.stdout.lines() {
        let record: Json = serde_json::from_str(line).expect("a record");
        let found: Json = match &record["value"] {
            Json::Null => {
                serde_json::from_str(record["stdout"].as_str().expect("text")).expect("JSON")
            }
            value => value.clone(),
        };
        // Self, launcher, zygote, two siblings at least.
        assert!(
            found["processes"].as_array().expect("a list").len() >= 5,
            "{found}"
        );
        assert!(!found["text"].to_string().contains("hush-"), "{found}");
        for name in SECRETS {
            assert!(!found["text"].to_string().contains(name), "{name}: {found}");
        }
    }
}

/// EX-40, SB-65: as a user without privileges, since root may read everything.
#[test]
fn the_environment_of_the_command_line_is_closed_to_its_candidates() {
    let Some((program, dir)) = unprivileged_cli() else {
        return;
    };
    let file = dir.path().join("snoop.py");
    std::fs::write(&file, SNOOP).expect("a file can be written");
    for level in ["none", "limits"] {
        let mut command = as_nobody(&program);
        command
            .args(["exec", "--sandbox", level, "--function", "read_the_host"])
            .arg(&file)
            .env("OPENAI_API_KEY", "hush-hush")
            .env("FAIRTRIAL_SPILL_DIR", dir.path().join("spill"))
            .stdin(Stdio::null());
        let output = command.output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let found: Json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(
            found["sibling"], "readable",
            "the test itself can see no environment: {found}"
        );
        if level == "limits" && found["host"] == "FileNotFoundError" {
            continue; // in a namespace of its own there is nobody else
        }
        assert_eq!(found["host_is_fairtrial"], true, "{found}");
        assert_eq!(found["host"], "PermissionError", "{found}");
        assert_eq!(found["launcher"], "PermissionError", "{found}");
    }
}

/// A copy of the binary that an unprivileged user can run, in a directory of that user's.
pub(crate) fn unprivileged_cli() -> Option<(PathBuf, tempfile::TempDir)> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut built = std::env::current_exe().expect("this process has a program");
    built.pop();
    built.pop();
    let program = dir.path().join("fairtrial");
    std::fs::copy(built.join("fairtrial"), &program)
        .expect("built with `cargo build -p fairtrial-cli`");
    if rustix::process::geteuid().is_root() {
        if !Path::new("/usr/bin/setpriv").exists() {
            note(
                "skipped: root reads every environment, and there is no `setpriv` to be somebody else",
            );
            return None;
        }
        for path in [dir.path(), &program] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("root may");
        }
    }
    Some((program, dir))
}

pub(crate) fn as_nobody(program: &Path) -> Command {
    let root = rustix::process::geteuid().is_root();
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary is run as another user runs it"
    )]
    let mut command = Command::new(if root { Path::new("setpriv") } else { program });
    if root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(program);
    }
    command
}

/// EX-40: a host that is not the command line stays open to debuggers, and says so.
#[tokio::test]
async fn a_library_host_at_level_none_reports_its_environment_as_unguarded() {
    let story = Story::new();
    let report = story.backend.sandbox_report(fairtrial_exec::Level::None);
    let report = report.await.expect("nothing has to be tried");
    let mut mechanisms = report.in_force.mechanisms.iter();
    let guard = mechanisms.find(|mechanism| mechanism.name == "environ_guard");
    assert_eq!(guard.map(|guard| guard.state.name()), Some("unavailable"));
    story.end().await;
}

/// EX-38, EX-41
#[tokio::test]
async fn a_backend_passes_what_its_lists_name_of_the_environment_it_was_given() {
    let story = Story::with(|config| {
        let path = config.host_env.get(std::ffi::OsStr::new("PATH")).cloned();
        config.host_env = [
            ("MY_LICENCE", "1"),
            ("MINE_A", "2"),
            ("MINE_B", "3"),
            ("OTHER", "4"),
            ("LC_MINE", "5"),
            ("PYTHONSTARTUP", "6"),
            ("LD_PRELOAD", "/nowhere.so"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        config
            .host_env
            .extend(path.map(|path| ("PATH".into(), path)));
        config.env_allow = vec!["MY_LICENCE".into()];
        config.env_prefixes = vec!["MINE_".into()];
    });
    let passed = ["LC_MINE", "MINE_A", "MINE_B", "MY_LICENCE", "PATH"];
    // HOME is there in this process, but was not in what the backend was given.
    let held_back = ["HOME", "OTHER", "PYTHONSTARTUP", "LD_PRELOAD"];
    let source = "import os\ndef f(names):\n    return [n for n in names if n in os.environ]";
    for make in [Story::call, Story::reuse_call] {
        let asked = [passed.as_slice(), held_back.as_slice()].concat();
        let names = j!([asked]).to_string();
        assert_eq!(json(&story.run(make(source, &names)).await), j!(passed));
    }
    let outcome = story.run(bare::command(["env"])).await;
    let text = outcome.stdout.text();
    let mut names: Vec<_> = text
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.retain(|name| !name.ends_with("_THREADS"));
    names.sort_unstable();
    let ours = ["FAIRTRIAL_NODE_ID", "FAIRTRIAL_WORKER_ID", "TMPDIR"];
    let mut expected = [ours.as_slice(), passed.as_slice()].concat();
    expected.sort_unstable();
    assert_eq!(names, expected);
    story.end().await;
}

/// EX-42
#[tokio::test]
async fn a_call_sets_and_unsets_variables_for_itself_alone() {
    let story = Story::with(|config| {
        config.max_workers = 1;
        config.host_env.insert("TZ".into(), "UTC".into());
    });
    let source = "import os, subprocess\ndef f():\n    \
        mine = [os.environ.get(n, '-') for n in ('TZ', 'MINE', 'PYTHONMINE')]\n    \
        child = subprocess.check_output('echo ${TZ--} ${MINE--} ${PYTHONMINE--}', shell=True, text=True)\n    \
        assert child.split() == mine, (child, mine)\n    \
        return mine";
    for make in [Story::call, Story::reuse_call] {
        let mut call = make(source, "[]");
        call.env = [
            ("TZ".into(), None),
            ("MINE".into(), Some("1".into())),
            ("PYTHONMINE".into(), Some("2".into())),
        ]
        .into();
        assert_eq!(json(&story.run(call).await), j!(["-", "1", "2"]));
        let plain = story.run(make(source, "[]")).await;
        assert_eq!(json(&plain), j!(["UTC", "-", "-"]));
    }
    let mut call = bare::command(["sh", "-c", "echo ${TZ--} ${MINE--}"]);
    call.env = [("TZ".into(), None), ("MINE".into(), Some("1".into()))].into();
    assert_eq!(story.run(call).await.stdout.text(), "- 1\n");
    story.end().await;
}

/// EX-42
#[tokio::test]
async fn a_bad_variable_is_an_invalid_call() {
    let story = Story::new();
    for (name, value) in [("A=B", "x"), ("A\0B", "x"), ("", "x"), ("A", "x\0y")] {
        let mut call = Story::call("def f():\n    pass", "[]");
        call.env.insert(name.into(), Some(value.into()));
        let refused = story.backend.execute(call).await.expect_err("refused");
        assert!(
            matches!(refused, EngineError::InvalidCall(_)),
            "{name:?}: {refused}"
        );
    }
    assert!(
        story
            .end()
            .await
            .iter()
            .all(|event| event.name() == "shutdown")
    );
    let line = j!({"source": "def f():\n    pass", "function": "f", "env": {"A": 1}});
    let finished = Cli::new(["batch", "-"]).run_with(&line.to_string());
    assert_eq!(finished.code, Some(2), "{finished:?}");
    assert!(finished.stdout.contains("InvalidCall"), "{finished:?}");
}

/// EX-43
#[tokio::test]
async fn configuration_is_in_no_environment_argument_or_file() {
    let story = Story::with(|config| config.idle_timeout = std::time::Duration::from_secs(4321));
    let source = format!("{SNOOP}\nf = everything");
    let mut call = Story::call(&source, "[]");
    call.limits.output_bytes = Some(87_654_321);
    call.limits.memory_bytes = Some(9_876_543_210);
    call.timeout = Some(std::time::Duration::from_secs(7654));
    call.python_mut().expect("a source call").preload = vec!["colorsys".into()];
    let found = json(&story.run(call).await);
    let text = found["text"].to_string();
    for configured in [
        "colorsys",
        "4321",
        "87654321",
        "9876543210",
        "7654",
        "everything",
    ] {
        assert!(!text.contains(configured), "{configured}: {text}");
    }
    assert_eq!(
        found["variables"],
        j!(["FAIRTRIAL_NODE_ID", "FAIRTRIAL_WORKER_ID"])
    );
    assert_eq!(found["files"], j!([]), "nothing is handed down in a file");
    story.end().await;
}

/// EX-44
#[tokio::test]
async fn libraries_get_their_share_of_the_processors_unless_the_user_says() {
    let names = "('OMP', 'OPENBLAS', 'MKL', 'BLIS', 'NUMEXPR', 'NUMBA')";
    let source = format!(
        "import os\ndef f():\n    return [os.environ[n + '_NUM_THREADS'] for n in {names}] + \
         [os.environ['VECLIB_MAXIMUM_THREADS']]"
    );
    let cpus = fairtrial_exec::available_cpus();
    for (workers, share) in [(1, cpus), (cpus * 4, 1)] {
        let story = Story::with(|config| {
            config.max_workers = workers;
            config
                .host_env
                .insert("MKL_NUM_THREADS".into(), "77".into());
        });
        let mut call = Story::call(&source, "[]");
        call.env
            .insert("BLIS_NUM_THREADS".into(), Some("88".into()));
        let share = share.to_string();
        let expected = [&share, &share, "77", "88", &share, &share, &share];
        assert_eq!(json(&story.run(call).await), j!(expected));
        story.end().await;
    }
}
