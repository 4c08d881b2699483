//! The same changes made by git itself. Skipped, with a word, where there is no git.

mod edits;
mod tree;

use std::path::Path;
use std::process::{Command, Output};

use proptest::prelude::*;

use crate::support::{applied, listed};
use edits::{Random, edit, random_tree};
use fairtrial_candidates::stage::patch::apply;
use fairtrial_tests::note;
use tree::Tree;

/// How `git diff` is asked, and how `git apply` has to be asked then.
const FORMS: [(&[&str], &[&str]); 8] = [
    (&[], &[]),
    (&["-M"], &[]),
    (&["-M30%", "-C", "--find-copies-harder"], &[]),
    (&["--no-renames", "-U1"], &[]),
    (&["-U0"], &["--unidiff-zero"]),
    (&["--no-prefix"], &["-p0"]),
    (&["--src-prefix=old/", "--dst-prefix=new/"], &[]),
    (&["-B", "-M", "--no-abbrev"], &[]),
];

/// What git says and how it ends, whatever the user's own settings are; none where there is no git.
fn git(directory: &Path, arguments: &[&str]) -> Option<Output> {
    #[expect(clippy::disallowed_methods, reason = "a test compares with git")]
    let output = Command::new("git")
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", directory.join("no such file"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env(
            "GIT_CEILING_DIRECTORIES",
            directory.parent().expect("not the root"),
        )
        .args(["-c", "core.autocrlf=false", "-c", "core.fileMode=true"])
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(arguments)
        .output();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            note(format!("skipped: git: {error}"));
            None
        }
    }
}

/// The output of a git that must not fail.
fn git_output(directory: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = git(directory, arguments)?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {said}");
    Some(output.stdout)
}

/// A patch from one tree to another, as git makes it.
fn git_diff(old: &Tree, new: &Tree, form: &[&str], quote: bool) -> Option<Vec<u8>> {
    let home = tempfile::tempdir().expect("a directory");
    let repository = home.path().join("r");
    old.write(&repository);
    git_output(&repository, &["init", "-q"])?;
    git_output(&repository, &["add", "-A", "-f"])?;
    git_output(&repository, &["commit", "-q", "--allow-empty", "-m", "old"])?;
    for entry in std::fs::read_dir(&repository).expect("there") {
        let path = entry.expect("an entry").path();
        match path.file_name().is_some_and(|name| name == ".git") {
            true => {}
            false if path.is_dir() && !path.is_symlink() => {
                std::fs::remove_dir_all(path).expect("ours")
            }
            false => std::fs::remove_file(path).expect("ours"),
        }
    }
    new.write(&repository);
    git_output(&repository, &["add", "-A", "-f"])?;
    let quoting = format!("core.quotePath={quote}");
    let mut arguments = vec!["-c", &quoting, "diff", "--cached", "--binary"];
    arguments.extend(form);
    arguments.push("HEAD");
    git_output(&repository, &arguments)
}

/// The tree that `git apply` leaves. None where it refuses git's own patch: with `-B` a file is renamed over another that
/// the patch does not mention, and a link in a circle cannot become a directory.
fn git_apply(old: &Tree, patch: &[u8], form: &[&str]) -> Option<Tree> {
    let home = tempfile::tempdir().expect("a directory");
    let directory = home.path().join("d");
    old.write(&directory);
    std::fs::write(home.path().join("patch"), patch).expect("room");
    if !patch.is_empty() {
        let mut arguments = vec!["apply", "--whitespace=nowarn"];
        arguments.extend(form);
        arguments.push("../patch");
        let output = git(&directory, &arguments)?;
        output.status.success().then_some(())?;
    }
    Some(Tree::read(&directory))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// CA-11, CA-13: random trees and random edits; bytes and modes as `git apply` leaves them.
    #[test]
    fn what_git_diff_makes_applies_as_git_applies_it(seed: u64, form in 0..FORMS.len(), quote: bool) {
        let mut random = Random::new(seed);
        let old = random_tree(&mut random);
        let mut new = old.clone();
        for _ in 0..1 + random.below(6) {
            edit(&mut new, &mut random);
        }
        let (diff_form, apply_form) = FORMS[form];
        let Some(patch) = git_diff(&old, &new, diff_form, quote) else {
            return Ok(());
        };
        let by_git = git_apply(&old, &patch, apply_form);
        if let Some(by_git) = &by_git {
            prop_assert_eq!(by_git, &new, "git's own patch does not give the tree");
        }
        match apply(&patch, &old.base()) {
            Ok(images) => {
                prop_assert_eq!(&old.with(&images), &new, "{}\n{:?}", patch.escape_ascii(), listed(&images));
            }
            // What git refuses of its own may be refused.
            Err(error) => prop_assert!(by_git.is_none(), "{}\n{}", patch.escape_ascii(), error),
        }
    }

    /// CA-13: whatever the bytes, an answer and no panic.
    #[test]
    fn damaged_patches_never_panic(seed: u64, hits in 1..12u64) {
        let mut random = Random::new(seed);
        let old = random_tree(&mut random);
        let mut patch = SAMPLES[random.below(SAMPLES.len() as u64) as usize].as_bytes().to_vec();
        for _ in 0..hits {
            let at = random.below(patch.len() as u64) as usize;
            match random.below(3) {
                0 => patch[at] = random.below(256) as u8,
                1 => drop(patch.drain(at..(at + 7).min(patch.len()))),
                _ => patch.extend_from_within(at..(at + 40).min(patch.len())),
            }
            patch.push(b'\n');
        }
        // Applied or refused: either is an answer.
        let _answer = apply(&patch, &old.base());
    }
}

const SAMPLES: [&str; 3] = [
    "diff --git a/a b/a\nold mode 100644\nnew mode 100755\nindex 1234567..89abcde\n--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@ f\n x\n-y\n+z\n+w\n\\ No newline at end of file\n",
    "diff --git \"a/\\303\\274\" \"b/\\303\\274\"\nsimilarity index 50%\nrename from \"\\303\\274\"\nrename to b\n--- a/x\n+++ b/b\n@@ -0,0 +1 @@\n+w\n",
    "diff --git a/b b/b\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..f76dd238ade08917e6712764a16a22005a50573d\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\nliteral 0\nHcmV?d00001\n\n",
];

/// CA-11: plain patches of GNU diff, with its time stamps and its way of saying that a file is not there.
#[test]
fn what_gnu_diff_makes_applies() {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let old = random_tree(&mut random).plain();
        let mut new = old.clone();
        for _ in 0..4 {
            edit(&mut new, &mut random);
        }
        let new = new.plain_like(&old);
        let home = tempfile::tempdir().expect("a directory");
        old.write(&home.path().join("old"));
        new.write(&home.path().join("new"));
        #[expect(clippy::disallowed_methods, reason = "a test compares with GNU diff")]
        let output = Command::new("diff")
            .current_dir(home.path())
            .args(["-a", "-r", "-u", "-N", "old", "new"])
            .output();
        let Ok(output) = output else {
            return note("skipped: there is no diff");
        };
        let images = applied(&old.base(), &output.stdout);
        let ours = old.with(&images);
        assert_eq!(ours, new, "{seed}: {}", output.stdout.escape_ascii());
    }
}
