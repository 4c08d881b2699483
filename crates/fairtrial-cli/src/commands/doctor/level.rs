//! What is found of one level.

use fairtrial_exec::{Level, Mechanism, SandboxReport};
use serde_json::{Value as Json, json};

/// A level: what it brings here, and what was found by trying. Or why nothing could be found.
pub(crate) struct LevelFindings {
    pub(crate) level: Level,
    pub(crate) report: Result<SandboxReport, String>,
}

impl LevelFindings {
    /// Whether it can be had, in one line.
    pub(crate) fn state(&self) -> String {
        if let Some(problem) = self.problem() {
            return problem;
        }
        let missing = self.report.as_ref().map(|report| {
            let effective = report.in_force.effective;
            let missing = report.missing.first()?;
            let shortage = shortage(missing);
            Some(format!(
                "partly available, as good as `{effective}`: {shortage}"
            ))
        });
        match missing {
            Ok(Some(partly)) => partly,
            _ => "available".to_owned(),
        }
    }

    /// Why it cannot be had, in one line.
    pub(crate) fn problem(&self) -> Option<String> {
        let report = match &self.report {
            Ok(report) => report,
            Err(problem) => return Some(format!("unavailable: {problem}")),
        };
        let failed = disproved(report);
        if !failed.is_empty() {
            let allowed = failed.join(", ");
            return Some(format!("FAILED its self-test: {allowed} allowed"));
        }
        match report.missing.first() {
            Some(missing) if self.level >= Level::Confined => {
                Some(format!("unavailable: {}", shortage(missing)))
            }
            None if report.proof.attempts.is_empty() && self.level != Level::None => {
                let problems = report.proof.untried.iter();
                let problems: Vec<_> = problems.map(|(_, problem)| problem.as_str()).collect();
                Some(format!("unavailable: {}", problems.join("; ")))
            }
            _ => None,
        }
    }

    /// Its mechanisms, a line each, and what was tried.
    pub(crate) fn text(&self) -> String {
        let Ok(report) = &self.report else {
            return String::new();
        };
        let mut text = format!("\nmechanisms at level `{}`\n", self.level);
        let mechanisms = &report.in_force.mechanisms;
        let width = mechanisms.iter().map(|m| m.name.len()).max().unwrap_or(0);
        for mechanism in mechanisms {
            let Mechanism { name, state, .. } = mechanism;
            let (state, why) = (state.name(), mechanism.why());
            text += &format!("  {name:<width$}  {state:<11}  {why}\n");
        }
        let tried = report.proof.attempts.iter().map(|(what, refused)| {
            let word = if *refused { "denied" } else { "allowed" };
            format!("{what} {word}")
        });
        let tried: Vec<_> = tried.collect();
        if !tried.is_empty() {
            text += &format!("  tried: {}\n", tried.join(", "));
        }
        for (route, problem) in &report.proof.untried {
            text += &format!("  not tried by a {route}: {problem}\n");
        }
        text
    }

    pub(crate) fn json(&self) -> Json {
        match &self.report {
            Ok(report) => report.to_json(),
            Err(problem) => json!({"error": problem}),
        }
    }
}

/// `userns EPERM, kernel.apparmor_restrict_unprivileged_userns=1`
fn shortage(mechanism: &Mechanism) -> String {
    let errno = mechanism
        .errno
        .map_or(String::new(), |errno| format!(" {errno}"));
    let hint = match mechanism.hint {
        "" => mechanism.via,
        hint => hint,
    };
    format!("{}{errno}, {hint}", mechanism.name)
}

/// What should have been refused and was not.
fn disproved(report: &SandboxReport) -> Vec<&str> {
    let open: &[&str] = match report.in_force.requested {
        Level::Confined | Level::Strict => &[],
        _ => &["connect", "read_canary", "unshare"], // open at this level (SB-18)
    };
    let attempts = report.proof.attempts.iter();
    let allowed = attempts.filter(|(what, refused)| !refused && !open.contains(&what.as_str()));
    allowed.map(|(what, _)| what.as_str()).collect()
}
