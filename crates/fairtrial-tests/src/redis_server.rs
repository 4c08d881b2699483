//! A redis-server of a test's own: its own socket and directory, append-only, gone with the test.
//! `FAIRTRIAL_TEST_SERVER` names another program that is to be one, such as `valkey-server`.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A running server.
pub struct RedisServer {
    dir: TempDir,
    child: Child,
    terms: ServerTerms,
}

/// What is unusual about a server.
#[derive(Debug, Default)]
pub struct ServerTerms {
    /// Words of its command line.
    pub words: Vec<String>,
    /// Whose it is, and its files are.
    pub user: Option<u32>,
}

impl RedisServer {
    /// Starts one; none, with the reason printed, where there is no redis-server. With `FAIRTRIAL_REQUIRE_REDIS` that is
    /// a failure.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_on(|_| ServerTerms::default())
    }

    /// As [`RedisServer::start`], on terms that files in its directory may be part of.
    #[must_use]
    pub fn start_on(terms: impl FnOnce(&Path) -> ServerTerms) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let terms = terms(dir.path());
        match launch(dir.path(), &terms) {
            Ok(child) => Some(Self { dir, child, terms }),
            Err(error) => {
                let required = std::env::var_os("FAIRTRIAL_REQUIRE_REDIS").is_some();
                let program = program();
                assert!(!required, "{program} is required: {error}");
                crate::note(format!(
                    "skipped: no {program} ({error}); it is in the package `{program}`"
                ));
                None
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.dir.path().join("s").display())
    }

    /// The same, as somebody.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}?user={user}&pass={password}", self.url())
    }

    /// Where its files are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends it by SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    /// Starts it again on what it wrote.
    pub fn start_again(&mut self) {
        self.child = launch(self.dir.path(), &self.terms).expect("it started before");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn program() -> String {
    std::env::var("FAIRTRIAL_TEST_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server under test is no candidate"
)]
fn launch(dir: &Path, terms: &ServerTerms) -> std::io::Result<Child> {
    let mut command = Command::new(program());
    command.args(["--port", "0", "--unixsocket", "s", "--save", ""]);
    command.args(["--appendonly", "yes", "--daemonize", "no", "--dir"]);
    command.arg(dir).args(&terms.words).current_dir(dir);
    if let Some(user) = terms.user {
        // A temporary directory is open to whoever may read.
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))?;
        chown(dir, Some(user), Some(user))?;
        for file in std::fs::read_dir(dir)? {
            chown(file?.path(), Some(user), Some(user))?;
        }
        command.uid(user).gid(user);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let is_ready = |line: std::io::Result<String>| {
        line.is_ok_and(|line| line.contains("eady to accept connections"))
    };
    assert!(
        lines.by_ref().any(is_ready),
        "the server ended before it was ready"
    );
    // Read on, or it would stop when the pipe is full.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(child)
}
