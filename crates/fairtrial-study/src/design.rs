//! Designs: from factors and blocks to conditions. A condition is a row of indexes into its columns' values, so that a
//! million of them take little room.

mod conditions;
mod factorial;
mod judge;
mod latin_square;
mod matrix;
mod rows;
mod rules;
mod sampling;
mod sobol;
mod standalone;
mod table;

use crate::fault::Place;
use crate::value::Value;

pub use conditions::{Condition, ConditionId, Design};
pub use judge::RuleCaller;
pub(crate) use judge::check_rules;
pub use standalone::{DesignTable, TableRequest, TableSummary};

/// How conditions are made of factors.
#[derive(Clone, Debug)]
pub struct DesignSpec {
    /// Where it stands.
    pub place: Place,
    /// The kind of design.
    pub kind: DesignKind,
    /// Repeats of the whole table.
    pub replicates: u64,
    /// Whether the order is shuffled.
    pub randomize: bool,
    /// Whether the order is counterbalanced.
    pub counterbalance: bool,
    /// File of a custom matrix.
    pub matrix_path: Option<String>,
    /// Rows of a sampled design.
    pub n_samples: Option<u64>,
    /// Rows appended at the centre.
    pub center_points: u64,
    /// Column whose values are shuffled apart.
    pub block_randomization_key: Option<String>,
    /// Ranges of a sampled design.
    pub bounds: Option<Value>,
    /// Which implementation's numbers are wanted.
    pub backend: Option<String>,
    /// Resolution of a fraction.
    pub resolution: Option<String>,
    /// Factor of a square's rows.
    pub row_factor: Option<String>,
    /// Factor of a square's columns.
    pub column_factor: Option<String>,
    /// Factor inside a square.
    pub treatment_factor: Option<String>,
    /// Whether Sobol points are scrambled.
    pub scramble: bool,
    pub(crate) places: Vec<(&'static str, Place)>,
}

impl DesignSpec {
    /// Where a key stands, else where the design does.
    pub(crate) fn place_of(&self, key: &str) -> &Place {
        let found = self.places.iter().find(|(known, _)| *known == key);
        found.map_or(&self.place, |(_, place)| place)
    }
}

/// The kinds of designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesignKind {
    /// All combinations.
    Full,
    /// All combinations, under constraints; the same algorithm.
    Constrained,
    /// All combinations, shuffled.
    RandomizedBlock,
    /// All combinations, counterbalanced.
    RepeatedMeasures,
    /// Each treatment once per row and column.
    LatinSquare,
    /// Conditions from a file.
    CustomMatrix,
    /// Latin hypercube sample.
    LatinHypercube,
    /// Two-level fraction.
    Fraction,
    /// Sobol sequence.
    Sobol,
}

impl DesignKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Full,
        Self::Constrained,
        Self::RandomizedBlock,
        Self::RepeatedMeasures,
        Self::LatinSquare,
        Self::CustomMatrix,
        Self::LatinHypercube,
        Self::Fraction,
        Self::Sobol,
    ];

    /// Its canonical name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full_factorial",
            Self::Constrained => "constrained_factorial",
            Self::RandomizedBlock => "randomized_block",
            Self::RepeatedMeasures => "repeated_measures",
            Self::LatinSquare => "latin_square",
            Self::CustomMatrix => "custom_matrix",
            Self::LatinHypercube => "latin_hypercube",
            Self::Fraction => "fractional_factorial_2level",
            Self::Sobol => "sobol",
        }
    }

    /// By its name or an alias, in lower case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "full" => Some(Self::Full),
            "lhs" => Some(Self::LatinHypercube),
            "frac2" => Some(Self::Fraction),
            name => Self::ALL.into_iter().find(|kind| kind.name() == name),
        }
    }

    /// Whether a condition's id is its assignment's alone.
    pub(crate) fn is_factorial(self) -> bool {
        matches!(
            self,
            Self::Full | Self::Constrained | Self::RandomizedBlock | Self::RepeatedMeasures
        )
    }
}

/// Why there is no such design: which key is to blame, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Objection {
    pub(crate) key: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
}

fn objection(key: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Objection {
    Objection {
        key,
        message: message.into(),
        hint: hint.into(),
    }
}
