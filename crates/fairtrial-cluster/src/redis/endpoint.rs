//! Where the server is and how to get there: an address checked before anything connects (CL-45). Shows no password.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    TlsCertificates, io::tcp::TcpSettings,
};

use crate::dispatch::DispatchError;

/// A server's address: `redis://`, `rediss://` or `redis+unix://`. In the query: `ca`, `cert` and `key` (files, PEM),
/// `insecure=1`; other keys are for others.
#[derive(Clone)]
pub struct Endpoint {
    info: ConnectionInfo,
    tls: Option<TlsCertificates>,
    key_file: Option<PathBuf>,
}

impl Endpoint {
    /// How an address is written.
    pub const EXAMPLE: &str = "for example `redis://host:6379`";

    /// Reads an address, and the files it names. Refuses a password that would cross a network in the clear.
    pub fn parse(url: &str) -> Result<Self, DispatchError> {
        let info = url.into_connection_info().map_err(|error| {
            let given = masked(url);
            let why = error
                .detail()
                .map_or_else(|| "it is none".to_owned(), str::to_owned);
            address(format!("`{given}`: {why}; write {}", Self::EXAMPLE))
        })?;
        if url.contains('#') {
            return Err(address("it has a `#`; certificates are always verified"));
        }
        let endpoint = Self {
            tls: certificates(url)?,
            key_file: option(url, "key").map(PathBuf::from),
            info,
        };
        if endpoint.has_password()
            && endpoint.crosses_a_network()
            && option(url, "insecure").as_deref() != Some("1")
        {
            let host = endpoint.address();
            return Err(address(format!(
                "a password would go to `{host}` in the clear; use `rediss://`, or say `?insecure=1`"
            )));
        }
        Ok(endpoint)
    }

    /// Host and port, or socket.
    #[must_use]
    pub fn address(&self) -> String {
        self.info.addr().to_string()
    }

    /// The user it logs in as.
    #[must_use]
    pub fn user(&self) -> &str {
        self.info.redis_settings().username().unwrap_or("default")
    }

    /// Whether user or password stand in the address itself.
    #[must_use]
    pub fn names_a_user(&self) -> bool {
        let settings = self.info.redis_settings();
        settings.username().is_some() || settings.password().is_some()
    }

    /// Whether there is a password in it.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.info.redis_settings().password().is_some()
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// The file of the key that it shows itself with, if it does.
    #[must_use]
    pub fn key_file(&self) -> Option<&Path> {
        self.key_file.as_deref()
    }

    /// The same place without user, password and key: what a stranger would use (CL-44).
    #[must_use]
    pub fn as_stranger(&self) -> Self {
        let settings = redis::RedisConnectionInfo::default();
        let tls = self.tls.as_ref().map(|tls| TlsCertificates {
            client_tls: None,
            root_cert: tls.root_cert.clone(),
        });
        Self {
            info: self.info.clone().set_redis_settings(settings),
            tls,
            key_file: None,
        }
    }

    /// Clients for operations, and for what the server says unasked.
    pub(super) fn clients(&self) -> Result<(Client, Client), DispatchError> {
        let client = |protocol| {
            let settings = self.info.redis_settings().clone().set_protocol(protocol);
            // Each operation is one small message: none waits until another was acknowledged.
            let tcp = TcpSettings::default().set_nodelay(true);
            let info = self.info.clone().set_redis_settings(settings);
            let info = info.set_tcp_settings(tcp);
            let made = match &self.tls {
                Some(tls) => Client::build_with_tls(info, tls.clone()),
                None => Client::open(info),
            };
            made.map_err(|error| address(error.to_string()))
        };
        Ok((
            client(ProtocolVersion::RESP2)?,
            client(ProtocolVersion::RESP3)?,
        ))
    }

    fn crosses_a_network(&self) -> bool {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) => {
                let loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
                host != "localhost" && !loopback
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({} as {})", self.address(), self.user())
    }
}

/// A word of a command line as records may have it: of an address in it neither user nor password (CL-48).
#[must_use]
pub fn without_secrets(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let (host, query) = match rest.split_once('?') {
        Some((host, query)) => (host, Some(query)),
        None => (rest, None),
    };
    let host = match host.rsplit_once('@') {
        Some((_, host)) => format!("***@{host}"),
        None => host.to_owned(),
    };
    let shown = |pair: &str| match pair.split_once('=') {
        Some((key @ ("user" | "pass"), _)) => format!("{key}=***"),
        _ => pair.to_owned(),
    };
    let query = query.map(|query| query.split('&').map(shown).collect::<Vec<_>>().join("&"));
    let query = query.map_or_else(String::new, |query| format!("?{query}"));
    format!("{scheme}://{host}{query}")
}

/// What was given in the place of an address, whatever it is: up to the last `@`, and where a port should be, there may be a
/// password.
fn masked(given: &str) -> String {
    let (front, rest) = match given.rsplit_once('@') {
        Some((front, rest)) => {
            let scheme = front.split_once("://").map(|(scheme, _)| scheme);
            let scheme = scheme.map_or_else(String::new, |scheme| format!("{scheme}://"));
            (format!("{scheme}***@"), rest)
        }
        None => match given.split_once("://") {
            Some((scheme, rest)) => (format!("{scheme}://"), rest),
            None => (String::new(), given),
        },
    };
    let rest = without_secrets(&format!("://{rest}"));
    let rest = &rest[3..];
    let shown = match rest.rsplit_once(':') {
        Some((host, port)) if !port.starts_with(|c: char| c.is_ascii_digit() || c == ']') => {
            format!("{host}:…")
        }
        _ => rest.to_owned(),
    };
    format!("{front}{shown}")
}

fn certificates(url: &str) -> Result<Option<TlsCertificates>, DispatchError> {
    let file = |name| {
        let Some(path) = option(url, name) else {
            return Ok(None);
        };
        let read = std::fs::read(&path);
        read.map(Some)
            .map_err(|error| address(format!("cannot read `{name}` from `{path}`: {error}")))
    };
    let client_tls = match (file("cert")?, file("key")?) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig {
            client_cert,
            client_key,
        }),
        (None, None) => None,
        _ => return Err(address("`cert` and `key` go together")),
    };
    let root_cert = file("ca")?;
    let any = client_tls.is_some() || root_cert.is_some();
    if any && !url.starts_with("rediss://") {
        return Err(address("`ca`, `cert` and `key` are for `rediss://`"));
    }
    Ok(any.then_some(TlsCertificates {
        client_tls,
        root_cert,
    }))
}

/// The value of one key of the address's query.
fn option(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut values = pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    values.next().map(percent_decoded)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.get(..2).filter(|_| *first == b'%');
        let code = digits
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &others[2..] } else { others };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn address(problem: impl Into<String>) -> DispatchError {
    DispatchError::Address {
        problem: problem.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CL-45, CL-48
    #[test]
    fn a_password_does_not_cross_a_network_in_the_clear_and_is_never_shown() {
        let refused = Endpoint::parse("redis://agent:hunter2@10.1.2.3:6379")
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("10.1.2.3:6379") && refused.contains("insecure=1"),
            "{refused}"
        );
        assert!(!refused.contains("hunter2"), "{refused}");
        for fine in [
            "redis://agent:hunter2@127.0.0.1:6379",
            "redis://agent:hunter2@localhost",
            "redis://agent:hunter2@[::1]:6379",
            "redis://agent:hunter2@10.1.2.3:6379?insecure=1",
            "rediss://agent:hunter2@10.1.2.3:6379",
            "redis://10.1.2.3:6379",
            "redis+unix:///run/redis.sock?pass=hunter2",
        ] {
            let endpoint = Endpoint::parse(fine).unwrap();
            assert!(!format!("{endpoint:?}").contains("hunter2"));
        }
    }

    /// CL-45, CL-48
    #[test]
    fn an_address_that_cannot_be_one_is_refused_without_its_password() {
        for (bad, shown) in [
            ("redis//:hunter2@", "`***@`"),
            ("http://u:hunter2@h", "`http://***@h`"),
            ("rediss://u:hunter2@h#insecure", "`#`"),
            ("redis://u:hunter2@h/x", "`redis://***@h/x`"),
            ("redis://u:hun/ter2@h:1", "`redis://***@h:1`"),
            ("redis://:hunter2", "`redis://:…`"),
            ("reddis+unix:///s?pass=hunter2", "?pass=***"),
            ("redis//127.0.0.1", "`redis//127.0.0.1`"),
            ("127.0.0.1:17391", "`127.0.0.1:17391`"),
            ("redis://127.0.0.1:notaport", "`redis://127.0.0.1:…`"),
            ("loacl", "`loacl`"),
            ("", "``"),
        ] {
            let refused = Endpoint::parse(bad).expect_err(bad).to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
            assert!(refused.contains(shown), "{bad}: {refused}");
            assert!(
                shown == "`#`" || refused.contains("redis://host:6379"),
                "{refused}"
            );
        }
    }

    /// CL-48
    #[test]
    fn records_of_a_command_line_have_neither_user_nor_password() {
        for (word, shown) in [
            (
                "--backend=rediss://u:hunter2@h:1/0?ca=/a",
                "--backend=rediss://***@h:1/0?ca=/a",
            ),
            ("redis://:hun@ter2@h", "redis://***@h"),
            (
                "redis+unix:///s?user=u&lease=3s&pass=hunter2",
                "redis+unix:///s?user=***&lease=3s&pass=***",
            ),
            ("redis://h?queue=a@b", "redis://h?queue=a@b"),
            ("study.yaml", "study.yaml"),
        ] {
            assert_eq!(without_secrets(word), shown);
        }
    }

    /// CL-44: what opens the door is left out, what tells the right door stays.
    #[test]
    fn a_stranger_has_no_user_password_or_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pem");
        std::fs::write(&file, "x").unwrap();
        let path = file.display();
        let endpoint =
            Endpoint::parse(&format!("rediss://u:p@h?ca={path}&cert={path}&key={path}")).unwrap();
        assert!(endpoint.names_a_user());
        assert_eq!(endpoint.key_file(), Some(&*file));
        let stranger = endpoint.as_stranger();
        assert!(!stranger.names_a_user() && stranger.key_file().is_none());
        let tls = stranger.tls.unwrap();
        assert!(tls.client_tls.is_none() && tls.root_cert.is_some());
        assert!(!Endpoint::parse("redis://h").unwrap().names_a_user());
    }

    #[test]
    fn files_are_named_in_the_query() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("my ca.pem");
        std::fs::write(&file, "x").unwrap();
        let path = file.to_str().unwrap().replace(' ', "%20");
        let tls = Endpoint::parse(&format!("rediss://h?weight=3&ca={path}"))
            .unwrap()
            .tls
            .unwrap();
        assert_eq!(tls.root_cert.unwrap(), b"x");
        for bad in [
            "rediss://h?ca=/nonexistent",
            &format!("rediss://h?cert={path}"),
            &format!("redis://h?ca={path}"),
        ] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }
}
