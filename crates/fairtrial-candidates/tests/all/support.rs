//! The vocabulary of these tests.

use fairtrial_candidates::stage::patch::apply;
use fairtrial_candidates::stage::{Base, Content, Image, PostImages, StageError, TreePath};

pub(crate) fn path(path: impl AsRef<[u8]>) -> TreePath {
    TreePath::new(path).expect("a path of a tree")
}

/// What a patch makes of a base.
pub(crate) fn applied(base: &dyn Base, patch: impl AsRef<[u8]>) -> PostImages {
    match apply(patch.as_ref(), base) {
        Ok(images) => images,
        Err(error) => panic!("does not apply: {error}"),
    }
}

/// Why a patch does not apply.
pub(crate) fn refused(base: &dyn Base, patch: impl AsRef<[u8]>) -> String {
    why(apply(patch.as_ref(), base))
}

/// The message of a rejection, after its kind.
pub(crate) fn why<T>(result: Result<T, StageError>) -> String {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(StageError::Rejected(rejection)) => format!("{}: {rejection}", rejection.kind()),
        Err(error) => panic!("the engine's fault: {error}"),
    }
}

/// The text of a changed file.
pub(crate) fn text(images: &PostImages, file: &str) -> String {
    match images.get(&path(file)) {
        Some(Some(Image::File { bytes, .. })) => bytes.escape_ascii().to_string(),
        other => panic!("{file}: {other:?}"),
    }
}

/// Every change on a line: path, mode or kind, content.
pub(crate) fn listed(images: &PostImages) -> Vec<String> {
    let line = |(path, image): (&TreePath, Option<&Image>)| match image {
        None => format!("{path} deleted"),
        Some(Image::File { mode, bytes }) => format!("{path} {mode:o} {}", bytes.escape_ascii()),
        Some(Image::Link { target }) => format!("{path} -> {}", target.escape_ascii()),
    };
    images.iter().map(line).collect()
}

pub(crate) fn patch(text: &str) -> Content {
    Content::Patch(text.as_bytes().to_vec())
}
