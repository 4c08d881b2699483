//! A user at a shell: a directory with files, and the binary run in it.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use tempfile::TempDir;

use crate::cli::Cli;
use crate::host::running_with;

/// A directory to work in; what is run there is marked, so that what is left of it can be found.
pub struct Shell {
    dir: TempDir,
}

impl Shell {
    /// The variable that marks what is run here: those of the locale reach every process below the engine.
    pub const MARK: &str = "LC_FAIRTRIAL_TEST";

    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        Self { dir }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file below it.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        let parent = path.parent().expect("below the directory");
        std::fs::create_dir_all(parent).expect("a directory can be made");
        std::fs::write(&path, text).expect("a file can be written");
        path
    }

    /// Reads a file below it.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("the file is there")
    }

    /// Bytes of a file below it; none if it is not there.
    #[must_use]
    pub fn size(&self, name: &str) -> u64 {
        std::fs::metadata(self.path().join(name)).map_or(0, |facts| facts.len())
    }

    /// Writes a file of JSON lines.
    pub fn write_lines(&self, name: &str, lines: &[Json]) -> PathBuf {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.write(name, &text)
    }

    /// Puts one of the misbehaving programs here.
    pub fn program(&self, name: &str) {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs");
        std::fs::copy(programs.join(name), self.path().join(name))
            .expect("there is such a program");
    }

    /// `fairtrial` in this directory, untouched by the variables of whoever runs the tests.
    pub fn fairtrial<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Cli {
        let cli = Cli::new(args)
            .current_dir(self.path())
            .env("FAIRTRIAL_SPILL_DIR", self.path().join("spill"))
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            // Tests beside this one measure, too.
            .env("FAIRTRIAL_MACHINE_LOCK", self.path().join("machine.lock"))
            .env(Self::MARK, self.path());
        let others = ["MAX_WORKERS", "IDLE_TIMEOUT_S", "NODE_ID"];
        others.iter().fold(cli, |cli, name| {
            cli.env_remove(&format!("FAIRTRIAL_{name}"))
        })
    }

    /// Processes (not zombies) of whatever was run here.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        running_with(&self.path().display().to_string())
    }

    /// What the engine left in its spill directory.
    #[must_use]
    pub fn spilled(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path().join("spill"));
        entries.map_or(Vec::new(), |entries| {
            entries.flatten().map(|entry| entry.path()).collect()
        })
    }

    /// Fails the test if a process or a file of what was run here is left.
    pub fn assert_nothing_left(&self) {
        let (processes, files) = (self.processes(), self.spilled());
        assert!(processes.is_empty(), "processes are left: {processes:?}");
        assert!(files.is_empty(), "files are left: {files:?}");
    }
}

impl Default for Shell {
    fn default() -> Self {
        Self::new()
    }
}
