//! Requests of `object_store`, sent by the client that all stores share: so there is one TLS stack, and one answer to
//! what a refusal means.

use std::ffi::OsString;
use std::io::Read;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use ureq::http::header::CONTENT_LENGTH;
use ureq::http::{HeaderValue, Method, Request, Response};
use ureq::{Body, SendBody};

use super::super::digest::{Digest, PIECE_BYTES};
use super::super::fault::Fault;
use super::super::wire::{Patience, Wire, refusal};

#[derive(Debug)]
pub(super) struct Connector {
    pub(super) is_local: bool,
    pub(super) roots: Option<OsString>,
    pub(super) patience: Patience,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let wire = Wire::new(self.is_local, self.roots.as_deref(), self.patience);
        let wire = wire.map_err(|problem| object_store::Error::Generic {
            store: "S3",
            source: problem.into(),
        })?;
        let allow_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(Service {
            wire,
            allow_http: allow_http.as_deref() == Some("true"),
        }))
    }
}

#[derive(Debug)]
struct Service {
    wire: Wire,
    /// Where credentials of roles are asked for there is no TLS.
    allow_http: bool,
}

/// What a server said instead of doing it: found again in the errors that `object_store` makes of it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refusal(Fault);

impl Refusal {
    /// About which blob, only the operation knows.
    pub(super) fn fault(&self, about: Option<Digest>) -> Fault {
        match (self.0.clone(), about) {
            (Fault::Missing(_), Some(digest)) => Fault::Missing(digest),
            (Fault::TooLarge { problem, .. }, Some(digest)) => Fault::TooLarge { digest, problem },
            (fault, _) => fault,
        }
    }
}

#[async_trait]
impl HttpService for Service {
    /// Blocks: nothing else runs on the thread of an operation.
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (head, body) = request.into_parts();
        if head.uri.scheme_str() == Some("http") && !self.allow_http {
            return Err(refused(Fault::Denied("a request without TLS".to_owned())));
        }
        let has_body = matches!(head.method, Method::PUT | Method::POST);
        let length = HeaderValue::from(body.content_length());
        let body = Outgoing {
            frames: body,
            frame: Bytes::new(),
        };
        let mut request = Request::from_parts(head, SendBody::none());
        if has_body {
            *request.body_mut() = SendBody::from_owned_reader(body);
            request.headers_mut().insert(CONTENT_LENGTH, length);
        }
        let response = self.wire.send(request).map_err(refused)?;
        match response.status().is_success() {
            true => Ok(answer(response)),
            false => Err(refused(refusal(Some(Digest::of(b"")), response))),
        }
    }
}

/// Only what may pass is tried again.
fn refused(fault: Fault) -> HttpError {
    let kind = match fault.may_pass() {
        true => HttpErrorKind::Request,
        false => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, Refusal(fault))
}

fn answer(response: Response<Body>) -> HttpResponse {
    let (head, body) = response.into_parts();
    let reader = body.into_with_config().limit(u64::MAX).reader();
    let body = Incoming(Mutex::new(Box::new(reader)));
    HttpResponse::from_parts(head, HttpResponseBody::new(body))
}

/// The body of a request: all of it is in memory, so it is always ready.
struct Outgoing {
    frames: HttpRequestBody,
    frame: Bytes,
}

impl Read for Outgoing {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.frame.is_empty() {
            let mut context = Context::from_waker(Waker::noop());
            match Pin::new(&mut self.frames).poll_frame(&mut context) {
                Poll::Ready(Some(frame)) => {
                    let frame = frame.map_err(std::io::Error::other)?;
                    self.frame = frame.into_data().unwrap_or_default();
                }
                Poll::Ready(None) | Poll::Pending => return Ok(0),
            }
        }
        let most = buffer.len().min(self.frame.len());
        buffer[..most].copy_from_slice(&self.frame.split_to(most));
        Ok(most)
    }
}

/// The body of a response, read when it is asked for. The mutex is never waited for: it makes the reader `Sync`.
struct Incoming(Mutex<Box<dyn Read + Send>>);

impl HttpBody for Incoming {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let reader = self.get_mut().0.get_mut().expect("no reader panics");
        let mut piece = vec![0; PIECE_BYTES];
        Poll::Ready(match reader.read(&mut piece) {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some(Ok(Frame::data(piece.into())))
            }
            Err(error) => {
                let broken = Fault::Unreachable(format!("the answer broke off: {error}"));
                Some(Err(refused(broken)))
            }
        })
    }
}
