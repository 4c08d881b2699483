//! The winner and the base line by line, after all is measured (CA-83). Whatever goes wrong here is a note: no result
//! depends on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use fairtrial_exec::{Outcome, Verdict};

use super::correctness::{Checking, aside};
use super::evaluator::Evaluator;
use super::field::Field;
use super::ground::{Errand, Tree};
use super::scene::Scene;
use crate::cases::{CallEnd, Failure, Output, Paths};
use crate::evaluation::{EvaluationReport, ProfileReport, SideProfile};
use crate::profile::{
    self, MOST_BYTES, PROFILE_FILE, PROFILE_VARIABLE, TERMS_FILE, TRACER, TRACER_FILE, Terms, Texts,
};
use crate::spec::{Bench, Command, Profile};
use crate::stage::{Base, Image, Kind, Staged, TreePath};

/// How long a profiler of the user's may take on each side.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// What is run under the tracer.
struct Traced {
    name: String,
    command: Command,
    timeout: Duration,
    cwd: Option<TreePath>,
    env: BTreeMap<String, String>,
}

impl Evaluator {
    /// Profiles whoever won beside the base; none if nobody did, nobody asked for it, or no Python file is changed.
    pub(super) async fn profile(
        &self,
        scene: &Scene,
        field: &Field,
        report: &EvaluationReport,
    ) -> Option<ProfileReport> {
        let winner = report.winner.as_ref()?;
        let staged = field
            .find(winner)
            .and_then(|number| field.entries[number].staged.clone())?;
        let checking = &*scene.checking;
        match &self.spec.profile {
            Profile::Off => None,
            Profile::Command(command) => {
                let (base, winner) = trees(checking, &staged).await;
                let base = by_command(checking, base, command).await;
                let winner = by_command(checking, winner, command).await;
                Some(beside("profile", base, winner, &staged))
            }
            Profile::Auto => {
                let files = changed_files(&scene.base, &staged);
                if files.is_empty() {
                    return None;
                }
                let traced = self.traced(report);
                let (base, winner) = trees(checking, &staged).await;
                let base = by_tracer(checking, base, &traced, &files, ["base", "winner"]).await;
                let winner = by_tracer(checking, winner, &traced, &files, ["winner", "base"]).await;
                Some(beside(&traced.name, base, winner, &staged))
            }
        }
    }

    /// The first bench command, looping as it did; without one, the first test command.
    fn traced(&self, report: &EvaluationReport) -> Traced {
        let bench = match &self.spec.bench {
            Bench::Commands(commands) => commands.first(),
            Bench::None | Bench::ReuseTests => None,
        };
        if let Some(bench) = bench {
            let facts = report
                .measurement
                .as_ref()
                .and_then(|measured| measured.benches.get(&bench.name));
            let loops = facts
                .and_then(|facts| u32::try_from(facts.loops?).ok())
                .unwrap_or(1);
            return Traced {
                name: bench.name.clone(),
                command: bench.command.with_loops(loops),
                timeout: bench.timeout,
                cwd: bench.cwd.clone(),
                env: bench.env.clone(),
            };
        }
        let test = &self.spec.tests[0];
        Traced {
            name: test.name.clone(),
            command: test.command.clone(),
            timeout: test.timeout,
            cwd: test.cwd.clone(),
            env: test.env.clone(),
        }
    }
}

fn beside(command: &str, base: SideProfile, winner: SideProfile, staged: &Staged) -> ProfileReport {
    let named = |side: String, profile: SideProfile| SideProfile { side, ..profile };
    ProfileReport {
        command: command.to_owned(),
        sides: vec![
            named("base".to_owned(), base),
            named(staged.id.to_string(), winner),
        ],
    }
}

fn noted(note: impl Into<String>) -> SideProfile {
    SideProfile {
        note: Some(note.into()),
        ..SideProfile::default()
    }
}

/// Trees of their own: nothing of what was tested or measured is run again.
async fn trees(
    checking: &Checking,
    staged: &Staged,
) -> (Result<Tree, String>, Result<Tree, String>) {
    let base = checking
        .base_tree()
        .await
        .map_err(|failure| failure.message);
    let winner = checking
        .tree(staged)
        .await
        .map_err(|failure: Box<Failure>| failure.message);
    (base, winner)
}

/// What a profiler of the user's says.
async fn by_command(
    checking: &Checking,
    tree: Result<Tree, String>,
    command: &Command,
) -> SideProfile {
    let tree = match tree {
        Ok(tree) => tree,
        Err(why) => return noted(why),
    };
    let errand = Errand {
        timeout: Some(COMMAND_TIMEOUT),
        ..Errand::new(command)
    };
    match checking.run(&tree, &errand, "profile").await {
        Err(failure) => noted(failure.message),
        Ok(ran) => {
            let text = |captured| Output::of_captured(captured, &Paths::default()).text;
            SideProfile {
                note: unwell(&ran.outcome),
                stdout: text(&ran.outcome.stdout),
                stderr: text(&ran.outcome.stderr),
                ..SideProfile::default()
            }
        }
    }
}

/// How it ended, if not well.
fn unwell(outcome: &Outcome) -> Option<String> {
    (outcome.verdict != Verdict::Ok).then(|| CallEnd::of(outcome).described())
}

async fn by_tracer(
    checking: &Checking,
    tree: Result<Tree, String>,
    traced: &Traced,
    files: &BTreeMap<String, Texts>,
    [side, other]: [&'static str; 2],
) -> SideProfile {
    let given = checking.ground.variable("PYTHONPATH", &traced.env);
    let given = given.filter(|path| !path.is_empty());
    let terms = Terms {
        files,
        side,
        other,
        // Half the time is left to the program, which runs faster then.
        seconds: traced.timeout.as_secs_f64() / 2.0,
        pythonpath: given.clone(),
    };
    let directory = checking.plugin.join(format!("profile-{side}"));
    let tree = match (tree, write_tracer(&directory, &terms)) {
        (Ok(tree), Ok(())) => tree,
        (Err(why), _) => return noted(why),
        (_, Err(error)) => return noted(format!("the tracer cannot be written: {error}")),
    };
    let directory = directory.to_string_lossy();
    let path = match given {
        Some(given) => format!("{directory}:{given}"),
        None => directory.into_owned(),
    };
    let results = checking.ground.at.join(PROFILE_FILE);
    let errand = Errand {
        cwd: traced.cwd.as_ref(),
        env: Some(&traced.env),
        own_env: vec![
            ("PYTHONPATH".into(), path.into()),
            (PROFILE_VARIABLE.into(), results.into_os_string()),
        ],
        timeout: Some(traced.timeout),
        ..Errand::new(&traced.command)
    };
    let ran = match checking.run(&tree, &errand, "profile").await {
        Ok(ran) => ran,
        Err(failure) => return noted(failure.message),
    };
    let ended = unwell(&ran.outcome);
    let found = aside(move || ran.read(Path::new(PROFILE_FILE), MOST_BYTES)).await;
    let said = match found {
        Ok(Some(bytes)) => profile::read(&bytes, terms.seconds),
        Ok(None) => Err("no interpreter was traced to its end".to_owned()),
        Err(failure) => Err(failure.message),
    };
    let (functions, note) = said.unwrap_or_else(|why| (Vec::new(), Some(why)));
    let notes: Vec<String> = ended.into_iter().chain(note).collect();
    SideProfile {
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        functions,
        ..SideProfile::default()
    }
}

fn write_tracer(directory: &Path, terms: &Terms<'_>) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join(TRACER_FILE), TRACER)?;
    fs::write(directory.join(TERMS_FILE), serde_json::to_string(terms)?)
}

/// Python files that differ, both sides' texts. What is no text is not traced.
fn changed_files(base: &dyn Base, staged: &Staged) -> BTreeMap<String, Texts> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    let of_base = |path: &TreePath| match base.kind(path) {
        Ok(Kind::File { .. }) => base.read(path).ok().and_then(text),
        _ => None,
    };
    let changed = staged.images.iter().filter_map(|(path, image)| {
        let name = std::str::from_utf8(path.as_bytes()).ok()?;
        let texts = Texts {
            base: of_base(path),
            winner: match image {
                Some(Image::File { bytes, .. }) => text(bytes.to_vec()),
                _ => None,
            },
        };
        let is_python = Path::new(name)
            .extension()
            .is_some_and(|extension| extension == "py");
        (is_python && texts.base != texts.winner).then(|| (name.to_owned(), texts))
    });
    changed.collect()
}
