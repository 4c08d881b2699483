//! Registered tests with what they found, p-values adjusted within their plans.

use crate::report::arms::Found;
use crate::report::gather::Gathered;
use crate::report::registered::Registered;
use crate::stats::differ;

/// A registered test.
pub(crate) struct Tested<'g> {
    pub(crate) registered: &'g Registered,
    /// Or why there was nothing to compare.
    pub(crate) found: Option<Found>,
    /// Within the plan; none where p is not there or the plan's policy is not known.
    pub(crate) adjusted: Option<f64>,
    /// Comparisons in the plan.
    pub(crate) family: usize,
    /// What readers ought to know.
    pub(crate) notes: Vec<String>,
}

/// All registered tests, in the order of plans.
pub(crate) fn tested(gathered: &Gathered) -> Vec<Tested<'_>> {
    let register = &gathered.register;
    let mut all: Vec<_> = register
        .tests
        .iter()
        .map(|registered| one(gathered, registered))
        .collect();
    for plan in 0..register.plans.len() {
        let family: Vec<usize> = (0..all.len())
            .filter(|place| all[*place].registered.plan == plan && all[*place].found.is_some())
            .collect();
        // A comparison without enough data was planned all the same: it counts as one that found nothing.
        let p = |place: &usize| all[*place].p().unwrap_or(1.0);
        let values: Vec<f64> = family.iter().map(p).collect();
        let adjusted = register.adjustment(plan).map(|rule| rule.adjust(&values));
        for (rank, place) in family.iter().enumerate() {
            all[*place].family = family.len();
            if all[*place].p().is_some() {
                all[*place].adjusted = adjusted.as_ref().map(|adjusted| adjusted[rank]);
            }
        }
    }
    all
}

impl Tested<'_> {
    pub(crate) fn p(&self) -> Option<f64> {
        let comparison = self.found.as_ref()?.comparison.as_ref();
        comparison.ok().map(|comparison| comparison.p)
    }
}

fn one<'g>(gathered: &'g Gathered, registered: &'g Registered) -> Tested<'g> {
    let found = registered.compares.as_ref().ok().map(|compares| {
        let outcome = &gathered.outcomes[compares.outcome];
        let is_binary = gathered.binary[compares.outcome];
        gathered.arms[compares.contrast].compare(compares, outcome, is_binary)
    });
    let mut notes = Vec::new();
    if let Ok(compares) = &registered.compares {
        let arms = &gathered.arms[compares.contrast];
        let [left, right] = [0, 1].map(|side| (arms.failed[side], arms.ended[side]));
        if differ(left, right) {
            notes.push(format!(
                "the arms fail at unequal rates: {} of {} runs on the left, {} of {} on the right; outcomes that \
                 leave out missing values compare the survivors",
                left.0, left.1, right.0, right.1
            ));
        }
        let waiting: u64 = arms.planned.iter().sum::<u64>() - arms.ended.iter().sum::<u64>();
        if waiting > 0 {
            notes.push(format!("{waiting} planned runs of the arms have not ended"));
        }
    }
    let plan = &gathered.register.plans[registered.plan];
    let third = &gathered.register.hypotheses[registered.hypothesis].third;
    if found.is_some() && !plan.terms.is_empty() {
        notes.push(format!("not adjusted for {}", plan.terms.join(", ")));
    }
    if found.is_some() && !third.is_empty() {
        notes.push(format!("{} play no part in this test", third.join(", ")));
    }
    Tested {
        registered,
        found,
        adjusted: None,
        family: 0,
        notes,
    }
}
