//! Binary parts of a git patch: what follows `GIT binary patch`.

use std::io::Read;

use super::super::fault::FileFault;
use super::super::overlay::MOST_BYTES;
use super::base85::decode_line;
use super::blob;
use super::delta::apply_delta;
use super::lines::{Lines, header};

/// The data that makes the new file. What would lead back to the old one is read and left aside.
#[derive(Debug, Clone)]
pub struct BinaryData<'a> {
    /// Whether the data is the new file, or changes of the old.
    pub encoding: Encoding,
    /// How long the data is once inflated.
    pub size: usize,
    /// Lines in base 85.
    pub lines: Vec<&'a [u8]>,
    /// The ids of an `index` line: of the file before and after.
    pub ids: Option<(&'a [u8], &'a [u8])>,
}

/// What the data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// The whole new file.
    Literal,
    /// Git's delta from the old file.
    Delta,
}

impl<'a> BinaryData<'a> {
    /// Reads what follows the line `GIT binary patch`.
    pub(super) fn read(lines: &mut Lines<'a>) -> Result<Self, &'static str> {
        let forward =
            Self::read_block(lines)?.ok_or("a binary part begins with `literal` or `delta`")?;
        Self::read_block(lines)?;
        Ok(forward)
    }

    fn read_block(lines: &mut Lines<'a>) -> Result<Option<Self>, &'static str> {
        let Some((encoding, size)) = lines.peek().map(header).and_then(read_start) else {
            return Ok(None);
        };
        lines.next();
        let mut data = Vec::new();
        while let Some(line) = lines.next().map(header) {
            if line.is_empty() {
                return Ok(Some(Self {
                    encoding,
                    size,
                    lines: data,
                    ids: None,
                }));
            }
            data.push(line);
        }
        // The empty line after the last block is easily lost; the sizes tell whether anything else is.
        let lines = data;
        let ids = None;
        Ok(Some(Self {
            encoding,
            size,
            lines,
            ids,
        }))
    }

    /// The new file, if `old` is the one that the patch was made for.
    pub(super) fn apply(&self, old: Option<&[u8]>) -> Result<Vec<u8>, FileFault> {
        let (before, after) = self.ids.ok_or(FileFault::NoIndexLine)?;
        let as_expected = match old {
            None => blob::is_none(before),
            Some(old) => blob::has_id(old, before),
        };
        if !as_expected {
            return Err(FileFault::OtherPreimage);
        }
        let data = self.inflate().map_err(FileFault::Damaged)?;
        let new = match self.encoding {
            Encoding::Literal => data,
            Encoding::Delta => apply_delta(&data, old.unwrap_or_default(), MOST_BYTES as usize)
                .map_err(FileFault::Damaged)?,
        };
        let deleted = blob::is_none(after) && new.is_empty();
        match deleted || blob::has_id(&new, after) {
            true => Ok(new),
            false => Err(FileFault::OtherPostimage),
        }
    }

    fn inflate(&self) -> Result<Vec<u8>, &'static str> {
        if self.size as u64 > MOST_BYTES {
            return Err("it says to have more than a candidate may have");
        }
        let mut packed = Vec::new();
        for line in &self.lines {
            decode_line(line, &mut packed).ok_or("a line is not in git's base 85")?;
        }
        let mut data = Vec::new();
        let bounded = flate2::read::ZlibDecoder::new(&packed[..]).take(self.size as u64 + 1);
        { bounded }
            .read_to_end(&mut data)
            .map_err(|_| "it cannot be inflated")?;
        match data.len() == self.size {
            true => Ok(data),
            false => Err("it has not the size that it says"),
        }
    }
}

fn read_start(line: &[u8]) -> Option<(Encoding, usize)> {
    let (encoding, size) = match line.strip_prefix(b"literal ") {
        Some(size) => (Encoding::Literal, size),
        None => (Encoding::Delta, line.strip_prefix(b"delta ")?),
    };
    Some((encoding, std::str::from_utf8(size).ok()?.parse().ok()?))
}
