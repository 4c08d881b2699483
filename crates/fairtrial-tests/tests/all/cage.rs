//! The hostile suite's cage: no part of the suite runs outside it.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use fairtrial_tests::binary;

const NOBODY: u32 = 65_534;

fn hostile(program: &Path, words: &[&str], uid: Option<u32>) -> Output {
    #[expect(
        clippy::disallowed_methods,
        reason = "the suite is run as people run it"
    )]
    let mut command = Command::new(program);
    command.args(words);
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    command
        .output()
        .expect("it is built with `cargo build --bins`")
}

fn assert_refused(output: &Output, why: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        said.starts_with("hostile: refuses to start: ") && said.contains(why),
        "{said}"
    );
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// SB-71: also its inner parts, called by hand.
#[test]
fn without_the_cage_no_hostile_program_is_run() {
    let program = binary().with_file_name("hostile");
    let job = r#"{"trial": "H16", "level": "none"}"#;
    for part in [["@run", ""].as_slice(), &["@cell", job], &["@engine", job]] {
        assert_refused(&hostile(&program, part, None), "not in a cage");
    }
    for part in ["@enter", "@init"] {
        let output = hostile(&program, &[part, "{}"], None);
        assert_refused(&output, "a part that people do not start");
    }
}

/// SB-71: who cannot make the cage is told so.
#[test]
fn who_is_not_root_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("hostile");
    std::fs::copy(binary().with_file_name("hostile"), &program).expect("it is built");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    let output = hostile(&program, &["--only", "H16"], is_root.then_some(NOBODY));
    assert_refused(&output, "needs root");
}

#[test]
fn a_row_that_is_not_there_is_refused() {
    let program = binary().with_file_name("hostile");
    let output = hostile(&program, &["--only", "H5,H99"], None);
    assert_refused(&output, "no row is called `H99`");
}
