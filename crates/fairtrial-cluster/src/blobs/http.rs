//! `http(s)://host/path`: PUT, GET, HEAD and DELETE of plain files, as any web server with WebDAV's `PUT` has them.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use ureq::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use ureq::http::{HeaderValue, Method, Request, Response, request};
use ureq::{Body, SendBody};

use super::checked::Source;
use super::digest::{Blob, Digest};
use super::fault::Fault;
use super::kind::{Found, Kind, Listed};
use super::wire::{Env, Patience, Wire, refusal};

/// The cap of a store whose URL gives none.
pub(super) const DEFAULT_MAX_BYTES: u64 = 4 << 30;

/// From here on a server is asked whether it wants a blob before it is sent: whoever is refused in the middle of an
/// upload finds a closed connection, not the reason.
const ASK_FIRST_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct Http {
    wire: Wire,
    /// Without a slash at its end.
    base: String,
    token_file: Option<PathBuf>,
    max_bytes: u64,
}

/// What the URL of such a store says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HttpPlace {
    pub(super) base: String,
    pub(super) is_local: bool,
    pub(super) token_file: Option<PathBuf>,
    pub(super) max_bytes: u64,
}

impl Http {
    pub(super) fn new(place: HttpPlace, env: &Env, patience: Patience) -> Result<Self, String> {
        let roots = env
            .get(OsStr::new("SSL_CERT_FILE"))
            .filter(|file| !file.is_empty());
        let wire = Wire::new(place.is_local, roots.map(|file| &**file), patience)?;
        let store = Self {
            wire,
            base: place.base,
            token_file: place.token_file,
            max_bytes: place.max_bytes,
        };
        store.authorization().map_err(|fault| fault.to_string())?;
        Ok(store)
    }

    /// Read each time: whoever gives out tokens may put a new one there.
    fn authorization(&self) -> Result<Option<HeaderValue>, Fault> {
        let Some(file) = &self.token_file else {
            return Ok(None);
        };
        let text = fs::read_to_string(file);
        let text =
            text.map_err(|error| Fault::of_file("cannot read the token of", file, &error))?;
        let token = text.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        let value = HeaderValue::try_from(format!("Bearer {token}")).ok();
        let value = value
            .filter(|_| is_token)
            .ok_or_else(|| Fault::Denied(format!("`{}` does not hold a token", file.display())));
        value.map(|mut value| {
            value.set_sensitive(true);
            Some(value)
        })
    }

    fn request(&self, method: Method, digest: Digest) -> Result<request::Builder, Fault> {
        let url = format!("{}/{}", self.base, digest.path());
        let request = Request::builder().method(method).uri(url);
        Ok(match self.authorization()? {
            Some(authorization) => request.header(AUTHORIZATION, authorization),
            None => request,
        })
    }

    /// A response that says yes.
    fn ask(&self, method: Method, digest: Digest) -> Result<Response<Body>, Fault> {
        let request = self.request(method, digest)?.body(());
        let response = self.wire.send(request.map_err(unsendable)?)?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(refusal(Some(digest), response)),
        }
    }
}

impl Kind for Http {
    fn put(&self, blob: Blob, source: &Source) -> Result<(), Fault> {
        if blob.bytes > self.max_bytes {
            return Err(Fault::TooLarge {
                digest: blob.digest,
                problem: format!(
                    "{} bytes, and the store takes {}",
                    blob.bytes, self.max_bytes
                ),
            });
        }
        let mut request = self
            .request(Method::PUT, blob.digest)?
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, blob.bytes);
        if blob.bytes >= ASK_FIRST_BYTES {
            request = request.header(EXPECT, "100-continue");
        }
        let mut reader = source.reader(blob);
        let request = request.body(SendBody::from_reader(&mut reader));
        let sent = self.wire.send(request.map_err(unsendable)?);
        if let Some(fault) = reader.fault() {
            return Err(fault);
        }
        let response = sent?;
        match response.status().is_success() {
            true => Ok(()),
            // Nothing was asked for that could be missing: the path itself is.
            false => Err(match refusal(Some(blob.digest), response) {
                Fault::Missing(_) => {
                    Fault::Denied("the server has no place for blobs there".to_owned())
                }
                fault => fault,
            }),
        }
    }

    fn is_kept(&self, blob: Blob) -> Result<bool, Fault> {
        let found = self.find(blob.digest)?;
        Ok(found.is_some_and(|found| found.bytes == blob.bytes))
    }

    fn open(&self, blob: Blob) -> Result<Box<dyn Read>, Fault> {
        let response = self.ask(Method::GET, blob.digest)?;
        if let Some(bytes) = length(&response).filter(|bytes| *bytes != blob.bytes) {
            let problem = format!("it has {bytes} bytes, not {}", blob.bytes);
            return Err(Fault::corrupt(blob.digest, problem));
        }
        // Whoever reads stops at the first byte too many.
        let body = response.into_body().into_with_config();
        Ok(Box::new(body.limit(u64::MAX).reader()))
    }

    fn find(&self, digest: Digest) -> Result<Option<Found>, Fault> {
        let response = match self.ask(Method::HEAD, digest) {
            Err(Fault::Missing(_)) => return Ok(None),
            response => response?,
        };
        let bytes = length(&response)
            .ok_or_else(|| Fault::Unusable("the server tells no `Content-Length`".to_owned()))?;
        Ok(Some(Found {
            bytes,
            stored: None,
        }))
    }

    fn delete(&self, digest: Digest) -> Result<(), Fault> {
        match self.ask(Method::DELETE, digest) {
            Ok(_) | Err(Fault::Missing(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    fn list(&self) -> Result<Vec<Listed>, Fault> {
        let problem =
            "a store behind `http` cannot be listed; remove old blobs where they are kept";
        Err(Fault::Unusable(problem.to_owned()))
    }

    fn secret_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }
}

fn length(response: &Response<Body>) -> Option<u64> {
    let length = response.headers().get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

fn unsendable(error: ureq::http::Error) -> Fault {
    Fault::Unusable(format!("no request can be made: {error}"))
}
