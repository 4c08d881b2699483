//! A command as an evaluation asks for it.

use serde_json::{Value as Json, json};

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments; at least the program.
    Argv(Vec<String>),
    /// A text for `sh -c`.
    Shell(String),
}

/// What stands for the number of loops in a bench command.
pub const LOOPS: &str = "{loops}";

impl Command {
    /// The program and its arguments.
    ///
    /// ```
    /// use fairtrial_candidates::spec::Command;
    ///
    /// assert_eq!(Command::Shell("make test".into()).to_argv(), ["/bin/sh", "-c", "make test"]);
    /// ```
    #[must_use]
    pub fn to_argv(&self) -> Vec<String> {
        match self {
            Self::Argv(argv) => argv.clone(),
            Self::Shell(text) => vec!["/bin/sh".into(), "-c".into(), text.clone()],
        }
    }

    /// Whether it takes the number of loops.
    #[must_use]
    pub fn takes_loops(&self) -> bool {
        match self {
            Self::Argv(argv) => argv.iter().any(|argument| argument.contains(LOOPS)),
            Self::Shell(text) => text.contains(LOOPS),
        }
    }

    /// The command with a number of loops in its place.
    #[must_use]
    pub fn with_loops(&self, loops: u32) -> Self {
        let filled = |text: &String| text.replace(LOOPS, &loops.to_string());
        match self {
            Self::Argv(argv) => Self::Argv(argv.iter().map(filled).collect()),
            Self::Shell(text) => Self::Shell(filled(text)),
        }
    }

    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Argv(argv) => json!(argv),
            Self::Shell(text) => json!(text),
        }
    }
}
