//! The header of a part in git's format: the lines from `diff --git` to the first hunk.

use super::Verb;
use super::file_mode::FileMode;
use super::lines::{Lines, header};
use super::names::{RawName, one_of, same_file, split_git_line, without_prefix};
use super::quote::unquote;
use crate::stage::path::{TreePath, shown};

#[derive(Default)]
pub(super) struct GitHeader<'a> {
    /// The names of the `diff --git` line, if that can be split.
    pair: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) old_mode: Option<FileMode>,
    pub(super) new_mode: Option<FileMode>,
    new_file: bool,
    deleted: bool,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
    copy: bool,
    pub(super) ids: Option<(&'a [u8], &'a [u8])>,
    /// The names of the `---` and `+++` lines.
    pub(super) names: Option<(RawName, RawName)>,
}

impl<'a> GitHeader<'a> {
    /// Reads from the `diff --git` line to the one that belongs to no header.
    pub(super) fn read(lines: &mut Lines<'a>) -> Result<Self, String> {
        let first = header(lines.next().unwrap_or_default());
        let mut this = Self {
            pair: split_git_line(&first[b"diff --git ".len()..]),
            ..Self::default()
        };
        while let Some(line) = lines.peek().map(header) {
            if !this.take(line)? {
                break;
            }
            lines.next();
        }
        if let Some(names) = read_names(lines)? {
            this.names = Some(names);
        }
        Ok(this)
    }

    /// Takes one line, or says that it is none of a header.
    fn take(&mut self, line: &'a [u8]) -> Result<bool, String> {
        let after = |word: &str| line.strip_prefix(word.as_bytes());
        if let Some(mode) = after("old mode ") {
            self.old_mode = Some(read_mode(mode)?);
        } else if let Some(mode) = after("new mode ") {
            self.new_mode = Some(read_mode(mode)?);
        } else if let Some(mode) = after("deleted file mode ") {
            (self.deleted, self.old_mode) = (true, Some(read_mode(mode)?));
        } else if let Some(mode) = after("new file mode ") {
            (self.new_file, self.new_mode) = (true, Some(read_mode(mode)?));
        } else if let Some(name) = after("rename from ") {
            self.from = Some(read_name(name)?);
        } else if let Some(name) = after("rename to ") {
            self.to = Some(read_name(name)?);
        } else if let Some(name) = after("copy from ") {
            (self.copy, self.from) = (true, Some(read_name(name)?));
        } else if let Some(name) = after("copy to ") {
            (self.copy, self.to) = (true, Some(read_name(name)?));
        } else if let Some(index) = after("index ") {
            self.take_index(index)?;
        } else {
            let similar = after("similarity index ").or(after("dissimilarity index "));
            return Ok(similar.is_some());
        }
        Ok(true)
    }

    /// `old..new`, and the mode where it does not change.
    fn take_index(&mut self, index: &'a [u8]) -> Result<(), String> {
        let mut words = index.split(|byte| *byte == b' ');
        let ids = words.next().unwrap_or_default();
        let hex = |id: &[u8]| !id.is_empty() && id.iter().all(u8::is_ascii_hexdigit);
        if let Some(dots) = ids.windows(2).position(|two| two == b"..") {
            let (old, new) = (&ids[..dots], &ids[dots + 2..]);
            self.ids = (hex(old) && hex(new)).then_some((old, new));
        }
        if let Some(mode) = words.next() {
            self.old_mode = self.old_mode.or(Some(read_mode(mode)?));
        }
        Ok(())
    }

    /// What the part does, and to which file.
    pub(super) fn verb(&self) -> Result<Verb, String> {
        let path = |name: &[u8]| TreePath::new(name).map_err(|fault| fault.to_string());
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => {
                let (from, to) = (path(from)?, path(to)?);
                return Ok(match self.copy {
                    true => Verb::Copy { from, to },
                    false => Verb::Rename { from, to },
                });
            }
            (None, None) => {}
            _ => return Err("the header has one of two names of a rename or copy".to_owned()),
        }
        let file = path(&self.file()?)?;
        let null = |side: fn(&(RawName, RawName)) -> &RawName| {
            self.names.as_ref().is_some_and(|n| side(n).is_null())
        };
        let new_file = self.new_file || null(|names| &names.0);
        let deleted = self.deleted || null(|names| &names.1);
        match (new_file, deleted) {
            (true, true) => Err(format!("`{file}` is both new and deleted")),
            (true, false) => Ok(Verb::Create(file)),
            (false, true) => Ok(Verb::Delete(file)),
            (false, false) => Ok(Verb::Modify(file)),
        }
    }

    /// The one file that all names of the header mean.
    fn file(&self) -> Result<Vec<u8>, String> {
        let Some((old, new)) = &self.names else {
            let pair = self.pair.as_ref();
            let file = pair.and_then(|(old, new)| same_file(old, new));
            return file
                .map(<[u8]>::to_vec)
                .ok_or_else(|| "the `diff --git` line does not tell the file".to_owned());
        };
        if let Some((first, second)) = &self.pair {
            for (named, expected) in [(old, first), (new, second)] {
                if !named.is_null() && named.name != *expected {
                    let (named, expected) = (shown(&named.name), shown(expected));
                    return Err(format!(
                        "`{named}` and the `diff --git` line's `{expected}` differ"
                    ));
                }
            }
            return Ok(same_file(first, second).unwrap_or(second).to_vec());
        }
        plain_file(old, new)
    }
}

/// The file that the names of a `---` and a `+++` line mean.
pub(super) fn plain_file(old: &RawName, new: &RawName) -> Result<Vec<u8>, String> {
    Ok(match (old.is_null(), new.is_null()) {
        (true, true) => return Err("both names are `/dev/null`".to_owned()),
        (true, false) => without_prefix(&new.name).to_vec(),
        (false, true) => without_prefix(&old.name).to_vec(),
        (false, false) => one_of(&old.name, &new.name).to_vec(),
    })
}

/// The `---` and `+++` lines, if they are next.
pub(super) fn read_names(lines: &mut Lines<'_>) -> Result<Option<(RawName, RawName)>, String> {
    let old = lines
        .peek()
        .and_then(|line| header(line).strip_prefix(b"--- "));
    let new = lines
        .peek_second()
        .and_then(|line| header(line).strip_prefix(b"+++ "));
    let (Some(old), Some(new)) = (old, new) else {
        return Ok(None);
    };
    lines.next();
    lines.next();
    let read = |text| RawName::read(text).ok_or_else(|| format!("`{}` is no name", shown(text)));
    Ok(Some((read(old)?, read(new)?)))
}

fn read_name(text: &[u8]) -> Result<Vec<u8>, String> {
    match text.first() {
        Some(b'"') => unquote(text)
            .map(|(name, _)| name)
            .ok_or_else(|| format!("`{}` is no name", shown(text))),
        _ => Ok(text.to_vec()),
    }
}

fn read_mode(digits: &[u8]) -> Result<FileMode, String> {
    let digits = digits.trim_ascii_end();
    FileMode::read(digits).ok_or_else(|| {
        format!(
            "`{}` is the mode of neither a file nor a link",
            shown(digits)
        )
    })
}
