//! Modes as git knows them: a file, a program, a link. Their six digits.

/// The mode of a file in git's eyes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// `100644`
    Plain,
    /// `100755`
    Executable,
    /// `120000`
    Link,
    /// `160000`
    Submodule,
}

impl FileMode {
    /// Reads git's digits. Other permissions than git's own count by the owner's right to execute, as in git.
    #[must_use]
    pub fn read(digits: &[u8]) -> Option<Self> {
        let digits = std::str::from_utf8(digits).ok()?;
        let mode = u32::from_str_radix(digits, 8).ok()?;
        match mode & !0o7777 {
            0o100000 if mode & 0o100 == 0 => Some(Self::Plain),
            0o100000 => Some(Self::Executable),
            0o120000 => Some(Self::Link),
            0o160000 => Some(Self::Submodule),
            _ => None,
        }
    }

    /// Git's digits.
    #[must_use]
    pub fn digits(self) -> &'static str {
        match self {
            Self::Plain => "100644",
            Self::Executable => "100755",
            Self::Link => "120000",
            Self::Submodule => "160000",
        }
    }

    /// The permissions of a new file.
    #[must_use]
    pub fn permissions(self) -> u32 {
        match self {
            Self::Executable => 0o755,
            _ => 0o644,
        }
    }

    /// What a file's permissions become: who may read it may execute it, or nobody may.
    #[must_use]
    pub fn applied_to(self, permissions: u32) -> u32 {
        match self {
            Self::Executable => permissions | (permissions & 0o444) >> 2,
            _ => permissions & !0o111,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_gits() {
        assert_eq!(FileMode::read(b"100644"), Some(FileMode::Plain));
        assert_eq!(FileMode::read(b"100700"), Some(FileMode::Executable));
        assert_eq!(FileMode::read(b"120000"), Some(FileMode::Link));
        assert_eq!(FileMode::read(b"160000"), Some(FileMode::Submodule));
        for bad in [&b"040000"[..], b"644", b"", b"100648", b"020644"] {
            assert_eq!(FileMode::read(bad), None);
        }
        assert_eq!(FileMode::Executable.applied_to(0o640), 0o750);
        assert_eq!(FileMode::Plain.applied_to(0o750), 0o640);
    }
}
