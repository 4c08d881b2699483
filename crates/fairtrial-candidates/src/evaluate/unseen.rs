//! Programs that lie in the repository and not in the base: an environment that git ignores, mostly. Commands would not
//! find them, or would find others of the same name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::prepare::Places;
use crate::spec::{Bench, Command, Spec};

/// What people should know of where programs are looked for: in `path`, and where commands name them.
pub(super) fn unseen(
    spec: &Spec,
    places: &Places,
    files: &[Vec<u8>],
    path: Option<&OsStr>,
) -> Vec<String> {
    let searched = path.map(std::env::split_paths).into_iter().flatten();
    let named = commands(spec).filter_map(|command| named_directory(command, &places.root));
    let directories: BTreeSet<PathBuf> = searched
        .chain(named)
        .filter_map(|directory| directory.canonicalize().ok())
        .collect();
    let shared: Vec<PathBuf> = places
        .shared
        .iter()
        .filter_map(|directory| directory.canonicalize().ok())
        .collect();
    let unseen = directories.iter().filter_map(|directory| {
        let place = directory.strip_prefix(&places.root).ok()?;
        let is_seen = shared.iter().any(|shared| directory.starts_with(shared))
            || files
                .iter()
                .any(|file| Path::new(OsStr::from_bytes(file)).starts_with(place));
        (!is_seen).then(|| warning(spec, &places.root, place))
    });
    unseen.collect()
}

/// Those that run at the root.
fn commands(spec: &Spec) -> impl Iterator<Item = &Command> {
    let tests = spec.tests.iter().filter(|test| test.cwd.is_none());
    let benches = match &spec.bench {
        Bench::Commands(benches) => benches.as_slice(),
        Bench::None | Bench::ReuseTests => &[],
    };
    let benches = benches.iter().filter(|bench| bench.cwd.is_none());
    let benches = benches.map(|bench| &bench.command);
    tests.map(|test| &test.command).chain(benches)
}

/// Where a program is that is not looked for in `PATH`.
fn named_directory(command: &Command, root: &Path) -> Option<PathBuf> {
    let Command::Argv(argv) = command else {
        return None;
    };
    let program = argv.first().filter(|program| program.contains('/'))?;
    root.join(program).parent().map(Path::to_owned)
}

fn warning(spec: &Spec, root: &Path, place: &Path) -> String {
    let whole: PathBuf = root.join(place.iter().next().unwrap_or_default());
    let here = spec.places.directory().canonicalize().ok();
    let shown = here.and_then(|here| whole.strip_prefix(here).ok());
    format!(
        "`{}` is in the repository and not in the base: commands will not find its programs (write `shared: [{}]`)",
        place.display(),
        shown.unwrap_or(&whole).display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-32
    #[test]
    fn an_environment_that_is_not_shared_is_warned_of() {
        let here = tempfile::tempdir().expect("a directory");
        let bin = here.path().join("repo/.venv/bin");
        std::fs::create_dir_all(&bin).expect("a directory");
        let warnings = |more: &str, command: &str, files: &[Vec<u8>]| {
            let text = format!(
                "{{version: 1, repo: repo, candidates: {{patches: p}}, tests: [{{command: [{command}]}}]{more}}}"
            );
            let spec = Spec::parse(&here.path().join("EVAL.yaml"), &text).expect("a spec");
            let places = Places::check(&spec).expect("all is there");
            unseen(&spec, &places, files, Some(bin.as_os_str()))
        };
        let expected = "`.venv/bin` is in the repository and not in the base: commands will not find its programs \
            (write `shared: [repo/.venv]`)";
        assert_eq!(warnings("", "python3", &[]), [expected]);
        assert_eq!(warnings("", ".venv/bin/python", &[]), [expected]);
        let in_base = [b".venv/bin/python3".to_vec()];
        assert!(warnings("", "python3", &in_base).is_empty());
        assert!(warnings(", shared: [repo/.venv]", "python3", &[]).is_empty());
    }
}
