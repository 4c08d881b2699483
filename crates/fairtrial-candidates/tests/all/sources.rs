//! JSON lines, identities and sizes.

use fairtrial_candidates::stage::{
    CandidateId, Content, Given, MemoryBase, Protect, Staged, Terms, read_jsonl, stage,
};

use crate::support::{listed, patch};

fn terms() -> Terms {
    Terms {
        base_hash: "0123".to_owned(),
        protect: Protect::default(),
        shared: Vec::new(),
    }
}

fn base() -> MemoryBase {
    MemoryBase::new()
        .file("x", "one\ntwo\n")
        .file_with_mode("run", "go\n", 0o755)
}

fn staged(content: &Content) -> Staged {
    stage(content, &base(), &terms()).expect("applies")
}

fn line(text: &str) -> Given {
    let mut lines = read_jsonl(0, "c.jsonl", text.as_bytes());
    lines.next().expect("a line").expect("a candidate")
}

/// CA-11, CA-12
#[test]
fn one_change_has_one_identity_however_it_is_given() {
    let text = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+1\n";
    let json = serde_json::json!({"patch": text}).to_string();
    let files = r#"{"name": "other", "files": {"x": "1\ntwo\n"}}"#;
    let encoded = r#"{"files": {"./x": {"base64": "MQp0d28K"}}}"#;
    let first = staged(&patch(text)).id;
    for given in [line(&json), line(files), line(encoded)] {
        assert_eq!(staged(&given.content).id, first);
    }
    assert_eq!(first.to_string().len(), 14);
    assert!(first.to_string().starts_with("c-"));
    assert_eq!(first.full()[..12], first.to_string()[2..]);
    let moded = line(r#"{"files": {"x": {"base64": "MQp0d28K", "mode": "755"}}}"#);
    assert_ne!(staged(&moded.content).id, first);
    let elsewhere = CandidateId::new("4567", &staged(&patch(text)).images);
    assert_ne!(elsewhere, first);
}

/// CA-12: an identity must not change with the program, or journals would be worthless.
#[test]
fn an_identity_is_for_ever() {
    let text = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+1\n";
    assert_eq!(staged(&patch(text)).id.to_string(), "c-3bb861c95d1d");
}

/// CA-11
#[test]
fn a_line_says_files_modes_and_deletions() {
    let text = r##"{"name": "n", "files": {"run": "gone\n", "x": null, "new": {"base64": "IyEK", "mode": "100755"}, "l": {"base64": "eA==", "mode": "120000"}, "p": {"base64": "", "mode": 384}}, "parent": "c-0", "meta": {"score": 1.5}}"##;
    let given = line(text);
    assert_eq!(given.name, "n");
    assert_eq!(given.parent.as_deref(), Some("c-0"));
    assert_eq!(given.meta.expect("kept")["score"], 1.5);
    assert_eq!(
        listed(&staged(&given.content).images),
        [
            "l -> x",
            "new 755 #!\\n",
            "p 600 ",
            "run 755 gone\\n",
            "x deleted"
        ]
    );
}

/// CA-11, CA-82: a name makes no lines of its own.
#[test]
fn names_are_on_one_line() {
    let given =
        line("{\"patch\": \"\", \"name\": \"a\\nwinner: \\u001b[1mb\", \"parent\": \"x\\ny\"}");
    assert_eq!(given.name, r"a\nwinner: \x1b[1mb");
    assert_eq!(given.parent.as_deref(), Some(r"x\ny"));
}

/// CA-16
#[test]
fn a_malformed_line_fails_alone() {
    let text = b"\xef\xbb\xbf{\"patch\": \"\"}\r\n\n{\"pach\": \"\"}\n{\"files\": {}}\n{\"patch\": \n\xff\n{\"patch\": \"\", \"name\": \"last\"}";
    let lines: Vec<_> = read_jsonl(3, "dir/c.jsonl", text).collect();
    let shown: Vec<_> = lines
        .iter()
        .map(|line| line.as_ref().map(|given| given.name.as_str()))
        .collect();
    assert_eq!(shown.len(), 6);
    assert_eq!(
        (shown[0], shown[2], shown[5]),
        (Ok("dir/c.jsonl:1"), Ok("dir/c.jsonl:4"), Ok("last"))
    );
    let fault = lines[1].as_ref().expect_err("unknown key");
    assert_eq!(
        fault.to_string(),
        "dir/c.jsonl:3: unknown key `pach` (did you mean `patch`?)"
    );
    assert!(
        lines[3]
            .as_ref()
            .expect_err("cut")
            .to_string()
            .starts_with("dir/c.jsonl:5: is not JSON at column")
    );
    assert!(
        lines[4]
            .as_ref()
            .expect_err("bytes")
            .to_string()
            .starts_with("dir/c.jsonl:6: is not JSON")
    );
    assert_eq!(lines[5].as_ref().map(|given| given.place.line), Ok(7));
}

static LONG_NAME: std::sync::LazyLock<String> =
    std::sync::LazyLock::new(|| format!(r#"{{"patch": "", "name": "{}"}}"#, "n".repeat(70_000)));

/// CA-16
#[test]
fn each_fault_of_a_line_is_named() {
    let table = [
        ("[]", "is not a JSON object"),
        ("{}", "has neither `patch` nor `files`"),
        (
            r#"{"patch": "", "files": {}}"#,
            "has both `patch` and `files`",
        ),
        (r#"{"patch": 1}"#, "`patch` is not a text"),
        (r#"{"files": []}"#, "`files` is not an object"),
        (r#"{"patch": "", "name": 1}"#, "`name` is not a text"),
        (&LONG_NAME, "`name` has more than 255 bytes"),
        (r#"{"patch": "", "meta": 1}"#, "`meta` is not an object"),
        (
            r#"{"patch": "", "patch": "x"}"#,
            "the key `patch` stands twice",
        ),
        (
            r#"{"files": {"a": "", "a": null}}"#,
            "the key `a` stands twice",
        ),
        (
            r#"{"files": {"a": 1}}"#,
            "file `a`: is neither a text, nor null, nor",
        ),
        (r#"{"files": {"a": {}}}"#, "file `a`: has no `base64`"),
        (
            r#"{"files": {"a": {"base65": ""}}}"#,
            "file `a`: unknown key `base65` (did you mean `base64`?)",
        ),
        (
            r#"{"files": {"a": {"base64": "?"}}}"#,
            "file `a`: `base64`: ",
        ),
        (
            r#"{"files": {"a": {"base64": "", "mode": "000"}}}"#,
            "file `a`: `mode` is \"000\"",
        ),
        (
            r#"{"files": {"a": {"base64": "", "mode": "999"}}}"#,
            "file `a`: `mode` is \"999\"",
        ),
        (
            r#"{"files": {"a": {"base64": "", "mode": 755}}}"#,
            "file `a`: `mode` is 755",
        ),
        (
            r#"{"files": {"a": {"base64": "", "mode": "4755"}}}"#,
            "file `a`: `mode` is",
        ),
        (
            r#"{"patch": "", "zzz": 1}"#,
            "unknown key `zzz` (known are `name`, `patch`, `files`, `parent`, `meta`)",
        ),
    ];
    for (text, message) in table {
        let fault = read_jsonl(0, "c", text.as_bytes())
            .next()
            .expect("a line")
            .expect_err(text);
        assert!(fault.message.contains(message), "{fault}");
    }
}

#[test]
fn a_size_counts_lines_of_the_files() {
    let table = [
        (r#"{"files": {"x": "one\n2\ntwo\n3\n"}}"#, "+2 -0"),
        (r#"{"files": {"x": null, "n": "a\nb"}}"#, "+2 -2"),
        (
            r#"{"files": {"x": "zero\ntwo\n", "b": {"base64": "AAE="}}}"#,
            "+1 -1 (1 binary)",
        ),
        (
            r#"{"files": {"run": {"base64": "Z28K", "mode": "644"}}}"#,
            "+0 -0",
        ),
    ];
    for (text, size) in table {
        let found = staged(&line(text).content).size;
        assert_eq!(found.to_string(), size);
        assert_eq!(found.changed_lines(), found.added + found.removed);
    }
}
