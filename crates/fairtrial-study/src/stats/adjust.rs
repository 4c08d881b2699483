//! p-values of one family, adjusted for how many they are.

/// By which rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adjustment {
    None,
    Bonferroni,
    Holm,
    BenjaminiHochberg,
}

impl Adjustment {
    /// By its name in an analysis plan.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_lowercase().as_str() {
            "" | "none" => Some(Self::None),
            "bonferroni" => Some(Self::Bonferroni),
            "holm" | "holm-bonferroni" => Some(Self::Holm),
            "bh" | "fdr_bh" | "fdr" | "benjamini-hochberg" => Some(Self::BenjaminiHochberg),
            _ => None,
        }
    }

    /// The adjusted values, in the order of those given.
    pub(crate) fn adjust(self, values: &[f64]) -> Vec<f64> {
        let count = values.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut adjusted = values.to_vec();
        match self {
            Self::None => {}
            Self::Bonferroni => adjusted
                .iter_mut()
                .for_each(|p| *p = (*p * count as f64).min(1.0)),
            Self::Holm => {
                let mut most = 0.0_f64;
                for (rank, place) in order.into_iter().enumerate() {
                    most = most.max(values[place] * (count - rank) as f64).min(1.0);
                    adjusted[place] = most;
                }
            }
            Self::BenjaminiHochberg => {
                let mut least = 1.0_f64;
                for (rank, place) in order.into_iter().enumerate().rev() {
                    least = least.min(values[place] * count as f64 / (rank + 1) as f64);
                    adjusted[place] = least;
                }
            }
        }
        adjusted
    }
}
