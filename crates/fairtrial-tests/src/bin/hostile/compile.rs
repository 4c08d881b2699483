//! The programs in C, compiled inside the cage.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::cage::{BIN, command};
use crate::table::{Attack, Source, Trial};

/// Compiled programs by the name of their file, or why there is none.
pub(crate) type Compiled = HashMap<&'static str, Result<PathBuf, String>>;

/// Compiles what these trials need.
pub(crate) fn all<'a>(trials: impl Iterator<Item = &'a Trial>) -> Compiled {
    let mut compiled = Compiled::new();
    for trial in trials {
        if let Attack::C { source, .. } = &trial.attack {
            compiled.entry(source.name).or_insert_with(|| one(source));
        }
    }
    compiled
}

fn one(source: &Source) -> Result<PathBuf, String> {
    let dir = Path::new(BIN);
    // Its name among processes, by which what it leaves is found.
    let program = dir.join(format!("sin-{}", source.name.trim_end_matches(".c")));
    let file = dir.join(source.name);
    std::fs::write(&file, source.text).map_err(|error| error.to_string())?;
    let mut cc = command("cc");
    cc.args(["-O1", "-pthread", "-w", "-o"])
        .arg(&program)
        .arg(&file);
    match cc.output() {
        Ok(ended) if ended.status.success() => Ok(program),
        Ok(ended) => Err(format!("cc: {}", String::from_utf8_lossy(&ended.stderr))),
        Err(error) => Err(format!("no C compiler (`cc`): {error}")),
    }
}
