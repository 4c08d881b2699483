//! How much memory large blobs take: a binary of its own, for the allocator counts for all of it.

#[expect(dead_code, reason = "the unit tests also make it fail")]
#[path = "../src/blobs/tests/server.rs"]
mod server;

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use fairtrial_cluster::envelope::{Outgoing, OutgoingBody};
use fairtrial_cluster::{Blob, BlobStore};
use peak_alloc::PeakAlloc;
use server::{KEY_ID, SECRET_KEY, Server, Speaks, TOKEN};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const BYTES: usize = 200_000_000;

/// Two parts of an upload, and what threads, sockets and hashing need.
const MOST: usize = 40 << 20;

fn large_file(directory: &Path) -> File {
    let mut file = BufWriter::new(tempfile::tempfile_in(directory).unwrap());
    let mut line: u64 = 0;
    for _ in 0..BYTES / 8 {
        line = line.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        file.write_all(&line.to_le_bytes()).unwrap();
    }
    file.into_inner().unwrap()
}

/// CL-54, X9
#[tokio::test]
async fn two_hundred_megabytes_pass_through_a_few() {
    let kept = tempfile::tempdir().unwrap();
    let file = large_file(kept.path());
    let token = kept.path().join("token");
    std::fs::write(&token, TOKEN).unwrap();
    let http = Server::new(Speaks::Http, kept.path());
    let s3 = Server::new(Speaks::S3, kept.path());
    let endpoint = format!("http://{}", s3.address());
    let env = [
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_ACCESS_KEY_ID", KEY_ID),
        ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
    ];
    let env = env.map(|(name, value)| (name.into(), value.into())).into();
    let urls = [
        format!("file://{}", kept.path().display()),
        format!(
            "http://{}/http?token_file={}",
            http.address(),
            token.display()
        ),
        "s3://bucket".to_owned(),
    ];
    for (url, place) in urls.into_iter().zip(["sha256", "http", "bucket"]) {
        let store = BlobStore::open(&url, &env).unwrap();
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        (&file).rewind().unwrap();
        let outgoing = Outgoing {
            blob: Blob::read(file.try_clone().unwrap()).unwrap(),
            body: OutgoingBody::File(Arc::new(file.try_clone().unwrap())),
        };
        let blob = store.keep_outgoing(outgoing).await.unwrap();
        let read = store.get_file(blob, kept.path()).await.unwrap();
        let took = MEMORY.peak_usage() - before;
        assert!(took < MOST, "{url}: {took} bytes");
        assert_eq!(blob.bytes, BYTES as u64);
        assert_eq!(Blob::read(read).unwrap(), blob, "{url}");
        std::fs::remove_dir_all(kept.path().join(place)).unwrap();
    }
}
