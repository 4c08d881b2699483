//! Commands whose program is nowhere, for `--check`, which runs none of them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::error::EvaluateError;
use super::evaluator::Evaluator;
use super::prepare::Places;
use super::repository::Listing;
use crate::spec::{Bench, Command, Invalid, Spec};
use crate::stage::TreePath;

/// A command, and where it runs.
struct Asked<'s> {
    key: String,
    command: &'s Command,
    cwd: Option<&'s TreePath>,
    env: Option<&'s BTreeMap<String, String>>,
    /// Whether it runs after `build`, which may have made it.
    is_built: bool,
}

impl Evaluator {
    /// Looks for the program of each test, bench and build command.
    ///
    /// # Errors
    /// One is found neither in `PATH` nor in the repository.
    pub(super) fn find_programs(
        &self,
        places: &Places,
        listing: &Listing,
    ) -> Result<(), EvaluateError> {
        let path = self.host_env.get(OsStr::new("PATH"));
        let search = Search {
            root: &places.root,
            files: &listing.files,
            path,
        };
        let asked = asked(&self.spec);
        let missing = asked.iter().filter_map(|asked| {
            let why = search.missing(&self.spec, asked)?;
            let key = format!("{}[0]", asked.key);
            Some(self.spec.places.fault(&key, why))
        });
        match missing.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            faults => Err(Invalid { faults }.into()),
        }
    }
}

fn asked(spec: &Spec) -> Vec<Asked<'_>> {
    let has_build = spec.build.is_some();
    let build = spec.build.iter().map(|build| Asked {
        key: "build.command".to_owned(),
        command: &build.command,
        cwd: None,
        env: None,
        is_built: false,
    });
    let tests = spec.tests.iter().enumerate().map(|(number, test)| Asked {
        key: format!("tests[{number}].command"),
        command: &test.command,
        cwd: test.cwd.as_ref(),
        env: Some(&test.env),
        is_built: has_build,
    });
    let benches = match &spec.bench {
        Bench::Commands(benches) => benches.as_slice(),
        Bench::None | Bench::ReuseTests => &[],
    };
    let benches = benches.iter().enumerate().map(|(number, bench)| Asked {
        key: format!("bench[{number}].command"),
        command: &bench.command,
        cwd: bench.cwd.as_ref(),
        env: Some(&bench.env),
        is_built: has_build,
    });
    build.chain(tests).chain(benches).collect()
}

/// Where programs are looked for.
struct Search<'a> {
    root: &'a Path,
    files: &'a [Vec<u8>],
    path: Option<&'a OsString>,
}

impl Search<'_> {
    /// Why a command's program cannot be started, as far as that can be told. What a shell is told is its own affair.
    fn missing(&self, spec: &Spec, asked: &Asked<'_>) -> Option<String> {
        let Command::Argv(argv) = asked.command else {
            return None;
        };
        let program = argv.first()?;
        let cwd = asked.cwd.map(|cwd| OsStr::from_bytes(cwd.as_bytes()));
        let here = cwd.map_or_else(|| self.root.to_owned(), |cwd| self.root.join(cwd));
        if !program.contains('/') {
            let given = asked.env.and_then(|env| env.get("PATH"));
            let given = given.or_else(|| spec.env.set.get("PATH"));
            let path = given.map(OsStr::new).or(self.path.map(OsString::as_os_str));
            let mut places = path.map(std::env::split_paths).into_iter().flatten();
            let is_there = places.any(|place| is_program(&here.join(place).join(program)));
            return (!is_there).then(|| {
                format!("program `{program}` is found neither in PATH nor in the repository")
            });
        }
        let place = here.join(program);
        match fs::metadata(&place) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 == 0 => {
                Some(format!(
                    "`{program}` is not executable; name its interpreter, or make it executable"
                ))
            }
            Ok(found) if found.is_file() => None,
            _ if self.is_in_base(&place) || asked.is_built => None,
            _ => Some(format!("program `{program}` is not there")),
        }
    }

    /// A commit may have what the tree has not.
    fn is_in_base(&self, place: &Path) -> bool {
        let inside: Option<PathBuf> = place.strip_prefix(self.root).ok().map(plain);
        inside.is_some_and(|inside| {
            let inside = inside.as_os_str().as_bytes();
            self.files.iter().any(|file| file == inside)
        })
    }
}

/// Without `.`.
fn plain(path: &Path) -> PathBuf {
    path.components()
        .filter(|part| *part != std::path::Component::CurDir)
        .collect()
}

fn is_program(place: &Path) -> bool {
    let is_executable = |found: fs::Metadata| found.permissions().mode() & 0o111 != 0;
    place.is_file() && fs::metadata(place).is_ok_and(is_executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-1, CA-8
    #[test]
    fn a_program_that_is_nowhere_is_named() {
        let here = tempfile::tempdir().expect("a directory");
        let root = here.path().canonicalize().expect("it is there");
        for (name, mode) in [("bin/tool", 0o755), ("run.sh", 0o755), ("plain.sh", 0o644)] {
            let place = root.join(name);
            fs::create_dir_all(place.parent().expect("a parent")).expect("a directory");
            fs::write(&place, "").expect("a file");
            fs::set_permissions(&place, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        let path = root.join("bin").into_os_string();
        let search = Search {
            root: &root,
            files: &[b"only/in/base".to_vec()],
            path: Some(&path),
        };
        let missing = |keys: &str| {
            let build = match keys.contains("built") {
                true => "{command: make}",
                false => "none",
            };
            let text = format!(
                "{{version: 1, candidates: {{patches: p}}, tests: [{{{keys}}}], build: {build}}}"
            );
            let spec = Spec::parse(&root.join("EVAL.yaml"), &text).expect("a spec");
            let asked = asked(&spec);
            search.missing(&spec, asked.last().expect("a command"))
        };
        let nowhere = |program: &str| {
            Some(format!(
                "program `{program}` is found neither in PATH nor in the repository"
            ))
        };
        assert_eq!(missing("command: [tool]"), None);
        assert_eq!(missing("command: [tol]"), nowhere("tol"));
        assert_eq!(
            missing("command: [tool], env: {PATH: /none}"),
            nowhere("tool")
        );
        assert_eq!(missing("command: [tool], env: {PATH: bin}"), None);
        assert_eq!(missing("command: [run.sh]"), nowhere("run.sh"));
        assert_eq!(missing("command: tol | anything"), None);
        assert_eq!(missing("command: [./run.sh]"), None);
        assert_eq!(missing("command: [../run.sh], cwd: bin"), None);
        assert_eq!(missing("command: [./only/in/base]"), None);
        assert_eq!(
            missing("command: [/none/at/all, x]"),
            Some("program `/none/at/all` is not there".into())
        );
        assert_eq!(
            missing("command: [./absent]"),
            Some("program `./absent` is not there".into())
        );
        assert_eq!(missing("command: [./built]"), None);
        let plain = missing("command: [./plain.sh]").expect("it cannot be started");
        assert!(
            plain.starts_with("`./plain.sh` is not executable"),
            "{plain}"
        );
    }
}
