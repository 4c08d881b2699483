//! A path inside the tree: relative, of plain components, in one spelling. Bytes, as names on Linux are.

use std::fmt;

/// Where something is below the root of the tree. Cannot lead out of it, nor into a `.git` (CA-14).
///
/// ```
/// use fairtrial_candidates::stage::TreePath;
///
/// assert_eq!(TreePath::new("./src//a.py").unwrap().as_bytes(), b"src/a.py");
/// assert!(TreePath::new("../a.py").is_err());
/// assert!(TreePath::new("src/.Git/config").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath(Vec<u8>);

/// Why a path is none of a tree's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// Nothing is named.
    #[error("`{0}` names no file")]
    Empty(String),
    /// It starts at the root of the machine.
    #[error("`{0}` is an absolute path")]
    Absolute(String),
    /// It has a `..`.
    #[error("`{0}` has a `..`: it may lead out of the tree")]
    Parent(String),
    /// It has a `.git`, in capitals or not.
    #[error("`{0}` lies in a `.git`")]
    Git(String),
    /// It holds a zero byte.
    #[error("`{0}` has a zero byte")]
    Nul(String),
    /// No file system takes it.
    #[error("`{0}` is too long for a name")]
    TooLong(String),
}

/// What Linux takes.
const LONGEST_COMPONENT: usize = 255;
const LONGEST_PATH: usize = 4095 - LONGEST_ROOT;
/// Wherever the tree is: a path in it must be one of the file system's too.
const LONGEST_ROOT: usize = 1024;

impl TreePath {
    /// Takes a path as somebody wrote it. `.` and doubled slashes are dropped, so that one file has one spelling.
    pub fn new(path: impl AsRef<[u8]>) -> Result<Self, PathFault> {
        let path = path.as_ref();
        let fault = |make: fn(String) -> PathFault| Err(make(shown(path)));
        if path.contains(&0) {
            return fault(PathFault::Nul);
        }
        if path.starts_with(b"/") {
            return fault(PathFault::Absolute);
        }
        if path.ends_with(b"/") {
            return fault(PathFault::Empty);
        }
        let mut kept: Vec<&[u8]> = Vec::new();
        for component in path.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => continue,
                b".." => return fault(PathFault::Parent),
                git if git.eq_ignore_ascii_case(b".git") => return fault(PathFault::Git),
                long if long.len() > LONGEST_COMPONENT => return fault(PathFault::TooLong),
                _ => kept.push(component),
            }
        }
        if kept.is_empty() {
            return fault(PathFault::Empty);
        }
        let joined = kept.join(&b'/');
        if joined.len() > LONGEST_PATH {
            return fault(PathFault::TooLong);
        }
        Ok(Self(joined))
    }

    /// The path as bytes, without a leading or trailing slash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The directories above it, the outermost first; the root, which has no path, is not among them.
    pub fn ancestors(&self) -> impl Iterator<Item = TreePath> + '_ {
        let slashes = self.0.iter().enumerate().filter(|(_, b)| **b == b'/');
        slashes.map(|(at, _)| Self(self.0[..at].to_vec()))
    }

    /// Whether it lies below `directory`, at any depth.
    #[must_use]
    pub fn is_below(&self, directory: &TreePath) -> bool {
        let rest = self.0.strip_prefix(directory.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&shown(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", shown(&self.0))
    }
}

/// Bytes as people can read them on one line: text as it is, anything else escaped.
pub(crate) fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-14
    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        type Fault = fn(String) -> PathFault;
        let table: [(&[u8], Fault); 14] = [
            (b"", PathFault::Empty),
            (b".", PathFault::Empty),
            (b"a/", PathFault::Empty),
            (b"/etc/passwd", PathFault::Absolute),
            (b"//x", PathFault::Absolute),
            (b"..", PathFault::Parent),
            (b"../x", PathFault::Parent),
            (b"a/../../x", PathFault::Parent),
            (b"a/..", PathFault::Parent),
            (b".git", PathFault::Git),
            (b".git/hooks/pre-commit", PathFault::Git),
            (b"sub/.GIT/config", PathFault::Git),
            (b"a\0b", PathFault::Nul),
            (&[b'x'; 256], PathFault::TooLong),
        ];
        for (path, fault) in table {
            assert_eq!(TreePath::new(path), Err(fault(shown(path))));
        }
        // The file system would refuse it, wherever the tree is.
        let long = "directory/".repeat(320) + "file";
        assert_eq!(TreePath::new(&long), Err(PathFault::TooLong(long.clone())));
    }

    #[test]
    fn one_file_has_one_spelling() {
        for path in ["a/b", "./a/b", "a//b", "a/./b"] {
            assert_eq!(TreePath::new(path).expect("valid").as_bytes(), b"a/b");
        }
        for name in ["..a", ".gitignore", "a..b", "-x", "git", "\u{fc}"] {
            assert!(TreePath::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn ancestors_are_the_directories_above() {
        let path = TreePath::new("a/b/c").expect("valid");
        let above: Vec<_> = path.ancestors().map(|path| path.to_string()).collect();
        assert_eq!(above, ["a", "a/b"]);
        assert!(path.is_below(&TreePath::new("a").expect("valid")));
        assert!(!path.is_below(&TreePath::new("a/b/c").expect("valid")));
    }

    #[test]
    fn names_of_any_bytes_show_on_one_line() {
        assert_eq!(
            TreePath::new(b"a\n\xff").expect("valid").to_string(),
            r"a\n\xff"
        );
    }
}
