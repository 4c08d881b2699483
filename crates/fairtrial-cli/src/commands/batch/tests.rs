use super::*;
use fairtrial_exec::{
    Body, Call, Captured, EncodedValue, EngineError, Event, InForce, Metrics, Outcome,
    ResultFormat, Shutdown, Work,
};
use serde_json::Value as Json;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Answers by the program's name: `slow` after a while, `never` not at all, `break` with an error, others at once.
#[derive(Default)]
struct Mock {
    started: AtomicU64,
}

impl Backend for Mock {
    async fn execute(&self, call: Call) -> Result<Outcome, EngineError> {
        self.started.fetch_add(1, Ordering::Relaxed);
        let Work::Command(work) = &call.work else {
            panic!("the mock runs commands")
        };
        let words: Vec<_> = work
            .argv
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        match &*words[0] {
            "slow" => tokio::time::sleep(Duration::from_millis(50)).await,
            "never" => std::future::pending().await,
            "break" => return Err(EngineError::LauncherLost),
            _ => {}
        }
        Ok(outcome(&words))
    }
    async fn shutdown(&self, _how: Shutdown) {}
    fn subscribe(&self, _observer: Box<dyn FnMut(&Event) + Send>) -> Result<(), EngineError> {
        Ok(())
    }
}

fn outcome(argv: &[impl AsRef<str>]) -> Outcome {
    let output = argv.get(1);
    let output = output.map_or(0, |length| length.as_ref().parse().unwrap());
    let program = argv[0].as_ref();
    Outcome {
        verdict: if program == "fail" {
            Verdict::Exit
        } else {
            Verdict::Ok
        },
        value: (program == "value").then(|| EncodedValue {
            format: ResultFormat::Pickle,
            body: Body::Inline(b"pickle".to_vec()),
        }),
        error: None,
        exit: None,
        killed_by: None,
        stdout: Captured {
            head: vec![b'x'; output],
            ..Captured::default()
        },
        stderr: Captured::default(),
        metrics: Metrics::default(),
        tried_alone: None,
        upper: None,
        in_force: InForce {
            mode: "command",
            ..InForce::default()
        },
    }
}

/// The lines of one run: where they come from, where their records go.
struct Story {
    batch: Batch<Mock>,
    records: mpsc::Receiver<Vec<Record>>,
    sender: mpsc::Sender<Vec<Record>>,
    dir: tempfile::TempDir,
}

impl Story {
    fn new(memory: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sender, records) = mpsc::channel(4);
        let batch = Batch::new(
            Arc::default(),
            Spool::new(SpillDir::new(dir.path().join("spill")), memory),
            "calls.jsonl".into(),
            2,
            Progress::new(None, true, true),
        );
        Self {
            batch,
            records,
            sender,
            dir,
        }
    }

    fn started(&self) -> u64 {
        self.batch.backend.started.load(Ordering::Relaxed)
    }

    /// Runs `lines` to the end; the records as JSON.
    async fn run(&mut self, lines: Vec<Line>) -> Vec<Json> {
        let (feed, input) = mpsc::channel(1);
        let feeding = async move {
            let mut lines = lines.into_iter().peekable();
            while lines.peek().is_some() {
                let batch: Vec<_> = lines.by_ref().take(32).collect();
                feed.send(Ok(batch)).await.unwrap();
            }
        };
        let (sender, _) = mpsc::channel(1);
        let sender = std::mem::replace(&mut self.sender, sender);
        let driving = async {
            let end = self.batch.drive(input, &sender).await.unwrap();
            drop(sender);
            end
        };
        let mut out = Vec::new();
        let writing = async {
            while let Some(batch) = self.records.recv().await {
                for record in batch {
                    record.write_to(&mut out).unwrap();
                }
            }
        };
        let ((), end, ()) = tokio::join!(feeding, driving, writing);
        assert_eq!(end, End::AllWritten);
        let text = String::from_utf8(out).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn line(number: u64, text: &str) -> Line {
    let mut calls = CallReader::new("/".into(), None);
    let (id, call) = calls.read(text, number);
    Line {
        number,
        id,
        length: text.len() as u64,
        call: call.map_err(|fault| input::BadLine {
            column: fault.place(text).1,
            message: fault.message,
        }),
    }
}

fn argv(number: u64, words: &[&str]) -> Line {
    line(number, &serde_json::json!({"argv": words}).to_string())
}

fn ids(records: &[Json]) -> Vec<u64> {
    records
        .iter()
        .map(|record| record["id"].as_u64().unwrap())
        .collect()
}

/// EX-100, EX-102, EX-103
#[tokio::test(start_paused = true)]
async fn every_line_has_its_record_in_its_place() {
    let mut story = Story::new(1 << 20);
    let lines = vec![
        argv(1, &["slow"]),
        line(2, r#"{"id": "two", "argv": 5}"#),
        argv(3, &["break"]),
        argv(5, &["fail"]),
        argv(6, &["ok"]),
    ];
    let records = story.run(lines).await;
    assert_eq!(records[0]["verdict"], "ok");
    assert_eq!(
        records[1].to_string(),
        r#"{"id":"two","line":2,"verdict":null,"error":{"type":"InvalidCall","message":"`argv`: must be an array of strings, not a number"}}"#
    );
    assert_eq!(records[2]["verdict"], Json::Null);
    assert_eq!(records[2]["error"]["type"], "EngineError");
    assert_eq!(
        (&records[3]["id"], &records[3]["verdict"]),
        (&5.into(), &"exit".into())
    );
    assert_eq!(
        (&records[4]["id"], &records[4]["verdict"]),
        (&6.into(), &"ok".into())
    );
    assert_eq!(story.batch.tally.exit_code(), ExitCode::EngineFailed);
    assert_eq!(story.started(), 4, "a bad line starts nothing");
}

/// EX-103
#[test]
fn the_exit_code_is_the_first_that_applies() {
    let code = |engine_errors, bad_lines, failed| {
        let tally = Tally {
            engine_errors,
            bad_lines,
            failed,
        };
        tally.exit_code().number()
    };
    assert_eq!(
        [code(1, 1, 1), code(0, 1, 1), code(0, 0, 1), code(0, 0, 0)],
        [1, 2, 3, 0]
    );
}

/// EX-101
#[tokio::test(start_paused = true)]
async fn reading_stops_1024_calls_ahead_of_the_oldest_unfinished() {
    let mut story = Story::new(1 << 30);
    let (feed, input) = mpsc::channel(1);
    let sender = story.sender.clone();
    let driving = story.batch.drive(input, &sender);
    let feeding = async {
        let mut sent = 0;
        for number in 0.. {
            let words: &[&str] = if number == 0 { &["never"] } else { &["ok"] };
            let batch = vec![argv(number, words)];
            let sending = tokio::time::timeout(Duration::from_secs(60), feed.send(Ok(batch)));
            if sending.await.is_err() {
                break;
            }
            sent += 1;
        }
        sent
    };
    let sent = tokio::select! {
        _ = driving => panic!("the first call never ends"),
        sent = feeding => sent,
    };
    assert_eq!(story.started(), WINDOW);
    assert!(sent <= WINDOW + READ_AHEAD, "{sent}");
}

/// EX-101
#[tokio::test(start_paused = true)]
async fn no_more_calls_are_in_flight_than_keep_the_workers_busy() {
    let mut story = Story::new(1 << 30);
    let (feed, input) = mpsc::channel(1);
    let lines = (0..500).map(|number| argv(number, &["never"])).collect();
    feed.send(Ok(lines)).await.unwrap();
    let sender = story.sender.clone();
    let driving = story.batch.drive(input, &sender);
    let waited = tokio::time::timeout(Duration::from_secs(60), driving).await;
    assert!(waited.is_err(), "none of the calls ends");
    assert_eq!(story.started(), 2 * IN_FLIGHT_PER_WORKER as u64);
}

/// EX-101
#[tokio::test(start_paused = true)]
async fn records_beyond_the_budget_wait_on_disk_and_come_out_whole() {
    let mut story = Story::new(10_000);
    let mut lines = vec![argv(1, &["slow"])];
    lines.extend((2..200).map(|number| argv(number, &["ok", "500"])));
    lines.push(argv(200, &["ok", "3000000"]));
    let records = story.run(lines).await;
    assert_eq!(ids(&records), (1..=200).collect::<Vec<_>>());
    assert!(
        records[1..199]
            .iter()
            .all(|r| r["stdout"].as_str().unwrap().len() == 500)
    );
    assert_eq!(records[199]["stdout"].as_str().unwrap().len(), 3_000_000);
}

/// EX-103
#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_kept_costs_only_itself() {
    let mut story = Story::new(0);
    std::fs::write(story.dir.path().join("spill"), "in the way").unwrap();
    let records = story.run(vec![argv(1, &["ok"]), argv(2, &["ok"])]).await;
    assert_eq!(ids(&records), [1, 2]);
    let message = records[0]["error"]["message"].as_str().unwrap();
    assert!(message.contains("is not a directory"), "{message}");
    assert_eq!(story.batch.tally.exit_code(), ExitCode::EngineFailed);
}

/// EX-104
#[tokio::test(start_paused = true)]
async fn a_reader_that_went_away_ends_the_run() {
    let Story {
        mut batch,
        records,
        sender,
        ..
    } = Story::new(1 << 20);
    drop(records);
    let (feed, input) = mpsc::channel(2);
    feed.send(Ok(vec![argv(1, &["ok"])])).await.unwrap();
    assert_eq!(batch.drive(input, &sender).await.unwrap(), End::OutputGone);
}
