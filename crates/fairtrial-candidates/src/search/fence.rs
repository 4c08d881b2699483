//! Patches in the prose of those who propose: in fenced blocks, or as they are (CA-86).

/// A patch found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The prose before it.
    pub(crate) before: String,
    pub(crate) patch: String,
}

/// The one patch that a text stands for; none if there is no change in it.
pub(crate) fn patch_in(text: &str) -> Option<String> {
    let first = text.lines().find(|line| !line.trim().is_empty());
    if first.is_some_and(begins_change) {
        return Some(text.to_owned());
    }
    let fenced: String = blocks(text).into_iter().map(|found| found.patch).collect();
    match fenced.is_empty() {
        false => Some(fenced),
        true => has_change(text).then(|| text.to_owned()),
    }
}

/// The patches of a text that was to have `n` of them, in its order. With one wanted, blocks that follow each other for
/// different files are parts of one patch.
pub(crate) fn patches_in(text: &str, n: usize) -> Vec<Found> {
    let found = blocks(text);
    if found.is_empty() {
        let whole = patch_in(text).map(|patch| Found {
            before: String::new(),
            patch,
        });
        return whole.into_iter().collect();
    }
    if n == 1 && touch_different_files(&found) {
        let before = found[0].before.clone();
        let patch = found.into_iter().map(|found| found.patch).collect();
        return vec![Found { before, patch }];
    }
    found
}

/// Fenced blocks with a change in them. A fence stands at the beginning of its line; within a patch every line has a
/// prefix, so that none can be taken for the closing fence.
fn blocks(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut before = String::new();
    let mut lines = text.split_inclusive('\n'); // line ends are part of a patch
    while let Some(line) = lines.next() {
        let Some(fence) = fence_of(line) else {
            before.push_str(line);
            continue;
        };
        let patch: String = lines
            .by_ref()
            .take_while(|line| !closes(line, fence))
            .collect();
        if has_change(&patch) {
            let before = std::mem::take(&mut before).trim().to_owned();
            found.push(Found { before, patch });
        }
    }
    found
}

/// The marks that open a block: three or more.
fn fence_of(line: &str) -> Option<&str> {
    let mark = line
        .chars()
        .next()
        .filter(|mark| matches!(mark, '`' | '~'))?;
    let length = line.len() - line.trim_start_matches(mark).len();
    (length >= 3).then(|| &line[..length])
}

fn closes(line: &str, fence: &str) -> bool {
    let line = line.trim_end();
    line.starts_with(fence) && fence_of(line) == Some(line)
}

fn begins_change(line: &str) -> bool {
    ["diff --git ", "--- ", "@@ -"]
        .iter()
        .any(|start| line.starts_with(start))
}

fn has_change(text: &str) -> bool {
    text.lines().any(begins_change)
}

fn touch_different_files(found: &[Found]) -> bool {
    let files = |found: &Found| -> Vec<String> {
        let names = found
            .patch
            .lines()
            .filter_map(|line| line.strip_prefix("+++ "));
        names.map(str::to_owned).collect()
    };
    let mut all: Vec<String> = found.iter().flat_map(files).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    all.len() == count
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n";
    const TWO: &str = "--- a/y\n+++ b/y\n@@ -1,2 +1,2 @@\n ```\n-old\n+new\n";

    /// CA-86
    #[test]
    fn a_patch_is_found_in_its_fence_and_as_it_is() {
        for text in [
            ONE.to_owned(),
            format!("\n{ONE}"),
            format!("Here it is:\n\n```diff\n{ONE}```\nDone."),
            format!("````\n{ONE}````"),
            format!("~~~ patch\n{ONE}"),
            format!("```python\nprint()\n```\n```\n{ONE}```\n"),
        ] {
            assert_eq!(
                patch_in(&text).expect("a patch").trim(),
                ONE.trim(),
                "{text}"
            );
        }
        assert_eq!(patch_in("I could not find\n```python\nx = 1\n```"), None);
        assert_eq!(patch_in(""), None);
    }

    /// CA-86
    #[test]
    fn a_fence_within_a_patch_does_not_end_it() {
        let found = patches_in(&format!("First\n```diff\n{TWO}```\n"), 1);
        let before = "First".to_owned();
        assert_eq!(
            found,
            [Found {
                before,
                patch: TWO.to_owned()
            }]
        );
    }

    /// CA-13, CA-86
    #[test]
    fn line_ends_of_a_fenced_patch_survive() {
        let patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\r\n+new\r\n";
        assert_eq!(
            patch_in(&format!("So:\r\n```\r\n{patch}```\r\n")).as_deref(),
            Some(patch)
        );
    }

    /// CA-86
    #[test]
    fn blocks_are_candidates_unless_they_are_parts_of_the_only_one() {
        let text = format!("```diff\n{ONE}```\nand\n```diff\n{TWO}```\n");
        assert_eq!(patches_in(&text, 1).len(), 1);
        assert_eq!(patches_in(&text, 1)[0].patch, format!("{ONE}{TWO}"));
        assert_eq!(patches_in(&text, 2).len(), 2);
        let rivals = format!("```diff\n{ONE}```\nor\n```diff\n{ONE}```\n");
        assert_eq!(patches_in(&rivals, 1).len(), 2);
    }
}
