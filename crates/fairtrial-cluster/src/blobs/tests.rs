//! One suite over every kind of store; then what only some have.

mod ages;
mod bench;
mod failing;
pub(crate) mod server;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;

use super::checked::Source;
use super::*;
use bench::{Bench, KINDS, fault};

/// Nothing, little, more than a piece, and more than a part of an upload.
fn contents() -> Vec<Vec<u8>> {
    let noise = |bytes: usize| (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect();
    vec![
        Vec::new(),
        b"x".to_vec(),
        noise(200_000),
        noise((8 << 20) + 12_345),
    ]
}

/// CL-50, CL-51
#[tokio::test]
async fn what_is_stored_comes_back() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        for bytes in contents() {
            let blob = bench.store.put(bytes.clone()).await.unwrap();
            assert_eq!(blob, Blob::of(&bytes), "{kind:?}");
            assert_eq!(fs::read(bench.place(blob.digest)).unwrap(), bytes);
            assert!(bench.store.exists(blob.digest).await.unwrap());
            bench.store.verify(blob).await.unwrap();
            assert_eq!(bench.store.get(blob, u64::MAX).await.unwrap(), bytes);
            let mut file = bench.store.get_file(blob, bench.scratch()).await.unwrap();
            let mut read = Vec::new();
            file.read_to_end(&mut read).unwrap();
            assert_eq!(read, bytes, "{kind:?}");
            bench.store.delete(blob.digest).await.unwrap();
            assert!(!bench.store.exists(blob.digest).await.unwrap());
        }
        assert_eq!(fs::read_dir(bench.scratch()).unwrap().count(), 0);
    }
}

/// CL-50, CL-54
#[tokio::test]
async fn a_file_is_stored_whole_wherever_its_descriptor_stands() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        let bytes = contents().pop().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let blob = bench
            .store
            .put_file(file.try_clone().unwrap())
            .await
            .unwrap();
        assert_eq!(fs::read(bench.place(blob.digest)).unwrap(), bytes);
        assert_eq!(file.stream_position().unwrap(), bytes.len() as u64);
        assert_eq!(bench.store.keep_file(file).await.unwrap(), blob);
    }
}

/// CL-50
#[tokio::test]
async fn storing_a_blob_again_sends_nothing() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        let blob = bench.store.put(&b"twice"[..]).await.unwrap();
        let written = bench.inode(blob.digest);
        assert_eq!(bench.store.put(&b"twice"[..]).await.unwrap(), blob);
        assert_eq!(bench.store.keep(&b"twice"[..]).await.unwrap(), blob);
        assert_eq!(bench.inode(blob.digest), written, "{kind:?}");
    }
}

/// CL-25
#[tokio::test]
async fn what_is_not_there_is_missing() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        let blob = Blob::of(b"never stored");
        let missing = Fault::Missing(blob.digest);
        let store = &bench.store;
        assert_eq!(fault(store.get(blob, 100).await), missing, "{kind:?}");
        assert_eq!(fault(store.get_file(blob, bench.scratch()).await), missing);
        assert_eq!(fault(store.verify(blob).await), missing);
        assert!(!store.exists(blob.digest).await.unwrap());
        store.delete(blob.digest).await.unwrap();
    }
}

/// CL-52, X9
#[tokio::test]
async fn a_blob_that_was_damaged_is_corrupt_and_never_a_value() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        for bytes in contents().into_iter().skip(1).take(2) {
            let blob = bench.store.put(bytes.clone()).await.unwrap();
            let mut altered = bytes.clone();
            altered[bytes.len() / 2] ^= 1;
            let longer = [&*bytes, b"x"].concat();
            for damaged in [&altered, &bytes[1..].to_vec(), &Vec::new(), &longer] {
                fs::write(bench.place(blob.digest), damaged).unwrap();
                let store = &bench.store;
                for fault in [
                    fault(store.get(blob, u64::MAX).await),
                    fault(store.get_file(blob, bench.scratch()).await),
                    fault(store.verify(blob).await),
                ] {
                    let is_corrupt =
                        matches!(fault, Fault::Corrupt { digest, .. } if digest == blob.digest);
                    assert!(is_corrupt, "{kind:?}: {fault}");
                }
                // CL-17: whoever commits a result stores it until it is read back whole.
                assert_eq!(store.keep(bytes.clone()).await.unwrap(), blob);
                assert_eq!(
                    fs::read(bench.place(blob.digest)).unwrap(),
                    bytes,
                    "{kind:?}"
                );
            }
        }
    }
}

/// CL-50
#[tokio::test]
async fn what_changes_while_it_is_stored_is_never_seen() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        for bytes in contents().into_iter().skip(1) {
            let mut promised = bytes.clone();
            *promised.last_mut().unwrap() ^= 1;
            let promised = Blob::of(&promised);
            let short = Source::Bytes(bytes[1..].into());
            let changed = Source::Bytes(bytes.into());
            for source in [changed, short] {
                let put = bench
                    .store
                    .run(move |kind| kind.put(promised, &source))
                    .await;
                assert!(matches!(fault(put), Fault::Source(_)), "{kind:?}");
                assert!(!bench.place(promised.digest).exists());
            }
        }
        bench.assert_nothing_half_written();
    }
}

/// CL-51
#[tokio::test]
async fn more_than_is_allowed_is_not_read() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        let blob = bench.store.put(&b"12345"[..]).await.unwrap();
        assert_eq!(bench.store.get(blob, 5).await.unwrap(), b"12345");
        let fault = fault(bench.store.get(blob, 4).await);
        assert!(matches!(fault, Fault::TooLarge { .. }), "{fault}");
    }
    let bench = Bench::with_options(bench::Keeps::Http, "&max=1K");
    bench.store.put(vec![0; 1024]).await.unwrap();
    let fault = fault(bench.store.put(vec![0; 1025]).await);
    assert!(matches!(fault, Fault::TooLarge { .. }), "{fault}");
}

/// CL-6
#[tokio::test]
async fn a_check_writes_reads_deletes_and_leaves_nothing() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        bench.store.check().await.unwrap();
        assert_eq!(bench.blobs(), 0, "{kind:?}");
    }
}

/// CL-48
#[test]
fn a_store_shown_shows_no_secret() {
    for kind in KINDS {
        let shown = format!("{:?}", Bench::new(kind).store);
        let secrets = [server::TOKEN, server::SECRET_KEY, server::KEY_ID];
        assert!(
            !secrets.iter().any(|secret| shown.contains(secret)),
            "{shown}"
        );
    }
}

/// CL-50: eight store the same blob at once, and more wait.
#[tokio::test]
async fn many_at_once_store_one_blob() {
    for kind in KINDS {
        let bench = Bench::new(kind);
        let bytes = contents().swap_remove(2);
        let puts: Vec<_> = (0..24)
            .map(|_| {
                let (store, bytes) = (bench.store.clone(), bytes.clone());
                tokio::spawn(async move { store.keep(bytes).await })
            })
            .collect();
        for put in puts {
            assert_eq!(put.await.unwrap().unwrap(), Blob::of(&bytes));
        }
        assert_eq!(bench.blobs(), 1);
        bench.assert_nothing_half_written();
    }
}

/// CL-51
#[tokio::test]
async fn a_user_s_processes_on_one_host_share_a_directory_that_others_cannot_enter() {
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().join("fairtrial");
    let (coordinator, agent) = (
        BlobStore::on_this_host(&cache),
        BlobStore::on_this_host(&cache),
    );
    assert!(!cache.exists(), "naming it touches nothing");
    let blob = coordinator.put(&b"shared"[..]).await.unwrap();
    assert_eq!(agent.get(blob, 100).await.unwrap(), b"shared");
    let mode = fs::metadata(cache.join("blobs"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o7777, 0o700);
    fs::set_permissions(cache.join("blobs"), fs::Permissions::from_mode(0o777)).unwrap();
    let fault = fault(agent.put(&b"more"[..]).await);
    assert!(
        matches!(&fault, Fault::Denied(why) if why.contains("chmod 700")),
        "{fault}"
    );
}

/// CL-51: a file system that is not mounted is no empty store.
#[tokio::test]
async fn a_directory_that_is_missing_is_not_made() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().join("not-mounted");
    let store = BlobStore::open(&format!("file://{}", root.display()), &BTreeMap::new()).unwrap();
    for fault in [
        fault(store.put(&b"x"[..]).await),
        fault(store.verify(Blob::of(b"x")).await),
        fault(store.check().await),
    ] {
        assert!(matches!(fault, Fault::Unreachable(_)), "{fault}");
    }
    assert!(!root.exists());
}

/// CL-43: what a candidate may have put there is neither followed nor waited for.
#[tokio::test]
async fn neither_a_link_nor_a_pipe_is_a_blob() {
    let bench = Bench::new(bench::Keeps::Dir);
    let secret = bench.scratch().join("secret");
    fs::write(&secret, b"secret").unwrap();
    let blob = Blob::of(b"secret");
    let place = bench.place(blob.digest);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&secret, &place).unwrap();
    assert!(bench.store.get(blob, 100).await.is_err());
    fs::remove_file(&place).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &place,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let fault = fault(bench.store.get(blob, 100).await);
    assert!(matches!(fault, Fault::Corrupt { .. }), "{fault}");
}

/// CL-25
#[tokio::test(start_paused = true)]
async fn an_input_is_asked_for_three_times_within_ten_seconds() {
    let error = |fault| {
        Err::<(), _>(BlobError {
            store: String::new(),
            fault,
        })
    };
    let began = tokio::time::Instant::now();
    let missing = Fault::Missing(Digest::of(b""));
    let mut asked = 0;
    let end = patiently(|| {
        asked += 1;
        std::future::ready(error(missing.clone()))
    });
    assert_eq!(fault(end.await), missing);
    assert_eq!((asked, began.elapsed().as_secs()), (3, 10));
    let mut answers = [Ok(()), error(Fault::Unreachable("away".to_owned()))].into_iter();
    patiently(|| std::future::ready(answers.next_back().unwrap()))
        .await
        .unwrap();
    let corrupt = Fault::corrupt(Digest::of(b""), "altered");
    let mut asked = 0;
    let end = patiently(|| {
        asked += 1;
        std::future::ready(error(corrupt.clone()))
    });
    assert_eq!(fault(end.await), corrupt);
    assert_eq!(asked, 1);
}

/// CL-54: whoever stops waiting does not stop the thread, and the store goes on.
#[tokio::test]
async fn an_operation_that_nobody_waits_for_harms_nobody() {
    let bench = Bench::new(bench::Keeps::Dir);
    for _ in 0..3 * AT_ONCE {
        let put = bench.store.put(&b"given up"[..]);
        tokio::select! {
            biased;
            _ = put => (),
            () = std::future::ready(()) => (),
        }
    }
    let file = File::open(bench.scratch()).unwrap();
    assert!(matches!(
        fault(bench.store.put_file(file).await),
        Fault::Source(_)
    ));
    bench.store.check().await.unwrap();
}

/// CL-13, CL-17: of a file, so much as the envelope says.
#[tokio::test]
async fn what_goes_with_an_envelope_is_stored_under_the_name_it_has_there() {
    use crate::envelope::{Outgoing, OutgoingBody};
    let bytes = contents().swap_remove(2);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    file.write_all(b"and more").unwrap();
    let value = fairtrial_exec::Body::Inline(bytes.clone());
    let named = Outgoing::of(bytes.clone()).blob;
    let bodies = [
        OutgoingBody::Bytes(bytes.clone()),
        OutgoingBody::File(Arc::new(file)),
        OutgoingBody::Value(Arc::new(value)),
    ];
    for body in bodies {
        for kind in KINDS {
            let bench = Bench::new(kind);
            let outgoing = Outgoing {
                blob: named,
                body: body.clone(),
            };
            let put = bench.store.put_outgoing(outgoing.clone()).await.unwrap();
            let kept = bench.store.keep_outgoing(outgoing).await.unwrap();
            assert_eq!((put, kept), (Blob::of(&bytes), named));
            assert_eq!(
                bench.store.get(put, u64::MAX).await.unwrap(),
                bytes,
                "{kind:?}"
            );
        }
    }
}
