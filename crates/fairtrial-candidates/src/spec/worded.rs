//! Choices with a word each.

/// An enum whose variants users write as words.
pub(super) trait Worded: Copy + PartialEq + 'static {
    /// Every variant and its word.
    const WORDS: &'static [(&'static str, Self)];
}

/// Gives each variant its word, and shows it by that.
macro_rules! worded {
    ($choice:ident { $($variant:ident => $word:literal),+ $(,)? }) => {
        impl crate::spec::worded::Worded for $choice {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word),+
                })
            }
        }
    };
}

pub(super) use worded;
