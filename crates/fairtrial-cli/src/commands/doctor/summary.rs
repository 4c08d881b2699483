//! The findings on one screen: what works, which level is the best here, what to do about what is missing.

use fairtrial_exec::{DEFAULT_LEVEL, Level, SANDBOX_VARIABLE, Size, State};

use super::fix::Host;
use super::{Findings, SelfTest};

impl Findings {
    /// At most a screen of some 24 lines.
    pub(super) fn summary(&self) -> String {
        let mut text = self.machine_lines();
        text += &self.level_lines();
        text += &self.limits_line();
        let workspaces = self.workspaces.best().unwrap_or("unavailable");
        text += &format!("workspaces of `evaluate`: {workspaces}\n");
        let remedies = self.remedies(&Host::here());
        if !remedies.is_empty() {
            text += "\nwhat is missing (`fairtrial doctor --fix` prints the commands that provide it)\n";
        }
        for remedy in &remedies {
            text += &format!("  {}\n", remedy.title());
        }
        text += "\neverything that was found: `fairtrial doctor --all`, or `--json`\n";
        text
    }

    fn machine_lines(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let user = rustix::process::geteuid().as_raw();
        let spill = match &self.spill {
            Ok(free) => format!("{} free", Size(*free)),
            Err(problem) => format!("FAILED: {problem}"),
        };
        let tests = self.tests.iter().map(SelfTest::line);
        format!(
            "fairtrial {version} on {}, as user {user}\n\
             {} processors allowed, {} calls at a time, node `{}`\n\
             spill directory `{}`: {spill}\n{}\nisolation levels\n",
            self.kernel,
            self.cpus,
            self.max_workers,
            self.node_id,
            self.spill_dir.path().display(),
            tests.collect::<String>()
        )
    }

    fn level_lines(&self) -> String {
        let mut text = String::new();
        for (level, state) in self.levels() {
            text += &format!("  {:<9} {state}\n", level.to_string());
        }
        let default = match self.default_level {
            Some(level) => format!("`{level}`, by {SANDBOX_VARIABLE}"),
            None => format!("`{DEFAULT_LEVEL}`"),
        };
        text += &match self.best_level() {
            Some(best) => {
                format!("best level here: `--sandbox {best}`; the default is {default}\n")
            }
            None => format!("no level works here; the default is {default}\n"),
        };
        text
    }

    /// The highest level all of whose needs are met.
    fn best_level(&self) -> Option<Level> {
        let levels = self.levels().into_iter().rev();
        let mut available = levels.filter(|(_, state)| state == "available");
        available.next().map(|(level, _)| level)
    }

    /// How well memory and processes are limited, by the level of most calls.
    fn limits_line(&self) -> String {
        let found = self
            .levels
            .iter()
            .find(|found| found.level == Level::Limits);
        let Some(Ok(report)) = found.map(|found| &found.report) else {
            return String::new();
        };
        let mechanisms = report.in_force.mechanisms.iter();
        let mut memory = mechanisms.filter(|one| one.name == "memory");
        memory.next().map_or_else(String::new, |memory| {
            let advice = match memory.state {
                State::Enforced => "",
                _ => ": a program can take more in between",
            };
            let (state, via) = (memory.state.name(), memory.via);
            format!("memory limits: {state}, {via}{advice}\n")
        })
    }
}

impl SelfTest {
    /// One line, whatever went wrong.
    fn line(&self) -> String {
        let text = self.text();
        let first = text.lines().next().unwrap_or_default();
        format!("self-test: {} {first}\n", self.name)
    }
}
