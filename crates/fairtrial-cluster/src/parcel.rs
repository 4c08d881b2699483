//! Calls and outcomes for those who carry bytes by means of their own, as Ray does: an envelope, and beside it what is
//! too large for one, as plain bytes or in a store. Carries nothing itself and unpickles nothing (CL-67).

mod arrive;
mod directories;
mod reply;

use std::borrow::Cow;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek};

use fairtrial_exec::{Arguments, Call, EngineError, InvalidCall, SpillPolicy, Work};

pub use arrive::{Arrived, Hold, Host};
use directories::Directories;
pub use directories::Directory;
pub use reply::{Attempt, Reply};

use crate::blobs::{Blob, BlobStore, Digest};
use crate::envelope::{Outgoing, OutgoingBody, PackedParts, TaskEnvelope};

/// Arguments longer than this go beside the envelope without being put into it first.
const LONG_ARGUMENTS: usize = 8 << 10;

/// A call as it travels.
#[derive(Debug)]
pub struct Parcel {
    /// The envelope.
    pub envelope: Vec<u8>,
    /// What goes beside it; nothing if there is a store.
    pub beside: Vec<OutgoingBody>,
    /// Directories that it needs, which many calls share; none if there is a store.
    pub directories: Vec<Digest>,
}

/// Makes parcels of calls, and answers of replies. Blocks: not for an event loop.
pub struct Packer {
    python: Option<String>,
    store: Option<BlobStore>,
    spill: SpillPolicy,
    directories: Directories,
}

impl Packer {
    /// One whose large pieces go into `store`, or else beside envelopes. `python` is the version (`3.12`) that pickles
    /// its calls; large values of replies go where `spill` says.
    #[must_use]
    pub fn new(python: Option<String>, store: Option<BlobStore>, spill: SpillPolicy) -> Self {
        Self {
            python,
            store,
            spill,
            directories: Directories::default(),
        }
    }

    /// A call as it travels.
    ///
    /// # Errors
    /// A directory of its cannot be packed, the store cannot be used, or it is too long in what cannot go beside it.
    pub fn pack(&self, mut call: Call, key: &str) -> Result<Parcel, EngineError> {
        let mut parts = PackedParts::default();
        let mut directories = Vec::new();
        if let Some(terms) = call.python() {
            for path in &terms.python_path {
                let directory = self.directories.packed(path)?;
                parts.path.push(directory.blob);
                directories.push(directory);
            }
        }
        let mut outgoing = Vec::new();
        if let Some(arguments) = take_long_arguments(&mut call) {
            let piece = Outgoing::of(arguments);
            parts.file = Some(piece.blob);
            outgoing.push(piece);
        }
        let python = match call.work {
            Work::Pickled(_) => self.python.clone(),
            Work::Source(_) | Work::Command(_) => None,
        };
        let sealed = TaskEnvelope::seal(&call, key, parts, python);
        let sealed = sealed.map_err(|error| InvalidCall::new("call", error.to_string()))?;
        outgoing.extend(sealed.outgoing);
        let mut parcel = Parcel {
            envelope: sealed.bytes,
            beside: Vec::new(),
            directories: Vec::new(),
        };
        match &self.store {
            Some(store) => self.keep(store, outgoing, directories)?,
            None => {
                parcel.beside = outgoing.into_iter().map(|piece| piece.body).collect();
                parcel.directories = digests(&directories);
            }
        }
        Ok(parcel)
    }

    /// A packed directory that a parcel named.
    #[must_use]
    pub fn directory(&self, digest: Digest) -> Option<Directory> {
        self.directories.find(digest)
    }

    fn keep(
        &self,
        store: &BlobStore,
        outgoing: Vec<Outgoing>,
        directories: Vec<Directory>,
    ) -> Result<(), EngineError> {
        waited(async {
            for piece in outgoing {
                store.put_outgoing(piece).await?;
            }
            for directory in directories {
                store.put_named(directory.blob, directory.archive).await?;
            }
            Ok(())
        })?
    }
}

impl OutgoingBody {
    /// All of it, in memory.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn bytes(&self) -> io::Result<Cow<'_, [u8]>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.into()),
            Self::Value(body) => Ok(body.bytes().into()),
            Self::File(file) => whole(file.try_clone()?).map(Cow::Owned),
        }
    }
}

fn whole(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn digests(directories: &[Directory]) -> Vec<Digest> {
    directories.iter().map(|each| each.blob.digest).collect()
}

/// Long arguments are taken out: to be put into an envelope they would be written as base64 first.
fn take_long_arguments(call: &mut Call) -> Option<Vec<u8>> {
    let arguments = match &mut call.work {
        Work::Source(work) => &mut work.arguments,
        Work::Pickled(work) => &mut work.body,
        Work::Command(_) => return None,
    };
    match arguments {
        Arguments::Bytes(bytes) if bytes.len() > LONG_ARGUMENTS => Some(std::mem::take(bytes)),
        _ => None,
    }
}

/// Waits for a store, which needs a clock for its second tries.
fn waited<T>(work: impl Future<Output = T>) -> Result<T, EngineError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(EngineError::io("waiting for the blob store"))?;
    Ok(runtime.block_on(work))
}

/// Bytes by their names, each verified by being named here.
fn named(beside: Vec<Vec<u8>>) -> Vec<(Blob, Vec<u8>)> {
    beside
        .into_iter()
        .map(|bytes| (Blob::of(&bytes), bytes))
        .collect()
}

#[cfg(test)]
mod tests;
