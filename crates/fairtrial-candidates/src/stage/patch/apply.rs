//! A patch onto a base: all of it or nothing.
//!
//! Within one round the names before the arrow mean the tree as it was before the round, as in git: two files may change
//! places, and a copy is of the file as it was. A file that is changed twice is changed one change after the other.

use std::collections::{HashMap, HashSet};

use super::file_mode::FileMode;
use super::parse::Patch;
use super::place::apply_hunks;
use super::{Body, Section, Verb};
use crate::stage::base::{Base, Kind};
use crate::stage::fault::{ApplyError, FileFault, StageError};
use crate::stage::image::{Image, PostImages};
use crate::stage::overlay::{MOST_BYTES, Overlay, When, too_large};
use crate::stage::path::TreePath;

/// What a patch's text makes of the base.
pub fn apply(text: &[u8], base: &dyn Base) -> Result<PostImages, StageError> {
    if text.len() as u64 > MOST_BYTES {
        return Err(too_large("the patch", text.len() as u64).into());
    }
    let patch = Patch::read(text).map_err(ApplyError::from)?;
    let mut overlay = Overlay::new(base);
    for sections in &patch.rounds {
        Round::new(&mut overlay, sections).run(sections)?;
    }
    overlay.finish()
}

/// How a path came by what it holds in this round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// It was changed where it is.
    Changed,
    /// It came from elsewhere, or from nowhere.
    Arrived,
    /// It went.
    Gone,
}

struct Round<'a, 'b> {
    now: &'a mut Overlay<'b>,
    written: HashMap<TreePath, Written>,
    /// Paths that something goes away from in this round, so that something else may come there.
    vacated: HashSet<TreePath>,
}

impl<'a, 'b> Round<'a, 'b> {
    fn new(now: &'a mut Overlay<'b>, sections: &[Section<'_>]) -> Self {
        let vacated = sections.iter().filter_map(|section| match &section.verb {
            Verb::Delete(path) | Verb::Rename { from: path, .. } => Some(path.clone()),
            _ => None,
        });
        now.remember();
        Self {
            now,
            written: HashMap::new(),
            vacated: vacated.collect(),
        }
    }

    fn run(mut self, sections: &[Section<'_>]) -> Result<(), StageError> {
        for section in sections {
            match &section.verb {
                Verb::Create(path) => self.create(path, section)?,
                Verb::Delete(path) => self.delete(path, section)?,
                Verb::Modify(path) => self.modify(path, section)?,
                Verb::Rename { from, to } => self.rename(from, to, section)?,
                Verb::Copy { from, to } => self.copy(from, to, section)?,
            }
        }
        Ok(())
    }

    fn create(&mut self, path: &TreePath, section: &Section<'_>) -> Result<(), StageError> {
        self.check_free(path)?;
        let content = changed(path, None, &section.body)?;
        let image = match section.new_mode.unwrap_or(FileMode::Plain) {
            FileMode::Submodule => return Err(FileFault::Submodule.of(path)),
            FileMode::Link => Image::Link {
                target: content.into(),
            },
            mode => Image::File {
                mode: mode.permissions(),
                bytes: content.into(),
            },
        };
        self.arrive(path, image);
        Ok(())
    }

    fn delete(&mut self, path: &TreePath, section: &Section<'_>) -> Result<(), StageError> {
        let old = self.current(path)?;
        check_type(path, &old, section)?;
        match changed(path, Some(&old), &section.body)?.is_empty() {
            true => self.go(path),
            false => return Err(FileFault::LeavesContent.of(path)),
        }
        Ok(())
    }

    fn modify(&mut self, path: &TreePath, section: &Section<'_>) -> Result<(), StageError> {
        // A plain patch by hand may forget `/dev/null`; a hunk that follows line 0 can mean nothing else.
        let from_nothing = matches!(&section.body, Body::Text(hunks) if matches!(&hunks[..], [only] if only.old_start == 0));
        if from_nothing && self.now.kind(path, When::Now)? == Kind::Missing {
            return self.create(path, section);
        }
        let old = self.current(path)?;
        let new = successor(path, &old, section)?;
        self.now.put(path.clone(), Some(new));
        // What arrived before stays so: its place was made by another.
        self.written.entry(path.clone()).or_insert(Written::Changed);
        Ok(())
    }

    fn rename(
        &mut self,
        from: &TreePath,
        to: &TreePath,
        section: &Section<'_>,
    ) -> Result<(), StageError> {
        // Changed and then renamed: two patches in a row, and the later one means the changed file.
        let in_a_row = self.written.get(from) == Some(&Written::Changed);
        let arrived_over_it =
            self.written.get(from) == Some(&Written::Arrived) && self.was_there(from)?;
        let old = match in_a_row || !self.was_there(from)? {
            true => self.now.image(from, When::Now)?,
            false => self.now.image(from, When::Before)?,
        };
        let new = successor(from, &old, section)?;
        if from != to {
            self.check_free(to)?;
            if !arrived_over_it {
                self.go(from);
            }
        }
        self.arrive(to, new);
        Ok(())
    }

    fn copy(
        &mut self,
        from: &TreePath,
        to: &TreePath,
        section: &Section<'_>,
    ) -> Result<(), StageError> {
        let old = match self.was_there(from)? {
            true => self.now.image(from, When::Before)?,
            false => self.now.image(from, When::Now)?,
        };
        let new = successor(from, &old, section)?;
        self.check_free(to)?;
        self.arrive(to, new);
        Ok(())
    }

    fn go(&mut self, path: &TreePath) {
        self.now.put(path.clone(), None);
        self.written.insert(path.clone(), Written::Gone);
    }

    /// What a path holds. One that this round has not written is looked at as it was before: a file may already stand
    /// where its directory was.
    fn current(&self, path: &TreePath) -> Result<Image, StageError> {
        match self.written.contains_key(path) {
            true => self.now.image(path, When::Now),
            false => self.now.image(path, When::Before),
        }
    }

    fn arrive(&mut self, path: &TreePath, image: Image) {
        self.now.put(path.clone(), Some(image));
        self.written.insert(path.clone(), Written::Arrived);
    }

    fn was_there(&self, path: &TreePath) -> Result<bool, StageError> {
        let kind = self.now.kind(path, When::Before)?;
        Ok(!matches!(kind, Kind::Missing | Kind::Directory))
    }

    /// Nothing may be overwritten that the patch does not say goes away.
    fn check_free(&self, path: &TreePath) -> Result<(), StageError> {
        let leaves = self.vacated.contains(path) && !self.written.contains_key(path);
        match self.now.kind(path, When::Now)? {
            Kind::Special => Err(FileFault::Special.of(path)),
            // A directory may be emptied by a later part: that is looked at when the tree is finished.
            Kind::Missing | Kind::Directory => Ok(()),
            Kind::File { .. } | Kind::Link if leaves => Ok(()),
            Kind::File { .. } => Err(FileFault::Exists.of(path)),
            Kind::Link => Err(FileFault::Link.of(path)),
        }
    }
}

/// What a file becomes: its content changed, its mode kept unless the patch says otherwise.
fn successor(path: &TreePath, old: &Image, section: &Section<'_>) -> Result<Image, StageError> {
    check_type(path, old, section)?;
    let new = old.with_content(changed(path, Some(old), &section.body)?);
    Ok(match (new, section.new_mode) {
        (Image::File { mode, bytes }, Some(new_mode)) => Image::File {
            mode: new_mode.applied_to(mode),
            bytes,
        },
        (new, _) => new,
    })
}

/// A link is changed only by a patch that knows it is one; a file, only by one that takes it for a file.
fn check_type(path: &TreePath, old: &Image, section: &Section<'_>) -> Result<(), StageError> {
    let modes = [section.old_mode, section.new_mode];
    let stated = modes.into_iter().flatten();
    let link = matches!(old, Image::Link { .. });
    let mut said = false;
    for mode in stated {
        match mode {
            FileMode::Submodule => return Err(FileFault::Submodule.of(path)),
            FileMode::Link if !link => return Err(FileFault::NotALink.of(path)),
            FileMode::Plain | FileMode::Executable if link => return Err(FileFault::Link.of(path)),
            _ => said = true,
        }
    }
    // A pure rename says no mode, and moves whatever there is.
    let moves = matches!(&section.body, Body::Text(hunks) if hunks.is_empty());
    match link && !said && !moves {
        true => Err(FileFault::Link.of(path)),
        false => Ok(()),
    }
}

/// The content of a file after a part of the patch; of no file, if it is new.
fn changed(path: &TreePath, old: Option<&Image>, body: &Body<'_>) -> Result<Vec<u8>, StageError> {
    let content = old.map(|image| &**image.content());
    match body {
        Body::Absent => Err(FileFault::NoBinaryData.of(path)),
        Body::Binary(data) => data.apply(content).map_err(|fault| fault.of(path)),
        Body::Text(hunks) => {
            apply_hunks(content.unwrap_or_default(), hunks).map_err(|(number, fault)| {
                let header = hunks[number].header.clone();
                let error = ApplyError::Hunk {
                    file: path.clone(),
                    number: number + 1,
                    header,
                    fault,
                };
                error.into()
            })
        }
    }
}
