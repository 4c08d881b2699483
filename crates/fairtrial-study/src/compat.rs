//! The two modes of reading a study.

use std::fmt;
use std::str::FromStr;

/// Whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// Fairtrial's own.
    Native,
    /// Those of DRE's schema 0.2.0, its accidents included.
    Dre,
}

impl Compat {
    /// As users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Dre => "dre-0.2",
        }
    }
}

impl fmt::Display for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "native" => Ok(Self::Native),
            "dre-0.2" => Ok(Self::Dre),
            other => Err(format!(
                "unknown mode `{other}`; the modes are `native` and `dre-0.2`"
            )),
        }
    }
}
