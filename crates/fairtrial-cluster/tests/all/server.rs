//! A redis-server of a test's own: its own socket and directory, append-only, gone with the test.
//! `FAIRTRIAL_TEST_SERVER` names another program that is to be one, such as `valkey-server`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// A running server.
pub(crate) struct Server {
    dir: TempDir,
    child: Child,
}

impl Server {
    /// Starts one; none, with the reason printed, where there is no redis-server. Then `FAIRTRIAL_REQUIRE_REDIS` fails.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(tempfile::tempdir().unwrap(), &[])
    }

    /// The same in a directory with more words, which it is not started with again.
    #[expect(
        clippy::print_stderr,
        reason = "a skipped test says which mechanism was missing"
    )]
    pub(crate) fn start_with(dir: TempDir, words: &[&str]) -> Option<Self> {
        match launch(dir.path(), words) {
            Ok(child) => Some(Self { dir, child }),
            Err(error) => {
                let required = std::env::var_os("FAIRTRIAL_REQUIRE_REDIS").is_some();
                let program = program();
                assert!(
                    !required,
                    "{program} is required and cannot be started: {error}"
                );
                eprintln!("skipped: no {program} ({error}); it is in the package `{program}`");
                None
            }
        }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket())
    }

    /// The same, as somebody.
    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}?user={user}&pass={password}", self.url())
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on what it wrote.
    pub(crate) fn start_again(&mut self) {
        self.child = launch(self.dir.path(), &[]).unwrap();
    }

    fn socket(&self) -> String {
        self.dir.path().join("s").to_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The server's program.
pub(crate) fn program() -> String {
    std::env::var("FAIRTRIAL_TEST_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server under test is no candidate"
)]
fn launch(dir: &Path, words: &[&str]) -> std::io::Result<Child> {
    let mut command = Command::new(program());
    command.args([
        "--port",
        "0",
        "--unixsocket",
        "s",
        "--save",
        "",
        "--appendonly",
        "yes",
    ]);
    command.args(["--daemonize", "no", "--dir"]).arg(dir);
    command.args(words);
    let mut child = command
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .by_ref()
        .any(|line| line.is_ok_and(|line| line.contains("eady to accept connections")));
    assert!(ready, "the server ended before it was ready");
    // Read on, or it would stop when the pipe is full.
    std::thread::spawn(move || lines.for_each(drop));
    Ok(child)
}
