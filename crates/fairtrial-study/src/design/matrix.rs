//! Custom matrices: conditions from a CSV or JSON file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::rows::Rows;
use super::table::{ABSENT, Column, MOST_ROWS, too_many};
use super::{Objection, objection};
use crate::canonical::canonical_json;
use crate::compat::Compat;
use crate::csv::parse_csv;
use crate::fault::{Findings, Place, listed, short, suggestion};
use crate::files::read_file;
use crate::json_text;
use crate::node::{Content, extension};
use crate::study::Study;
use crate::value::Value;

/// A row as it stands in the file: names, values, places.
type Given = Vec<(String, Value, Place)>;

pub(super) fn rows(study: &Study, findings: &mut Findings) -> Result<Rows, Objection> {
    let given = read(study)?;
    if given.len() > MOST_ROWS {
        return Err(too_many());
    }
    let mut builder = Builder {
        study,
        factors: Vec::new(),
        blocks: Vec::new(),
        rows: Vec::new(),
    };
    for (number, row) in given.iter().enumerate() {
        builder.add(number, row, findings);
    }
    Ok(builder.finish())
}

fn read(study: &Study) -> Result<Vec<Given>, Objection> {
    let hint = "name a `.csv` or `.json` file";
    let Some(path) = &study.design.matrix_path else {
        let message = "a custom matrix needs `matrix_path`";
        return Err(objection("matrix_path", message, hint));
    };
    let full = match study.compat {
        Compat::Native => study.resolve(path),
        Compat::Dre => PathBuf::from(path),
    };
    let extension = extension(&full);
    if extension != "csv" && extension != "json" {
        let message = format!("a matrix in `.{extension}` is not read");
        return Err(objection("matrix_path", message, hint));
    }
    let text =
        read_file(&full).and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
    let text = text.map_err(|error| {
        let message = format!("cannot read the matrix `{}`: {error}", short(path));
        objection("matrix_path", message, hint)
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let file: Arc<str> = Arc::from(full.display().to_string());
    match extension.as_str() {
        "csv" => Ok(from_csv(&file, text)),
        _ => from_json(&file, text),
    }
}

fn from_csv(file: &Arc<str>, text: &str) -> Vec<Given> {
    let mut records = parse_csv(text).into_iter();
    let Some(header) = records.next() else {
        return Vec::new();
    };
    let names: Vec<String> = header.cells.into_iter().map(|cell| cell.text).collect();
    let row = |record: crate::csv::CsvRecord| {
        let place = |column| Place {
            file: file.clone(),
            line: record.line,
            column,
        };
        let cell = |(index, name): (usize, &String)| match record.cells.get(index) {
            Some(cell) => (name.clone(), Value::text(&cell.text), place(cell.column)),
            None => (name.clone(), Value::Null, place(1)), // as Python fills short rows
        };
        names.iter().enumerate().map(cell).collect()
    };
    records.map(row).collect()
}

fn from_json(file: &Arc<str>, text: &str) -> Result<Vec<Given>, Objection> {
    let wrong = |what: String| objection("matrix_path", what, "write a list of objects");
    let root = json_text::parse(file, text).map_err(|fault| wrong(fault.to_string()))?;
    let Content::List(items) = root.content else {
        return Err(wrong(format!("the matrix is {}, not a list", root.kind())));
    };
    let row = |item: &crate::node::Node| match &item.content {
        Content::Map(entries) => Ok(entries
            .iter()
            .map(|entry| {
                let name = entry.key.to_value().to_str();
                (name, entry.value.to_value(), entry.value.place.clone())
            })
            .collect()),
        _ => Err(wrong(format!("{}: a row is {}", item.place, item.kind()))),
    };
    items.iter().map(row).collect()
}

/// Columns and the indexes of their values.
type Cells = Vec<(usize, u32)>;

struct Builder<'s> {
    study: &'s Study,
    /// Columns in first-seen order.
    factors: Vec<Interned>,
    blocks: Vec<Interned>,
    /// Cells of each row: column and value.
    rows: Vec<(Cells, Cells)>,
}

impl Builder<'_> {
    fn add(&mut self, number: usize, given: &Given, findings: &mut Findings) {
        let native = self.study.compat == Compat::Native;
        let (mut factors, mut blocks) = (Vec::new(), Vec::new());
        for (name, value, place) in given {
            let at = |what: String| format!("row {}, column `{}`: {what}", number + 1, short(name));
            let study = self.study;
            let factor = study.factors.iter().find(|factor| factor.name == *name);
            let block = study.blocks.iter().find(|block| block.name == *name);
            let (columns, cells, levels): (_, _, Vec<(&str, &Value)>) = match (factor, block) {
                (Some(factor), _) => {
                    let levels = factor.levels.iter().map(|l| (l.name.as_str(), &l.value));
                    (&mut self.factors, &mut factors, levels.collect())
                }
                (None, Some(block)) => {
                    let levels = block.levels.iter().map(|value| ("", value));
                    (&mut self.blocks, &mut blocks, levels.collect())
                }
                (None, None) => {
                    let known = study.factors.iter().map(|factor| factor.name.as_str());
                    let hint = suggestion(name, known);
                    let what = at("no factor or block has this name".into());
                    if native {
                        findings.fault(place, "matrix", what, hint);
                    } else if number == 0 {
                        findings.warn(place, "matrix", what, hint);
                    }
                    continue;
                }
            };
            let value = match native {
                false => value.clone(),
                true => match matching(value, &levels) {
                    Some(level) => level.clone(),
                    None => {
                        let what = at(format!("`{}` is no level", short(&value.to_str())));
                        let names = levels
                            .iter()
                            .map(|(name, _)| *name)
                            .filter(|n| !n.is_empty());
                        let hint = format!("the levels are {}", listed(names));
                        findings.fault(place, "matrix", what, hint);
                        continue;
                    }
                },
            };
            let cell = intern(columns, name, value);
            match cells.iter_mut().find(|(column, _)| *column == cell.0) {
                Some(known) => *known = cell,
                None => cells.push(cell),
            }
        }
        if native {
            self.missing(number, given, findings);
        }
        self.rows.push((factors, blocks));
    }

    fn missing(&self, number: usize, given: &Given, findings: &mut Findings) {
        let factors = self.study.factors.iter().map(|factor| &factor.name);
        for name in factors.chain(self.study.blocks.iter().map(|block| &block.name)) {
            if !given.iter().any(|(known, ..)| known == name) {
                let place = given
                    .first()
                    .map_or(self.study.design.place_of("matrix_path"), |g| &g.2);
                let message = format!("row {}: column `{}` is missing", number + 1, short(name));
                findings.fault(
                    place,
                    "matrix",
                    message,
                    "give every factor and block a value",
                );
            }
        }
    }

    fn finish(self) -> Rows {
        let (width, offset) = (self.factors.len() + self.blocks.len(), self.factors.len());
        let mut cells = vec![ABSENT; width * self.rows.len()];
        for (number, (factors, blocks)) in self.rows.iter().enumerate() {
            let row = &mut cells[number * width..(number + 1) * width];
            for (column, value) in factors {
                row[*column] = *value;
            }
            for (column, value) in blocks {
                row[offset + *column] = *value;
            }
        }
        let origins = (0..self.rows.len() as u32).collect();
        let columns = |interned: Vec<Interned>| interned.into_iter().map(|i| i.column).collect();
        Rows::new(columns(self.factors), columns(self.blocks), cells, origins)
    }
}

/// A column and where each value's text is in it.
struct Interned {
    column: Column,
    known: HashMap<String, u32>,
}

/// The level that a cell means: by its name, else by its value's text.
fn matching<'v>(cell: &Value, levels: &[(&str, &'v Value)]) -> Option<&'v Value> {
    let text = match cell {
        Value::Text(text) => text.clone(),
        other => canonical_json(other),
    };
    let by_name = levels
        .iter()
        .find(|(name, _)| !name.is_empty() && *name == text);
    let by_value = || {
        levels.iter().find(|(_, value)| match value {
            Value::Text(known) => *known == text,
            known => canonical_json(known) == text || known.to_str() == text,
        })
    };
    by_name.or_else(by_value).map(|(_, value)| *value)
}

/// The column of a name and the index of a value in it, both made if they are new.
fn intern(columns: &mut Vec<Interned>, name: &str, value: Value) -> (usize, u32) {
    let known = columns
        .iter()
        .position(|interned| interned.column.name == name);
    let at = known.unwrap_or_else(|| {
        columns.push(Interned {
            column: Column {
                name: name.into(),
                values: Vec::new(),
            },
            known: HashMap::new(),
        });
        columns.len() - 1
    });
    let Interned { column, known } = &mut columns[at];
    // By text: `1`, `1.0` and `true` are three values.
    let index = *known.entry(canonical_json(&value)).or_insert_with(|| {
        column.values.push(value);
        (column.values.len() - 1) as u32
    });
    (at, index)
}
