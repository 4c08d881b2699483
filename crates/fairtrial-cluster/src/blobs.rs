//! What is too large for an envelope, kept under the name of what it holds (CL-50).
//!
//! A store never gives out what it did not verify: size and digest of every read are those that were asked for, or it
//! is an error. Which blobs are still needed, its users know; nothing is removed unless they ask.

mod checked;
mod digest;
mod dir;
mod fault;
mod http;
mod kind;
mod outgoing;
mod place;
mod s3;
mod sweep;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::LocalConfig;
use fairtrial_exec::linux::nameless;
use tokio::sync::{Semaphore, oneshot};

use checked::{Source, receive};
pub use digest::{BadDigest, Blob, Digest};
pub use fault::{BlobError, Fault};
use kind::Kind;
pub use place::BadStore;
use place::Place;
pub use sweep::Swept;
use wire::Patience;

use crate::jitter::nonce;

/// So many operations at once, each with a thread and a few megabytes.
const AT_ONCE: usize = 8;

/// Between two tries of a store that cannot be reached, times the number of the try.
const PAUSE: Duration = Duration::from_millis(200);

/// A place for blobs. Clones are the same store.
#[derive(Clone, Debug)]
pub struct BlobStore {
    kind: Arc<dyn Kind>,
    name: Arc<str>,
    turns: Arc<Semaphore>,
}

impl BlobStore {
    /// The store of this URL: `file:///shared/dir`, `s3://bucket/prefix` or `http(s)://host/path`. Touches nothing:
    /// whether it can be used, [`check`](Self::check) tells. Credentials and certificates are found in `env`.
    ///
    /// An `http` URL takes `token_file=PATH` (a bearer token), `max=SIZE` (the largest blob, 4 GiB) and `insecure=1`.
    ///
    /// # Errors
    /// The URL names no store, or the credentials for it cannot be read.
    pub fn open(url: &str, env: &BTreeMap<OsString, OsString>) -> Result<Self, BadStore> {
        Self::open_with(url, env, Patience::default())
    }

    fn open_with(
        url: &str,
        env: &BTreeMap<OsString, OsString>,
        patience: Patience,
    ) -> Result<Self, BadStore> {
        let (place, name) = place::parse(url)?;
        let kind: Result<Arc<dyn Kind>, String> = match place {
            Place::Dir(root) => Ok(Arc::new(dir::Dir::new(root))),
            Place::S3(place) => s3::S3::new(place, env, patience).map(|kind| Arc::new(kind) as _),
            Place::Http(place) => {
                http::Http::new(place, env, patience).map(|kind| Arc::new(kind) as _)
            }
        };
        match kind {
            Ok(kind) => Ok(Self::of(kind, name)),
            Err(problem) => Err(BadStore {
                store: name,
                problem,
            }),
        }
    }

    /// The store `named`, or the one [of this host](Self::on_this_host); None if there is no place for that.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn find(named: Option<&str>, config: &LocalConfig) -> Result<Option<Self>, BadStore> {
        match named {
            Some(url) => Self::open(url, &config.host_env).map(Some),
            None => Ok(config.cache_dir().map(|cache| Self::on_this_host(&cache))),
        }
    }

    /// The store that one user's coordinator and agents on one host share without being told (CL-51): `blobs` in the
    /// user's cache directory, made when it is first needed, with mode 0700.
    #[must_use]
    pub fn on_this_host(cache: &Path) -> Self {
        let root = cache.join("blobs");
        let name = format!("file://{}", root.display());
        Self::of(Arc::new(dir::Dir::private(root)), name)
    }

    fn of(kind: Arc<dyn Kind>, name: String) -> Self {
        Self {
            kind,
            name: name.into(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Its URL, without secrets.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.name
    }

    /// The file that holds its secret, if it has one: whoever runs calls refuses one that they could read (CL-44).
    #[must_use]
    pub fn secret_file(&self) -> Option<PathBuf> {
        self.kind.secret_file().map(Path::to_owned)
    }

    /// Stores bytes, unless they are there already.
    ///
    /// # Errors
    /// They could not be stored.
    pub async fn put(&self, bytes: impl Into<Arc<[u8]>>) -> Result<Blob, BlobError> {
        self.put_source(Source::Bytes(bytes.into()), None).await
    }

    /// Stores all of a file, unless it is there already. Where its descriptor stands does not matter and is not
    /// changed. Memory does not grow with its size (CL-54).
    ///
    /// # Errors
    /// It could not be stored, or changed meanwhile.
    pub async fn put_file(&self, file: File) -> Result<Blob, BlobError> {
        self.put_source(Source::File(Arc::new(file)), None).await
    }

    /// Of a source whose blob may be known already.
    async fn put_source(&self, source: Source, known: Option<Blob>) -> Result<Blob, BlobError> {
        self.run(move |kind| {
            let blob = known.map_or_else(|| source.blob(), Ok)?;
            if !kind.is_kept(blob)? {
                kind.put(blob, &source)?;
            }
            Ok(blob)
        })
        .await
    }

    /// Stores it and reads it back (CL-17): what this returns can be committed. What was there already and is found
    /// damaged, or is swept at this moment, is stored again.
    async fn keep_source(&self, source: Source, known: Option<Blob>) -> Result<Blob, BlobError> {
        self.run(move |kind| {
            let blob = known.map_or_else(|| source.blob(), Ok)?;
            if kind.is_kept(blob)? {
                match verify(kind, blob) {
                    Err(Fault::Corrupt { .. } | Fault::Missing(_)) => (),
                    verified => return verified.map(|()| blob),
                }
            }
            kind.put(blob, &source)?;
            verify(kind, blob).map(|()| blob)
        })
        .await
    }

    /// The bytes of a blob of at most `most` bytes.
    ///
    /// # Errors
    /// It is larger, missing or corrupt, or the store cannot be used.
    pub async fn get(&self, blob: Blob, most: u64) -> Result<Vec<u8>, BlobError> {
        self.run(move |kind| {
            if blob.bytes > most {
                return Err(Fault::TooLarge {
                    digest: blob.digest,
                    problem: format!("{} bytes, and {most} are allowed here", blob.bytes),
                });
            }
            let mut bytes = Vec::new();
            receive(kind.open(blob)?, blob, |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            Ok(bytes)
        })
        .await
    }

    /// A blob as a nameless file in a directory, open for reading and writing, at its start. Nobody sees it before it
    /// is verified; memory does not grow with its size (CL-54).
    ///
    /// # Errors
    /// It is missing or corrupt, the store cannot be used, or the directory has no room.
    pub async fn get_file(&self, blob: Blob, directory: &Path) -> Result<File, BlobError> {
        let directory = directory.to_owned();
        self.run(move |kind| {
            let failed = |error| Fault::of_file("cannot write a copy into", &directory, &error);
            let opened = File::open(&directory).map_err(failed)?;
            let mut file = File::from(nameless::create(opened).map_err(failed)?);
            receive(kind.open(blob)?, blob, |piece| {
                file.write_all(piece).map_err(failed)
            })?;
            file.rewind().map_err(failed)?;
            Ok(file)
        })
        .await
    }

    /// Writes a blob to the start of a file. Only after this has returned is it known to be the blob.
    ///
    /// # Errors
    /// As [`get_file`](Self::get_file).
    pub async fn get_into(&self, blob: Blob, file: BorrowedFd<'_>) -> Result<(), BlobError> {
        let file = file.try_clone_to_owned().map(File::from);
        self.run(move |kind| {
            let failed = |error| {
                Fault::of_file(
                    "cannot write a copy into",
                    Path::new("a value's file"),
                    &error,
                )
            };
            let file = file
                .as_ref()
                .map_err(|error| failed(io::Error::from(error.kind())))?;
            let mut at = 0;
            receive(kind.open(blob)?, blob, |piece| {
                file.write_all_at(piece, at).map_err(failed)?;
                at += piece.len() as u64;
                Ok(())
            })
        })
        .await
    }

    /// Writes a blob, reads it back and deletes it (CL-6).
    ///
    /// # Errors
    /// One of the three failed.
    pub async fn check(&self) -> Result<(), BlobError> {
        self.run(|kind| {
            let (blob, source) = probe();
            kind.put(blob, &source)?;
            let verified = verify(kind, blob);
            kind.delete(blob.digest)?;
            verified
        })
        .await
    }

    /// Does it on a thread of its own, and not on one of the runtime's: whoever ends that would wait for it. Whoever
    /// stops waiting leaves it to end by itself.
    async fn run<T: Send + 'static>(
        &self,
        work: impl Fn(&dyn Kind) -> Result<T, Fault> + Send + Sync + 'static,
    ) -> Result<T, BlobError> {
        let work = Arc::new(work);
        let mut tried = 0;
        loop {
            tried += 1;
            match self.attempt(work.clone()).await {
                Err(fault) if fault.may_pass() && tried < self.kind.tries() => {
                    log::debug!("blob store `{}`: {fault}; trying again", self.name);
                    tokio::time::sleep(PAUSE * tried).await;
                }
                done => {
                    return done.map_err(|fault| BlobError {
                        store: self.name.to_string(),
                        fault,
                    });
                }
            }
        }
    }

    async fn attempt<T: Send + 'static>(
        &self,
        work: Arc<impl Fn(&dyn Kind) -> Result<T, Fault> + Send + Sync + 'static>,
    ) -> Result<T, Fault> {
        let turn = self.turns.clone().acquire_owned().await;
        let turn = turn.expect("nobody closes the semaphore");
        let kind = self.kind.clone();
        let (sender, receiver) = oneshot::channel();
        let spawned = std::thread::Builder::new()
            .name("blobs".to_owned())
            .spawn(move || {
                let done = work(&*kind);
                drop(turn);
                sender.send(done).ok(); // nobody waits any more
            });
        match spawned {
            Ok(_) => receiver
                .await
                .unwrap_or_else(|_| Err(Fault::Unusable("the operation panicked".to_owned()))),
            Err(error) => Err(Fault::Unreachable(format!(
                "no thread could be started: {error}"
            ))),
        }
    }
}

/// An input that may not be there yet, asked for three times within ten seconds (CL-25).
///
/// # Errors
/// It is still missing, or the store still cannot be reached; anything else at once.
pub async fn patiently<T, F>(mut ask: impl FnMut() -> F) -> Result<T, BlobError>
where
    F: Future<Output = Result<T, BlobError>>,
{
    for _ in 0..2 {
        match ask().await {
            Err(error) if matches!(error.fault, Fault::Missing(_) | Fault::Unreachable(_)) => {
                log::debug!("{error}; asking again");
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
            done => return done,
        }
    }
    ask().await
}

fn verify(kind: &dyn Kind, blob: Blob) -> Result<(), Fault> {
    receive(kind.open(blob)?, blob, |_| Ok(()))
}

/// A blob that nobody else has.
fn probe() -> (Blob, Source) {
    let text = format!("fairtrial probe {}\n", nonce());
    let bytes = text.into_bytes();
    (Blob::of(&bytes), Source::Bytes(bytes.into()))
}
