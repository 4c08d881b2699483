use std::path::Path;

use super::*;

fn open(directory: &Path) -> Result<Journal, JournalError> {
    let meta = Meta {
        study_id: "s",
        journal_id: "j",
        compat: "native",
        created_at_ns: 1,
    };
    Journal::open(directory, &meta, "process 7 on here, since now")
}

fn start(id: StartId, run_id: &str) -> Record {
    Record::Start(Start {
        id,
        run_id: run_id.into(),
        seq: 1,
        attempt: 1,
        invocation: 1,
        plan_index: 0,
        order_index: 3,
        seed: u64::MAX,
        identity: "i".into(),
        started_at_ns: 5,
    })
}

fn finish(id: StartId, run_id: &str, status: Status) -> Record {
    Record::Finish(Box::new(Finish {
        id,
        run_id: run_id.into(),
        seq: 1,
        status,
        verdict: Some("ok".into()),
        stage: Stage::Agent,
        finished_at_ns: 9,
        outcome: "{}".into(),
        result: Some("{\"output\":{}}".into()),
        stdout: "out".into(),
        stderr: String::new(),
        warnings: "[]".into(),
    }))
}

/// ST-57, ST-58, ST-60
#[test]
fn what_was_appended_is_read_by_others_at_once_and_after_a_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path()).unwrap();
    let (a, b) = ("run-0000000000aa", "run-0000000000bb");
    let (first, second) = (journal.next_start(), journal.next_start());
    journal
        .record(vec![start(first, a), start(second, b)])
        .unwrap();
    journal
        .record(vec![finish(first, a, Status::Success)])
        .unwrap();
    let reader = Reader::open(directory.path()).unwrap();
    assert_eq!(reader.history().unwrap().lost, 1);
    journal
        .record(vec![finish(second, b, Status::Timeout)])
        .unwrap();
    journal.sync().unwrap();
    assert_eq!(
        reader.writer().unwrap().to_string(),
        "process 7 on here, since now"
    );
    drop(journal);
    assert!(reader.writer().is_none());
    let reader = Reader::open(directory.path()).unwrap();
    let history = reader.history().unwrap();
    assert_eq!((history.starts, history.lost), (2, 0));
    assert_eq!(
        history.of(b).unwrap().shown(),
        Some((second, Status::Timeout))
    );
    let row = reader.start(first).unwrap().unwrap();
    assert_eq!((row.seed, row.order_index), (u64::MAX, 3));
    assert_eq!(
        reader.finish(first).unwrap().unwrap().result.as_deref(),
        Some("{\"output\":{}}")
    );
    assert_eq!(reader.meta("study_id").unwrap().as_deref(), Some("s"));
    assert_eq!(open(directory.path()).unwrap().next_start(), StartId(3));
}

/// ST-63
#[test]
fn a_second_writer_is_told_who_writes_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path()).unwrap();
    let before = std::fs::read(directory.path().join(LOCK_NAME)).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(
        matches!(&error, JournalError::Locked { holder, .. } if holder.to_string().starts_with("process 7")),
        "{error}"
    );
    assert_eq!(
        std::fs::read(directory.path().join(LOCK_NAME)).unwrap(),
        before
    );
    drop(first);
    open(directory.path()).unwrap();
}

/// ST-59
#[test]
fn a_newer_format_and_what_is_no_journal_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    let path = directory.path().join(FILE_NAME);
    let database = rusqlite::Connection::open(&path).unwrap();
    database
        .execute("UPDATE meta SET value = '2' WHERE key = 'format'", [])
        .unwrap();
    drop(database);
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(
        open(directory.path()),
        Err(JournalError::Newer { found: 2, .. })
    ));
    assert!(matches!(
        Reader::open(directory.path()),
        Err(JournalError::Newer { found: 2, .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), before);

    std::fs::write(&path, "not a database, but long enough to be looked at").unwrap();
    assert!(matches!(
        Reader::open(directory.path()),
        Err(JournalError::Damaged { .. })
    ));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(
        Reader::open(directory.path()),
        Err(JournalError::Missing(_))
    ));
}

/// ST-62
#[test]
fn after_a_failure_nothing_is_written_and_everybody_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(directory.path()).unwrap();
    let run = "run-0000000000aa";
    let first = journal.next_start();
    journal.record(vec![start(first, run)]).unwrap();
    let twice = journal.record(vec![start(first, run)]).unwrap_err();
    assert!(twice.to_string().contains(FILE_NAME), "{twice}");
    let next = journal.next_start();
    let later = journal.record(vec![start(next, run)]).unwrap_err();
    assert!(std::sync::Arc::ptr_eq(&twice, &later));
    assert!(journal.sync().is_err());
    drop(journal);
    let reader = Reader::open(directory.path()).unwrap();
    assert_eq!(reader.history().unwrap().starts, 1);
}
