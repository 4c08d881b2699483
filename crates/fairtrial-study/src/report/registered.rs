//! What a study said beforehand that it would test, and which comparisons follow from it (SF-14, SF-16, ST-82). Reads the
//! study alone: results cannot change what is compared.

use crate::report::outcome::Outcome;
use crate::stats::{Adjustment, Direction};
use crate::study::{Factor, Study};
use crate::value::Value;

/// A hypothesis as registered.
#[derive(Debug)]
pub(crate) struct Hypothesis {
    pub(crate) id: String,
    pub(crate) label: String,
    pub(crate) statement: String,
    pub(crate) kind: String,
    pub(crate) direction: String,
    pub(crate) minimum: Option<f64>,
    pub(crate) independent: Vec<String>,
    pub(crate) dependent: Vec<String>,
    pub(crate) contrast: Option<Value>,
    /// Moderators and mediators, which no test here looks at.
    pub(crate) third: Vec<String>,
    pub(crate) notes: String,
}

/// An analysis plan as registered.
#[derive(Debug)]
pub(crate) struct AnalysisPlan {
    pub(crate) id: String,
    pub(crate) hypotheses: Vec<String>,
    pub(crate) tests: Vec<String>,
    pub(crate) outcomes: Vec<String>,
    /// Covariates and random effects.
    pub(crate) terms: Vec<String>,
    pub(crate) filters: Option<Value>,
    pub(crate) policy: String,
    pub(crate) notes: String,
}

/// Two levels of one factor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contrast {
    pub(crate) factor: usize,
    pub(crate) left: usize,
    pub(crate) right: usize,
}

/// A test that was registered.
#[derive(Debug)]
pub(crate) struct Registered {
    /// Its place among plans.
    pub(crate) plan: usize,
    /// Its place among hypotheses.
    pub(crate) hypothesis: usize,
    pub(crate) test: String,
    /// What it compares, or why nothing.
    pub(crate) compares: Result<Compares, String>,
}

/// What a test compares.
#[derive(Debug)]
pub(crate) struct Compares {
    /// Its place among contrasts.
    pub(crate) contrast: usize,
    /// Its place among outcomes.
    pub(crate) outcome: usize,
    pub(crate) direction: Direction,
}

/// Tests that are computed.
pub(crate) const TESTS: [&str; 2] = ["difference_in_means", "ttest"];

/// All that was registered.
#[derive(Debug, Default)]
pub(crate) struct Register {
    pub(crate) hypotheses: Vec<Hypothesis>,
    pub(crate) plans: Vec<AnalysisPlan>,
    pub(crate) contrasts: Vec<Contrast>,
    pub(crate) tests: Vec<Registered>,
}

impl Register {
    pub(crate) fn of(study: &Study, outcomes: &[Outcome]) -> Self {
        let items = |key: &str| match study.normalised.get(key) {
            Some(Value::List(items)) => items.as_slice(),
            _ => &[],
        };
        let mut register = Self {
            hypotheses: items("hypotheses").iter().map(Hypothesis::new).collect(),
            plans: items("analysis_plans")
                .iter()
                .map(AnalysisPlan::new)
                .collect(),
            ..Self::default()
        };
        for plan in 0..register.plans.len() {
            for hypothesis in register.listed(plan) {
                let mut names: Vec<&str> = Vec::new();
                for test in &register.plans[plan].tests {
                    let name = match test.trim() {
                        "ttest" => "difference_in_means",
                        name => name,
                    };
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
                for test in names {
                    let found = register.compared(study, outcomes, plan, hypothesis, &test);
                    let entry = |compares| Registered {
                        plan,
                        hypothesis,
                        test: test.clone(),
                        compares,
                    };
                    match found {
                        Ok(all) => register
                            .tests
                            .extend(all.into_iter().map(|one| entry(Ok(one)))),
                        Err(reason) => register.tests.push(entry(Err(reason))),
                    }
                }
            }
        }
        register
    }

    /// How p-values of a plan are adjusted; none if the policy is not known.
    pub(crate) fn adjustment(&self, plan: usize) -> Option<Adjustment> {
        Adjustment::from_name(&self.plans[plan].policy)
    }

    fn listed(&self, plan: usize) -> Vec<usize> {
        let ids = &self.plans[plan].hypotheses;
        let place = |id: &String| self.hypotheses.iter().position(|known| known.id == *id);
        ids.iter().filter_map(place).collect()
    }

    /// The comparisons of one test, or why there is none.
    fn compared(
        &mut self,
        study: &Study,
        outcomes: &[Outcome],
        plan: usize,
        hypothesis: usize,
        test: &str,
    ) -> Result<Vec<Compares>, String> {
        let (plan, hypothesis) = (&self.plans[plan], &self.hypotheses[hypothesis]);
        if test != "difference_in_means" {
            return Err(format!(
                "`{test}` is not among the tests that Fairtrial computes"
            ));
        }
        if plan.filters.is_some() {
            return Err("the plan has `filters`, which Fairtrial does not apply".into());
        }
        let [factor] = hypothesis.independent.as_slice() else {
            let count = hypothesis.independent.len();
            return Err(format!(
                "it needs one independent variable; the hypothesis has {count}"
            ));
        };
        let place = study.factors.iter().position(|known| known.name == *factor);
        let place = place.ok_or_else(|| format!("`{factor}` is no factor"))?;
        let direction = hypothesis.claims()?;
        let pairs = hypothesis.pairs(&study.factors[place])?;
        let names = match hypothesis.dependent.is_empty() {
            true => &plan.outcomes,
            false => &hypothesis.dependent,
        };
        if names.is_empty() {
            return Err("neither hypothesis nor plan names an outcome".into());
        }
        let mut found = Vec::new();
        for name in names {
            let outcome = outcomes.iter().position(|known| known.name == *name);
            let outcome = outcome.ok_or_else(|| format!("`{name}` is no outcome"))?;
            for (left, right) in &pairs {
                let contrast = Contrast {
                    factor: place,
                    left: *left,
                    right: *right,
                };
                let known = self.contrasts.iter().position(|known| *known == contrast);
                let contrast = known.unwrap_or_else(|| {
                    self.contrasts.push(contrast);
                    self.contrasts.len() - 1
                });
                found.push(Compares {
                    contrast,
                    outcome,
                    direction,
                });
            }
        }
        Ok(found)
    }
}

impl Hypothesis {
    fn new(item: &Value) -> Self {
        let mut third = names(item.get("moderators"));
        third.extend(names(item.get("mediators")));
        Self {
            id: text(item, "hypothesis_id"),
            label: text(item, "label"),
            statement: text(item, "statement"),
            kind: text(item, "kind"),
            direction: text(item, "direction"),
            minimum: item
                .get("minimum_effect_of_interest")
                .and_then(Value::as_number),
            independent: names(item.get("independent_vars")),
            dependent: names(item.get("dependent_vars")),
            contrast: item
                .get("contrast")
                .filter(|value| **value != Value::Null)
                .cloned(),
            third,
            notes: text(item, "notes"),
        }
    }

    fn claims(&self) -> Result<Direction, String> {
        match (self.direction.as_str(), self.minimum) {
            ("greater", _) => Ok(Direction::Greater),
            ("less", _) => Ok(Direction::Less),
            ("equivalent", Some(margin)) if margin > 0.0 => Ok(Direction::Equivalent(margin)),
            ("equivalent", _) => {
                Err("equivalence needs a `minimum_effect_of_interest` above 0".into())
            }
            _ => Ok(Direction::Different),
        }
    }

    /// Left and right: the levels of the contrast, else each level against the first.
    fn pairs(&self, factor: &Factor) -> Result<Vec<(usize, usize)>, String> {
        let Some(contrast) = &self.contrast else {
            return match factor.levels.len() {
                0 | 1 => Err(format!("`{}` has no two levels", factor.name)),
                count => Ok((1..count).map(|level| (level, 0)).collect()),
            };
        };
        let operation = text(contrast, "operation");
        if operation != "difference" {
            return Err(format!(
                "the contrast's operation is `{operation}`, not `difference`"
            ));
        }
        let level = |key: &str| {
            let given = contrast.get(key).unwrap_or(&Value::Null);
            let wanted = given.to_str();
            let place =
                |is: &dyn Fn(&crate::study::Level) -> bool| factor.levels.iter().position(is);
            let found = place(&|level| level.name == wanted)
                .or_else(|| place(&|level| level.label == wanted))
                .or_else(|| place(&|level| level.value.to_str() == wanted))
                .or_else(|| place(&|level| level.value.equals(given)));
            found.ok_or_else(|| {
                format!("the contrast's `{wanted}` is no level of `{}`", factor.name)
            })
        };
        match (level("left")?, level("right")?) {
            (left, right) if left == right => {
                Err("the contrast compares a level with itself".into())
            }
            pair => Ok(vec![pair]),
        }
    }
}

impl AnalysisPlan {
    fn new(item: &Value) -> Self {
        let mut terms = names(item.get("covariates"));
        terms.extend(names(item.get("random_effects")));
        let is_given = |value: &&Value| value.is_truthy();
        Self {
            id: text(item, "analysis_plan_id"),
            hypotheses: names(item.get("hypothesis_ids")),
            tests: names(item.get("tests")),
            outcomes: names(item.get("outcomes")),
            terms,
            filters: item.get("filters").filter(is_given).cloned(),
            policy: text(item, "multiple_comparison_policy"),
            notes: text(item, "notes"),
        }
    }
}

fn text(item: &Value, key: &str) -> String {
    match item.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(value) => value.to_str(),
    }
}

/// Texts, or the names of mappings.
fn names(value: Option<&Value>) -> Vec<String> {
    let Some(Value::List(items)) = value else {
        return Vec::new();
    };
    let name = |item: &Value| item.get("name").unwrap_or(item).to_str();
    items.iter().map(name).collect()
}
