//! Hints for commands that failed: files that the user meant and the command could not find or use.

use std::path::{Component, Path};

use fairtrial_exec::{Call, Outcome, Verdict, Work, out_of_reach};

/// Where relative paths were meant to start, and how the user says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The directory.
    pub(crate) dir: &'a Path,
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// What to write so that the command runs there.
    pub(crate) setting: &'static str,
}

impl<'a> Place<'a> {
    /// Of `exec`.
    pub(crate) fn of_shell(dir: &'a Path) -> Self {
        Self {
            dir,
            name: "the current directory",
            setting: "--cwd .",
        }
    }

    /// Of `batch`.
    pub(crate) fn of_calls(dir: &'a Path) -> Self {
        Self {
            dir,
            name: "the directory of the calls",
            setting: "\"cwd\": \".\"",
        }
    }
}

/// A hint, if there is one.
pub(crate) fn hint(call: &Call, outcome: &Outcome, place: Place<'_>) -> Option<String> {
    let failed = matches!(outcome.verdict, Verdict::Exit | Verdict::SetupFailed);
    let elsewhere = outcome.in_force.elsewhere.is_some() || call.workspace.is_some();
    if !failed || elsewhere {
        return None;
    }
    let reach = || match outcome.verdict {
        Verdict::Exit => out_of_reach(call, &outcome.in_force),
        _ => None, // the engine's own message has it
    };
    misplaced(call, outcome, place).or_else(reach)
}

/// Adds the hint to the error's message, for those who read JSON.
pub(crate) fn add_to(outcome: &mut Outcome, call: &Call, place: Place<'_>) {
    let hint = hint(call, outcome, place);
    if let (Some(hint), Some(error)) = (hint, &mut outcome.error) {
        error.message += &format!(" (hint: {hint})");
    }
}

/// A relative path among the words that is there for the user and not for the command.
fn misplaced(call: &Call, outcome: &Outcome, place: Place<'_>) -> Option<String> {
    let Work::Command(work) = &call.work else {
        return None;
    };
    let word = work.argv.iter().enumerate().find_map(|(index, word)| {
        let path = Path::new(word);
        let mut parts = path.components();
        let is_option = word.as_encoded_bytes().starts_with(b"-");
        // A program without a slash is searched in PATH: only where none was found it may be meant as a file.
        let searched = index == 0 && parts.clone().count() == 1;
        let names_file = parts.any(|part| matches!(part, Component::Normal(_)));
        let can_be_path = path.is_relative() && names_file && !is_option;
        let can_be_meant = !searched || outcome.verdict == Verdict::SetupFailed;
        let is_missing = |dir: &Path| !dir.join(path).exists();
        let is_there = can_be_path && can_be_meant && place.dir.join(path).exists();
        (is_there && call.cwd.as_deref().is_none_or(is_missing)).then_some(path)
    })?;
    let (word, here, setting) = (word.display(), place.name, place.setting);
    Some(match &call.cwd {
        None => format!(
            "`{word}` is in {here}, and the command ran in a scratch directory of its own: give `{setting}`"
        ),
        Some(cwd) => {
            let cwd = cwd.display();
            format!(
                "`{word}` is in {here}, and the command ran in `{cwd}`: give its absolute path, or `{setting}`"
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairtrial_exec::{Captured, ErrorReport, InForce, Metrics};

    fn failed(verdict: Verdict) -> Outcome {
        Outcome {
            verdict,
            value: None,
            error: Some(ErrorReport::new("Exit", "it exited with code 2")),
            exit: None,
            killed_by: None,
            stdout: Captured::default(),
            stderr: Captured::default(),
            metrics: Metrics::default(),
            in_force: InForce::default(),
            tried_alone: None,
            upper: None,
        }
    }

    /// FA-13
    #[test]
    fn only_a_path_that_the_command_lacked_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of_shell(dir.path());
        std::fs::write(dir.path().join("solve.py"), "").unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let hint = |argv: &[&str], cwd: Option<&str>, verdict| {
            let mut call = Call::command(argv.iter().copied());
            call.cwd = cwd.map(|cwd| dir.path().join(cwd));
            hint(&call, &failed(verdict), place)
        };
        let said = hint(&["python3", "solve.py"], None, Verdict::Exit).unwrap();
        assert!(said.contains("give `--cwd .`"), "{said}");
        let said = hint(&["python3", "solve.py"], Some("sub"), Verdict::Exit).unwrap();
        assert!(said.contains("absolute path"), "{said}");
        assert!(hint(&["./solve.py"], None, Verdict::SetupFailed).is_some());
        assert!(hint(&["solve.py"], None, Verdict::SetupFailed).is_some());
        assert_eq!(hint(&["solve.py"], None, Verdict::Exit), None); // it was found in PATH
        for (argv, cwd, verdict) in [
            (&["python3", "solve.py"], Some(""), Verdict::Exit),
            (&["python3", "solve.py"], None, Verdict::Ok),
            (&["python3", "solve.py"], None, Verdict::Timeout),
            (&["python3", "other.py"], None, Verdict::Exit),
            (&["ls", "."], None, Verdict::Exit),
            (&["ls", "-sub"], None, Verdict::Exit),
        ] {
            assert_eq!(hint(argv, cwd, verdict), None, "{argv:?}");
        }
    }
}
