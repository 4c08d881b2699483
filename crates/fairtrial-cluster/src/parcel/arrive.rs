//! A parcel where its call is to be run: what it needs found, and the call made of it.

use std::io::Cursor;
use std::path::PathBuf;

use fairtrial_exec::{Answer, Arguments, Call, Listener};

use super::{named, waited};
use crate::blobs::{Blob, BlobStore, Digest, patiently};
use crate::envelope::{BlobUse, ErrorCode, TaskEnvelope, TaskError, UnreadableTask};
use crate::pack::{CachedTree, PackError, TreeCache};

/// A piece in a store may be this long.
const MOST_BYTES: u64 = 64 << 30;

/// Where parcels arrive. Blocks: not for an event loop.
pub struct Host {
    cache: TreeCache,
    store: Option<BlobStore>,
}

/// A parcel that was opened.
pub struct Arrived {
    envelope: TaskEnvelope,
    beside: Vec<(Blob, Vec<u8>)>,
    directories: Vec<(Digest, CachedTree)>,
}

impl Host {
    /// One with its directories in `cache` and what is large in `store`, or else beside envelopes.
    #[must_use]
    pub fn new(cache: TreeCache, store: Option<BlobStore>) -> Self {
        Self { cache, store }
    }

    /// Opens a parcel, and fetches from the store what is there.
    ///
    /// # Errors
    /// It cannot be read, or the store does not have what it needs.
    pub fn open(&self, envelope: &[u8], beside: Vec<Vec<u8>>) -> Result<Arrived, TaskError> {
        let envelope = TaskEnvelope::read(envelope).map_err(unreadable)?;
        let mut arrived = Arrived {
            envelope,
            beside: named(beside),
            directories: Vec::new(),
        };
        if let Some(store) = &self.store {
            self.fetch(store, &mut arrived)?;
        }
        Ok(arrived)
    }

    /// Directories that it needs and that are not here: to be given to [`Host::unpack`].
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn lacks(&self, arrived: &mut Arrived) -> Result<Vec<Digest>, TaskError> {
        let mut lacking = Vec::new();
        for digest in arrived.wanted() {
            match self.cache.get(digest).map_err(unpacked)? {
                Some(tree) => arrived.directories.push((digest, tree)),
                None => lacking.push(digest),
            }
        }
        Ok(lacking)
    }

    /// Unpacks a directory that it needs.
    ///
    /// # Errors
    /// It is not what it is called, or the cache cannot be used.
    pub fn unpack(
        &self,
        arrived: &mut Arrived,
        digest: Digest,
        archive: &[u8],
    ) -> Result<(), TaskError> {
        if Digest::of(archive) != digest {
            return Err(TaskError {
                code: ErrorCode::BlobCorrupt,
                message: format!("what came is not the directory {digest}"),
            });
        }
        let tree = self.cache.add(digest, Cursor::new(archive));
        arrived.directories.push((digest, tree.map_err(unpacked)?));
        Ok(())
    }

    fn fetch(&self, store: &BlobStore, arrived: &mut Arrived) -> Result<(), TaskError> {
        let wanted: Vec<(Blob, BlobUse)> = arrived
            .envelope
            .blobs()
            .into_iter()
            .map(|(blob, purpose)| (*blob, purpose))
            .collect();
        let work = async {
            for (blob, purpose) in wanted {
                if purpose == BlobUse::Directory {
                    let tree = self.cache.fetch(store, blob).await.map_err(unpacked)?;
                    arrived.directories.push((blob.digest, tree));
                } else {
                    let bytes = patiently(|| store.get(blob, MOST_BYTES)).await;
                    let bytes = bytes.map_err(|error| error.to_task_error())?;
                    arrived.beside.push((blob, bytes));
                }
            }
            Ok(())
        };
        waited(work).map_err(|error| TaskError {
            code: ErrorCode::Other,
            message: error.to_string(),
        })?
    }
}

impl Arrived {
    /// The call, and what has to be held while it runs.
    ///
    /// # Errors
    /// Something that it needs is not there, or a word in it is not known here.
    pub fn call(self) -> Result<(Call, Hold), TaskError> {
        let paths = self.paths()?;
        // Copied: two pieces may be equal, and have one name then.
        let find = |wanted: &Blob| self.beside.iter().find(|(blob, _)| blob == wanted);
        let call = self.envelope.to_call(paths, |wanted| {
            find(wanted).map(|(_, bytes)| Arguments::Bytes(bytes.clone()))
        });
        let call = call.map_err(unreadable)?;
        let directories = self.directories.into_iter().map(|(_, tree)| tree);
        Ok((call, Hold(directories.collect())))
    }

    fn wanted(&self) -> Vec<Digest> {
        let blobs = self.envelope.blobs().into_iter();
        let wanted = blobs.filter(|(_, purpose)| *purpose == BlobUse::Directory);
        wanted.map(|(blob, _)| blob.digest).collect()
    }

    /// Directories in the order in which they are wanted; they were held in any.
    fn paths(&self) -> Result<Vec<PathBuf>, TaskError> {
        let find = |digest: Digest| {
            let held = self.directories.iter().find(|(held, _)| *held == digest);
            held.map(|(_, tree)| tree.path().to_owned())
                .ok_or_else(|| TaskError {
                    code: ErrorCode::BlobMissing,
                    message: format!("the directory {digest} is not here"),
                })
        };
        self.wanted().into_iter().map(find).collect()
    }
}

/// Directories that a running call stands on.
pub struct Hold(Vec<CachedTree>);

impl Hold {
    /// Holds them until the listener was told.
    #[must_use]
    pub fn until_ended(self, listener: Box<dyn Listener>) -> Box<dyn Listener> {
        match self.0.is_empty() {
            true => listener,
            false => Box::new(Holding {
                listener,
                directories: self.0,
            }),
        }
    }
}

struct Holding {
    listener: Box<dyn Listener>,
    directories: Vec<CachedTree>,
}

impl Listener for Holding {
    fn wants_start(&self) -> bool {
        self.listener.wants_start()
    }

    fn began(&self, worker_id: &str) {
        self.listener.began(worker_id);
    }

    fn ended(self: Box<Self>, answer: Answer) {
        drop(self.directories);
        self.listener.ended(answer);
    }
}

fn unreadable(error: UnreadableTask) -> TaskError {
    TaskError {
        code: ErrorCode::Invalid,
        message: error.to_string(),
    }
}

/// What is wrong with the archive is final; what is wrong here may not be elsewhere.
fn unpacked(error: PackError) -> TaskError {
    let code = match &error {
        PackError::Blob(error) => return error.to_task_error(),
        PackError::Cache { .. } => ErrorCode::Other,
        _ => ErrorCode::Invalid,
    };
    let message = error.to_string();
    TaskError { code, message }
}
