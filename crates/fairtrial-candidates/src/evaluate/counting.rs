//! Ties broken: instructions that callgrind counts, outside the races (CA-72).
//!
//! Each bench command is run once more as it was measured, on the same tree and confined alike, but under valgrind, and with
//! nobody looking at the clock. A count says who of those alike executes less; how sure that is it does not say, so it
//! is shown as what it is and makes nobody faster.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fairtrial_exec::ChangeKind;

use super::correctness::{Checking, aside};
use super::error::EvaluateError;
use super::ground::{Errand, Ran, Tree};
use super::measuring::{BenchErrand, why_failed};
use crate::evaluation::InstructionCount;
use crate::spec::Command;

/// What valgrind says of a process goes here, with the process's number behind: in the tree, whose changes are looked at.
pub(super) const LOG_FILE: &str = ".fairtrial-callgrind";
/// Tells valgrind, also in processes that start others.
pub(super) const LOG_VARIABLE: &str = "FAIRTRIAL_CALLGRIND";
/// A few lines are all it says.
const MOST_LOG_BYTES: u64 = 1 << 20;
/// How much longer a command may take than when it is measured.
const PATIENCE: u32 = 20;

/// Valgrind, where it is.
#[derive(Clone, Debug)]
pub(crate) struct Callgrind {
    program: PathBuf,
}

impl Callgrind {
    /// Looks for it where the host's programs are.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn find(host_env: &BTreeMap<OsString, OsString>) -> Result<Self, EvaluateError> {
        let places = host_env.get(OsStr::new("PATH"));
        let mut places = places.into_iter().flat_map(std::env::split_paths);
        let found = places.find_map(|place| {
            let program = place.join("valgrind");
            is_program(&program).then_some(program)
        });
        let program = found.ok_or_else(|| {
            EvaluateError::Failed(
                "`tiebreak: callgrind` needs valgrind, which is not in PATH (install the package `valgrind`, or leave \
                 `tiebreak` out)"
                    .to_owned(),
            )
        })?;
        Ok(Self { program })
    }

    /// Counts the instructions of every bench command on a tree.
    pub(crate) async fn count(
        &self,
        checking: &Checking,
        tree: &Tree,
        benches: &[BenchErrand],
    ) -> InstructionCount {
        let mut instructions = BTreeMap::new();
        for bench in benches {
            match self.count_one(checking, tree, bench).await {
                Ok(count) => instructions.insert(bench.name.clone(), count),
                Err(why) => return InstructionCount::failed(format!("`{}`: {why}", bench.name)),
            };
        }
        InstructionCount {
            instructions,
            failed: None,
        }
    }

    async fn count_one(
        &self,
        checking: &Checking,
        tree: &Tree,
        bench: &BenchErrand,
    ) -> Result<u64, String> {
        let command = match bench.loops {
            Some(loops) => bench.command.with_loops(loops),
            None => bench.command.clone(),
        };
        let command = self.around(&command);
        let errand = Errand {
            cwd: bench.cwd.as_ref(),
            env: Some(&bench.env),
            own_env: vec![(LOG_VARIABLE.into(), LOG_FILE.into())], // in the tree, wherever that is
            timeout: Some(bench.timeout.saturating_mul(PATIENCE)),
            ..Errand::new(&command)
        };
        tree.verify()?;
        let ran = checking.run(tree, &errand, "callgrind").await;
        let ran = ran.map_err(|failure| failure.message)?;
        if let Some(why) = why_failed(&ran.outcome, bench.any_exit) {
            return Err(why);
        }
        let logs = aside(move || logs(&ran)).await;
        total(&logs.map_err(|failure| failure.message)?)
    }

    /// The command under valgrind, with all that it starts.
    fn around(&self, command: &Command) -> Command {
        let log = format!("--log-file=%q{{{LOG_VARIABLE}}}.%p");
        let options = [
            "--tool=callgrind",
            "--trace-children=yes",
            "--vgdb=no",
            // Sums are all that is wanted, and they are in the log.
            "--callgrind-out-file=/dev/null",
            &log,
            "--",
        ];
        let program = self.program.to_string_lossy().into_owned();
        let argv = std::iter::once(program).chain(options.map(str::to_owned));
        Command::Argv(argv.chain(command.to_argv()).collect())
    }
}

fn is_program(path: &Path) -> bool {
    let facts = std::fs::metadata(path);
    facts.is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

/// What valgrind said, process by process.
fn logs(ran: &Ran) -> io::Result<Vec<String>> {
    let is_log = |path: &Path| {
        let name = path
            .as_os_str()
            .as_bytes()
            .strip_prefix(LOG_FILE.as_bytes());
        name.is_some_and(|number| number.starts_with(b".") && !number.contains(&b'/'))
    };
    let mut places = Vec::new();
    ran.visit(is_log, |path, kind| {
        if kind == ChangeKind::Written {
            places.push(path.to_owned());
        }
    })?;
    let read = |place: PathBuf| -> io::Result<String> {
        let bytes = ran.read(&place, MOST_LOG_BYTES)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    places.into_iter().map(read).collect()
}

/// All processes together. Without one of them the sum would be too small, and a gain that is none.
fn total(logs: &[String]) -> Result<u64, String> {
    if logs.is_empty() {
        return Err("valgrind counted nothing".to_owned());
    }
    let counts: Option<Vec<u64>> = logs.iter().map(|log| collected(log)).collect();
    let counts = counts.ok_or("a process ended before valgrind had counted it")?;
    match counts.iter().sum() {
        0 => Err("valgrind counted nothing".to_owned()),
        sum => Ok(sum),
    }
}

/// `==123== Collected : 456`
fn collected(log: &str) -> Option<u64> {
    let mut lines = log.lines().rev();
    let count = lines.find_map(|line| line.split_once("== Collected :"))?.1;
    count.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "==7== Callgrind, a call-graph generating cache profiler\n==7== \n==7== Events    : Ir\n\
                       ==7== Collected : 148211\n==7== \n==7== I   refs:      148,211\n";

    /// CA-72
    #[test]
    fn processes_are_added_up_and_none_may_be_missing() {
        let other = LOG.replace("148211", "9");
        assert_eq!(total(&[LOG.to_owned(), other]), Ok(148_220));
        let killed = "==7== Callgrind, a call-graph generating cache profiler\n".to_owned();
        assert!(total(&[LOG.to_owned(), killed]).is_err());
        assert!(total(&[]).is_err());
        assert!(total(&["== Collected : many".to_owned()]).is_err());
        assert!(
            total(&["== Collected : 0".to_owned()]).is_err(),
            "no count is 0"
        );
    }

    /// CA-72: without valgrind there is a line that says what to install.
    #[test]
    fn valgrind_is_looked_for_in_path() {
        let place = tempfile::tempdir().unwrap();
        let path = |text: OsString| BTreeMap::from([(OsString::from("PATH"), text)]);
        let here = path(format!("/nowhere:{}", place.path().display()).into());
        for env in [BTreeMap::new(), here.clone()] {
            let missing = Callgrind::find(&env).unwrap_err();
            assert!(missing.to_string().contains("the package `valgrind`"));
        }
        let program = place.path().join("valgrind");
        std::fs::write(&program, "").unwrap();
        assert!(Callgrind::find(&here).is_err(), "it cannot be run");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let found = Callgrind::find(&here).unwrap();
        let argv = found.around(&Command::Shell("make".to_owned())).to_argv();
        assert_eq!(argv[0], program.to_string_lossy());
        assert_eq!(argv[argv.len() - 4..], ["--", "/bin/sh", "-c", "make"]);
    }
}
