//! `fairtrial doctor` as a binary, and the help of the whole.

use fairtrial_tests::Shell;
use serde_json::{Value as Json, json};

const HELP: &str = "\
Runs candidate programs nobody vouches for, each in its own process, and says what they did

Exit codes: 0 all well; 1 the engine failed; 2 bad usage or invalid file; 3 finished, but a call
failed; 130 interrupted.

Usage: fairtrial <COMMAND>

Commands:
  exec      Run one call: a function of a Python file, or a command
  batch     Run many calls, one JSON object a line; results in input order
  plan      Validate a study file and show what it would run; starts nothing
  run       Run a study: every planned run that its directory does not hold yet
  resume    Go on with the study that a directory holds
  retry     Run failed runs again, and nothing else
  status    Show how a study stands, or a cluster
  export    Write a study's tables from its journal
  rescore   Judge again what is on record: a study's outputs, or an evaluation's runs
  verify    Check that a study's directory is as it was left
  bundle    Put a study's directory into one file, the same bytes each time
  report    Write the report of a study or an evaluation: one HTML file that needs nothing else
  design    Make a design table without a study: full, lhs, frac2 or sobol
  evaluate  Compare rival changes of a repository: which are right, which is fastest
  agent     Serve calls on this node: lease them from a server, run them, commit what came of them
  doctor    Say what isolation and measuring this machine can do
  help      Print this message or the help of the given subcommand(s)

Options:
  -h, --help
          Print help (see a summary with '-h')

  -V, --version
          Print version
";

#[test]
fn the_help_names_the_commands_and_the_exit_codes() {
    let shell = Shell::new();
    let help = shell.fairtrial(["--help"]).run();
    assert_eq!(
        (help.code, &*help.stdout, &*help.stderr),
        (Some(0), HELP, "")
    );
    let nothing = shell.fairtrial([]).run();
    assert_eq!((nothing.code, &*nothing.stdout), (Some(2), ""));
    assert!(nothing.stderr.contains("Usage: fairtrial <COMMAND>"));
    let version = shell.fairtrial(["--version"]).run();
    let wanted = format!("fairtrial {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!((version.code, version.stdout), (Some(0), wanted));
    let unknown = shell.fairtrial(["exce"]).run();
    assert_eq!(
        (unknown.code, &*unknown.stderr),
        (
            Some(2),
            "fairtrial: unrecognized subcommand `exce` (did you mean `exec`?)\n"
        )
    );
}

/// SB-15, SB-46
#[test]
fn it_says_which_level_a_variable_puts_in_the_place_of_the_default() {
    let shell = Shell::new();
    let doctor = |value: &str, words: &[&str]| {
        let words = ["doctor"].into_iter().chain(words.iter().copied());
        shell.fairtrial(words).env("FAIRTRIAL_SANDBOX", value).run()
    };
    let said = doctor("strict,network=loopback", &["--all"]).stdout;
    let line = "\n  calls that do not say have `strict`, by FAIRTRIAL_SANDBOX\n";
    assert!(said.contains(line), "{said}");
    let said = doctor("confined", &[]).stdout;
    let line = "; the default is `confined`, by FAIRTRIAL_SANDBOX\n";
    assert!(said.contains(line), "{said}");
    let found: Json = serde_json::from_str(&doctor("none", &["--json"]).stdout).expect("JSON");
    assert_eq!(found["default_level"], "none");
    let wrong = doctor("strikt", &[]);
    assert_eq!((wrong.code, &*wrong.stdout), (Some(2), ""));
    assert!(
        wrong
            .stderr
            .starts_with("FAIRTRIAL_SANDBOX: unknown level `strikt`")
    );
}

#[test]
fn it_says_for_people_what_works_and_what_is_in_force() {
    let shell = Shell::new();
    let temporary = shell.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let run = shell
        .fairtrial(["doctor", "--all"])
        .env("FAIRTRIAL_NODE_ID", "ward 7")
        .env("TMPDIR", &temporary)
        .run();
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        run.stdout
            .starts_with(&format!("fairtrial {version} on Linux ")),
        "{}",
        run.stdout
    );
    for part in [
        "node `ward 7`\n",
        "\nisolation levels\n  none      available\n  limits    available\n  confined  available\n  strict    available\n",
        "\nmechanisms at level `none`\n",
        "\nmechanisms at level `confined`\n",
        "\nmechanisms at level `strict`\n",
        ", write_canary denied, ",
        "\ncontrol groups: ",
        "\nmeasuring\n  clock source  ",
        "\n  ASLR          ",
        " over 1, 5 and 15 minutes\n",
        "\nself-test\n  command  ok: `true` in ",
        "\n  python   ok: `python3` in ",
    ] {
        assert!(
            run.stdout.contains(part),
            "{part:?} is not in {}",
            run.stdout
        );
    }
    // SB-46: what was tried was tried on files that are gone.
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    shell.assert_nothing_left();
}

/// RE-13: what a user sees first fits a screen of 24 lines.
#[test]
fn without_options_it_is_one_screen() {
    let shell = Shell::new();
    let run = shell
        .fairtrial(["doctor"])
        .env("FAIRTRIAL_NODE_ID", "ward 7")
        .run();
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines.len() <= 24, "{}", run.stdout);
    assert!(lines[0].starts_with("fairtrial ") && lines[0].contains(" on Linux "));
    for part in [
        "node `ward 7`\n",
        "\nself-test: command ok: `true` in ",
        "\nself-test: python ok: `python3` in ",
        "\nisolation levels\n  none      available\n  limits    available\n  confined  available\n  strict    available\n",
        "\nbest level here: `--sandbox strict`; the default is `none`, by FAIRTRIAL_SANDBOX\n",
        "\nmemory limits: ",
        "\nworkspaces of `evaluate`: ",
        "\neverything that was found: `fairtrial doctor --all`, or `--json`\n",
    ] {
        assert!(
            run.stdout.contains(part),
            "{part:?} is not in {}",
            run.stdout
        );
    }
    assert!(!run.stdout.contains("mechanisms at level"));
    let both = shell.fairtrial(["doctor", "--all", "--fix"]).run();
    assert_eq!((both.code, &*both.stdout), (Some(2), ""));
}

/// The report is honest: each mechanism has a state of the contract's and a reason.
#[test]
fn with_json_it_is_one_object_with_a_state_for_each_mechanism() {
    let shell = Shell::new();
    let run = shell.fairtrial(["doctor", "--json"]).run();
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    let report: Json = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(run.stdout, format!("{report}\n"), "one line");
    assert_eq!(
        report["levels"]["strict"],
        json!({"available": true, "state": "available"})
    );
    // SB-41: what is said to be enforced was tried.
    assert_eq!(
        report["reports"]["limits"]["selftest"]["read_environ"],
        "denied"
    );
    for level in ["confined", "strict"] {
        for attempt in ["connect", "read_canary", "unshare"] {
            let found = &report["reports"][level]["selftest"][attempt];
            assert_eq!(found, "denied", "{attempt} at {level}");
        }
    }
    assert_eq!(
        report["reports"]["strict"]["selftest"]["memory_limit"],
        "denied"
    );
    let levels = ["none", "limits", "confined", "strict"];
    let mechanisms = levels.map(|level| report["mechanisms"][level].as_object().unwrap());
    let mechanisms = mechanisms.into_iter().flatten();
    for (name, mechanism) in mechanisms {
        let state = mechanism["state"].as_str().unwrap();
        let states = ["enforced", "sampled", "partial", "unavailable"];
        assert!(states.contains(&state), "{name}: {state}");
        assert_ne!(mechanism["via"], "", "{name}");
    }
    for test in ["command", "python"] {
        assert_eq!(report["self_test"][test]["ok"], true, "{report}");
    }
    assert!(report["spill"]["free_bytes"].as_u64().unwrap() > 0);
    // SB-46
    let measuring = report["measuring"].as_object().unwrap();
    let names: Vec<_> = measuring.keys().map(String::as_str).collect();
    let wanted = "clock_source counters governor smt turbo swap_bytes aslr load";
    assert_eq!(names.join(" "), wanted);
    assert!(measuring["load"][0].is_f64(), "{report}");
    assert!(report["cgroups"].is_string(), "{report}");
}

/// SB-46: one line for each level, with what is missing and what helps; a level less is no failure.
#[test]
fn a_level_that_cannot_be_had_is_named_with_what_is_missing() {
    let shell = Shell::new();
    let off = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
    let under = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        off,
        "sh",
    ];
    let run = shell.fairtrial(["doctor"]).under_all(&under).run();
    assert_eq!((run.code, &*run.stderr), (Some(0), ""), "{}", run.stdout);
    let line = "\n  strict    unavailable: userns ENOSPC, user.max_user_namespaces=0\n";
    assert!(run.stdout.contains(line), "{}", run.stdout);
    // RE-11: the level between is the best here, and the commands for more are printed, and not run.
    let best =
        "\nbest level here: `--sandbox confined`; the default is `none`, by FAIRTRIAL_SANDBOX\n";
    assert!(run.stdout.contains(best), "{}", run.stdout);
    let piece = "\n  level `strict`: `userns` ENOSPC, user.max_user_namespaces=0\n";
    assert!(run.stdout.contains(piece), "{}", run.stdout);
    let fix = shell.fairtrial(["doctor", "--fix"]).under_all(&under).run();
    let command = "\nsudo sysctl -w user.max_user_namespaces=15000\n";
    assert!(fix.stdout.contains(command), "{}", fix.stdout);
    assert!(
        fix.stdout
            .starts_with("# None of these commands was run.\n"),
        "{}",
        fix.stdout
    );
    assert!(
        run.stdout.contains("\n  none      available\n"),
        "{}",
        run.stdout
    );
    shell.assert_nothing_left();
}

#[test]
fn an_engine_that_cannot_run_a_call_exits_1_and_says_why() {
    let shell = Shell::new();
    let file = shell.write("in_the_way", "");
    let run = shell
        .fairtrial(["doctor"])
        .env("FAIRTRIAL_SPILL_DIR", &file)
        .run();
    assert_eq!(run.code, Some(1));
    let dir = file.display();
    let line = format!(
        "spill directory `{dir}`: FAILED: cannot use the spill directory `{dir}`: it is not a directory"
    );
    assert!(run.stdout.contains(&line), "{}", run.stdout);
    assert!(
        run.stdout
            .contains("  none      does not work, see the self-test\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_machine_without_python_still_runs_commands() {
    let shell = Shell::new();
    let bin = shell.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/true", bin.join("true")).unwrap();
    let run = shell
        .fairtrial(["doctor", "--json"])
        .env("PATH", &bin)
        .run();
    let report: Json = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(run.code, Some(0), "{report}");
    assert_eq!(report["self_test"]["command"]["ok"], true, "{report}");
    let problem = report["self_test"]["python"]["error"].as_str().unwrap();
    assert!(
        problem.starts_with("setup_failed: `answer` could not be started: "),
        "{problem}"
    );
}
