//! Servers that refuse, break off, hang or lie: each is the right error, and never a wrong value.

use super::super::{Blob, Fault};
use super::bench::{Bench, Keeps, fault};
use super::server::{Act, TOKEN};

const SERVED: [Keeps; 2] = [Keeps::Http, Keeps::S3];

/// What a fault is, without its text.
fn name(fault: &Fault) -> &'static str {
    match fault {
        Fault::Missing(_) => "missing",
        Fault::Corrupt { .. } => "corrupt",
        Fault::TooLarge { .. } => "too large",
        Fault::Full(_) => "full",
        Fault::Denied(_) => "denied",
        Fault::Unreachable(_) => "unreachable",
        Fault::Unusable(_) => "unusable",
        Fault::Source(_) => "source",
    }
}

const QUOTA: &str = "<?xml version=\"1.0\"?><Error><Code>QuotaExceeded</Code></Error>";

/// CL-27, CL-50, X10: small blobs, and such as are sent in parts or after asking.
#[tokio::test]
async fn a_blob_that_cannot_be_stored_says_why() {
    let acts = [
        (Act::Status(403, ""), "denied"),
        (Act::Status(401, ""), "denied"),
        (Act::Status(405, ""), "denied"),
        (Act::Status(507, ""), "full"),
        (Act::Crowded(1), "full"),
        (Act::Status(403, QUOTA), "full"),
        (Act::Status(413, ""), "too large"),
        (Act::Status(500, ""), "unreachable"),
        (Act::Status(503, ""), "unreachable"),
        (Act::Status(429, ""), "unreachable"),
        (Act::Status(302, ""), "unusable"),
        (Act::Status(400, ""), "unusable"),
        (Act::Leave, "unreachable"),
    ];
    for keeps in SERVED {
        let bench = Bench::new(keeps);
        for (act, expected) in acts {
            bench.fail("PUT", act);
            let small = vec![7; 1000];
            let mut faults = vec![
                fault(bench.store.put(small.clone()).await),
                fault(bench.store.keep(small).await),
            ];
            if let Act::Status(403 | 507 | 503, "") | Act::Leave = act {
                faults.push(fault(bench.store.put(vec![8; 9 << 20]).await));
            }
            for fault in faults {
                assert_eq!(name(&fault), expected, "{keeps:?} {act:?}: {fault}");
            }
        }
        for bytes in [vec![7; 1000], vec![8; 9 << 20]] {
            assert!(!bench.place(Blob::of(&bytes).digest).exists());
        }
        bench.assert_nothing_half_written();
        bench.server().work_again();
        bench.store.check().await.unwrap();
    }
}

/// CL-51, CL-52
#[tokio::test]
async fn a_blob_that_cannot_be_read_says_why() {
    let acts = [
        (Act::Status(403, ""), "denied"),
        (Act::Status(404, ""), "missing"),
        (Act::Status(500, ""), "unreachable"),
        (Act::Status(302, ""), "unusable"),
        (Act::Leave, "unreachable"),
        (Act::CutBody, "unreachable"),
        (Act::Shorten, "corrupt"),
        (Act::Alter, "corrupt"),
    ];
    for keeps in SERVED {
        let bench = Bench::new(keeps);
        let blob = bench.store.put(vec![9; 300_000]).await.unwrap();
        for (act, expected) in acts {
            bench.fail("GET", act);
            for fault in [
                fault(bench.store.get(blob, u64::MAX).await),
                fault(bench.store.get_file(blob, bench.scratch()).await),
                fault(bench.store.verify(blob).await),
            ] {
                assert_eq!(name(&fault), expected, "{keeps:?} {act:?}: {fault}");
            }
        }
        bench.server().work_again();
        bench.store.verify(blob).await.unwrap();
    }
}

/// CL-17, X10: what was taken and is not there, whole, when it is read back, was not kept.
#[tokio::test]
async fn a_blob_that_is_not_what_was_stored_is_not_kept() {
    let acts = [
        (Act::Status(404, ""), "missing"),
        (Act::Shorten, "corrupt"),
        (Act::Alter, "corrupt"),
    ];
    for keeps in SERVED {
        for (act, expected) in acts {
            let bench = Bench::new(keeps); // what it has already would be read before anything is stored
            bench.fail("GET", act);
            let fault = fault(bench.store.keep(vec![9; 300_000]).await);
            assert_eq!(name(&fault), expected, "{keeps:?} {act:?}: {fault}");
            assert_eq!(bench.server().heard("PUT").len(), 1, "it was stored");
            bench.server().work_again();
            bench.store.keep(vec![9; 300_000]).await.unwrap();
        }
    }
}

/// CL-57: no operation waits for ever.
#[tokio::test]
async fn a_server_that_hangs_is_given_up() {
    for keeps in SERVED {
        let bench = Bench::new(keeps);
        let blob = bench.store.put(vec![9; 300_000]).await.unwrap();
        for (method, act) in [
            ("GET", Act::Hang),
            ("GET", Act::HangInBody),
            ("PUT", Act::Hang),
        ] {
            bench.fail(method, act);
            let fault = match method {
                "GET" => fault(bench.impatient.verify(blob).await),
                _ => fault(bench.impatient.put(vec![1; 1000]).await),
            };
            assert_eq!(
                name(&fault),
                "unreachable",
                "{keeps:?} {method} {act:?}: {fault}"
            );
        }
        bench.fail("HEAD", Act::Hang);
        let fault = fault(bench.impatient.exists(blob.digest).await);
        assert_eq!(name(&fault), "unreachable", "{keeps:?}: {fault}");
    }
}

/// CL-51: what passes by itself is not heard of.
#[tokio::test]
async fn a_server_that_is_away_for_a_moment_is_asked_again() {
    for keeps in SERVED {
        let bench = Bench::new(keeps);
        let blob = bench.store.put(&b"later"[..]).await.unwrap();
        bench.fail("GET", Act::Status(503, ""));
        let asked = bench.server().heard("GET").len();
        let verified = bench.store.verify(blob);
        let back = async {
            while bench.server().heard("GET").len() == asked {
                tokio::task::yield_now().await;
            }
            bench.server().work_again();
        };
        tokio::join!(verified, back).0.unwrap();
    }
}

/// CL-27
#[test]
fn a_disk_without_room_is_full_and_one_that_may_not_be_written_to_is_denied() {
    use rustix::io::Errno;
    for (errno, expected) in [
        (Errno::NOSPC, "full"),
        (Errno::DQUOT, "full"),
        (Errno::ACCESS, "denied"),
        (Errno::ROFS, "denied"),
        (Errno::IO, "unreachable"),
        (Errno::STALE, "unreachable"),
    ] {
        let path = std::path::Path::new("/shared/blobs");
        let fault = Fault::of_file("cannot write", path, &errno.into());
        assert_eq!(name(&fault), expected);
        assert!(fault.to_string().contains("`/shared/blobs`"), "{fault}");
    }
}

/// CL-51
#[tokio::test]
async fn a_token_is_read_anew_and_never_told() {
    let bench = Bench::new(Keeps::Http);
    let file = bench.store.secret_file().expect("a token file");
    std::fs::write(&file, "another-canary").unwrap();
    let refused = fault(bench.store.check().await);
    assert_eq!(name(&refused), "denied", "{refused}");
    assert!(!refused.to_string().contains("canary"));
    std::fs::write(&file, "two\nlines").unwrap();
    assert_eq!(name(&fault(bench.store.check().await)), "denied");
    std::fs::write(&file, TOKEN).unwrap();
    bench.store.check().await.unwrap();
    std::fs::remove_file(&file).unwrap();
    let url = format!("{}?token_file={}", bench.store.url(), file.display());
    assert!(super::BlobStore::open(&url, &std::collections::BTreeMap::new()).is_err());
}

/// CL-51
#[tokio::test]
async fn large_objects_go_in_parts_and_small_ones_in_one_piece() {
    let bench = Bench::new(Keeps::S3);
    bench.store.put(vec![1; 8 << 20]).await.unwrap();
    assert!(bench.server().heard("POST").is_empty());
    bench.store.put(vec![2; (16 << 20) + 1]).await.unwrap();
    assert_eq!(bench.server().heard("POST").len(), 2);
    let parts = bench.server().heard("PUT").into_iter();
    assert_eq!(parts.filter(|head| head.contains("partNumber")).count(), 3);
}

/// CL-45, CL-51
#[test]
fn credentials_go_over_the_network_only_with_tls() {
    let open = |endpoint: &str, allow: &str| {
        let env = [
            ("AWS_ENDPOINT_URL", endpoint),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "canary"),
            ("AWS_ALLOW_HTTP", allow),
        ];
        let env = env.map(|(name, value)| (name.into(), value.into())).into();
        super::BlobStore::open("s3://bucket", &env).map(drop)
    };
    assert!(open("http://127.0.0.1:9000", "").is_ok());
    assert!(open("https://s3.example", "").is_ok());
    assert!(open("http://s3.example", "true").is_ok());
    let refused = open("http://s3.example", "").unwrap_err().to_string();
    assert!(refused.contains("AWS_ALLOW_HTTP"), "{refused}");
    assert!(!refused.contains("canary"));
}
