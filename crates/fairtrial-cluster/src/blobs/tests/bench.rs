//! A store of each kind to test, with what it keeps in a directory of the test's.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::super::checked::Source;
use super::super::wire::Patience;
use super::super::{Blob, BlobError, BlobStore, Digest, Fault, verify};
use super::server::{Act, KEY_ID, SECRET_KEY, Server, Speaks, TOKEN};

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    Dir,
    Http,
    S3,
}

pub(super) const KINDS: [Keeps; 3] = [Keeps::Dir, Keeps::Http, Keeps::S3];

pub(super) struct Bench {
    /// Patient enough for a loaded machine.
    pub(super) store: BlobStore,
    /// The same store for those who wait for a server that hangs.
    pub(super) impatient: BlobStore,
    server: Option<Server>,
    root: PathBuf,
    scratch: TempDir,
    _kept: TempDir,
}

impl Bench {
    pub(super) fn new(keeps: Keeps) -> Self {
        Self::with_options(keeps, "")
    }

    /// `options` stand at the end of the URL of an `http` store.
    pub(super) fn with_options(keeps: Keeps, options: &str) -> Self {
        let kept = tempfile::tempdir().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let token = kept.path().join("token");
        fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let server = match keeps {
            Keeps::Dir => None,
            Keeps::Http => Some(Server::new(Speaks::Http, kept.path())),
            Keeps::S3 => Some(Server::new(Speaks::S3, kept.path())),
        };
        let address = server
            .as_ref()
            .map(|server| server.address().to_string())
            .unwrap_or_default();
        let (url, root) = match keeps {
            Keeps::Dir => (
                format!("file://{}", kept.path().display()),
                kept.path().to_owned(),
            ),
            Keeps::Http => (
                format!(
                    "http://{address}/in/here?token_file={}{options}",
                    token.display()
                ),
                kept.path().join("in/here"),
            ),
            Keeps::S3 => (
                "s3://bucket/in/here".to_owned(),
                kept.path().join("bucket/in/here"),
            ),
        };
        let endpoint = format!("http://{address}");
        let env = [
            ("AWS_ENDPOINT_URL", &*endpoint),
            ("AWS_ACCESS_KEY_ID", KEY_ID),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
            ("AWS_REGION", "eu-west-1"),
        ];
        let env = env.map(|(name, value)| (name.into(), value.into())).into();
        let open = |idle| {
            let patience = Patience {
                connect: Duration::from_secs(30),
                idle,
            };
            BlobStore::open_with(&url, &env, patience).unwrap()
        };
        Self {
            store: open(Duration::from_secs(30)),
            impatient: open(Duration::from_millis(200)),
            server,
            root,
            scratch,
            _kept: kept,
        }
    }

    pub(super) fn server(&self) -> &Server {
        self.server.as_ref().expect("a kind with a server")
    }

    pub(super) fn fail(&self, method: &'static str, act: Act) {
        self.server().fail(method, act);
    }

    /// Where the store keeps a blob.
    pub(super) fn place(&self, digest: Digest) -> PathBuf {
        self.root.join(digest.path())
    }

    /// Another one if the blob was written anew.
    pub(super) fn inode(&self, digest: Digest) -> u64 {
        fs::metadata(self.place(digest)).unwrap().ino()
    }

    /// How many it keeps.
    pub(super) fn blobs(&self) -> usize {
        let folders = fs::read_dir(self.root.join("sha256")).unwrap();
        let count = |folder: PathBuf| fs::read_dir(folder).unwrap().count();
        folders.map(|folder| count(folder.unwrap().path())).sum()
    }

    /// An empty directory.
    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    pub(super) fn partial(&self) -> PathBuf {
        self.root.join("partial")
    }

    pub(super) fn assert_nothing_half_written(&self) {
        if let Ok(mut partial) = fs::read_dir(self.partial()) {
            assert!(partial.next().is_none());
        }
        if let Some(server) = &self.server {
            let uploads = |method| {
                server
                    .heard(method)
                    .into_iter()
                    .filter(|head| head.contains("upload"))
            };
            let begun = uploads("POST")
                .filter(|head| head.contains("\"uploads\""))
                .count();
            let ended = uploads("POST")
                .filter(|head| head.contains("\"uploadId\""))
                .count();
            assert_eq!(
                begun,
                ended + uploads("DELETE").count(),
                "each upload is completed or aborted"
            );
        }
    }
}

/// What the tests ask of a store by itself, and its users only together with something else.
impl BlobStore {
    /// Stores bytes and reads them back.
    pub(super) async fn keep(&self, bytes: impl Into<Arc<[u8]>>) -> Result<Blob, BlobError> {
        self.keep_source(Source::Bytes(bytes.into()), None).await
    }

    /// As [`keep`](Self::keep), of a file.
    pub(super) async fn keep_file(&self, file: File) -> Result<Blob, BlobError> {
        self.keep_source(Source::File(Arc::new(file)), None).await
    }

    /// Reads a blob to its end and holds it against its name.
    pub(super) async fn verify(&self, blob: Blob) -> Result<(), BlobError> {
        self.run(move |kind| verify(kind, blob)).await
    }

    /// Whether anything is there under this name.
    pub(super) async fn exists(&self, digest: Digest) -> Result<bool, BlobError> {
        self.run(move |kind| Ok(kind.find(digest)?.is_some())).await
    }

    /// Removes a blob; that there was none is no error.
    pub(crate) async fn delete(&self, digest: Digest) -> Result<(), BlobError> {
        self.run(move |kind| kind.delete(digest)).await
    }
}

/// What went wrong. Its text names the store, and no secret (CL-48).
pub(super) fn fault<T>(result: Result<T, BlobError>) -> Fault {
    let error = result.err().expect("it should not have worked");
    let text = format!("{error} {error:?}");
    assert!(
        !text.contains(TOKEN) && !text.contains(SECRET_KEY),
        "{text}"
    );
    error.fault
}
