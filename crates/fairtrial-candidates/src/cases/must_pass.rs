//! Cases that must pass whatever the base did (CA-50).

use serde::{Deserialize, Serialize};

/// Ids and globs of cases. `*` stands for any characters and `?` for one; brackets are letters like others, since ids of
/// parametrised tests have them.
///
/// ```
/// use fairtrial_candidates::cases::MustPass;
///
/// let must_pass = MustPass::new(["tests/test_a.py::*", "test_b[1]"]);
/// assert!(must_pass.covers("tests/test_a.py::test_x[*]"));
/// assert!(must_pass.covers("test_b[1]"));
/// assert!(!must_pass.covers("test_b1"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MustPass {
    patterns: Vec<String>,
}

impl MustPass {
    /// Takes ids and globs.
    pub fn new<T: Into<String>>(patterns: impl IntoIterator<Item = T>) -> Self {
        let patterns = patterns.into_iter().map(Into::into).collect();
        Self { patterns }
    }

    /// Whether a case is one of them.
    #[must_use]
    pub fn covers(&self, id: &str) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|pattern| pattern == id || fits(pattern, id))
    }

    /// Those that name one case.
    pub(super) fn exact(&self) -> impl Iterator<Item = &str> {
        let patterns = self.patterns.iter().map(String::as_str);
        patterns.filter(|pattern| !pattern.contains(['*', '?']))
    }
}

/// On a mismatch the last star takes one character more.
fn fits(pattern: &str, id: &str) -> bool {
    let (pattern, id): (Vec<_>, Vec<_>) = (pattern.chars().collect(), id.chars().collect());
    let (mut token, mut at) = (0, 0);
    let mut star = None;
    while at < id.len() {
        match pattern.get(token) {
            Some('*') => {
                star = Some((token, at));
                token += 1;
            }
            Some(letter) if *letter == '?' || *letter == id[at] => {
                (token, at) = (token + 1, at + 1)
            }
            _ => match &mut star {
                None => return false,
                Some((after, taken)) => {
                    *taken += 1;
                    (token, at) = (*after + 1, *taken);
                }
            },
        }
    }
    pattern[token..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-50
    #[test]
    fn globs_cross_everything_and_brackets_are_letters() {
        let table = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("*::test_?", "a/b.py::C::test_é", true),
            ("*::test_?", "a/b.py::C::test_10", false),
            ("t[1*]", "t[1-2]", true),
            ("t[12]", "t1", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
        ];
        for (pattern, id, covered) in table {
            assert_eq!(
                MustPass::new([pattern]).covers(id),
                covered,
                "{pattern} {id}"
            );
        }
        assert!(!MustPass::default().covers("a"));
    }

    /// CA-50
    #[test]
    fn hostile_globs_end() {
        let must_pass = MustPass::new(["*a".repeat(50)]);
        assert!(!must_pass.covers(&("a".repeat(5000) + "b")));
    }
}
