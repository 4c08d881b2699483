//! What commands find.

use std::os::unix::fs::MetadataExt;

use super::super::base::dirty;
use super::super::trial::{Trial, answers, changes, ends, right};
use super::Provider;

/// What a test command wrote to its standard output when it ran on a candidate, or on `base`.
fn output(trial: &Trial, out: &str, side: &str) -> String {
    trial.shell.read(&format!("{out}/logs/{side}/look.stdout"))
}

/// CA-20, CA-21, CA-23, CA-28: bytes, modes, links and times, of what is changed, staged and new.
pub(super) fn the_tree_is_found_as_it_stands(provider: Provider) {
    let trial = dirty().on(provider.word);
    let before = provider.untouchable(&trial);
    let list = "find . -name .git -prune -o ! -type d -printf '%P|%m|%y|%l|%T@|' -exec sh -c 'test -h \"$1\" || cat \"$1\"' - {} \\; \
                -printf '|\\0'";
    trial.spec(&format!("tests: [{{name: look, command: {list:?}}}]\n"));
    trial.candidates(&[right("good")]);
    let report = trial.report(0, &[]);
    assert_eq!(report.0["provider"]["name"], provider.name);
    assert_eq!(report.failure("good"), "", "{}", report.of("good"));
    let mut wanted: Vec<String> = [
        ".gitignore",
        "answer.sh",
        "changed.txt",
        "dangling",
        "link",
        "odd\nname",
        "run.sh",
        "staged.txt",
        "tests/check.sh",
        "untracked.txt",
    ]
    .map(|name| described(&trial, name))
    .into();
    wanted.sort();
    let found = output(&trial, "out", "base");
    let mut found: Vec<&str> = found.split_terminator('\0').collect();
    found.sort_unstable();
    assert_eq!(found, wanted, "{provider:?}");
    assert_eq!(provider.untouchable(&trial), before);
    trial.assert_nothing_left();
}

/// A file of the user's as the command above tells it.
fn described(trial: &Trial, name: &str) -> String {
    let path = trial.path("repo").join(name);
    let facts = path.symlink_metadata().expect("it is there");
    let (kind, target, text) = match std::fs::read_link(&path) {
        Ok(target) => ('l', target.display().to_string(), String::new()),
        Err(_) => (
            'f',
            String::new(),
            std::fs::read_to_string(&path).expect("it is ours"),
        ),
    };
    let (mode, at, below) = (facts.mode() & 0o7777, facts.mtime(), facts.mtime_nsec());
    format!("{name}|{mode:o}|{kind}|{target}|{at}.{below:09}0|{text}|")
}

/// CA-25, CA-28, CA-37: at the repository's own path, or in slots whose paths are equally long; as the caller's own user.
pub(super) fn commands_run_where_the_report_says(provider: Provider) {
    let trial = provider.trial();
    trial.spec(
        "parallel: 3\ntests: [{name: look, command: 'pwd; echo \"$HOME\"; id -u; sleep 0.1'}]\n",
    );
    let all: Vec<_> = (0..9).map(|number| right(&format!("c{number}"))).collect();
    trial.candidates(&all);
    let report = trial.report(0, &[]);
    let same_path = provider.mounted.is_some();
    assert_eq!(report.0["provider"]["same_path"], same_path);
    let user = rustix::process::geteuid().to_string();
    let mut places = std::collections::BTreeSet::new();
    for name in report.names() {
        let said = output(&trial, "out", report.id(name));
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[2], user, "{said}");
        places.insert((lines[0].to_owned(), lines[1].to_owned()));
    }
    let lengths: std::collections::BTreeSet<(usize, usize)> = places
        .iter()
        .map(|(at, home)| (at.len(), home.len()))
        .collect();
    assert_eq!(lengths.len(), 1, "{places:?}");
    let repository = trial.path("repo").canonicalize().expect("it is there");
    let repository = repository.display().to_string();
    match same_path {
        true => assert!(places.len() == 1 && places.iter().all(|(at, _)| *at == repository)),
        false => assert!((1..=3).contains(&places.len()), "{places:?}"),
    }
}

/// CA-25, CA-28, CA-30: confined or not, a command has the tree, with what is shared, and above `none` no way to the
/// user's own.
pub(super) fn at_every_level_the_users_tree_is_out_of_reach(provider: Provider) {
    for level in ["none", "limits", "strict"] {
        let trial = provider.trial();
        trial.write("repo/.gitignore", "deps/\n");
        trial.write("repo/deps/lib", "lib");
        let users = trial.path("repo/new");
        // Where the tree is mounted the user's path is the candidate's own.
        let write = "echo x > own && cat own deps/lib && (echo x > \"$USERS\") 2>/dev/null; echo $? ${PWD##*/}";
        trial.spec(&format!(
            "sandbox: {{level: {level}, on_missing: degrade}}\nshared: [repo/deps]\nbuild: {{command: 'echo b > built'}}\n\
             tests: [{{name: look, command: 'cat built; {write}', env: {{USERS: {users:?}}}}}]\n"
        ));
        trial.candidates(&[right("good")]);
        let before = provider.untouchable(&trial);
        let done = trial.run(&["--json"]);
        ends(&done, 0);
        let said = output(&trial, "out", "base");
        assert!(
            said.starts_with("b\nx\nlib"),
            "{provider:?} {level}: {said}"
        );
        match (provider.mounted, level) {
            (None, "none") => assert!(
                trial.written().0["warnings"]
                    .to_string()
                    .contains("user_tree_changed")
            ),
            _ => assert_eq!(
                provider.untouchable(&trial),
                before,
                "{provider:?} {level}: {said}"
            ),
        }
        trial.assert_nothing_left();
    }
}

/// CA-31: one commit, always the same, and nothing of the user's.
pub(super) fn the_history_is_one_commit_without_the_users_own(provider: Provider) {
    let trial = provider.trial();
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
                   --porcelain; git config --list; git stash list; cat .git; } > \"$SEEN\" 2>&1; test ! -e .git/logs/refs/stash";
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
            "gitdir",
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

/// CA-29, CA-31: or none at all, not even that of a directory above.
pub(super) fn without_a_history_git_finds_none(provider: Provider) {
    let trial = provider.trial();
    let place = trial.path("seen");
    trial.spec(&format!(
        "workspace: {{git: none}}\ntests: [{{name: look, command: 'git log > \"$SEEN\" 2>&1; ls -a >> \"$SEEN\"', env: {{SEEN: {place:?}}}}}]\n"
    ));
    trial.candidates(&[right("good")]);
    ends(&trial.run(&[]), 0);
    let text = trial.shell.read("seen");
    assert!(text.contains("not a git repository"), "{text}");
    assert!(!text.lines().any(|line| line == ".git"), "{text}");
}

/// CA-32: what is shared is there, and changes to it are private or refused.
pub(super) fn shared_directories_are_there_and_stay_as_they_are(provider: Provider) {
    let trial = provider.trial();
    trial.write("repo/.gitignore", "deps/\ncache/\n");
    trial.write("repo/deps/lib", "lib");
    trial.write("repo/cache/file", "file");
    trial.spec(
        "shared: [repo/deps, {path: repo/cache, mode: cow}]\n\
         tests: [{name: look, command: 'cat deps/lib cache/file; (echo x > deps/new) 2>/dev/null; echo x >> cache/file; ls cache; echo y > cache/$(cat answer.sh | tr -d \" \\n\")', output: compare}]\n",
    );
    trial.candidates(&[right("one"), right("two")]);
    let before = provider.untouchable(&trial);
    let report = trial.report(0, &[]);
    assert_eq!(report.failure("one"), "", "{}", report.of("one"));
    assert_eq!(report.failure("two"), "");
    assert_eq!(provider.untouchable(&trial), before);
    trial.assert_nothing_left();
}

/// CA-33, CA-49: every command starts from the base, the candidate and the build, whatever ran before it.
pub(super) fn every_command_starts_from_the_same_state(provider: Provider) {
    let trial = provider.trial();
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
pub(super) fn two_candidates_of_one_size_and_time_run_their_own_code(provider: Provider) {
    let trial = provider.trial();
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
