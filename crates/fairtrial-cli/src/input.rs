//! Lines of `batch` read and parsed on a thread of their own, so that a silent pipe holds nothing up.
//!
//! A batch of lines is handed over before any read that may block: a call starts as soon as its line is complete.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fairtrial_exec::{Call, Work};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;

use crate::call_json::CallReader;
use crate::failure::{Failure, reason};
use crate::json::Fault;

/// Lines handed over together, at most.
const BATCH_LINES: usize = 32;
/// Text handed over together, about.
const BATCH_BYTES: u64 = 1 << 20;
/// Batches waiting between reader and dispatcher.
const WAITING_BATCHES: usize = 2;
/// Lines read but not dispatched, at most: those waiting, and those in the reader's hands.
pub(crate) const READ_AHEAD: u64 = (BATCH_LINES * (WAITING_BATCHES + 1)) as u64;

/// One line that is not blank.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) number: u64,
    pub(crate) id: Json,
    /// Bytes the line took in the input.
    pub(crate) length: u64,
    pub(crate) call: Result<Call, BadLine>,
}

/// Why a line is no call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadLine {
    pub(crate) column: usize,
    pub(crate) message: String,
}

impl Line {
    /// Bytes the call holds while it waits.
    pub(crate) fn weight(&self) -> u64 {
        let text = match self.call.as_ref().map(|call| &call.work) {
            Ok(Work::Source(work)) => work.source.len(),
            _ => 0,
        };
        self.length + text as u64
    }
}

/// Where lines come from.
pub(crate) struct Source {
    /// As messages call it.
    pub(crate) name: String,
    /// What relative paths in calls are relative to.
    pub(crate) base: PathBuf,
    /// Total bytes, where known.
    pub(crate) size: Option<u64>,
    /// Device and inode of a file.
    pub(crate) identity: Option<(u64, u64)>,
    reader: Box<dyn Read + Send>,
}

impl Source {
    /// `-` is standard input.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let absolute = std::path::absolute(path)
            .map_err(Failure::attempting("cannot tell the current directory"))?;
        let base = absolute.parent().unwrap_or(&absolute).to_owned();
        if name == "-" {
            return Ok(Self {
                name: "<stdin>".into(),
                base,
                size: None,
                identity: None,
                reader: Box::new(io::stdin()),
            });
        }
        let cannot = |problem: &str| {
            let hint = "give a file of JSON lines, or `-` for standard input";
            Failure::usage(&name, format!("cannot read it: {problem} ({hint})"))
        };
        let file = File::open(path).map_err(|error| cannot(&reason(&error)))?;
        let facts = file.metadata().map_err(|error| cannot(&reason(&error)))?;
        if facts.is_dir() {
            return Err(cannot("it is a directory"));
        }
        Ok(Self {
            size: facts.is_file().then_some(facts.len()),
            identity: Some((facts.dev(), facts.ino())),
            reader: Box::new(file),
            name,
            base,
        })
    }
}

/// Reads on until the end, an error, or nobody wants more.
pub(crate) fn start(
    source: Source,
    calls: CallReader,
) -> Result<mpsc::Receiver<io::Result<Vec<Line>>>, Failure> {
    let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
    let lines = Lines::new(source.reader, calls);
    std::thread::Builder::new()
        .name("reader".into())
        .spawn(move || {
            for batch in lines {
                if sender.blocking_send(batch).is_err() {
                    return; // the run is over
                }
            }
        })
        .map_err(Failure::attempting("cannot start the reader"))?;
    Ok(receiver)
}

/// Batches of parsed lines.
struct Lines<R: Read> {
    reader: BufReader<R>,
    calls: CallReader,
    number: u64,
    text: Vec<u8>,
}

impl<R: Read> Lines<R> {
    fn new(reader: R, calls: CallReader) -> Self {
        Self {
            reader: BufReader::with_capacity(1 << 18, reader),
            calls,
            number: 0,
            text: Vec::new(),
        }
    }

    /// The next line that is not blank.
    fn line(&mut self) -> io::Result<Option<Line>> {
        loop {
            self.text.clear();
            self.text.shrink_to(BATCH_BYTES as usize);
            let length = self.reader.read_until(b'\n', &mut self.text)? as u64;
            if length == 0 {
                return Ok(None);
            }
            self.number += 1;
            let text = match self.text.strip_prefix(b"\xef\xbb\xbf") {
                Some(text) if self.number == 1 => text,
                _ => &self.text,
            };
            // The line's own end is no part of it: a fault there would be placed on the line below.
            let text = text.trim_ascii_end();
            if text.is_empty() {
                continue;
            }
            let (id, call) = parse(text, self.number, &mut self.calls);
            let number = self.number;
            return Ok(Some(Line {
                number,
                id,
                length,
                call,
            }));
        }
    }

    /// Whether the next line is already here, so that reading it cannot block.
    fn has_next(&self) -> bool {
        self.reader.buffer().contains(&b'\n')
    }
}

impl<R: Read> Iterator for Lines<R> {
    type Item = io::Result<Vec<Line>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Vec::new();
        let mut weight = 0;
        while batch.is_empty()
            || (batch.len() < BATCH_LINES && weight < BATCH_BYTES && self.has_next())
        {
            match self.line() {
                Ok(Some(line)) => {
                    weight += line.weight();
                    batch.push(line);
                }
                Ok(None) => break,
                Err(error) => return Some(Err(error)),
            }
        }
        (!batch.is_empty()).then_some(Ok(batch))
    }
}

fn parse(bytes: &[u8], number: u64, calls: &mut CallReader) -> (Json, Result<Call, BadLine>) {
    let (text, parsed) = match str::from_utf8(bytes) {
        Ok(text) => (text.into(), calls.read(text, number)),
        Err(error) => {
            let message = "not UTF-8 text (save the file as UTF-8)";
            let fault = Fault::new(error.valid_up_to(), message);
            (String::from_utf8_lossy(bytes), (json!(number), Err(fault)))
        }
    };
    let (id, call) = parsed;
    let bad = |fault: Fault| BadLine {
        column: fault.place(&text).1,
        message: fault.message,
    };
    (id, call.map_err(bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: impl Read) -> Vec<Vec<Line>> {
        let calls = CallReader::new("/base".into(), None);
        Lines::new(input, calls).map(Result::unwrap).collect()
    }

    /// EX-99
    #[test]
    fn a_byte_order_mark_and_blank_lines_are_skipped_but_counted() {
        let input =
            "\u{feff}{\"argv\": [\"a\"]}\n\n  \r\n{\"argv\": [\"b\"]}\r\n{\"argv\": [\"c\"]}";
        let lines: Vec<_> = lines(input.as_bytes()).into_iter().flatten().collect();
        let numbers: Vec<_> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 4, 5]);
        assert!(lines.iter().all(|line| line.call.is_ok()));
    }

    /// EX-102
    #[test]
    fn a_line_that_is_no_text_is_one_bad_line() {
        let input = b"{\"argv\": [\"\xff\"]}\n{\"argv\": [\"b\"]}\n";
        let lines: Vec<_> = lines(&input[..]).into_iter().flatten().collect();
        let bad = BadLine {
            column: 12,
            message: "not UTF-8 text (save the file as UTF-8)".into(),
        };
        assert_eq!(lines[0].call.as_ref(), Err(&bad));
        assert_eq!(lines[0].id, json!(1));
        assert!(lines[1].call.is_ok());
    }

    /// EX-102
    #[test]
    fn a_line_that_ends_too_soon_is_faulted_at_its_end() {
        for end in ["", "\n", "\r\n"] {
            let input = format!("{{\"argv\": [{end}");
            let lines: Vec<_> = lines(input.as_bytes()).into_iter().flatten().collect();
            let bad = lines[0].call.as_ref().unwrap_err();
            assert_eq!(bad.column, 10, "{bad:?}");
        }
    }

    /// EX-100
    #[test]
    fn what_is_complete_is_handed_over_before_a_read_that_may_block() {
        struct Pieces(Vec<&'static str>);
        impl Read for Pieces {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let Some(piece) = self.0.pop() else {
                    return Ok(0);
                };
                buffer[..piece.len()].copy_from_slice(piece.as_bytes());
                Ok(piece.len())
            }
        }
        let pieces = Pieces(vec![
            "\"b\"]}\n{\"argv\": [\"c\"]}\n",
            "{\"argv\": [\"a\"]}\n{\"argv\": [",
        ]);
        let sizes: Vec<_> = lines(pieces).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 2]);
    }

    #[test]
    fn a_batch_is_bounded_in_lines_and_in_bytes() {
        let small = "{\"argv\": [\"a\"]}\n".repeat(100);
        let sizes: Vec<_> = lines(small.as_bytes()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [32, 32, 32, 4]);
        let large = format!("{{\"argv\": [\"{}\"]}}\n", "x".repeat(3 << 20)).repeat(3);
        let sizes: Vec<_> = lines(large.as_bytes()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 1, 1]);
    }
}
