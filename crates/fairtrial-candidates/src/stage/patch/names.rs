//! Which file a part of a patch is about: names with or without `a/` and `b/`, quoted, or with a time stamp.

use super::epoch::is_epoch;
use super::quote::unquote;

/// A name of a `---` or `+++` line, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawName {
    pub(super) name: Vec<u8>,
    /// Dated as GNU diff dates what is not there.
    pub(super) epoch: bool,
}

impl RawName {
    /// Takes what follows `--- ` or `+++ `.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let (name, stamp) = match text.first() {
            Some(b'"') => unquote(text)?,
            _ => {
                let end = text.iter().position(|byte| *byte == b'\t');
                let (name, stamp) = text.split_at(end.unwrap_or(text.len()));
                (name.to_vec(), stamp)
            }
        };
        let epoch = is_epoch(stamp);
        Some(Self { name, epoch })
    }

    pub(super) fn is_null(&self) -> bool {
        self.name == b"/dev/null"
    }
}

/// The one file that two names mean: alike, or alike but for their first components (`a/x` and `b/x`, or `old/x` and
/// `new/x`).
pub(super) fn same_file<'a>(old: &'a [u8], new: &'a [u8]) -> Option<&'a [u8]> {
    if old == new {
        return Some(old);
    }
    let (old, new) = (after_first(old)?, after_first(new)?);
    (old == new).then_some(old)
}

/// The file that two names of a plain patch mean. Where they differ altogether it is the shorter, as in `x.orig` and `x`.
pub(super) fn one_of<'a>(old: &'a [u8], new: &'a [u8]) -> &'a [u8] {
    same_file(old, new).unwrap_or_else(|| {
        let (old, new) = (without_prefix(old), without_prefix(new));
        if old.len() < new.len() { old } else { new }
    })
}

/// A name that stands alone, the other being `/dev/null`: only the usual prefixes are taken from it.
pub(super) fn without_prefix(name: &[u8]) -> &[u8] {
    let bare = name.strip_prefix(b"a/").or(name.strip_prefix(b"b/"));
    bare.unwrap_or(name)
}

/// The two names of a `diff --git` line, if they mean one file. With two files the line cannot be split with certainty,
/// and git says the names elsewhere.
pub(super) fn split_git_line(text: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    if text.starts_with(b"\"") {
        let (old, rest) = unquote(text)?;
        let rest = rest.strip_prefix(b" ")?;
        let new = match rest.first() {
            Some(b'"') => unquote(rest)?.0,
            _ => rest.to_vec(),
        };
        return same_file(&old, &new).is_some().then_some((old, new));
    }
    let spaces = text.iter().enumerate().filter(|(_, byte)| **byte == b' ');
    for (at, _) in spaces {
        let (old, rest) = (&text[..at], &text[at + 1..]);
        let new = match rest.first() {
            Some(b'"') => unquote(rest).map(|(name, _)| name),
            // Prefixes are at most a few bytes long: comparing only near the middle keeps a line of blanks cheap.
            _ => (old.len().abs_diff(rest.len()) < 64).then(|| rest.to_vec()),
        };
        if let Some(new) = new.filter(|new| same_file(old, new).is_some()) {
            return Some((old.to_vec(), new));
        }
    }
    None
}

/// What follows the first component. An absolute name keeps its slash, so that it is refused later.
fn after_first(name: &[u8]) -> Option<&[u8]> {
    let slash = name.iter().position(|byte| *byte == b'/')?;
    (slash > 0).then(|| &name[slash + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_up_to_a_tab() {
        let read = |text: &[u8]| RawName::read(text).expect("a name");
        assert_eq!(read(b"a/x y.py\t").name, b"a/x y.py");
        assert_eq!(read(b"\"a/\\303\\274\"\t2024-01-01").name, b"a/\xc3\xbc");
        assert!(read(b"old/x\t1970-01-01 00:00:00.000000000 +0000").epoch);
        assert!(read(b"/dev/null").is_null());
        assert!(RawName::read(b"\"a").is_none());
    }

    #[test]
    fn one_file_is_found_in_two_names() {
        let table: [(&[u8], &[u8], &[u8]); 9] = [
            (b"a/x", b"b/x", b"x"),
            (b"x", b"x", b"x"),
            (b"a/x", b"a/x", b"a/x"),
            (b"src/x", b"src/x", b"src/x"),
            (b"old/s/x", b"new/s/x", b"s/x"),
            (b"i/x", b"w/x", b"x"),
            (b"x.orig", b"x", b"x"),
            (b"a/x", b"b/x.new", b"x"),
            (b"/tmp/1/x", b"/tmp/2/x", b"/tmp/2/x"),
        ];
        for (old, new, file) in table {
            assert_eq!(one_of(old, new), file, "{}", old.escape_ascii());
        }
    }

    #[test]
    fn a_git_line_is_split_where_both_halves_mean_one_file() {
        type Names = Option<(&'static [u8], &'static [u8])>;
        let table: [(&[u8], Names); 7] = [
            (b"a/x b/x", Some((b"a/x", b"b/x"))),
            (b"a/x y b/x y", Some((b"a/x y", b"b/x y"))),
            (b"x b x b", Some((b"x b", b"x b"))),
            (b"\"a/\\t\" \"b/\\t\"", Some((b"a/\t", b"b/\t"))),
            (b"a/x b/y", None),
            (b"a/x", None),
            (b"", None),
        ];
        for (line, names) in table {
            let names = names.map(|(old, new)| (old.to_vec(), new.to_vec()));
            assert_eq!(split_git_line(line), names, "{}", line.escape_ascii());
        }
    }
}
