//! What commands find, and what they cannot leave behind.

use super::trial::{Trial, answers, changes, ends, right};

/// CA-31: one commit, always the same, and nothing of the user's.
#[test]
fn the_history_in_a_workspace_is_one_commit_without_the_users_own() {
    let trial = Trial::new();
    trial.write("repo/later.txt", "x");
    trial.commit();
    trial.write("repo/.git/hooks/pre-commit", "#!/bin/sh\necho hooked\n");
    trial.git(&["config", "user.secret", "hidden"]);
    trial.git(&["tag", "secret-tag"]);
    trial.write(
        ".gitconfig",
        "[user]\n  name = Somebody Else\n  email = e@e\n[core]\n  hooksPath = /nowhere\n[commit]\n  gpgSign = true\n",
    );
    let place = trial.path("seen");
    let command = "{ git log --format='%H %an %s' --all; git tag; git config user.secret; ls .git/hooks; git status \
                   --porcelain; git config --list; git stash list; } > \"$SEEN\" 2>&1; test ! -e .git/logs/refs/stash";
    trial.spec(&format!(
        "parallel: 1\ntests: [{{name: look, command: {command:?}, env: {{SEEN: {place:?}}}}}]\n"
    ));
    trial.candidates(&[changes("good", &[("new.txt", "x")])]);
    let mut logs = Vec::new();
    for output in ["one", "two"] {
        let cli = trial
            .evaluate(&["--output", output])
            .env("HOME", trial.path(""));
        ends(&cli.run(), 0);
        let text = trial.shell.read("seen");
        let first = text.lines().next().expect("a commit").to_owned();
        assert!(first.ends_with("fairtrial base"), "{text}");
        for word in [
            "secret",
            "hidden",
            "hooked",
            "pre-commit",
            "Somebody",
            "later",
        ] {
            assert!(!text.contains(word), "{word}: {text}");
        }
        assert_eq!(
            text.lines().filter(|line| line.ends_with(" base")).count(),
            1,
            "{text}"
        );
        assert!(
            text.contains("?? new.txt"),
            "what a candidate adds is new: {text}"
        );
        logs.push(first);
    }
    assert_eq!(logs[0], logs[1]);
}

/// CA-31: or none at all, not even that of a directory above.
#[test]
fn without_a_history_git_finds_none() {
    let trial = Trial::new();
    let place = trial.path("seen");
    trial.spec(&format!(
        "workspace: {{git: none}}\ntests: [{{name: look, command: 'git log > \"$SEEN\" 2>&1; ls -a >> \"$SEEN\"', env: {{SEEN: {place:?}}}}}]\n"
    ));
    trial.candidates(&[right("good")]);
    ends(&trial.run(&[]), 0);
    let text = trial.shell.read("seen");
    assert!(text.contains("not a git repository"), "{text}");
}

/// CA-30, CA-31: nor is the user's own in reach when a part of a repository is evaluated.
#[test]
fn the_history_above_a_part_of_a_repository_is_out_of_reach() {
    let trial = Trial::new();
    trial.write("repo/part/answer.sh", "echo 42\n");
    trial.commit();
    let place = trial.path("seen");
    for (number, git) in ["one-commit", "none"].into_iter().enumerate() {
        let command = "{ ls -A ../.git; git log --format='log %an'; touch ../.git/new; } > \"$SEEN\" 2>&1; true";
        trial.spec(&format!(
            "repo: repo/part\noutput: out-{number}\nworkspace: {{git: {git}}}\n\
             tests: [{{name: look, command: {command:?}, env: {{SEEN: {place:?}}}}}]\n"
        ));
        trial.candidates(&[right("good")]);
        let before = trial.census("repo");
        ends(&trial.run(&[]), 0);
        let text = trial.shell.read("seen");
        assert!(
            !text.contains("HEAD") && !text.contains("somebody"),
            "{text}"
        );
        assert_eq!(
            text.contains("log fairtrial"),
            git == "one-commit",
            "{text}"
        );
        assert_eq!(trial.census("repo"), before);
    }
}

/// CA-32: what is shared is there, and changes to it are private or refused.
#[test]
fn shared_directories_are_there_and_stay_as_they_are() {
    let trial = Trial::new();
    trial.write("repo/.gitignore", "deps/\ncache/\n");
    trial.write("repo/deps/lib", "lib");
    trial.write("repo/cache/file", "file");
    trial.spec(
        "shared: [repo/deps, {path: repo/cache, mode: cow}]\n\
         tests: [{name: look, command: 'cat deps/lib cache/file; (echo x > deps/new) 2>/dev/null || echo refused; echo x >> cache/file; ls cache; echo y > cache/$(cat answer.sh | tr -d \" \\n\")', output: compare}]\n",
    );
    trial.candidates(&[right("one"), right("two")]);
    let before = trial.census("repo");
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("one"), "", "{}", report.of("one"));
    assert_eq!(report.failure("two"), "");
    assert_eq!(trial.census("repo"), before);
    trial.assert_nothing_left();
}

/// CA-33, CA-49: every command starts from the base, the candidate and the build, whatever ran before it.
#[test]
fn every_command_starts_from_the_same_state() {
    let trial = Trial::new();
    trial.write("repo/.gitignore", "ignored\n");
    let places = "find . -name .git -prune -o -print | sort; find \"$HOME\" -mindepth 1; env | sort; cat built";
    let litter = "echo x > ignored; mkdir -p \"$HOME/.cache/a\"; rm -f tests/check.sh; echo 1 >> built; chmod 0 built";
    let command = format!("{{ {places}; }} > \"$SEEN-$N-$(wc -c < answer.sh)-$$\"; {litter}");
    let place = trial.path("seen");
    trial.spec(&format!(
        "protect: []\nbaseline: {{runs: 2}}\nparallel: 1\nbuild: {{command: 'echo built > built'}}\nenv: {{set: {{SEEN: {place:?}}}}}\n\
         tests:\n- {{name: one, command: {command:?}, env: {{N: one}}}}\n- {{name: two, command: {command:?}, env: {{N: one}}}}\n"
    ));
    trial.candidates(&[answers("good", "echo 43\n"), answers("other", "echo 44\n")]);
    ends(&trial.run(&[]), 0);
    let seen: Vec<_> = trial
        .files(".")
        .into_iter()
        .filter(|path| path.display().to_string().contains("/seen-"))
        .collect();
    let first = std::fs::read_to_string(&seen[0]).expect("it is ours");
    assert!(
        first.contains("built\n") && first.contains("./tests/check.sh"),
        "{first}"
    );
    assert!(
        first.contains("PYTHONDONTWRITEBYTECODE=1")
            && first.contains("TZ=UTC")
            && first.contains("OMP_NUM_THREADS=1")
    );
    assert!(
        !first.contains("LC_FAIRTRIAL_TEST"),
        "nothing of the host's: {first}"
    );
    for path in &seen {
        assert_eq!(
            std::fs::read_to_string(path).expect("it is ours"),
            first,
            "{}",
            path.display()
        );
    }
}

/// CA-34: bytecode of one candidate is never another's, though size and time are the same.
#[test]
fn two_candidates_of_one_size_and_time_run_their_own_code() {
    let trial = Trial::new();
    trial.write("repo/value.py", "def value(): return 1\n");
    trial.spec(
        "parallel: 1\nbuild: {command: [python3, -m, compileall, -q, .]}\n\
         tests: [{name: t, command: [python3, -c, 'import value; print(value.value(), value.__cached__ is not None)'], output: compare}]\n",
    );
    let all: Vec<_> = (2..6)
        .map(|number| {
            changes(
                &format!("v{number}"),
                &[("value.py", &format!("def value(): return {number}\n"))],
            )
        })
        .collect();
    trial.candidates(&all);
    let report = trial.report(3, &[]);
    for number in 2..6 {
        let name = format!("v{number}");
        assert_eq!(report.failure(&name), "mismatch");
        let said = report.of(&name)["failure"]["diffs"][0].to_string();
        assert!(said.contains(&format!("{number} True")), "{said}");
    }
}

/// CA-58: what changes tests while it runs is found out, and reaches nobody else.
#[test]
fn a_protected_file_written_at_run_time_is_tampering() {
    let trial = Trial::new();
    trial.spec("parallel: 1\ntests:\n- {name: one, command: [sh, answer.sh]}\n- {name: two, command: [sh, tests/check.sh]}\n");
    trial.candidates(&[
        answers("tampers", "echo true > tests/check.sh; echo 41\n"),
        answers(
            "adds",
            "mkdir -p deep; echo x > deep/conftest.py; echo 42\n",
        ),
        right("good"),
    ]);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("tampers"), "tampered");
    assert!(report.message("tampers").contains("tests/check.sh"));
    assert_eq!(report.failure("adds"), "tampered");
    assert_eq!(report.failure("good"), "");
}

/// CA-9: a key is in no file and on no stream.
#[test]
fn an_api_key_is_written_nowhere() {
    let trial = Trial::new();
    let key = "sk-this-is-very-secret-0123456789";
    trial.write(
        "proposer.py",
        "import json, os, sys\nprint(os.environ['MY_API_KEY'], file=sys.stderr, flush=True)\n\
         for line in sys.stdin: print(json.dumps({'id': json.loads(line)['id'], 'error': 'no: ' + os.environ['MY_API_KEY']}), flush=True)\n",
    );
    trial.spec(
        "search: {proposer: {command: [python3, proposer.py]}, repair: {max_diff_share: 100%}}\n",
    );
    trial.candidates(&[right("good"), super::trial::wrong("bad")]);
    let done = trial.evaluate(&["--json"]).env("MY_API_KEY", key).run();
    ends(&done, 0);
    assert!(!done.stdout.contains(key) && !done.stderr.contains(key));
    assert_eq!(trial.written().0["proposals"]["failed"], 1);
    for (path, seen) in trial.census(".") {
        let holds = seen.3.windows(key.len()).any(|part| part == key.as_bytes());
        assert!(!holds, "{}", path.display());
    }
}
