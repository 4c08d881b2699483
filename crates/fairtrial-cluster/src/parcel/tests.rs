//! Parcels there and back, without a process.

use std::fs;

use fairtrial_exec::{
    Arguments, Body, Call, Captured, EncodedValue, InForce, Metrics, Outcome, PythonTerms,
    ResultFormat, SourceWork, SpillDir, Verdict,
};

use super::*;
use crate::pack::TreeCache;

const ATTEMPT: Attempt = Attempt {
    task: 7,
    attempt: 2,
};

fn packer(folder: &tempfile::TempDir) -> Packer {
    packer_with(folder, None)
}

fn packer_with(folder: &tempfile::TempDir, store: Option<BlobStore>) -> Packer {
    let spill = SpillPolicy {
        dir: SpillDir::new(folder.path()),
        memfd_cap_bytes: u64::MAX,
        memory_limit_bytes: None,
    };
    Packer::new(Some("3.12".to_owned()), store, spill)
}

fn call(arguments: Vec<u8>) -> Call {
    Call::new(Work::Source(SourceWork {
        source: "def f(x): return x".to_owned(),
        filename: "<source>".to_owned(),
        function: "f".to_owned(),
        arguments: arguments.into(),
        python: PythonTerms::default(),
    }))
}

fn arguments(call: &Call) -> &[u8] {
    match &call.work {
        Work::Source(SourceWork {
            arguments: Arguments::Bytes(bytes),
            ..
        }) => bytes,
        other => panic!("{other:?}"),
    }
}

fn bytes_of(beside: &[OutgoingBody]) -> Vec<Vec<u8>> {
    let whole = |body: &OutgoingBody| body.bytes().unwrap().into_owned();
    beside.iter().map(whole).collect()
}

fn outcome(value: Vec<u8>) -> Outcome {
    Outcome {
        verdict: Verdict::Ok,
        value: Some(EncodedValue {
            format: ResultFormat::Data,
            body: Body::Inline(value),
        }),
        error: None,
        exit: None,
        killed_by: None,
        stdout: Captured::default(),
        stderr: Captured::default(),
        metrics: Metrics::default(),
        in_force: InForce::default(),
        tried_alone: None,
        upper: None,
    }
}

/// CL-67
#[test]
fn small_and_large_arguments_arrive_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    for size in [10, 5_000_000] {
        let sent = vec![b'x'; size];
        let parcel = packer(&folder).pack(call(sent.clone()), "key").unwrap();
        assert!(parcel.envelope.len() < 16 << 10);
        let host = Host::new(TreeCache::at(folder.path(), 1 << 20), None);
        let arrived = host.open(&parcel.envelope, bytes_of(&parcel.beside));
        let (call, _) = arrived.unwrap().call().unwrap();
        assert!(arguments(&call) == sent);
    }
}

/// CL-52, CL-67: what did not come as it was sent is not run.
#[test]
fn altered_arguments_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let parcel = packer(&folder).pack(call(vec![b'x'; 50_000]), "key");
    let parcel = parcel.unwrap();
    let mut beside = bytes_of(&parcel.beside);
    beside[0][1] = b'y';
    let host = Host::new(TreeCache::at(folder.path(), 1 << 20), None);
    let arrived = host.open(&parcel.envelope, beside).unwrap();
    assert!(arrived.call().is_err());
}

/// CL-42, CL-50: with a store directories go there, under the name that the envelope gives them, and again only if they
/// are not there any more.
#[tokio::test]
async fn a_store_has_each_directory_under_its_name_for_every_call() {
    let folder = tempfile::tempdir().unwrap();
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("helper.py"), "x = 1").unwrap();
    let store = BlobStore::on_this_host(folder.path());
    let packer = packer_with(&folder, Some(store.clone()));
    for _ in 0..2 {
        let mut call = call(Vec::new());
        call.python_mut().unwrap().python_path = vec![from.path().to_owned()];
        let blob = packer.directories.packed(from.path()).unwrap().blob;
        let packed = std::thread::scope(|scope| scope.spawn(|| packer.pack(call, "key")).join());
        let parcel = packed.unwrap().unwrap();
        assert!(parcel.directories.is_empty() && parcel.beside.is_empty());
        let envelope = String::from_utf8(parcel.envelope).unwrap();
        assert!(envelope.contains(&blob.digest.to_string()), "{envelope}");
        let archive = store.get(blob, u64::MAX).await.unwrap();
        assert_eq!(Blob::of(&archive), blob);
        store.delete(blob.digest).await.unwrap();
    }
}

/// CL-42: directories travel by digest, and are unpacked where they lack.
#[test]
fn a_directory_is_unpacked_where_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let from = tempfile::tempdir().unwrap();
    fs::write(from.path().join("helper.py"), "x = 1").unwrap();
    let mut call = call(Vec::new());
    call.python_mut().unwrap().python_path = vec![from.path().to_owned()];
    let packer = packer(&folder);
    let parcel = packer.pack(call, "key").unwrap();
    let host = Host::new(TreeCache::at(folder.path(), 1 << 20), None);
    let mut arrived = host.open(&parcel.envelope, Vec::new()).unwrap();
    assert_eq!(host.lacks(&mut arrived).unwrap(), parcel.directories);
    let digest = parcel.directories[0];
    assert!(host.unpack(&mut arrived, digest, b"another").is_err());
    let archive = packer.directory(digest).unwrap().archive;
    host.unpack(&mut arrived, digest, &archive).unwrap();
    let (call, hold) = arrived.call().unwrap();
    let path = &call.python().unwrap().python_path[0];
    assert_eq!(fs::read_to_string(path.join("helper.py")).unwrap(), "x = 1");
    drop(hold);
    let mut again = host.open(&parcel.envelope, Vec::new()).unwrap();
    assert!(host.lacks(&mut again).unwrap().is_empty());
}

/// CL-66: an answer of an older attempt is none.
#[test]
fn a_reply_is_opened_for_its_own_attempt_only() {
    let folder = tempfile::tempdir().unwrap();
    let packer = packer(&folder);
    for size in [10, 3_000_000] {
        let reply = Reply::seal(Ok(outcome(vec![b'v'; size])), ATTEMPT, "node", None);
        assert_eq!(reply.kind, "outcome");
        let older = Attempt {
            attempt: 1,
            ..ATTEMPT
        };
        let open = |attempt| packer.open(&reply.envelope, bytes_of(&reply.beside), attempt);
        assert!(open(older).is_none());
        let value = open(ATTEMPT).unwrap().unwrap().value.unwrap();
        assert!(value.body.bytes() == vec![b'v'; size]);
    }
}

/// CL-52: a value that was altered is an error, never a wrong value.
#[test]
fn an_altered_value_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let reply = Reply::seal(Ok(outcome(vec![b'v'; 100_000])), ATTEMPT, "node", None);
    let mut beside = bytes_of(&reply.beside);
    beside[0].truncate(99_999);
    let answer = packer(&folder).open(&reply.envelope, beside, ATTEMPT);
    let error = answer.unwrap().unwrap_err();
    assert!(error.to_string().contains("blob_corrupt"), "{error}");
}

/// CL-26: the engine's own failure is worth another try, an invalid call is not.
#[test]
fn engine_errors_are_told_apart_by_what_follows_from_them() {
    let lost = Reply::seal(Err(EngineError::LauncherLost), ATTEMPT, "node", None);
    assert_eq!(lost.kind, "failed");
    let invalid = InvalidCall::new("cwd", "no");
    let invalid = Reply::seal(Err(invalid.into()), ATTEMPT, "node", None);
    assert_eq!(invalid.kind, "error");
}
