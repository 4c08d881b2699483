//! Other engines on the machine, as processes: see `src/bin/stand_in.rs`.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use crate::cli::binary;
use crate::story::PATIENCE;

/// One of them. Dropped before its end, it is killed.
pub struct StandIn {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl StandIn {
    /// Starts one in a part.
    #[must_use]
    pub fn start(part: &[&str]) -> Self {
        #[expect(clippy::disallowed_methods, reason = "an engine beside this one")]
        let mut command = Command::new(binary().with_file_name("stand_in"));
        command
            .args(part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("it is built with the tests");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // It ends when it has no more to say, or nobody listens.
            stdout
                .lines()
                .map_while(Result::ok)
                .all(|line| sender.send(line).is_ok())
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it says next; `None` if it has ended.
    #[must_use]
    pub fn heard(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("it said nothing in time"),
        }
    }

    /// Ends it without a word to it.
    pub fn kill(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Tells it to end, and waits for it; whether it found all well.
    #[must_use]
    pub fn end(mut self) -> bool {
        drop(self.stdin.take());
        while self.heard().is_some() {}
        self.child.wait().expect("it is ours").success()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.child.kill().ok(); // it may have ended
        self.child.wait().ok(); // and been waited for
    }
}
