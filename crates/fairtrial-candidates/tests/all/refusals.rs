//! What no candidate may do, in any form it is given.

use fairtrial_candidates::stage::{
    Content, DELETE_LIST, MOST_BYTES, MemoryBase, Mode, Protect, Replacement, Terms, read_tree,
    stage,
};

use crate::support::{applied, listed, patch, refused, why};

fn base() -> MemoryBase {
    MemoryBase::new()
        .file("x", "x\n")
        .file("dir/in", "in\n")
        .file("tests/test_x.py", "assert\n")
        .link("link", "dir")
        .link("out", "/etc")
        .special("device")
}

fn terms() -> Terms {
    Terms {
        base_hash: "base".to_owned(),
        protect: Protect::default(),
        shared: Vec::new(),
    }
}

fn file(path: &str, text: &str) -> (Vec<u8>, Replacement) {
    let (bytes, mode) = (text.as_bytes().to_vec(), Mode::KeptOr(0o644));
    (path.as_bytes().to_vec(), Replacement::File { bytes, mode })
}

fn deleted(path: &str) -> (Vec<u8>, Replacement) {
    (path.as_bytes().to_vec(), Replacement::Deleted)
}

/// CA-14
#[test]
fn no_path_leads_out_of_the_tree_or_through_a_link() {
    let table = [
        ("/etc/passwd", "is an absolute path"),
        ("../x", "has a `..`"),
        ("dir/../../x", "has a `..`"),
        (".git/hooks/pre-commit", "lies in a `.git`"),
        ("sub/.GIT/config", "lies in a `.git`"),
        ("link/new", "lies below the symbolic link `link`"),
        ("out/passwd", "lies below the symbolic link `out`"),
        ("device", "is a device"),
        ("x/below", "lies below `x`, which is a file"),
        ("device/below", "lies below `device`"),
        ("dir", "is a directory"),
        ("link", "is a symbolic link: nothing is written through one"),
    ];
    for (path, reason) in table {
        let create = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+evil\n"
        );
        let plain = format!("--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+evil\n");
        let rename = format!("diff --git a/x b/{path}\nrename from x\nrename to {path}\n");
        let copy = format!("diff --git a/dir/in b/{path}\ncopy from dir/in\ncopy to {path}\n");
        for text in [create, plain, rename, copy] {
            if path.starts_with("x/") && text.contains("rename from x") {
                continue; // then nothing is left in its way
            }
            let fault = refused(&base(), &text);
            assert!(
                fault.starts_with("apply_failed: ") && fault.contains(reason),
                "{path}: {fault}"
            );
        }
        let fault = why(stage(
            &Content::Files(vec![file(path, "evil")]),
            &base(),
            &terms(),
        ));
        assert!(
            fault.starts_with("apply_failed: ") && fault.contains(reason),
            "{path}: {fault}"
        );
    }
}

/// CA-14
#[test]
fn nothing_is_read_or_deleted_through_a_link_either() {
    for (path, reason) in [
        ("link/in", "below the symbolic link"),
        ("device", "device"),
        ("dir", "directory"),
        ("gone", "not in the base"),
    ] {
        let change = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-in\n+out\n");
        let rename = format!("diff --git a/{path} b/z\nrename from {path}\nrename to z\n");
        for text in [change, rename] {
            let fault = refused(&base(), &text);
            assert!(fault.contains(reason), "{path}: {fault}");
        }
        let fault = why(stage(
            &Content::Files(vec![deleted(path)]),
            &base(),
            &terms(),
        ));
        assert!(fault.contains(reason), "{path}: {fault}");
    }
}

/// CA-14: the link is the candidate's own.
#[test]
fn a_candidates_own_link_is_no_way_out() {
    let link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n\\ No newline at end of file\n";
    let below = "diff --git a/l/x b/l/x\nnew file mode 100644\n--- /dev/null\n+++ b/l/x\n@@ -0,0 +1 @@\n+evil\n";
    assert_eq!(listed(&applied(&base(), link)), ["l -> /etc"]);
    for text in [format!("{link}{below}"), format!("{below}{link}")] {
        let fault = refused(&base(), &text);
        assert!(
            fault.contains("`l/x` lies below the symbolic link `l`"),
            "{fault}"
        );
    }
    let as_text = "--- a/link\n+++ b/link\n@@ -1 +1 @@\n-dir\n\\ No newline at end of file\n+x\n\\ No newline at end of file\n";
    assert!(refused(&base(), as_text).contains("`link` is a symbolic link"));
    let empty = "diff --git a/l b/l\nnew file mode 120000\n";
    assert!(refused(&base(), empty).contains("link to nothing"));
}

/// CA-14
#[test]
fn a_candidate_over_sixteen_mebibytes_is_refused() {
    let most = MOST_BYTES as usize;
    let text = |size: usize| Content::Files(vec![file("big", &"x".repeat(size))]);
    assert!(stage(&text(most), &base(), &terms()).is_ok());
    assert!(why(stage(&text(most + 1), &base(), &terms())).contains("16777217 bytes"));
    let parts = vec![file("a", &"x".repeat(most)), file("b", "x")];
    assert!(why(stage(&Content::Files(parts), &base(), &terms())).contains("its files together"));
    let mut long = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n".to_owned();
    long.push_str(&"\n".repeat(most));
    assert!(why(stage(&patch(&long), &base(), &terms())).contains("the patch has"));
    let large = MemoryBase::new().file("x", "x\n".repeat(most / 2 + 1));
    assert!(
        refused(&large, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n")
            .contains("more than a candidate may change")
    );
}

/// CA-14: what is inflated is bounded before it is inflated.
#[test]
fn a_bomb_is_not_inflated() {
    let bomb = "diff --git a/b b/b\nnew file mode 100644\nindex 0000000..e69de29\nGIT binary patch\nliteral 99999999999\nKcmV+b0RR6000031\n\n";
    let fault = refused(&base(), bomb);
    assert!(fault.contains("more than a candidate may have"), "{fault}");
}

/// CA-14: the first file applies, the second does not, and nothing is left of either.
#[test]
fn a_candidate_applies_whole_or_not_at_all() {
    let good = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n";
    let bad = "--- a/dir/in\n+++ b/dir/in\n@@ -1 +1 @@\n-nowhere\n+y\n";
    assert!(refused(&base(), format!("{good}{bad}")).contains("`dir/in`, hunk 1"));
    assert_eq!(listed(&applied(&base(), good)), ["x 644 y\\n"]);
}

/// CA-24
#[test]
fn protected_paths_are_named_with_their_glob() {
    let add = "--- /dev/null\n+++ b/pkg/conftest.py\n@@ -0,0 +1 @@\n+evil\n";
    let change = "--- a/tests/test_x.py\n+++ b/tests/test_x.py\n@@ -1 +1 @@\n-assert\n+pass\n";
    let delete = "--- a/tests/test_x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-assert\n";
    let into = "diff --git a/x b/tests/x\nrename from x\nrename to tests/x\n";
    let away = "diff --git a/tests/test_x.py b/x2\nrename from tests/test_x.py\nrename to x2\n";
    let mode = "diff --git a/tests/test_x.py b/tests/test_x.py\nold mode 100644\nnew mode 100755\n";
    let table = [
        (add, "`pkg/conftest.py` is protected by `**/conftest.py`"),
        (change, "`tests/test_x.py` is protected by `**/test_*.py`"),
        (delete, "`tests/test_x.py` is protected by `**/test_*.py`"),
        (into, "`tests/x` is protected by `tests/**`"),
        (away, "`tests/test_x.py` is protected by `**/test_*.py`"),
        (mode, "`tests/test_x.py` is protected by `**/test_*.py`"),
    ];
    for (text, reason) in table {
        let fault = why(stage(&patch(text), &base(), &terms()));
        assert_eq!(fault, format!("protected_path: {reason}"));
        let none = Terms {
            protect: Protect::new([""; 0]).expect("no globs"),
            ..terms()
        };
        assert!(stage(&patch(text), &base(), &none).is_ok());
    }
    // A copy of a protected file as it is touches nothing.
    let mirror = Content::Files(vec![file("tests/test_x.py", "assert\n"), file("x", "y\n")]);
    assert!(stage(&mirror, &base(), &terms()).is_ok());
}

/// CA-15
#[test]
fn a_tree_equal_to_the_base_is_no_candidate() {
    let same = Content::Files(vec![file("x", "x\n"), file("dir/in", "in\n")]);
    for content in [same, patch(""), Content::Files(Vec::new())] {
        assert_eq!(
            why(stage(&content, &base(), &terms())),
            "no_op: changes nothing"
        );
    }
}

/// CA-11, CA-14
#[test]
fn a_tree_replaces_adds_and_deletes() {
    let base = MemoryBase::new()
        .file_with_mode("run", "old\n", 0o755)
        .file("gone", "")
        .file("d/gone", "");
    let list = (
        DELETE_LIST.as_bytes().to_vec(),
        file("", "gone\n\nd/gone\r\n").1,
    );
    let entries = [list, file("run", "new\n"), file("n/e/w", "w")];
    let content = Content::Files(read_tree(entries.clone()));
    let staged = stage(&content, &base, &terms()).expect("applies");
    assert_eq!(
        listed(&staged.images),
        [
            "d/gone deleted",
            "gone deleted",
            "n/e/w 644 w",
            "run 755 new\\n"
        ]
    );
    let twice = entries.into_iter().chain([file("./run", "")]);
    assert!(
        why(stage(&Content::Files(read_tree(twice)), &base, &terms()))
            .contains("`run` is named twice")
    );
    let pipe = (b"p".to_vec(), Replacement::Special);
    assert!(why(stage(&Content::Files(vec![pipe]), &base, &terms())).contains("`p` is a device"));
    let both = read_tree([
        file("gone", "x"),
        (DELETE_LIST.as_bytes().to_vec(), file("", "gone").1),
    ]);
    assert!(why(stage(&Content::Files(both), &base, &terms())).contains("named twice"));
}
