//! What is found of one level.

use fairtrial_exec::{Level, Mechanism, SandboxReport};
use serde_json::{Value as Json, json};

/// A level: what it brings here, and what was found by trying. Or why nothing could be found.
pub(super) struct LevelFindings {
    pub(super) level: Level,
    pub(super) report: Result<SandboxReport, String>,
}

impl LevelFindings {
    /// Whether it can be had, in one line.
    pub(super) fn state(&self) -> String {
        let report = match &self.report {
            Ok(report) => report,
            Err(problem) => return format!("unavailable: {problem}"),
        };
        let failed = disproved(report);
        if !failed.is_empty() {
            return format!("FAILED its self-test: {} allowed", failed.join(", "));
        }
        let effective = report.in_force.effective;
        match report.missing.first() {
            Some(missing) if self.level == Level::Strict => {
                format!("unavailable: {}", shortage(missing))
            }
            Some(missing) => {
                let shortage = shortage(missing);
                format!("partly available, as good as `{effective}`: {shortage}")
            }
            None if report.proof.attempts.is_empty() && self.level != Level::None => {
                let problems = report.proof.untried.iter();
                let problems: Vec<_> = problems.map(|(_, problem)| problem.as_str()).collect();
                format!("unavailable: {}", problems.join("; "))
            }
            None => "available".to_owned(),
        }
    }

    /// Its mechanisms, a line each, and what was tried.
    pub(super) fn text(&self) -> String {
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

    pub(super) fn json(&self) -> Json {
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
        Level::Strict => &[],
        _ => &["connect", "read_canary", "unshare"], // open at this level (SB-18)
    };
    let attempts = report.proof.attempts.iter();
    let allowed = attempts.filter(|(what, refused)| !refused && !open.contains(&what.as_str()));
    allowed.map(|(what, _)| what.as_str()).collect()
}
