//! Patches that apply, and what they leave.

use fairtrial_candidates::stage::MemoryBase;

use crate::support::{applied, listed, refused, text};

fn numbers(range: std::ops::RangeInclusive<usize>) -> String {
    range.map(|n| format!("{n}\n")).collect()
}

/// CA-11, CA-13
#[test]
fn each_form_of_a_patch_leaves_what_it_says() {
    let base = || {
        MemoryBase::new()
            .file("x", "one\ntwo\n")
            .file("s/y", "yes\n")
            .file_with_mode("run", "go\n", 0o750)
            .file("empty", "")
            .file("a/x", "in a\n")
            .link("l", "x")
    };
    let table: &[(&str, &str, &[&str])] = &[
        (
            "plain",
            "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-one\n+ONE\n two\n",
            &["x 644 ONE\\ntwo\\n"],
        ),
        (
            "no prefix",
            "--- x\n+++ x\n@@ -1 +1 @@\n-one\n+ONE\n",
            &["x 644 ONE\\ntwo\\n"],
        ),
        (
            "a directory called a",
            "--- a/x\n+++ a/x\n@@ -1 +1 @@\n-in a\n+ina\n",
            &["a/x 644 ina\\n"],
        ),
        (
            "stamps and directories of diff -ru",
            "diff -ru old/s/y new/s/y\n--- old/s/y\t2024-01-01 10:00:00.0 +0100\n+++ new/s/y\t2024-01-02 10:00:00.0 +0100\n@@ -1 +1 @@\n-yes\n+no\n",
            &["s/y 644 no\\n"],
        ),
        (
            "diff -N, new",
            "--- old/n\t1970-01-01 01:00:00.000000000 +0100\n+++ new/n\t2024-01-02 10:00:00.0 +0100\n@@ -0,0 +1 @@\n+new\n",
            &["n 644 new\\n"],
        ),
        (
            "diff -N, deleted",
            "--- old/s/y\t2024-01-02 10:00:00.0 +0100\n+++ new/s/y\t1970-01-01 00:00:00 +0000\n@@ -1 +0,0 @@\n-yes\n",
            &["s/y deleted"],
        ),
        (
            "new, by /dev/null",
            "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n",
            &["n 644 new\\n"],
        ),
        (
            "new, by line 0 alone",
            "--- a/n\n+++ b/n\n@@ -0,0 +1 @@\n+new\n",
            &["n 644 new\\n"],
        ),
        (
            "deleted, by /dev/null",
            "--- a/s/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-yes\n",
            &["s/y deleted"],
        ),
        (
            "emptied, not deleted",
            "--- a/s/y\n+++ b/s/y\n@@ -1 +0,0 @@\n-yes\n",
            &["s/y 644 "],
        ),
        (
            "a backup's name",
            "--- x.orig\n+++ x\n@@ -1 +1 @@\n-one\n+ONE\n",
            &["x 644 ONE\\ntwo\\n"],
        ),
        (
            "git, the mode kept",
            "diff --git a/run b/run\nindex 0123456..789abcd 100755\n--- a/run\n+++ b/run\n@@ -1 +1 @@\n-go\n+gone\n",
            &["run 750 gone\\n"],
        ),
        (
            "git, a mode",
            "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n",
            &["x 755 one\\ntwo\\n"],
        ),
        (
            "git, a mode back",
            "diff --git a/run b/run\nold mode 100755\nnew mode 100644\n",
            &["run 640 go\\n"],
        ),
        (
            "git, a new program",
            "diff --git a/n b/n\nnew file mode 100755\nindex 0000000..0123456\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+#!\n",
            &["n 755 #!\\n"],
        ),
        (
            "git, a new empty file",
            "diff --git a/n b/n\nnew file mode 100644\nindex 0000000..e69de29\n",
            &["n 644 "],
        ),
        (
            "git, an empty file deleted",
            "diff --git a/empty b/empty\ndeleted file mode 100644\nindex e69de29..0000000\n",
            &["empty deleted"],
        ),
        (
            "git, a rename with a change",
            "diff --git a/x b/z/x\nsimilarity index 50%\nrename from x\nrename to z/x\n--- a/x\n+++ b/z/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
            &["x deleted", "z/x 644 one\\n2\\n"],
        ),
        (
            "git, a rename alone",
            "diff --git a/run b/go\nsimilarity index 100%\nrename from run\nrename to go\n",
            &["go 750 go\\n", "run deleted"],
        ),
        (
            "git, a copy",
            "diff --git a/run b/go\nsimilarity index 100%\ncopy from run\ncopy to go\n",
            &["go 750 go\\n"],
        ),
        (
            "git, two files change places",
            "diff --git a/s/y b/x\nrename from s/y\nrename to x\ndiff --git a/x b/s/y\nrename from x\nrename to s/y\n",
            &["s/y 644 one\\ntwo\\n", "x 644 yes\\n"],
        ),
        (
            "git, a copy of what also changes",
            "diff --git a/s/y b/s/y\n--- a/s/y\n+++ b/s/y\n@@ -1 +1 @@\n-yes\n+no\ndiff --git a/s/y b/z\ncopy from s/y\ncopy to z\n",
            &["s/y 644 no\\n", "z 644 yes\\n"],
        ),
        (
            "git, a link's target",
            "diff --git a/l b/l\nindex 0123456..789abcd 120000\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+run\n\\ No newline at end of file\n",
            &["l -> run"],
        ),
        (
            "git, a file becomes a link",
            "diff --git a/s/y b/s/y\ndeleted file mode 100644\n--- a/s/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-yes\ndiff --git a/s/y b/s/y\nnew file mode 120000\n--- /dev/null\n+++ b/s/y\n@@ -0,0 +1 @@\n+../x\n\\ No newline at end of file\n",
            &["s/y -> ../x"],
        ),
        (
            "git, a file becomes a directory",
            "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\ndiff --git a/x/in b/x/in\nnew file mode 100644\n--- /dev/null\n+++ b/x/in\n@@ -0,0 +1 @@\n+in\n",
            &["x deleted", "x/in 644 in\\n"],
        ),
        (
            "git, a directory becomes a file, which comes first",
            "diff --git a/s b/s\nnew file mode 100644\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+file\ndiff --git a/s/y b/s/y\ndeleted file mode 100644\n--- a/s/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-yes\n",
            &["s 644 file\\n", "s/y deleted"],
        ),
        (
            "several patches for one file in a row",
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+ONE\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n ONE\n-two\n+TWO\n",
            &["x 644 ONE\\nTWO\\n"],
        ),
        (
            "mails in a row: changed, then renamed with a change",
            "From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n x | 2 +-\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+ONE\n-- \n2.47.3\n\nFrom 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n\ndiff --git a/x b/z\nrename from x\nrename to z\n--- a/x\n+++ b/z\n@@ -1 +1 @@\n-ONE\n+1\n-- \n2.47.3\n",
            &["x deleted", "z 644 1\\ntwo\\n"],
        ),
        (
            "in a fence, with words around it",
            "Here you are:\n```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+ONE\n```\nDone.\n",
            &["x 644 ONE\\ntwo\\n"],
        ),
        (
            "the last newline lost",
            "--- a/x\n+++ b/x\n@@ -2 +2 @@\n-two\n+TWO",
            &["x 644 one\\nTWO\\n"],
        ),
        (
            "headers with CR LF",
            "--- a/x\r\n+++ b/x\r\n@@ -2 +2 @@\r\n-two\n+TWO\n",
            &["x 644 one\\nTWO\\n"],
        ),
        (
            "there and back",
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+1\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+one\n",
            &[],
        ),
        ("blanks", " \n\n", &[]),
    ];
    for (name, patch, expected) in table {
        assert_eq!(listed(&applied(&base(), patch)), *expected, "{name}");
    }
}

/// CA-13
#[test]
fn line_ends_and_odd_bytes_survive() {
    let base = MemoryBase::new()
        .file("crlf", "a\r\nb\r\nc\r\n")
        .file("bare", "a\nb")
        .file("latin", b"\xe9\n\xff\xfe\n");
    let crlf = applied(
        &base,
        "--- a/crlf\n+++ b/crlf\n@@ -2 +2,2 @@\n-b\r\n+B\r\n+mixed\n",
    );
    assert_eq!(text(&crlf, "crlf"), "a\\r\\nB\\r\\nmixed\\nc\\r\\n");
    let ended = "--- a/bare\n+++ b/bare\n@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n";
    assert_eq!(text(&applied(&base, ended), "bare"), "a\\nb\\n");
    let bare = "--- a/latin\n+++ b/latin\n@@ -1,2 +1 @@\n-\u{e9}\n".replace('\u{e9}', "?");
    let mut bare = bare.into_bytes();
    let at = bare.iter().position(|byte| *byte == b'?').expect("there");
    bare[at] = 0xe9;
    bare.extend_from_slice(b" \xff\xfe\n");
    assert_eq!(text(&applied(&base, bare), "latin"), "\\xff\\xfe\\n");
}

/// CA-13
#[test]
fn a_line_without_a_newline_matches_only_such_a_line() {
    let base = MemoryBase::new()
        .file("bare", "a\nb")
        .file("full", "a\nb\n");
    let with = "@@ -2 +2 @@\n-b\n+c\n";
    let without =
        "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n";
    let patch = |file: &str, hunk: &str| format!("--- a/{file}\n+++ b/{file}\n{hunk}");
    assert_eq!(
        text(&applied(&base, patch("full", with)), "full"),
        "a\\nc\\n"
    );
    assert_eq!(
        text(&applied(&base, patch("bare", without)), "bare"),
        "a\\nc"
    );
    let fault = refused(&base, patch("bare", with));
    assert!(
        fault.ends_with("line 2 ends in nothing, not in LF"),
        "{fault}"
    );
    refused(&base, patch("full", without));
    // Added after a last line without a newline, it would be glued to it.
    refused(&base, patch("bare", "@@ -2,0 +3 @@\n+c\n"));
    // Left without a newline, it would be glued to what follows.
    refused(
        &base,
        patch(
            "full",
            "@@ -1 +1 @@\n-a\n+A\n\\ No newline at end of file\n",
        ),
    );
}

/// CA-13
#[test]
fn an_offset_is_taken_only_to_the_one_place_where_the_lines_are() {
    let base = MemoryBase::new()
        .file("n", numbers(1..=30))
        .file("twice", "a\nx\nb\na\nx\nb\n");
    let moved = "--- a/n\n+++ b/n\n@@ -2,3 +2,3 @@\n 11\n-12\n+twelve\n 13\n@@ -12 +12 @@\n-21\n+twenty-one\n";
    let expected = numbers(1..=30)
        .replace("12\n", "twelve\n")
        .replace("21\n", "twenty-one\n");
    assert_eq!(
        text(&applied(&base, moved), "n"),
        expected.escape_default().to_string()
    );
    // Where the header says, other places do not matter.
    let stated = "--- a/twice\n+++ b/twice\n@@ -4,3 +4,3 @@\n a\n-x\n+y\n b\n";
    assert_eq!(
        text(&applied(&base, stated), "twice"),
        "a\\nx\\nb\\na\\ny\\nb\\n"
    );
    let elsewhere = stated.replace("-4,3", "-3,3");
    let fault = refused(&base, elsewhere);
    assert_eq!(
        fault,
        "apply_failed: `twice`, hunk 1 (`@@ -3,3 +4,3 @@`): its lines are not at line 3, but at lines 1, 4 and perhaps more"
    );
}

/// CA-13: once a header was wrong, none is believed.
#[test]
fn after_an_offset_a_hunk_needs_a_place_of_its_own() {
    let base = MemoryBase::new().file("f", "new\nstart\nx\ny\nx\ny\n");
    let patch = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-start\n+START\n@@ -3 +3 @@\n-x\n+X\n";
    let fault = refused(&base, patch);
    assert!(
        fault.contains("hunk 2 (`@@ -3 +3 @@`)") && fault.contains("lines 3, 5"),
        "{fault}"
    );
}

/// CA-13
#[test]
fn what_does_not_apply_names_file_hunk_and_reason() {
    let base = MemoryBase::new()
        .file("f", "a\nb\nc\n")
        .file("w", "a\r\nb\r\n");
    let table = [
        (
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@ def f\n-C\n+D\n",
            "`f`, hunk 2 (`@@ -3 +3 @@ def f`): its lines are not in the file: line 3 is `c`, not `C`",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -9 +9 @@\n-z\n+y\n",
            "`f`, hunk 1 (`@@ -9 +9 @@`): its lines are not in the file: the file has 3 lines",
        ),
        (
            "--- a/w\n+++ b/w\n@@ -1,2 +1 @@\n-a\n b\n",
            "`w`, hunk 1 (`@@ -1,2 +1 @@`): its lines are not in the file: line 1 ends in CR LF, not in LF",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -7,0 +8 @@\n+z\n",
            "`f`, hunk 1 (`@@ -7,0 +8 @@`): it has no context, and line 7 is not a place where it could stand",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -3 +3 @@\n-c\n+C\n@@ -1 +1 @@\n-a\n+A\n",
            "`f`, hunk 2 (`@@ -1 +1 @@`): its lines are not in the file",
        ),
        (
            "--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+A\n",
            "`g` is not in the base",
        ),
        (
            "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+a\n",
            "`f` is there already",
        ),
        (
            "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
            "`f` would keep content that the patch does not delete",
        ),
        (
            "diff --git a/f b/f\nBinary files a/f and b/f differ\n",
            "`f` is binary, and the patch has no data for it: make it with `git diff --binary`",
        ),
        (
            "diff --git a/f b/f\nindex 1..2 160000\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n",
            "`f` is a submodule, which candidates cannot change",
        ),
        (
            "just words\n",
            "line 1 of the patch: there is no change in it",
        ),
        (
            "words\n@@ -1 +1 @@\n-a\n+b\n",
            "line 2 of the patch: a hunk that belongs to no file",
        ),
        (
            "--- a/f\n+++ b/f\nwords\n",
            "line 1 of the patch: `f` has no hunk",
        ),
        (
            "diff --git a/f b/f\n--- a/f\n+++ b/f\n-a\n+A\n",
            "line 1 of the patch: `f` has no hunk",
        ),
        (
            "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@\n-a\n+A\n",
            "line 1 of the patch: `f`, hunk 1 (`@@`): this is no hunk header, `@@ -1,3 +1,4 @@` would be",
        ),
        (
            "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+A\n+B\n",
            "line 1 of the patch: `f`, hunk 1 (`@@ -1 +1 @@`): it has more lines than its header says",
        ),
    ];
    for (patch, reason) in table {
        let fault = refused(&base, patch);
        assert!(
            fault.starts_with(&format!("apply_failed: {reason}")),
            "{fault}"
        );
    }
}

/// CA-13: equal lines by the hundred thousand, and hunks that are nowhere.
#[test]
fn a_patch_that_is_hard_to_place_is_refused_in_good_time() {
    let base = MemoryBase::new().file("f", "\n".repeat(400_000));
    let hunk = format!(
        "@@ -2,200001 +2,200001 @@\n{}-x\n+y\n",
        " \n".repeat(200_000)
    );
    let fault = refused(&base, format!("--- a/f\n+++ b/f\n{hunk}"));
    assert!(fault.contains("its lines are not in the file"), "{fault}");
}
