//! What candidates may not touch (CA-24).

mod glob;

use std::fmt;

use glob::Glob;

use super::image::PostImages;
use super::path::TreePath;

/// What is protected where an evaluation does not say: tests, and what decides how Python and its test programs run.
pub const DEFAULT_PROTECT: [&str; 14] = [
    "tests/**",
    "test/**",
    "**/test_*.py",
    "**/*_test.*",
    "**/conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "**/sitecustomize.py",
    "**/usercustomize.py",
    "**/*.pth",
];

/// A list of globs as in a `.gitignore`: `**` crosses directories; a glob without a slash holds at any depth; a directory
/// stands for all that is below it; `!` takes back; the last that fits decides.
///
/// ```
/// use fairtrial_candidates::stage::{Protect, TreePath};
///
/// let protect = Protect::default();
/// let touched = TreePath::new("pkg/conftest.py").unwrap();
/// assert_eq!(protect.covering(&touched), Some("**/conftest.py"));
/// ```
#[derive(Debug, Clone)]
pub struct Protect {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    written: String,
    glob: Glob,
    takes_back: bool,
}

/// A glob that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{glob}` is no glob: {message}")]
pub struct GlobFault {
    /// As written.
    pub glob: String,
    /// What is wrong.
    pub message: &'static str,
}

impl Protect {
    /// Takes globs; none protects nothing.
    pub fn new<T: AsRef<str>>(globs: impl IntoIterator<Item = T>) -> Result<Self, GlobFault> {
        let rules = globs.into_iter().map(|glob| Rule::read(glob.as_ref()));
        let rules = rules.collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// Whether it has no globs at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The glob, as written, that covers a path.
    #[must_use]
    pub fn covering(&self, path: &TreePath) -> Option<&str> {
        let mut fitting = self.rules.iter().rev();
        let last = fitting.find(|rule| rule.glob.covers(path))?;
        (!last.takes_back).then_some(last.written.as_str())
    }

    /// The first changed path that is protected. A rename shows as a deletion and an addition, so both its ends count.
    #[must_use]
    pub fn first_touched<'a>(&'a self, images: &'a PostImages) -> Option<(&'a TreePath, &'a str)> {
        let mut touched = images.iter().map(|(path, _)| path);
        touched.find_map(|path| Some((path, self.covering(path)?)))
    }
}

impl Default for Protect {
    fn default() -> Self {
        Self::new(DEFAULT_PROTECT).expect("the defaults are globs")
    }
}

impl Rule {
    fn read(written: &str) -> Result<Self, GlobFault> {
        let (takes_back, text) = match written.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, written),
        };
        let glob = Glob::read(text).map_err(|message| GlobFault {
            glob: written.to_owned(),
            message,
        })?;
        let written = written.to_owned();
        Ok(Self {
            written,
            glob,
            takes_back,
        })
    }
}

impl fmt::Display for Protect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let globs: Vec<_> = self
            .rules
            .iter()
            .map(|rule| rule.written.as_str())
            .collect();
        out.write_str(&globs.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covering(globs: &[&str], path: &str) -> Option<String> {
        let protect = Protect::new(globs).expect("globs");
        let path = TreePath::new(path).expect("a path");
        protect.covering(&path).map(str::to_owned)
    }

    /// CA-24
    #[test]
    fn the_defaults_cover_tests_and_what_steers_them() {
        let table = [
            ("tests/a.py", Some("tests/**")),
            ("tests/deep/data.bin", Some("tests/**")),
            ("test/a", Some("test/**")),
            ("pkg/test_x.py", Some("**/test_*.py")),
            ("test_x.py", Some("**/test_*.py")),
            ("src/x_test.go", Some("**/*_test.*")),
            ("conftest.py", Some("**/conftest.py")),
            ("pkg/sub/conftest.py", Some("**/conftest.py")),
            ("pytest.ini", Some("pytest.ini")),
            ("pkg/pytest.ini", Some("pytest.ini")),
            (".pytest.ini", Some(".pytest.ini")),
            ("pytest.toml", Some("pytest.toml")),
            ("pkg/.pytest.toml", Some(".pytest.toml")),
            ("setup.cfg", Some("setup.cfg")),
            ("pyproject.toml", None),
            ("tox.ini", Some("tox.ini")),
            ("lib/sitecustomize.py", Some("**/sitecustomize.py")),
            ("usercustomize.py", Some("**/usercustomize.py")),
            ("site/x.pth", Some("**/*.pth")),
            ("src/a.py", None),
            ("src/contest.py", None),
            ("mytests/a.py", None),
            ("src/tests.py", None),
            ("tests", None),
        ];
        for (path, glob) in table {
            let path = TreePath::new(path).expect("a path");
            assert_eq!(Protect::default().covering(&path), glob, "{path}");
        }
    }

    #[test]
    fn the_last_glob_that_fits_decides() {
        let globs = ["data/", "!data/open", "*.lock"];
        assert_eq!(covering(&globs, "data/x/y"), Some("data/".to_owned()));
        assert_eq!(covering(&globs, "data/open/y"), None);
        assert_eq!(
            covering(&globs, "data/open/y.lock"),
            Some("*.lock".to_owned())
        );
        assert_eq!(covering(&[], "tests/a.py"), None);
    }

    #[test]
    fn a_glob_that_cannot_be_read_is_named() {
        for glob in ["", "!", "/", "a[b", "a\\"] {
            let fault = Protect::new([glob]).expect_err(glob);
            assert_eq!(fault.glob, glob);
        }
    }
}
