//! What commands find, and what they cannot leave behind.

use super::trial::{Trial, ends, right};

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
