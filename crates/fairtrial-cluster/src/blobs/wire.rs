//! The HTTP client of both kinds of store that need one: blocking, bounded in every wait, one TLS stack.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::{Request, Response, StatusCode};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, AsSendBody, Body};

use super::digest::Digest;
use super::fault::Fault;

/// As much of a refusal as is read for its reason.
const LONGEST_REFUSAL: u64 = 4 << 10;

/// The environment of whoever opens a store.
pub(super) type Env = BTreeMap<OsString, OsString>;

/// How long a server may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) connect: Duration,
    /// For each piece read or written: however large a blob is, it takes as long as it takes.
    pub(super) idle: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(60),
        }
    }
}

pub(super) struct Wire {
    agent: Agent,
}

impl Wire {
    /// `roots` names certificates to trust instead of the built-in ones.
    pub(super) fn new(
        is_local: bool,
        roots: Option<&OsStr>,
        patience: Patience,
    ) -> Result<Self, String> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // Tokens and signatures go to the server that was named, and nowhere else.
            .max_redirects(0)
            .max_redirects_will_error(false)
            // An upload cannot be repeated on its own, so none begins on a connection that may be dead by now.
            .max_idle_age(Duration::from_secs(5))
            .timeout_connect(Some(patience.connect))
            .timeout_per_read(Some(patience.idle))
            .timeout_per_write(Some(patience.idle))
            .user_agent(concat!("fairtrial/", env!("CARGO_PKG_VERSION")));
        if is_local {
            config = config.proxy(None); // none leads back here
        }
        if let Some(file) = roots {
            config = config.tls_config(TlsConfig::builder().root_certs(trusted(file)?).build());
        }
        Ok(Self {
            agent: config.build().new_agent(),
        })
    }

    /// A response, whatever its status.
    pub(super) fn send(&self, request: Request<impl AsSendBody>) -> Result<Response<Body>, Fault> {
        let answer = self.agent.run(request);
        answer.map_err(|error| Fault::Unreachable(error.to_string()))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Wire")
    }
}

/// What it means that a server did not do what it was asked about a blob.
pub(super) fn refusal(digest: Option<Digest>, response: Response<Body>) -> Fault {
    let status = response.status();
    let code = error_code(response).unwrap_or_default();
    let said = match code.is_empty() {
        true => format!("the server answered {status}"),
        false => format!("the server answered {status}: {code}"),
    };
    // Ceph and MinIO tell of a quota by a code of S3's, under several statuses.
    let is_full = code.contains("QuotaExceeded") || code.contains("StorageFull");
    match (status, digest) {
        _ if is_full => Fault::Full(said),
        (StatusCode::INSUFFICIENT_STORAGE, _) => Fault::Full(said),
        (StatusCode::NOT_FOUND | StatusCode::GONE, Some(digest)) if code != "NoSuchBucket" => {
            Fault::Missing(digest)
        }
        (StatusCode::PAYLOAD_TOO_LARGE, Some(digest)) => Fault::TooLarge {
            digest,
            problem: said,
        },
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::METHOD_NOT_ALLOWED, _) => {
            Fault::Denied(said)
        }
        (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS, _) => {
            Fault::Unreachable(said)
        }
        _ if status.is_server_error() => Fault::Unreachable(said),
        _ if status.is_redirection() => {
            Fault::Unusable(format!("{said}; name the URL that it leads to"))
        }
        _ => Fault::Unusable(said),
    }
}

/// The `Code` of an error in S3's XML. Nothing else of a refusal is repeated: it may quote the request.
fn error_code(response: Response<Body>) -> Option<String> {
    let reader = response.into_body().into_reader();
    let mut text = Vec::new();
    // A reason that broke off is still a refusal.
    reader.take(LONGEST_REFUSAL).read_to_end(&mut text).ok();
    let text = String::from_utf8_lossy(&text);
    let (_, after) = text.split_once("<Code>")?;
    let (code, _) = after.split_once("</Code>")?;
    let is_plain = code.len() <= 60 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| code.to_owned())
}

/// Whether a host is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn trusted(file: &OsStr) -> Result<RootCerts, String> {
    let bad = |problem: &dyn fmt::Display| {
        let file = file.display();
        format!("the certificates of `{file}` cannot be read: {problem}")
    };
    let text = std::fs::read(file).map_err(|error| bad(&error))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| bad(&error))? {
            certificates.push(certificate);
        }
    }
    match certificates.is_empty() {
        true => Err(bad(&"there are none")),
        false => Ok(RootCerts::Specific(Arc::new(certificates))),
    }
}
