//! The `fairtrial` binary as a user runs it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A run of the binary to be.
pub struct Cli(Command);

/// A run that ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; `None` for a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cli {
    /// `fairtrial` with these arguments.
    pub fn new<'a>(args: impl IntoIterator<Item = &'a str>) -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "tests run the binary as a user does"
        )]
        let mut command = Command::new(binary());
        command.args(args).stdin(Stdio::null());
        Self(command)
    }

    /// In this directory.
    #[must_use]
    pub fn current_dir(mut self, dir: &std::path::Path) -> Self {
        self.0.current_dir(dir);
        self
    }

    /// With this variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Starts it with pipes on all three streams.
    #[must_use]
    pub fn start(mut self) -> Child {
        self.0
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.0
            .spawn()
            .expect("the binary starts; build it with `cargo build -p fairtrial-cli`")
    }

    /// Runs it to its end.
    #[must_use]
    pub fn run(self) -> Finished {
        self.run_with("")
    }

    /// Runs it to its end with this input.
    #[must_use]
    pub fn run_with(self, stdin: &str) -> Finished {
        let mut child = self.start();
        let mut pipe = child.stdin.take().expect("stdin is piped");
        let text = stdin.to_owned();
        let feed = std::thread::spawn(move || pipe.write_all(text.as_bytes()).ok());
        let output = child.wait_with_output().expect("it can be waited for");
        feed.join().expect("feeding does not panic");
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Beside the test binary's directory: `.ci/test` builds it first.
fn binary() -> PathBuf {
    let mut path = std::env::current_exe().expect("this process has a program");
    path.pop(); // the test's file name
    path.pop(); // deps
    path.join("fairtrial")
}
