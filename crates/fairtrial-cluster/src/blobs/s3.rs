//! `s3://bucket/prefix`: any store that speaks S3. Endpoint, region and credentials come from the usual `AWS_*`
//! variables.
//!
//! `object_store` knows the protocol: signatures, parts, listings, credentials of roles. Its futures run on the thread
//! of the operation that needs them, and each of their requests blocks it (`s3/connector.rs`).

mod connector;

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, GetOptions, ObjectStore, ObjectStoreExt, PutPayload,
    RetryConfig,
};
use tokio::runtime::Runtime;
use url::Url;

use super::checked::{Outgoing, Source};
use super::digest::{Blob, Digest};
use super::fault::Fault;
use super::kind::{Found, Kind, Listed};
use super::wire::{Env, Patience, is_loopback};
use connector::{Connector, Refusal};

/// A part of an upload; what is smaller goes in one piece. The protocol wants 5 MiB at least.
const PART_BYTES: u64 = 8 << 20;

/// The protocol's limit.
const MOST_PARTS: u64 = 10_000;

/// What is older is stored again, so that no sweep takes it while a task that names it is on its way.
const STALE: Duration = Duration::from_secs(12 * 3600);

pub(super) struct S3 {
    store: AmazonS3,
    prefix: String,
}

/// Says nothing of credentials and keys.
impl fmt::Debug for S3 {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("S3");
        shown.field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// What the URL of such a store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct S3Place {
    pub(super) bucket: String,
    /// Empty, or without slashes at its ends.
    pub(super) prefix: String,
}

impl S3 {
    /// Connects to nothing yet.
    pub(super) fn new(place: S3Place, env: &Env, patience: Patience) -> Result<Self, String> {
        let mut builder = AmazonS3Builder::new();
        for (name, value) in env {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
                continue;
            };
            let key = name
                .starts_with("AWS_")
                .then(|| name.to_ascii_lowercase().parse());
            if let Some(Ok(key)) = key
                && !value.is_empty()
            {
                builder = builder.with_config(key, value);
            }
        }
        let endpoint = builder
            .get_config_value(&AmazonS3ConfigKey::S3Endpoint)
            .or_else(|| builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
        let is_local = match endpoint {
            Some(endpoint) => check_endpoint(&endpoint, allows_http(&builder))?,
            None => false,
        };
        if is_local {
            builder = builder.with_allow_http(true);
        }
        let roots = ["AWS_CA_BUNDLE", "SSL_CERT_FILE"].into_iter();
        let mut roots = roots.filter_map(|name| env.get(OsStr::new(name)));
        let connector = Connector {
            is_local,
            roots: roots.find(|file| !file.is_empty()).cloned(),
            patience,
        };
        let store = builder
            .with_bucket_name(&place.bucket)
            // Not every store has the call that deletes many at once.
            .with_disable_bulk_delete(true)
            .with_retry(retries())
            .with_http_connector(connector)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            store,
            prefix: place.prefix,
        })
    }

    fn path(&self, digest: Digest) -> Path {
        Path::from(format!("{}/{}", self.prefix, digest.path()))
    }

    fn digest(&self, path: &Path) -> Option<Digest> {
        let below = path.as_ref().strip_prefix(&self.prefix)?;
        Digest::at_path(below.trim_start_matches('/'))
    }

    async fn put_parts(&self, blob: Blob, mut reader: Outgoing<'_>) -> Result<(), Fault> {
        let failed = |error| fault(Some(blob.digest), &error);
        let path = self.path(blob.digest);
        let mut upload = self.store.put_multipart(&path).await.map_err(failed)?;
        let size = PART_BYTES.max(blob.bytes.div_ceil(MOST_PARTS));
        let uploaded = async {
            let mut left = blob.bytes;
            while left > 0 {
                let part = read_part(&mut reader, left.min(size))?;
                left -= left.min(size);
                upload.put_part(part).await.map_err(failed)?;
            }
            upload.complete().await.map_err(failed)
        };
        let uploaded = uploaded.await.map(drop);
        if uploaded.is_err()
            && let Err(error) = upload.abort().await
        {
            log::warn!(
                "parts of blob `{}` are left in the bucket: {error}",
                blob.digest
            );
        }
        uploaded
    }
}

impl Kind for S3 {
    fn put(&self, blob: Blob, source: &Source) -> Result<(), Fault> {
        let mut reader = source.reader(blob);
        let runtime = runtime()?;
        if blob.bytes > PART_BYTES {
            return runtime.block_on(self.put_parts(blob, reader));
        }
        let whole = read_part(&mut reader, blob.bytes)?;
        let put = runtime.block_on(self.store.put(&self.path(blob.digest), whole));
        match put.map_err(|error| fault(Some(blob.digest), &error)) {
            Err(Fault::Missing(_)) => {
                Err(Fault::Unusable("the server has no such bucket".to_owned()))
            }
            put => put.map(drop),
        }
    }

    fn is_kept(&self, blob: Blob) -> Result<bool, Fault> {
        let found = self.find(blob.digest)?;
        Ok(found.is_some_and(|found| found.bytes == blob.bytes && !is_stale(found.stored)))
    }

    fn open(&self, blob: Blob) -> Result<Box<dyn Read>, Fault> {
        let runtime = runtime()?;
        let path = self.path(blob.digest);
        let got = runtime.block_on(self.store.get_opts(&path, GetOptions::default()));
        let got = got.map_err(|error| fault(Some(blob.digest), &error))?;
        if got.meta.size != blob.bytes {
            let problem = format!("it has {} bytes, not {}", got.meta.size, blob.bytes);
            return Err(Fault::corrupt(blob.digest, problem));
        }
        Ok(Box::new(Incoming {
            stream: got.into_stream(),
            runtime,
            piece: Bytes::new(),
        }))
    }

    fn find(&self, digest: Digest) -> Result<Option<Found>, Fault> {
        let found = runtime()?.block_on(self.store.head(&self.path(digest)));
        match found.map_err(|error| fault(Some(digest), &error)) {
            Err(Fault::Missing(_)) => Ok(None),
            found => found.map(|found| {
                Some(Found {
                    bytes: found.size,
                    stored: Some(found.last_modified.into()),
                })
            }),
        }
    }

    fn delete(&self, digest: Digest) -> Result<(), Fault> {
        let path = self.path(digest);
        let deleted = runtime()?.block_on(self.store.delete(&path));
        match deleted.map_err(|error| fault(Some(digest), &error)) {
            Err(Fault::Missing(_)) => Ok(()),
            deleted => deleted,
        }
    }

    fn list(&self) -> Result<Vec<Listed>, Fault> {
        let prefix = Path::from(format!("{}/sha256", self.prefix));
        let mut listed = Vec::new();
        let mut found = self.store.list(Some(&prefix));
        runtime()?.block_on(async {
            while let Some(found) = found.next().await {
                let found = found.map_err(|error| fault(None, &error))?;
                if let Some(digest) = self.digest(&found.location) {
                    let stored = found.last_modified.into();
                    listed.push(Listed { digest, stored });
                }
            }
            Ok(listed)
        })
    }

    /// `object_store` tries again by itself, part by part.
    fn tries(&self) -> u32 {
        1
    }
}

/// By our clock, which may be wrong. What it takes for old is stored once more; what is younger by it than by the store's
/// is most likely stored anew or named by a task before a sweep looks at it.
fn is_stale(stored: Option<SystemTime>) -> bool {
    let age = stored.map(|stored| stored.elapsed());
    age.is_none_or(|age| age.is_ok_and(|age| age > STALE))
}

/// Where the futures of one operation run: on its own thread.
fn runtime() -> Result<Runtime, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.map_err(|error| Fault::Unreachable(format!("no timers: {error}")))
}

fn retries() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(2),
            base: 2.0,
        },
        max_retries: 2,
        retry_timeout: Duration::from_secs(120),
    }
}

fn read_part(reader: &mut Outgoing<'_>, bytes: u64) -> Result<PutPayload, Fault> {
    let mut part = vec![0; usize::try_from(bytes).expect("a part is small")];
    reader.fill(&mut part)?;
    Ok(part.into())
}

/// What its errors mean. Those of the server are ours: the connector has put them in.
fn fault(digest: Option<Digest>, error: &object_store::Error) -> Fault {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = cause {
        if let Some(refusal) = at.downcast_ref::<Refusal>() {
            return refusal.fault(digest);
        }
        cause = at.source();
    }
    Fault::Unusable(error.to_string())
}

fn allows_http(builder: &AmazonS3Builder) -> bool {
    let key = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
    builder.get_config_value(&key).as_deref() == Some("true")
}

/// Whether the endpoint is on this machine; without TLS it must be, or the user said that it need not.
fn check_endpoint(endpoint: &str, allow_http: bool) -> Result<bool, String> {
    let bad = |problem: &str| format!("the endpoint of `AWS_ENDPOINT_URL` {problem}");
    let url = Url::parse(endpoint).map_err(|error| bad(&format!("cannot be read: {error}")))?;
    let is_local = is_loopback(url.host_str().unwrap_or_default());
    match url.scheme() {
        "https" => Ok(is_local),
        "http" if is_local || allow_http => Ok(is_local),
        "http" => Err(bad("has no TLS; use `https`, or set `AWS_ALLOW_HTTP=true`")),
        _ => Err(bad("begins with neither `https://` nor `http://`")),
    }
}

/// A blob as it comes, driven by whoever reads it.
struct Incoming {
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    runtime: Runtime,
    piece: Bytes,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.runtime.block_on(self.stream.next()) {
                Some(piece) => self.piece = piece.map_err(io::Error::other)?,
                None => return Ok(0),
            }
        }
        let most = buffer.len().min(self.piece.len());
        buffer[..most].copy_from_slice(&self.piece.split_to(most));
        Ok(most)
    }
}
