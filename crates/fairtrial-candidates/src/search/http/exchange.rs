//! One request and one response, blocking and bounded.

use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::http::{HeaderMap, Uri};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::super::answer::LONGEST_ANSWER;
use super::BadServer;

/// What came of a request.
#[derive(Debug)]
pub(super) enum Exchange {
    /// A response, whole unless it is longer than any answer.
    Response(Response),
    /// None, or not all of one.
    Broken(String),
}

#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
    pub(super) date: Option<String>,
    pub(super) location: Option<String>,
    /// At most one byte more than the longest answer.
    pub(super) body: Vec<u8>,
}

/// Where completions are asked for.
pub(super) struct Server {
    agent: Agent,
    url: String,
    authorization: Option<String>,
}

impl Server {
    pub(super) fn new(
        base_url: &str,
        key: Option<String>,
        roots: Option<&OsStr>,
    ) -> Result<Self, BadServer> {
        let bad = |problem: String| BadServer {
            key: "base_url",
            problem,
        };
        let url = format!("{}/chat/completions", base_url.trim_end_matches('/'));
        let uri: Uri = url
            .parse()
            .map_err(|error| bad(format!("`{base_url}`: {error}")))?;
        let host = match (uri.scheme_str(), uri.host()) {
            (Some("http" | "https"), Some(host)) if !host.is_empty() => host,
            _ => {
                return Err(bad(format!(
                    "`{base_url}` does not begin with `https://` or `http://` and a host"
                )));
            }
        };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // A key goes to the server that was named, and nowhere else.
            .max_redirects(0)
            // Requests are minutes apart: a kept connection would be closed when it is needed.
            .max_idle_connections(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("fairtrial/", env!("CARGO_PKG_VERSION")))
            .accept("application/json");
        if is_loopback(host) {
            config = config.proxy(None);
        }
        if let Some(file) = roots {
            config = config.tls_config(TlsConfig::builder().root_certs(trusted(file)?).build());
        }
        Ok(Self {
            agent: config.build().new_agent(),
            url,
            authorization: key.map(|key| format!("Bearer {key}")),
        })
    }

    pub(super) fn has_key(&self) -> bool {
        self.authorization.is_some()
    }

    /// Sends and receives, in no more than `timeout`.
    pub(super) fn exchange(&self, body: &[u8], timeout: Duration) -> Exchange {
        let request = self
            .agent
            .post(&self.url)
            .config()
            .timeout_global(Some(timeout))
            .build();
        let request = request.header("content-type", "application/json");
        let request = match &self.authorization {
            Some(authorization) => request.header("authorization", authorization),
            None => request,
        };
        let response = match request.send(body) {
            Ok(response) => response,
            Err(error) => return Exchange::Broken(error.to_string()),
        };
        let (head, body) = response.into_parts();
        let mut response = Response {
            status: head.status.as_u16(),
            retry_after: text_of(&head.headers, "retry-after"),
            date: text_of(&head.headers, "date"),
            location: text_of(&head.headers, "location"),
            body: Vec::new(),
        };
        let reader = body.into_with_config().limit(u64::MAX).reader();
        match reader
            .take(LONGEST_ANSWER as u64 + 1)
            .read_to_end(&mut response.body)
        {
            Ok(_) => Exchange::Response(response),
            Err(error) => Exchange::Broken(format!("the answer broke off: {error}")),
        }
    }
}

/// Says nothing of the key.
impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Server")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.trim().to_owned())
}

/// No proxy leads back here.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn trusted(file: &OsStr) -> Result<RootCerts, BadServer> {
    let bad = |problem: &dyn fmt::Display| BadServer {
        key: "base_url",
        problem: format!("the certificates of `SSL_CERT_FILE` cannot be read: {problem}"),
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
