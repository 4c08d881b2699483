//! Tables as text: the one writer of all CSV files, and a reader for matrices.

use std::io::{self, Write};

use crate::canonical::canonical_json;
use crate::compat::Compat;
use crate::value::Value;

/// Writes rows of cells; lines end in CRLF.
pub struct CsvWriter<W: Write> {
    out: W,
    compat: Compat,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the header; without columns it is an empty line.
    pub fn new<'a>(
        out: W,
        compat: Compat,
        columns: impl IntoIterator<Item = &'a str>,
    ) -> io::Result<Self> {
        let mut writer = Self { out, compat };
        let cells: Vec<String> = columns.into_iter().map(String::from).collect();
        writer.line(&cells)?;
        Ok(writer)
    }

    /// Writes one row; a cell that a row lacks is null.
    pub fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a Value>) -> io::Result<()> {
        let compat = self.compat;
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| cell_text(cell, compat))
            .collect();
        self.line(&cells)
    }

    /// What it wrote to.
    pub(crate) fn into_inner(self) -> W {
        self.out
    }

    /// Everything written so far reaches the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn line(&mut self, cells: &[String]) -> io::Result<()> {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                line.push(',');
            }
            let lone = cells.len() == 1 && cell.is_empty();
            if lone || cell.contains([',', '"', '\r', '\n']) {
                line.push('"');
                line += &cell.replace('"', "\"\"");
                line.push('"');
            } else {
                line += cell;
            }
        }
        line += "\r\n";
        self.out.write_all(line.as_bytes())
    }
}

/// A value as the text of a cell. Lists and mappings are Python's text under `dre-0.2`, else canonical JSON.
pub(crate) fn cell_text(value: &Value, compat: Compat) -> String {
    match (value, compat) {
        (Value::Null, _) => String::new(),
        (Value::List(_) | Value::Map(_), Compat::Native) => canonical_json(value),
        (value, _) => value.to_str(),
    }
}

/// One line of a CSV file; a quoted cell may make it several.
#[derive(Debug)]
pub(crate) struct CsvRecord {
    pub(crate) line: usize,
    pub(crate) cells: Vec<CsvCell>,
}

#[derive(Debug)]
pub(crate) struct CsvCell {
    pub(crate) column: usize,
    pub(crate) text: String,
}

/// The records of a CSV text; empty lines are none.
pub(crate) fn parse_csv(text: &str) -> Vec<CsvRecord> {
    let mut records = Vec::new();
    let mut chars = text.chars().peekable();
    let (mut line, mut column) = (1, 1);
    while chars.peek().is_some() {
        let mut record = CsvRecord {
            line,
            cells: Vec::new(),
        };
        let mut cell = CsvCell {
            column,
            text: String::new(),
        };
        let (mut quoted, mut was_quoted) = (false, false);
        loop {
            let next = chars.next();
            column += 1;
            match next {
                Some('"') if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    column += 1;
                    cell.text.push('"');
                }
                Some('"') if quoted => quoted = false,
                Some('"') if cell.text.is_empty() && !was_quoted => {
                    (quoted, was_quoted) = (true, true);
                }
                Some(c) if quoted => {
                    cell.text.push(c);
                    if c == '\n' {
                        (line, column) = (line + 1, 1);
                    }
                }
                Some(',') => {
                    let next = CsvCell {
                        column,
                        text: String::new(),
                    };
                    record.cells.push(std::mem::replace(&mut cell, next));
                    was_quoted = false;
                }
                Some('\r') if chars.peek() == Some(&'\n') => {}
                Some('\n' | '\r') | None => break,
                Some(c) => cell.text.push(c),
            }
        }
        (line, column) = (line + 1, 1);
        let is_empty = record.cells.is_empty() && cell.text.is_empty() && !was_quoted;
        record.cells.push(cell);
        if !is_empty {
            records.push(record);
        }
    }
    records
}
