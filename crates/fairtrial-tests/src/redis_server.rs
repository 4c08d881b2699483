//! A redis-server of a test's own: its own socket and directory, append-only, gone with the test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A running server.
pub struct RedisServer {
    dir: TempDir,
    child: Child,
}

impl RedisServer {
    /// Starts one; none, with the reason printed, where there is no redis-server. With `FAIRTRIAL_REQUIRE_REDIS` that is
    /// a failure.
    #[must_use]
    pub fn start() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        match launch(dir.path()) {
            Ok(child) => Some(Self { dir, child }),
            Err(error) => {
                let required = std::env::var_os("FAIRTRIAL_REQUIRE_REDIS").is_some();
                assert!(
                    !required,
                    "redis-server is required and cannot be started: {error}"
                );
                crate::note(format!(
                    "skipped: no redis-server ({error}); it is in the package `redis-server`"
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

    /// Ends it by SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is ours");
    }

    /// Starts it again on what it wrote.
    pub fn start_again(&mut self) {
        self.child = launch(self.dir.path()).expect("it started before");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server under test is no candidate"
)]
fn launch(dir: &Path) -> std::io::Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--unixsocket", "s", "--save", ""]);
    command.args(["--appendonly", "yes", "--daemonize", "no", "--dir"]);
    command.arg(dir).current_dir(dir);
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
        "redis-server ended before it was ready"
    );
    // Read on, or it would stop when the pipe is full.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(child)
}
