//! Real programs, each in its own way no help.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{LocalBackend, LocalConfig};
use tempfile::TempDir;

use super::super::answer::{Answer, Failure, FailureKind};
use super::super::ask::{Ask, Kind, RequestId};
use super::super::proposer::News;
use super::super::settings::CommandSettings;
use super::super::wire::{BaseFacts, Parent, Request};
use super::{CommandProposer, CommandTerms};
use crate::stage::Content;

/// Nothing here takes so long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answers every request with one candidate, the second line first.
const GOOD: &str = r#"
import json, sys
held = None
for line in sys.stdin:
    request = json.loads(line)
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+%s\n" % request["id"]
    answer = json.dumps({"id": request["id"], "candidates": [{"patch": patch}], "tokens": 7})
    if request["n"] == 2 and held is None:
        held = answer
        continue
    print(answer, flush=True)
    if held:
        print(held, flush=True)
        held = None
"#;

struct Bench {
    dir: TempDir,
    proposer: CommandProposer,
    news: tokio::sync::mpsc::UnboundedReceiver<News>,
}

impl Bench {
    fn new(argv: &[&str], timeout: Duration, restarts: u32) -> Self {
        let dir = TempDir::new().expect("a directory");
        let mut env: BTreeMap<_, _> = std::env::vars_os().collect();
        env.insert("MY_API_KEY".into(), "sk-very-secret".into());
        let mut config = LocalConfig::from_vars(env.clone()).expect("a configuration");
        config.max_workers = 1;
        let settings = CommandSettings {
            timeout,
            restarts,
            ..CommandSettings::new(argv.iter().map(|word| (*word).to_owned()).collect())
        };
        let terms = CommandTerms {
            cwd: dir.path().to_owned(),
            env,
            log: dir.path().join("proposer.log"),
        };
        let mut proposer =
            CommandProposer::new(Arc::new(LocalBackend::new(config)), settings, terms);
        let news = proposer.take_news().expect("taken once");
        Self {
            dir,
            proposer,
            news,
        }
    }

    /// A program that hangs is given up soon, one that works is not.
    fn python(source: &str) -> Self {
        Self::new(&["python3", "-c", source], PATIENCE, 3)
    }

    fn shell(script: &str, timeout: Duration, restarts: u32) -> Self {
        Self::new(&["sh", "-c", script], timeout, restarts)
    }

    async fn ask(&self, number: usize) -> Result<Answer, Failure> {
        ended(self.proposer.ask(&request(number, 1))).await
    }

    async fn close(mut self) -> (TempDir, Vec<News>) {
        ended(self.proposer.close()).await;
        let news = std::iter::from_fn(|| self.news.try_recv().ok()).collect();
        (self.dir, news)
    }
}

async fn ended<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it ends")
}

fn request(number: usize, n: usize) -> Request {
    let ask = Ask {
        id: RequestId::numbered(number),
        kind: Kind::Refine,
        n,
        parents: vec!["c-1".to_owned(); n],
        ancestry: Vec::new(),
    };
    Request::new(&ask, BaseFacts::default(), |id| Parent {
        id: id.to_owned(),
        ..Parent::default()
    })
}

fn kind(answer: Result<Answer, Failure>) -> FailureKind {
    answer.expect_err("no answer").kind
}

const SOON: Duration = Duration::from_millis(300);

/// CA-84
#[tokio::test]
async fn one_process_answers_all_questions_in_any_order() {
    let bench = Bench::python(GOOD);
    let (first, second) = (request(1, 2), request(2, 2));
    let (first, second) = (bench.proposer.ask(&first), bench.proposer.ask(&second));
    let (second, first) = ended(async { (second.await, first.await) }).await;
    for (number, answer) in [(1, first), (2, second)] {
        let answer = answer.expect("an answer");
        assert_eq!((answer.candidates.len(), answer.tokens), (1, Some(7)));
        let Content::Patch(patch) = &answer.candidates[0].content else {
            panic!("{answer:?}")
        };
        assert!(
            patch.ends_with(
                format!(
                    "+r-{number}
"
                )
                .as_bytes()
            ),
            "each has its own"
        );
    }
    bench.ask(3).await.expect("an answer");
    assert_eq!(bench.close().await.1, [], "nothing else happened");
}

/// CA-9, CA-84
#[tokio::test]
async fn it_has_the_users_environment_and_directory_and_its_errors_are_logged_without_secrets() {
    let source = format!(
        "import os, sys\nprint(os.getcwd(), os.environ['MY_API_KEY'], file=sys.stderr)\nprint('hello')\n{GOOD}"
    );
    let bench = Bench::python(&source);
    bench.ask(1).await.expect("an answer");
    let (dir, news) = bench.close().await;
    let log = std::fs::read_to_string(dir.path().join("proposer.log")).expect("a log");
    let cwd = dir.path().canonicalize().expect("a path");
    assert_eq!(log, format!("{} [secret]\n", cwd.display()));
    assert!(
        matches!(&news[..], [News::Stray(stray)] if stray.excerpt == "hello"),
        "{news:?}"
    );
}

/// CA-87
#[tokio::test]
async fn who_exits_without_answering_is_started_again_until_it_is_dead() {
    let bench = Bench::shell("read line; exit 3", PATIENCE, 1);
    let dead = bench.ask(1).await.expect_err("no answer");
    assert_eq!(dead.kind, FailureKind::ProposerDead);
    assert_eq!(kind(bench.ask(2).await), FailureKind::ProposerDead);
    assert_eq!(
        dead.message,
        "the proposer exited with code 3, and was not started again"
    );
    let restarts = [News::Restarted("exited with code 3".to_owned())];
    assert_eq!(bench.close().await.1, restarts);
}

/// CA-87: what was said before the end counts.
#[tokio::test]
async fn an_answer_before_the_end_is_heard() {
    let script = r#"read line; printf '{"id": "r-%s", "candidates": []}' "$(cat count 2>/dev/null || echo 1)"; echo 2 > count"#;
    let bench = Bench::shell(script, PATIENCE, 1);
    bench
        .ask(1)
        .await
        .expect("an answer without an end of line");
    bench.ask(2).await.expect("an answer of its successor");
    bench.close().await;
}

/// CA-87: time is moved on when the program says that it is there, so that no machine is too slow for this.
#[tokio::test]
async fn who_hangs_is_killed_and_leaves_nothing() {
    let hour = Duration::from_secs(3600);
    let script = "sleep 1000 & echo $$ $! >> pids; echo here; exec sleep 1000";
    let mut bench = Bench::shell(script, hour, 1);
    let asking = tokio::spawn(bench.proposer.ask(&request(1, 1)));
    for restarted in [false, true] {
        if restarted {
            let why = News::Restarted("did not answer within 3600 s".to_owned());
            assert_eq!(ended(bench.news.recv()).await, Some(why));
        }
        assert!(matches!(
            ended(bench.news.recv()).await,
            Some(News::Stray(_))
        ));
        tokio::time::pause();
        tokio::time::advance(hour).await;
        tokio::time::resume();
    }
    assert_eq!(
        kind(ended(asking).await.expect("no panic")),
        FailureKind::ProposerDead
    );
    let (dir, _) = bench.close().await;
    let pids = std::fs::read_to_string(dir.path().join("pids")).expect("two starts");
    assert_eq!(pids.split_whitespace().count(), 4);
    for pid in pids.split_whitespace() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(!stat.contains("sleep"), "{pid} is still there");
    }
}

/// CA-87: a request that is larger than a pipe, to a program that reads nothing.
#[tokio::test]
async fn who_does_not_read_keeps_nobody_waiting() {
    let bench = Bench::shell("exec sleep 1000", SOON, 0);
    let mut large = request(1, 1);
    large.parents[0].patch = Some("x".repeat(4 << 20));
    let answer = ended(bench.proposer.ask(&large)).await;
    assert_eq!(kind(answer), FailureKind::ProposerDead);
    bench.close().await;
}

/// CA-86, CA-87
#[tokio::test]
async fn who_floods_is_killed() {
    for script in ["exec yes", "exec cat /dev/zero", "exec yes ''"] {
        let bench = Bench::shell(script, PATIENCE, 0);
        let failure = bench.ask(1).await.expect_err("no answer");
        assert_eq!(
            failure.kind,
            FailureKind::ProposerDead,
            "{script}: {failure}"
        );
        assert!(failure.message.contains("wrote"), "{script}: {failure}");
        let (_, news) = bench.close().await;
        assert!(news.len() <= 201, "{script}");
    }
}

/// CA-87: a flood of errors fills no disk.
#[tokio::test]
async fn a_flood_of_errors_is_cut_in_the_log() {
    let bench = Bench::shell("exec yes error >&2", Duration::from_secs(2), 0);
    assert_eq!(kind(bench.ask(1).await), FailureKind::ProposerDead);
    let (dir, _) = bench.close().await;
    let log = dir.path().join("proposer.log").metadata().expect("a log");
    assert!(log.len() <= (16 << 20) + 100, "{}", log.len());
}

/// CA-87
#[tokio::test]
async fn who_never_starts_is_dead() {
    let bench = Bench::new(&["/nonexistent/proposer"], PATIENCE, 2);
    let failure = bench.ask(1).await.expect_err("no answer");
    assert_eq!(failure.kind, FailureKind::ProposerDead);
    assert!(failure.message.contains("cannot be started"), "{failure}");
    assert_eq!(kind(bench.ask(2).await), FailureKind::ProposerDead);
    bench.close().await;
}

/// CA-41: a question that is given up does not hold the others, and its late answer is no stray.
#[tokio::test]
async fn a_question_can_be_given_up() {
    let bench = Bench::python(GOOD);
    drop(bench.proposer.ask(&request(1, 1)));
    bench.ask(2).await.expect("an answer");
    assert_eq!(bench.close().await.1, []);
}

/// CA-41
#[tokio::test]
async fn a_proposer_that_is_closed_answers_no_more() {
    let bench = Bench::shell("exec sleep 1000", PATIENCE, 0);
    let asking = bench.proposer.ask(&request(1, 1));
    bench.close().await;
    assert_eq!(kind(ended(asking).await), FailureKind::ProposerDead);
}
