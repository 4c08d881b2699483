//! `fairtrial exec` as a binary (EX-97, EX-98), and what it shows on a terminal (EX-80).

mod arguments;
mod interrupted;

use fairtrial_exec::{DEFAULT_LEVEL, Level};
use fairtrial_tests::Shell;
use serde_json::{Value as Json, json};

/// What people read is wrapped, placed and worded as this says.
const HELP: &str = include_str!("exec_cli/help.txt");

#[test]
fn the_help_says_how_to_use_it() {
    let shown = Shell::new().fairtrial(["exec", "--help"]).run();
    // An empty line within an option's text is indented.
    let text = shown.stdout.replace("\n          \n", "\n\n");
    assert_eq!((shown.code, &*text), (Some(0), HELP));
    assert_eq!(shown.stderr, "");
}

/// EX-97
#[test]
fn standard_output_holds_the_value_as_one_line_of_json_and_nothing_else() {
    let shell = Shell::new();
    shell.write(
        "solve.py",
        "import os, sys\n\
         print('at import')\n\
         def solve(n, k=0):\n    \
             print('printed')\n    \
             os.write(2, b'written')\n    \
             return {'n': n, 'k': (k, float('nan')), 'b': b'x'}\n",
    );
    let solve = ["exec", "solve.py", "--function", "solve"];
    let args = [
        "--args",
        "[12345678901234567890123]",
        "--kwargs",
        "{\"k\": 2.5}",
    ];
    let run = shell.fairtrial(solve.into_iter().chain(args)).run();
    assert_eq!(
        run.stdout,
        "{\"n\":12345678901234567890123,\"k\":{\"$tuple\":[2.5,{\"$float\":\"NaN\"}]},\"b\":{\"$bytes\":\"eA==\"}}\n"
    );
    assert_eq!(run.stderr, "at import\nprinted\nwritten");
    assert_eq!(run.code, Some(0));
    shell.assert_nothing_left();
}

/// EX-97: captured output comes before the report, which is verdict, message and traceback.
#[test]
fn a_failure_is_reported_on_standard_error_after_what_was_printed() {
    let shell = Shell::new();
    shell.write(
        "solve.py",
        "def solve():\n    print('half a line', end='')\n    raise ValueError('no')\n",
    );
    let run = shell
        .fairtrial(["exec", "solve.py", "--function", "solve"])
        .run();
    assert_eq!((run.code, &*run.stdout), (Some(3), ""));
    assert_eq!(
        run.stderr,
        "half a line\n\
         exception: `solve` raised `ValueError`: no\n\
         Traceback (most recent call last):\n  \
           File \"solve.py\", line 3, in solve\n    \
             raise ValueError('no')\n\
         ValueError: no\n\
         \n\
         solve.py:3\n   \
            1 | def solve():\n   \
            2 |     print('half a line', end='')\n\
         >> 3 |     raise ValueError('no')\n   \
            4 |\n"
    );
}

/// EX-97
#[test]
fn with_json_the_outcome_is_the_only_output() {
    let shell = Shell::new();
    shell.write("solve.py", "def solve():\n    print('p')\n    return 7\n");
    let solve = ["exec", "solve.py", "--function", "solve", "--json"];
    let run = shell.fairtrial(solve).run();
    assert_eq!((run.code, &*run.stderr), (Some(0), ""));
    let outcome: Json = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(run.stdout, format!("{outcome}\n"), "one line");
    let keys: Vec<_> = outcome.as_object().unwrap().keys().collect();
    let wanted = "id verdict value error exit stdout stderr dropped metrics in_force tried_alone";
    assert_eq!(keys, wanted.split(' ').collect::<Vec<_>>());
    assert_eq!(
        [&outcome["verdict"], &outcome["value"], &outcome["stdout"]],
        [&json!("ok"), &json!(7), &json!("p\n")]
    );
    let failed = shell
        .fairtrial([
            "exec",
            "--json",
            "--",
            "sh",
            "-c",
            "echo o; echo e >&2; exit 3",
        ])
        .run();
    assert_eq!((failed.code, &*failed.stderr), (Some(3), ""));
    let outcome: Json = serde_json::from_str(&failed.stdout).unwrap();
    assert_eq!(
        [&outcome["verdict"], &outcome["stdout"], &outcome["stderr"]],
        ["exit", "o\n", "e\n"]
    );
    assert_eq!(outcome["exit"], json!({"code": 3, "signal": null}));
}

/// EX-97: one line with place and hint, exit code 2, and not even the spill directory is made.
#[test]
fn bad_usage_is_one_line_and_starts_nothing() {
    let shell = Shell::new();
    shell.write("a.py", "def f(): pass\n");
    shell.write("latin.py", "");
    std::fs::write(shell.path().join("latin.py"), b"# \xe9\n").unwrap();
    let f = ["a.py", "--function", "f"];
    let table: [(&[&str], &str); 14] = [
        (
            &["b.py", "--function", "f"],
            "b.py: cannot read it: No such file or directory (give the path of a Python file)",
        ),
        (
            &["latin.py", "--function", "f"],
            "latin.py: cannot read it: it is not UTF-8 text; save it as UTF-8 (give the path of a Python file)",
        ),
        (
            &["a.py"],
            "--function: is missing (name the function to call; a script: `exec --cwd . -- python3 FILE.py`)",
        ),
        (
            &[],
            "fairtrial: nothing to run (give FILE.py, or a command after `--`)",
        ),
        (
            &[f[0], f[1], f[2], "--args", "[1, x]"],
            "--args:1:5: expected value",
        ),
        (
            &[f[0], f[1], f[2], "--args", "{}"],
            "--args:1:1: must be an array, not an object (as in `[]`)",
        ),
        (
            &[f[0], f[1], f[2], "--kwargs", "{\"a\": 1, \"a\": 2}"],
            "--kwargs:1:10: duplicate key `a` (give it once)",
        ),
        (
            &[f[0], f[1], f[2], "--timeout", "5parsecs"],
            "--timeout: unknown unit `parsecs` in `5parsecs`; use ms, s, m or h, as in `5s`",
        ),
        (
            &[f[0], f[1], f[2], "--timeout", "-1s"],
            "--timeout: must be greater than 0, not `-1s`",
        ),
        (
            &[f[0], f[1], f[2], "--memory", "5X"],
            "--memory: unknown unit `x` in `5X`; use K, M, G or T, as in `512M`",
        ),
        (
            &[f[0], f[1], f[2], "--sandbox", "limits,network=none"],
            "--sandbox: `network`: level `limits` cannot do that; use `confined`, or leave it out",
        ),
        (
            &[f[0], f[1], f[2], "--sandbox", "strict,raed=/"],
            "--sandbox: unknown key `raed` (did you mean `read`?)",
        ),
        (
            &[f[0], f[1], f[2], "--tmeout", "5s"],
            "fairtrial: unexpected argument `--tmeout` found (a similar argument exists: `--timeout`)",
        ),
        (
            &["--preload", "math", "--", "true"],
            "--preload: does not go with a command after `--` (remove one of them)",
        ),
    ];
    for (words, line) in table {
        let run = shell
            .fairtrial(["exec"].into_iter().chain(words.iter().copied()))
            .run();
        assert_eq!(run.stderr, format!("{line}\n"), "{words:?}");
        assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{words:?}");
    }
    assert!(!shell.path().join("spill").exists());
}

/// EX-98
#[test]
fn a_commands_streams_are_passed_through() {
    let shell = Shell::new();
    let script = "tr a-z A-Z; printf 'no newline'; printf 'told' >&2";
    let run = shell
        .fairtrial(["exec", "--", "sh", "-c", script])
        .run_with("typed\n");
    assert_eq!(
        (run.code, &*run.stdout, &*run.stderr),
        (Some(0), "TYPED\nno newline", "told")
    );
    let failed = shell
        .fairtrial(["exec", "--", "sh", "-c", "printf told >&2; exit 7"])
        .run();
    assert_eq!(failed.stderr, "told\nexit: `sh` exited with code 7\n");
    // More than is kept of a function's output, and all of it.
    let long = shell
        .fairtrial(["exec", "--", "head", "-c", "5000000", "/dev/zero"])
        .run();
    assert_eq!((long.code, long.stdout.len()), (Some(0), 5_000_000));
}

/// EX-98: `ok` is 0, any other verdict 3.
#[test]
fn every_verdict_but_ok_exits_3() {
    let shell = Shell::new();
    shell.write(
        "sins.py",
        "import os, time\n\
         def ok(): return 1\n\
         def exception(): raise KeyError('MemoryError')\n\
         def exit(): os._exit(9)\n\
         def signal(): os.abort()\n\
         def no_result(): os._exit(0)\n\
         def bad_result(): return object()\n\
         def timeout(): time.sleep(300)\n\
         def output_limit(): print('x' * 100_000)\n\
         def memory_limit(): x = b'x' * (600 << 20); time.sleep(300)\n\
         def setup_failed(): pass\n",
    );
    let table: [(&str, &[&str]); 10] = [
        ("ok", &[]),
        ("exception", &[]),
        ("exit", &[]),
        ("signal", &[]),
        ("no_result", &[]),
        ("bad_result", &[]),
        ("timeout", &["--timeout", "200ms"]),
        ("output_limit", &["--output", "50K"]),
        ("memory_limit", &["--memory", "300M"]),
        ("setup_failed", &["--python", "./missing"]),
    ];
    for (verdict, options) in table {
        let call = ["exec", "sins.py", "--json", "--function", verdict];
        let run = shell
            .fairtrial(call.into_iter().chain(options.iter().copied()))
            .run();
        let outcome: Json = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(outcome["verdict"], verdict, "{outcome}");
        assert_eq!(
            run.code,
            Some(if verdict == "ok" { 0 } else { 3 }),
            "{verdict}"
        );
    }
    shell.assert_nothing_left();
}

/// SB-14, SB-15: the variable replaces a default, never an explicit choice; what is wrong with it is a usage error.
#[test]
fn a_sandbox_that_the_environment_asks_for_is_the_default() {
    let shell = Shell::new();
    let table = [
        (
            "jail",
            "unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        ("none,raed=/", "unknown key `raed` (did you mean `read`?)"),
        (
            "none,write=here",
            "`write`: level `none` cannot do that; use `limits`, or leave it out",
        ),
    ];
    shell.write(
        "calls.jsonl",
        "{\"argv\": [\"touch\", \"started\"], \"cwd\": \".\"}\n",
    );
    let silent: [&[&str]; 2] = [
        &["exec", "--cwd", ".", "--", "touch", "started"],
        &["batch", "calls.jsonl"],
    ];
    for (value, problem) in table {
        for words in silent {
            let run = shell
                .fairtrial(words.iter().copied())
                .env("FAIRTRIAL_SANDBOX", value)
                .run();
            assert_eq!(run.stderr, format!("FAIRTRIAL_SANDBOX: {problem}\n"));
            assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{value}");
        }
        let explicit = shell
            .fairtrial(["exec", "--sandbox", "none", "--", "true"])
            .env("FAIRTRIAL_SANDBOX", value)
            .run();
        assert_eq!((explicit.code, &*explicit.stderr), (Some(0), ""));
    }
    assert!(!shell.path().join("started").exists());
    for (variable, requested) in [("none,on_missing=fail", Level::None), (" ", DEFAULT_LEVEL)] {
        let run = shell
            .fairtrial(["exec", "--json", "--", "true"])
            .env("FAIRTRIAL_SANDBOX", variable)
            .run();
        let outcome: Json = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(outcome["in_force"]["requested"], requested.to_string());
    }
}

/// EX-98: an engine that cannot work is 1, and says what stood in the way.
#[test]
fn an_engine_error_exits_1() {
    let shell = Shell::new();
    shell.write("a.py", "def f(): return 1\n");
    let file = shell.write("in_the_way", "");
    let table = [
        (
            "FAIRTRIAL_SPILL_DIR",
            file.display().to_string(),
            format!(
                "cannot use the spill directory `{}`: it is not a directory; remove it or set \
                 `FAIRTRIAL_SPILL_DIR` to another place",
                file.display()
            ),
        ),
        (
            "FAIRTRIAL_MAX_WORKERS",
            "many".into(),
            "bad configuration: `FAIRTRIAL_MAX_WORKERS`: `many` is not a whole number above 0"
                .into(),
        ),
    ];
    for (name, value, cause) in table {
        let run = shell
            .fairtrial(["exec", "a.py", "--function", "f"])
            .env(name, value)
            .run();
        assert_eq!(
            run.stderr,
            format!("error: the engine failed\n  cause: {cause}\n")
        );
        assert_eq!((run.code, &*run.stdout), (Some(1), ""), "{name}");
    }
}

/// EX-80
#[test]
fn on_a_terminal_control_characters_are_escaped() {
    let shell = Shell::new();
    shell.write(
        "evil.py",
        "def f():\n    print('\\x1b]0;owned\\x07', '\\u202e')\n    raise ValueError('\\x1b[2J')\n",
    );
    let call = ["exec", "evil.py", "--function", "f"];
    let (code, shown) = shell.fairtrial(call).run_on_terminal();
    assert_eq!(code, Some(3));
    assert!(
        shown.contains("\\u001b]0;owned\\u0007 \\u202e\r\n"),
        "{shown:?}"
    );
    assert!(
        shown.contains("raised `ValueError`: \\u001b[2J\r\n"),
        "{shown:?}"
    );
    assert!(!shown.contains('\x1b'), "{shown:?}");
    let piped = shell.fairtrial(call).run();
    assert!(piped.stderr.contains("\x1b]0;owned\x07"), "{piped:?}");
    let command = ["exec", "--", "printf", "\\033[31m\\377"];
    let (_, shown) = shell.fairtrial(command).run_on_terminal();
    assert!(shown.starts_with("\\u001b[31m"), "{shown:?}");
}

/// EX-97: what a plain `python FILE` would find is pointed at.
#[test]
fn a_missing_module_is_told_where_to_look() {
    let shell = Shell::new();
    shell.write("helper.py", "ANSWER = 42\n");
    shell.write(
        "solve.py",
        "import helper\ndef f():\n    return helper.ANSWER\n",
    );
    let run = shell
        .fairtrial(["exec", "solve.py", "--function", "f"])
        .run();
    assert_eq!(run.code, Some(3));
    assert!(
        run.stderr
            .contains("hint: modules that lie beside the file are found with `--python-path DIR`")
    );
    let found = shell
        .fairtrial(["exec", "solve.py", "--function", "f", "--python-path", "."])
        .run();
    assert_eq!((found.code, &*found.stdout), (Some(0), "42\n"));
}

/// SB-14, SB-16: one line, and nothing starts.
#[test]
fn a_limit_above_the_own_hard_limit_is_bad_usage() {
    let shell = Shell::new();
    let many = "1099511627776";
    let files = [
        "exec",
        "--sandbox",
        "limits",
        "--open-files",
        many,
        "--",
        "true",
    ];
    let processor = [
        "exec",
        "--sandbox",
        "limits,cpus=999",
        "--open-files",
        "9",
        "--",
        "true",
    ];
    for (words, said) in [
        (
            files,
            "`limits.open_files`: 1099511627776 is more than this process's own hard limit, ",
        ),
        (
            processor,
            "`sandbox.cpus`: there is no processor 999 for this process; it has 0",
        ),
    ] {
        let run = shell.fairtrial(words).run();
        assert_eq!((run.code, &*run.stdout), (Some(2), ""), "{run:?}");
        let one_line = run.stderr.lines().count() == 1;
        assert!(one_line && run.stderr.starts_with(said), "{}", run.stderr);
    }
    // A default gives way: half of what the engine may have, so that calls cannot take all.
    let lower = ["sh", "-c", "ulimit -n 700; exec \"$@\"", "sh"];
    let words = ["exec", "--sandbox", "limits", "--", "sh", "-c", "ulimit -n"];
    let run = shell.fairtrial(words).under_all(&lower).run();
    assert_eq!(run.stdout, "350\n", "{run:?}");
}
