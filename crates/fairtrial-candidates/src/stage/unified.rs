//! A candidate's files as a patch of git's format, for whoever wants to read the change or build on it (CA-84). What is no
//! text has none.

use std::fmt::Write;
use std::ops::Range;

use super::base::Base;
use super::image::{Image, PostImages};
use super::patch::FileMode;
use super::path::TreePath;

/// Lines around a change.
const CONTEXT: usize = 3;

/// Beyond so many differences a file is shown as replaced: time and room grow with their square.
const MOST_DIFFERENCES: usize = 1_000;

/// The change from the base to these files; none if any of it is no text.
pub(crate) fn unified(images: &PostImages, base: &dyn Base) -> Option<String> {
    let before = PostImages::of_base(base, images.iter().map(|(path, _)| path.clone()));
    let mut patch = String::new();
    for (path, new) in images.iter() {
        let old = before.get(path)?;
        match (old, new) {
            // Nothing is written through a link, nor over one.
            (Some(old), Some(new)) if is_link(old) || is_link(new) => {
                section(&mut patch, path, Some(old), None)?;
                section(&mut patch, path, None, Some(new))?;
            }
            _ => section(&mut patch, path, old, new)?,
        }
    }
    Some(patch)
}

fn is_link(image: &Image) -> bool {
    matches!(image, Image::Link { .. })
}

fn mode(image: &Image) -> FileMode {
    match image {
        Image::Link { .. } => FileMode::Link,
        Image::File { mode, .. } if mode & 0o100 != 0 => FileMode::Executable,
        Image::File { .. } => FileMode::Plain,
    }
}

/// What becomes of one file.
fn section(
    patch: &mut String,
    path: &TreePath,
    old: Option<&Image>,
    new: Option<&Image>,
) -> Option<()> {
    let (from, to) = (quoted("a/", path), quoted("b/", path));
    let mut put = |line: std::fmt::Arguments<'_>| {
        patch.write_fmt(line).expect("a string takes all");
        patch.push('\n');
    };
    put(format_args!("diff --git {from} {to}"));
    match (old.map(mode), new.map(mode)) {
        (None, Some(new)) => put(format_args!("new file mode {}", new.digits())),
        (Some(old), None) => put(format_args!("deleted file mode {}", old.digits())),
        (Some(old), Some(new)) if old != new => {
            put(format_args!("old mode {}", old.digits()));
            put(format_args!("new mode {}", new.digits()));
        }
        _ => {}
    }
    let (old_lines, new_lines) = (lines(old)?, lines(new)?);
    let changes = changes(&old_lines, &new_lines);
    if changes.is_empty() {
        return Some(());
    }
    put(format_args!("--- {}", old.map_or("/dev/null", |_| &from)));
    put(format_args!("+++ {}", new.map_or("/dev/null", |_| &to)));
    for hunk in hunks(&changes) {
        write_hunk(patch, hunk, &old_lines, &new_lines);
    }
    Some(())
}

/// The lines of a text, each with its newline; none if it is no text.
fn lines(image: Option<&Image>) -> Option<Vec<&str>> {
    let content = image.map_or(&[][..], |image| image.content());
    let text = std::str::from_utf8(content).ok()?;
    (!text.contains('\0')).then(|| text.split_inclusive('\n').collect())
}

/// A name as git writes it.
fn quoted(side: &str, path: &TreePath) -> String {
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !matches!(byte, b'"' | b'\\');
    let name = [side.as_bytes(), path.as_bytes()].concat();
    if name.iter().all(is_plain) {
        return String::from_utf8(name).expect("these bytes are letters");
    }
    let mut text = "\"".to_owned();
    for byte in name {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            byte if is_plain(&byte) => text.push(char::from(byte)),
            byte => write!(text, "\\{byte:03o}").expect("a string takes all"),
        }
    }
    text + "\""
}

/// Lines that go, and those that come in their place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    old: Range<usize>,
    new: Range<usize>,
}

/// Changes so near each other that they share their context.
fn hunks(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    changes.chunk_by(|one, next| next.old.start - one.old.end <= 2 * CONTEXT)
}

fn write_hunk(patch: &mut String, changes: &[Change], old: &[&str], new: &[&str]) {
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else {
        return;
    };
    let before = first.old.start.min(CONTEXT);
    let after = (old.len() - last.old.end).min(CONTEXT);
    let old_range = first.old.start - before..last.old.end + after;
    let new_range = first.new.start - before..last.new.end + after;
    let header = format!("@@ -{} +{} @@\n", place(&old_range), place(&new_range));
    patch.push_str(&header);
    let mut at = old_range.start;
    let mut put = |sign: char, line: &str| {
        patch.push(sign);
        patch.push_str(line);
        if !line.ends_with('\n') {
            patch.push_str("\n\\ No newline at end of file\n");
        }
    };
    for change in changes {
        old[at..change.old.start]
            .iter()
            .for_each(|line| put(' ', line));
        old[change.old.clone()]
            .iter()
            .for_each(|line| put('-', line));
        new[change.new.clone()]
            .iter()
            .for_each(|line| put('+', line));
        at = change.old.end;
    }
    old[at..old_range.end]
        .iter()
        .for_each(|line| put(' ', line));
}

/// Of nothing it is the line before.
fn place(range: &Range<usize>) -> String {
    let first = range.start + usize::from(!range.is_empty());
    match range.len() {
        1 => first.to_string(),
        count => format!("{first},{count}"),
    }
}

/// The places where two texts differ: Myers' greedy search, by the number of differences.
fn changes(old: &[&str], new: &[&str]) -> Vec<Change> {
    let first = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[first..], &new[first..]);
    let pairs = old.iter().rev().zip(new.iter().rev());
    let last = pairs.take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - last], &new[..new.len() - last]);
    let shifted = |range: Range<usize>| range.start + first..range.end + first;
    let found = least_changes(old, new).unwrap_or_else(|| {
        vec![Change {
            old: 0..old.len(),
            new: 0..new.len(),
        }]
    });
    let found = found
        .into_iter()
        .filter(|change| !change.old.is_empty() || !change.new.is_empty());
    found
        .map(|change| Change {
            old: shifted(change.old),
            new: shifted(change.new),
        })
        .collect()
}

/// None if there are too many.
fn least_changes(old: &[&str], new: &[&str]) -> Option<Vec<Change>> {
    let most = (old.len() + new.len()).min(MOST_DIFFERENCES) as isize;
    // How far along `old` the search is on each diagonal `k`, kept at `k + most + 1`; and so before each step.
    let mut reached = vec![0_usize; 2 * most as usize + 3];
    let mut steps: Vec<Vec<usize>> = Vec::new();
    for differences in 0..=most {
        let window = (most - differences) as usize..(most + differences + 3) as usize;
        steps.push(reached[window].to_vec());
        let mut k = -differences;
        while k <= differences {
            let at = (k + most + 1) as usize;
            let mut x = match goes_down(k, differences, reached[at - 1], reached[at + 1]) {
                true => reached[at + 1],
                false => reached[at - 1] + 1,
            };
            let mut y = (x as isize - k) as usize;
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            reached[at] = x;
            if x >= old.len() && y >= new.len() {
                return Some(way_back(&steps, old.len(), new.len()));
            }
            k += 2;
        }
    }
    None
}

/// Whether a line of the new text comes next on this diagonal, rather than one of the old goes.
fn goes_down(k: isize, differences: isize, left: usize, right: usize) -> bool {
    k == -differences || (k != differences && left < right)
}

/// The differences on the way to the end, joined where they touch.
fn way_back(steps: &[Vec<usize>], old: usize, new: usize) -> Vec<Change> {
    let (mut x, mut y) = (old, new);
    let mut changes: Vec<Change> = Vec::new();
    for (differences, reached) in steps.iter().enumerate().skip(1).rev() {
        let (k, step) = (x as isize - y as isize, differences as isize);
        let on = |k: isize| reached[(k + step + 1) as usize];
        let down = goes_down(k, step, on(k - 1), on(k + 1));
        let before = if down { k + 1 } else { k - 1 };
        (x, y) = (on(before), (on(before) as isize - before) as usize);
        let end = if down { (x, y + 1) } else { (x + 1, y) };
        match changes
            .last_mut()
            .filter(|next| (next.old.start, next.new.start) == end)
        {
            Some(next) => (next.old.start, next.new.start) = (x, y),
            None => changes.push(Change {
                old: x..end.0,
                new: y..end.1,
            }),
        }
    }
    changes.reverse();
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stage::{Content, MemoryBase, Protect, Staged, Terms, stage};

    fn staged(content: &Content, base: &MemoryBase) -> Staged {
        let terms = Terms {
            base_hash: "b".to_owned(),
            protect: Protect::new(Vec::<String>::new()).unwrap(),
        };
        stage(content, base, &terms).expect("it fits")
    }

    /// A tree's path with this text, before and after.
    fn changed(path: &str, old: Option<&str>, new: Option<&str>) -> (MemoryBase, String) {
        let mut base = MemoryBase::new().file("other", "x\n");
        if let Some(old) = old {
            base = base.file(path, old);
        }
        let path = TreePath::new(path).unwrap();
        let image = new.map(|text| Image::File {
            mode: 0o644,
            bytes: text.as_bytes().into(),
        });
        let images = PostImages([(path, image)].into());
        let patch = unified(&images, &base).expect("it is text");
        let again = staged(&Content::Patch(patch.clone().into_bytes()), &base);
        assert_eq!(again.images, images, "{patch}");
        (base, patch)
    }

    /// CA-84
    #[test]
    fn a_patch_is_as_git_writes_it() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old
            .replace("4\n", "four\n")
            .replace("18\n", "")
            .replace("20\n", "20");
        let (_, patch) = changed("dir/a b", Some(&old), Some(&new));
        let wanted = "diff --git a/dir/a b b/dir/a b\n--- a/dir/a b\n+++ b/dir/a b\n";
        assert!(patch.starts_with(wanted), "{patch}");
        assert!(
            patch.contains("@@ -1,7 +1,7 @@\n 1\n 2\n 3\n-4\n+four\n 5\n"),
            "{patch}"
        );
        assert!(
            patch.ends_with("-20\n+20\n\\ No newline at end of file\n"),
            "{patch}"
        );
        let (_, new) = changed("new", None, Some("one\n"));
        assert_eq!(
            new,
            "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+one\n"
        );
        let (_, gone) = changed("gone", Some("one\n"), None);
        assert!(
            gone.contains("deleted file mode 100644\n--- a/gone\n+++ /dev/null\n"),
            "{gone}"
        );
        changed("empty", None, Some(""));
        changed("ümlaut \"quoted\"\n", Some("a\r\nb"), Some("a\nb\n"));
    }

    /// CA-84
    #[test]
    fn modes_and_links_are_told_and_what_is_no_text_has_no_patch() {
        let base = MemoryBase::new()
            .file("run", "x\n")
            .link("link", "run")
            .file("becomes", "x\n");
        let path = |name: &str| TreePath::new(name).unwrap();
        let run = Image::File {
            mode: 0o755,
            bytes: b"x\n"[..].into(),
        };
        let link = |target: &str| Image::Link {
            target: target.as_bytes().into(),
        };
        let images = PostImages(
            [
                (path("run"), Some(run)),
                (path("link"), Some(link("other"))),
                (path("becomes"), Some(link("run"))),
            ]
            .into(),
        );
        let patch = unified(&images, &base).expect("it is text");
        assert!(
            patch.contains("old mode 100644\nnew mode 100755\n"),
            "{patch}"
        );
        let again = staged(&Content::Patch(patch.clone().into_bytes()), &base);
        assert_eq!(again.images, images, "{patch}");
        let binary = Image::File {
            mode: 0o644,
            bytes: b"\0"[..].into(),
        };
        let images = PostImages([(path("new"), Some(binary))].into());
        assert_eq!(unified(&images, &base), None);
    }

    proptest! {
        /// CA-84: applied, it makes what it was made of.
        #[test]
        fn a_patch_leads_to_the_same_files(
            old in prop::collection::vec("[a-d]{0,2}\n", 0..60),
            edits in prop::collection::vec((0..60usize, 0..4usize, prop::collection::vec("[a-e]{0,2}\n", 0..4)), 0..8),
            tail in "[a-z]{0,3}",
        ) {
            let mut new = old.clone();
            for (at, gone, come) in edits {
                let at = at.min(new.len());
                let end = (at + gone).min(new.len());
                new.splice(at..end, come);
            }
            let (old, new) = (old.concat(), new.concat() + &tail);
            prop_assume!(old != new);
            changed("file", Some(&old), Some(&new));
        }
    }

    #[test]
    fn a_huge_rewrite_is_a_replacement() {
        let forth: String = (0..20_000).map(|n| format!("{n}\n")).collect();
        let back: String = (0..20_000).rev().map(|n| format!("{n}\n")).collect();
        changed("file", Some(&forth), Some(&back));
    }
}
