//! Arguments from files and standard input, and hints about files that a command could not find.

use fairtrial_tests::{Shell, note};
use serde_json::{Value as Json, json};

const SHOW: &str = "def show(*args, **kwargs):\n    return [list(args), kwargs]\n";
const EXEC: [&str; 4] = ["exec", "show.py", "--function", "show"];

/// RE-14, EX-97
#[test]
fn arguments_come_from_files_and_from_standard_input() {
    let shell = Shell::new();
    shell.write("show.py", SHOW);
    shell.write("args.json", "\u{feff}[1, \"a\"]\n");
    shell.write("kwargs.json", "{\"k\": [2]}");
    let files = ["--args", "@args.json", "--kwargs", "@kwargs.json"];
    let run = shell.fairtrial(EXEC.into_iter().chain(files)).run();
    assert_eq!(run.stdout, "[[1,\"a\"],{\"k\":[2]}]\n", "{run:?}");
    let mixed = ["--args", "@-", "--kwargs", "{\"k\": 3}"];
    let run = shell
        .fairtrial(EXEC.into_iter().chain(mixed))
        .run_with("[5]\n");
    assert_eq!(run.stdout, "[[5],{\"k\":3}]\n", "{run:?}");
    shell.assert_nothing_left();
}

/// EX-97: the place of a fault is one in the file.
#[test]
fn faults_in_files_of_arguments_have_their_place() {
    let shell = Shell::new();
    shell.write("show.py", SHOW);
    shell.write("bad.json", "[1,\n x]");
    shell.write("twice.json", "{\"a\": 1,\n \"a\": 2}");
    shell.write("object.json", "\n {}");
    let table: [(&[&str], &str); 6] = [
        (&["--args", "@bad.json"], "bad.json:2:2: expected value"),
        (
            &["--kwargs", "@twice.json"],
            "twice.json:2:2: duplicate key `a` (give it once)",
        ),
        (
            &["--args", "@object.json"],
            "object.json:2:2: must be an array, not an object (as in `[]`)",
        ),
        (
            &["--args", "@none.json"],
            "--args: cannot read `none.json`: No such file or directory (`@FILE` names a file that holds JSON, `@-` is \
             standard input)",
        ),
        (
            &["--args", "@-"],
            "<stdin>:1:1: must be an array, not a string (as in `[]`)",
        ),
        (
            &["--args", "@-", "--kwargs", "@-"],
            "--kwargs: `@-` is given for both `--args` and `--kwargs` (standard input is one JSON text; use a file)",
        ),
    ];
    for (words, said) in table {
        let cli = shell.fairtrial(EXEC.into_iter().chain(words.iter().copied()));
        let run = cli.run_with("\"text\"");
        assert_eq!((run.code, run.stderr.trim_end()), (Some(2), said));
    }
    assert!(!shell.path().join("spill").exists(), "nothing was started");
}

/// RE-14, FA-13
#[test]
fn a_file_that_lies_where_the_user_is_and_not_where_the_command_ran_is_hinted_at() {
    let shell = Shell::new();
    shell.write("solve.py", "print(1)\n");
    let run = shell.fairtrial(["exec", "--", "python3", "solve.py"]).run();
    assert_eq!(run.code, Some(3));
    let hint = "`solve.py` is in the current directory, and the command ran in a scratch directory of its own: give \
                `--cwd .`";
    assert!(run.stderr.ends_with(&format!("hint: {hint}\n")), "{run:?}");
    let run = shell
        .fairtrial(["exec", "--json", "--", "./solve.py"])
        .run();
    let outcome: Json = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(outcome["verdict"], "setup_failed");
    let message = outcome["error"]["message"].as_str().expect("text");
    assert!(message.contains("give `--cwd .`"), "{message}");
    let run = shell
        .fairtrial(["exec", "--cwd", ".", "--", "python3", "solve.py"])
        .run();
    assert_eq!((run.code, &*run.stdout, &*run.stderr), (Some(0), "1\n", ""));
}

/// RE-14, FA-13
#[test]
fn a_batch_hints_at_the_directory_of_its_file() {
    let shell = Shell::new();
    shell.write("sub/solve.py", "print(1)\n");
    shell.write("sub/other/readme", "");
    let argv = ["python3", "solve.py"];
    let calls = [
        json!({"argv": argv}),
        json!({"argv": argv, "cwd": "other"}),
        json!({"argv": argv, "cwd": "."}),
    ];
    shell.write_lines("sub/calls.jsonl", &calls);
    let run = shell.fairtrial(["batch", "sub/calls.jsonl"]).run();
    let records: Vec<Json> = run
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let message = |index: usize| records[index]["error"]["message"].as_str();
    let said = message(0).expect("text");
    assert!(said.contains("give `\"cwd\": \".\"`"), "{said}");
    let said = message(1).expect("text");
    assert!(said.contains("give its absolute path"), "{said}");
    assert_eq!(records[2]["verdict"], "ok", "{run:?}");
}

const PROGRAM: &str = "#include <stdio.h>\nint main(void) { puts(\"built\"); return 0; }\n";

/// A directory that everybody may enter, with a C program.
fn sources(shell: &Shell) {
    shell.write("work/main.c", PROGRAM);
    open(shell, "", 0o755);
    open(shell, "work", 0o755);
    open(shell, "work/main.c", 0o644);
}

fn open(shell: &Shell, name: &str, mode: u32) {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(shell.path().join(name), mode).expect("it is ours");
}

fn in_work<'a>(level: &'a str, argv: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["exec", "--sandbox", level, "--cwd", "work", "--"];
    words.extend(argv);
    words
}

/// Whether `strict` can be had and there is a compiler.
fn can_build(shell: &Shell) -> bool {
    let run = shell
        .fairtrial(["exec", "--sandbox", "strict", "--", "cc", "--version"])
        .run();
    if run.code != Some(0) {
        note(format!("skipped: no compiler at `strict`: {}", run.stderr));
    }
    run.code == Some(0)
}

/// RE-14, FA-13: a root engine gives each `strict` call a user of its own, which has to be able to run what was built.
#[test]
fn a_program_built_at_limits_runs_at_strict() {
    let shell = Shell::new();
    sources(&shell);
    if !can_build(&shell) {
        return;
    }
    for level in ["none", "limits"] {
        let built = shell
            .fairtrial(in_work(level, &["cc", "-o", "program", "main.c"]))
            .run();
        assert_eq!(built.code, Some(0), "{built:?}");
        let run = shell.fairtrial(in_work("strict", &["./program"])).run();
        assert_eq!((run.code, &*run.stdout), (Some(0), "built\n"), "{run:?}");
        std::fs::remove_file(shell.path().join("work/program")).expect("it was made");
    }
}

/// RE-14, FA-13: nothing is opened that the user's own umask closes, and scratch files stay private.
#[test]
fn files_beside_the_scratch_directory_have_the_users_own_umask() {
    let shell = Shell::new();
    shell.write("work/readme", "");
    let umask = |mask: &str, level: &str, cwd: bool| {
        let script = format!("umask {mask}; exec \"$@\"");
        let mut words = vec!["exec", "--sandbox", level];
        words.extend(if cwd { &["--cwd", "work"][..] } else { &[] });
        words.extend(["--", "sh", "-c", "umask"]);
        let run = shell
            .fairtrial(words)
            .under_all(&["sh", "-c", &script, "host"])
            .run();
        run.stdout.trim_end().to_owned()
    };
    assert_eq!(umask("022", "limits", true), "0022");
    assert_eq!(umask("027", "limits", true), "0027");
    assert_eq!(umask("077", "limits", true), "0077");
    assert_eq!(umask("777", "limits", true), "0077"); // its own files are its own to use
    assert_eq!(umask("022", "limits", false), "0077");
    assert_eq!(umask("000", "limits", false), "0077");
    assert_eq!(umask("022", "none", true), "0022");
}

/// RE-14, FA-13
#[test]
fn at_strict_what_the_calls_own_user_cannot_use_is_named_with_a_remedy() {
    if !rustix::process::geteuid().is_root() {
        return note("skipped: only calls of root's have a user of their own");
    }
    let shell = Shell::new();
    sources(&shell);
    if !can_build(&shell) {
        return;
    }
    let built = shell
        .fairtrial(in_work("strict", &["cc", "-o", "program", "main.c"]))
        .run();
    let work = shell.path().join("work");
    let work = work.display();
    let hint = format!(
        "hint: at `strict` a call of root's runs as a user of its own, which cannot write to `{work}` (mode 0755)"
    );
    assert_eq!(built.code, Some(3));
    assert!(built.stderr.contains(&hint), "{built:?}");
    assert!(built.stderr.contains("or use `limits`"), "{built:?}");

    open(&shell, "work", 0o1777); // as the hint has it
    let built = shell
        .fairtrial(in_work("strict", &["cc", "-o", "program", "main.c"]))
        .run();
    assert_eq!(built.code, Some(0), "{built:?}");
    let run = shell.fairtrial(in_work("strict", &["./program"])).run();
    assert_eq!((run.code, &*run.stdout), (Some(0), "built\n"), "{run:?}");

    let program = shell.path().join("work/program");
    std::os::unix::fs::chown(&program, Some(0), Some(0)).expect("root may"); // as if built at `limits`
    open(&shell, "work/program", 0o700);
    let run = shell.fairtrial(in_work("strict", &["./program"])).run();
    let hint = format!(
        "cannot execute `{work}/program` (mode 0700): `chmod o+rx {work}/program`, or use `limits`"
    );
    assert!(run.stderr.contains(&hint), "{run:?}");
    open(&shell, "work/main.c", 0o600);
    let run = shell.fairtrial(in_work("strict", &["cat", "main.c"])).run();
    let hint = format!(
        "cannot read `{work}/main.c` (mode 0600): `chmod o+r {work}/main.c`, or use `limits`"
    );
    assert!(run.stderr.contains(&hint), "{run:?}");
}
