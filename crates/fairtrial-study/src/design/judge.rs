//! Which conditions keep which constraints.

use super::{Design, rules};
use crate::compat::Compat;
use crate::expression::Scope;
use crate::fault::{Findings, short};
use crate::study::{Constraint, Study};

/// Evaluates a `callable_ref` rule for every condition of a design; an error says why it could not.
pub type RuleCaller<'c> = &'c mut dyn FnMut(&Constraint, &Design) -> Result<Vec<bool>, String>;

/// Violations, few or many: by condition, then by constraint.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    messages: Vec<String>,
    is_warning: Vec<bool>,
    violations: Vec<(u32, u32)>,
}

impl Judgement {
    pub(super) fn of(
        study: &Study,
        design: &Design,
        mut caller: Option<RuleCaller<'_>>,
        findings: &mut Findings,
    ) -> Self {
        let mut violations = Vec::new();
        for (number, constraint) in study.constraints.iter().enumerate() {
            let called = match (&constraint.callable_ref, &mut caller) {
                (None, _) => Ok(None),
                (Some(_), Some(caller)) => caller(constraint, design).map(Some),
                (Some(_), None) => rules::kept(study, constraint, design).map(Some),
            };
            let called = match called {
                Ok(called) => called,
                Err(why) => {
                    let message = format!("constraint `{}`: {why}", short(&constraint.id));
                    findings.fault(&constraint.place, "constraint", message, "");
                    continue;
                }
            };
            let kept_by_call = |index: usize| called.as_ref().is_none_or(|kept| kept[index]);
            for condition in design.conditions() {
                let index = condition.index();
                let holds = match &constraint.expression {
                    None => Ok(true),
                    Some(expression) => {
                        let scope = Scope {
                            factors: condition.factors().collect(),
                            blocks: condition.blocks().collect(),
                        };
                        expression.holds(&scope, study.compat)
                    }
                };
                match holds {
                    Ok(holds) if holds && kept_by_call(index) => {}
                    Ok(_) => violations.push((index as u32, number as u32)),
                    Err(error) => {
                        let message = format!(
                            "constraint `{}`, condition {} {}: {error}",
                            short(&constraint.id),
                            condition.id(),
                            short(&condition.fingerprint())
                        );
                        findings.fault(&constraint.place, "constraint", message, "");
                        break; // the next condition would say the same
                    }
                }
            }
        }
        violations.sort_unstable();
        let message = |c: &Constraint| format!("{}: {}", c.id, c.description);
        Self {
            messages: study.constraints.iter().map(message).collect(),
            is_warning: study.constraints.iter().map(|c| c.is_warning).collect(),
            violations,
        }
    }

    fn of_condition(&self, index: usize) -> impl Iterator<Item = usize> + use<'_> {
        let start = self
            .violations
            .partition_point(|(condition, _)| (*condition as usize) < index);
        self.violations[start..]
            .iter()
            .take_while(move |(condition, _)| *condition as usize == index)
            .map(|(_, constraint)| *constraint as usize)
    }

    pub(super) fn is_refused(&self, index: usize) -> bool {
        self.of_condition(index)
            .any(|constraint| !self.is_warning[constraint])
    }

    pub(super) fn messages(&self, index: usize) -> Vec<&str> {
        self.of_condition(index)
            .map(|constraint| self.messages[constraint].as_str())
            .collect()
    }
}

/// Natively, names and parts that no condition could make valid are refused before any is looked at.
pub(crate) fn check_rules(study: &Study, findings: &mut Findings) {
    if study.compat != Compat::Native {
        return;
    }
    let mut factors: Vec<&str> = study
        .factors
        .iter()
        .map(|factor| factor.name.as_str())
        .collect();
    if let Some(crate::value::Value::Map(entries)) = &study.design.bounds {
        factors.extend(entries.iter().filter_map(|(name, _)| name.as_text()));
    }
    let blocks: Vec<&str> = study
        .blocks
        .iter()
        .map(|block| block.name.as_str())
        .collect();
    for constraint in &study.constraints {
        let Some(expression) = &constraint.expression else {
            continue;
        };
        if let Err(error) = expression.check(&factors, &blocks) {
            let message = format!("constraint `{}`: {error}", short(&constraint.id));
            findings.fault(&constraint.place, "constraint", message, "");
        }
    }
}
