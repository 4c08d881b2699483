//! Servers that show a certificate, made here by `openssl`: whom we believe, and what we say of whom we do not.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use fairtrial_cluster::{Dispatch, DispatchError, Endpoint, RedisDispatch};
use tempfile::TempDir;

use crate::server::Server;

/// What `openssl ca` wants to know.
const CONFIG: &str = "
[ca]
default_ca = it
[it]
database = index
serial = serial
new_certs_dir = .
default_md = sha256
policy = any
email_in_dn = no
unique_subject = no
[any]
commonName = supplied
[server]
subjectAltName = DNS:localhost,IP:127.0.0.1
[elsewhere]
subjectAltName = DNS:elsewhere.example
[client]
extendedKeyUsage = clientAuth
";
const NOW: [&str; 2] = ["20250101000000Z", "20990101000000Z"];
const LONG_AGO: [&str; 2] = ["20200101000000Z", "20210101000000Z"];

/// Certificates in a directory. None, with the reason printed, where there is no `openssl`.
struct Certificates(TempDir);

impl Certificates {
    #[expect(
        clippy::print_stderr,
        reason = "a skipped test says which mechanism was missing"
    )]
    fn make() -> Option<Self> {
        let made = Self(tempfile::tempdir().unwrap());
        for (name, text) in [("conf", CONFIG), ("index", ""), ("serial", "01\n")] {
            std::fs::write(made.path(name), text).unwrap();
        }
        for ca in ["ca", "other-ca"] {
            let subject = format!("/CN={ca}");
            let (key, cert) = (format!("{ca}.key"), format!("{ca}.pem"));
            let words = [
                "req", "-x509", "-subj", &subject, "-days", "30", "-out", &cert,
            ];
            if let Err(error) = made.openssl(&[&words[..], &NEW_KEY, &["-keyout", &key]].concat()) {
                eprintln!("skipped: no openssl ({error}); it is in the package `openssl`");
                return None;
            }
        }
        made.issue("server", "server", NOW);
        made.issue("expired", "server", LONG_AGO);
        made.issue("elsewhere", "elsewhere", NOW);
        made.issue("client", "client", NOW);
        Some(made)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A certificate for a part of the configuration, and its key.
    fn issue(&self, name: &str, part: &str, [from, to]: [&str; 2]) {
        let subject = format!("/CN={name}");
        let [key, request, cert] = ["key", "csr", "pem"].map(|kind| format!("{name}.{kind}"));
        let asked = ["req", "-subj", &subject, "-keyout", &key, "-out", &request];
        self.openssl(&[&asked[..], &NEW_KEY].concat()).unwrap();
        let signed = [
            "ca",
            "-batch",
            "-notext",
            "-config",
            "conf",
            "-extensions",
            part,
        ];
        let by = [
            "-cert",
            "ca.pem",
            "-keyfile",
            "ca.key",
            "-startdate",
            from,
            "-enddate",
            to,
        ];
        let files = ["-in", &request, "-out", &cert];
        self.openssl(&[&signed[..], &by, &files].concat()).unwrap();
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the maker of certificates is no candidate"
    )]
    fn openssl(&self, words: &[&str]) -> Result<(), String> {
        let output = Command::new("openssl")
            .args(words)
            .current_dir(self.0.path())
            .output();
        match output.map_err(|error| error.to_string())? {
            output if output.status.success() => Ok(()),
            output => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// A server that shows one of them, and its port.
    fn serve(&self, shown: &str, clients: &str) -> Option<(Server, u16)> {
        let port = free_port();
        let [key, cert] = ["key", "pem"].map(|kind| self.path(&format!("{shown}.{kind}")));
        let ca = self.path("ca.pem");
        let [key, cert, ca] = [&key, &cert, &ca].map(|path| path.to_str().unwrap());
        let number = port.to_string();
        let words = [
            ["--tls-port", &number],
            ["--bind", "127.0.0.1"],
            ["--tls-key-file", key],
            ["--tls-cert-file", cert],
            ["--tls-ca-cert-file", ca],
            ["--tls-auth-clients", clients],
        ];
        let server = Server::start_with(tempfile::tempdir().unwrap(), &words.concat())?;
        Some((server, port))
    }

    fn query(&self, ca: &str, client: Option<&str>) -> String {
        let mut query = format!("ca={}", self.path(ca).display());
        if let Some(client) = client {
            let [key, cert] = ["key", "pem"].map(|kind| self.path(&format!("{client}.{kind}")));
            query += &format!("&key={}&cert={}", key.display(), cert.display());
        }
        query
    }
}

const NEW_KEY: [&str; 5] = [
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
];

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

async fn asked(url: &str) -> Result<(), DispatchError> {
    let dispatch = RedisDispatch::new(Endpoint::parse(url)?)?;
    dispatch.server_status().await.map(drop)
}

/// CL-45, X15
#[tokio::test]
async fn a_server_is_believed_by_its_own_ca_and_believes_a_client_by_its_certificate() {
    let Some(made) = Certificates::make() else {
        return;
    };
    let Some((_server, port)) = made.serve("server", "yes") else {
        return;
    };
    for host in ["localhost", "127.0.0.1"] {
        let query = made.query("ca.pem", Some("client"));
        asked(&format!("rediss://{host}:{port}?{query}"))
            .await
            .unwrap();
    }
    let nobody = asked(&format!(
        "rediss://localhost:{port}?{}",
        made.query("ca.pem", None)
    ))
    .await;
    assert!(
        matches!(&nobody, Err(DispatchError::Unsuited { problem, .. }) if problem.contains("cert=FILE")),
        "{nobody:?}"
    );
    // A call has no key: it is not let in, and the agent that has one sees that (CL-44).
    let query = made.query("ca.pem", Some("client"));
    let endpoint = Endpoint::parse(&format!("rediss://localhost:{port}?{query}")).unwrap();
    let dispatch = RedisDispatch::new(endpoint).unwrap();
    assert!(!dispatch.serves_strangers().await.unwrap());
    // What listens, and what waits, have connections of their own.
    dispatch
        .hints(&[fairtrial_cluster::Class::Cpu], None)
        .await
        .unwrap();
}

/// CL-45, X15: each with a reason that names the certificate, and none worth trying again.
#[tokio::test]
async fn a_certificate_that_is_not_the_servers_is_refused_with_the_reason() {
    let Some(made) = Certificates::make() else {
        return;
    };
    for (shown, ca, says) in [
        ("server", Some("other-ca.pem"), "ca=FILE"),
        ("server", None, "ca=FILE"),
        ("expired", Some("ca.pem"), "expired"),
        ("elsewhere", Some("ca.pem"), "elsewhere.example"),
    ] {
        let Some((_server, port)) = made.serve(shown, "no") else {
            return;
        };
        let query = ca.map_or_else(String::new, |ca| made.query(ca, None));
        let refused = asked(&format!("rediss://localhost:{port}?{query}")).await;
        let Err(DispatchError::Unsuited { address, problem }) = &refused else {
            panic!("{shown}, {ca:?}: {refused:?}");
        };
        assert_eq!(*address, format!("localhost:{port}"));
        assert!(
            problem.contains("certificate") && problem.contains(says),
            "{problem}"
        );
        assert!(!problem.contains('\n'), "{problem}");
    }
}

/// CL-45: what is no certificate, or no key, is found before anything connects.
#[test]
fn files_that_hold_no_certificate_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    std::fs::write(
        &empty,
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    let refused = |query: &str, file: &Path| {
        let file = file.display();
        let query = query.replace("FILE", &file.to_string());
        let endpoint = Endpoint::parse(&format!("rediss://u:hunter2@localhost?{query}")).unwrap();
        RedisDispatch::new(endpoint).unwrap_err().to_string()
    };
    for query in ["ca=FILE", "cert=FILE&key=FILE"] {
        let said = refused(query, &empty);
        assert!(
            said.contains("bad server address") && !said.contains("hunter2"),
            "{said}"
        );
    }
}
