//! `fairtrial doctor`: what isolation and measuring this machine can do, and whether the engine works on it at all.

mod fix;
mod level;
mod measuring;
mod summary;
mod workspaces;

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairtrial_exec::linux::nameless;
use fairtrial_exec::{
    Backend, Call, DEFAULT_LEVEL, Level, LocalBackend, LocalConfig, SANDBOX_VARIABLE, Sandbox,
    Size, SpillDir, Verdict, value,
};
use serde_json::{Map, Value as Json, json};

use crate::args::DoctorArgs;
use crate::exit_code::ExitCode;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::terminal::Shown;
use crate::{engine, show};
use fix::Host;
pub(crate) use level::LevelFindings;
use measuring::Measuring;
use workspaces::Workspaces;

/// Longest a self-test may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Looks at the machine and says what was found.
pub(crate) fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let config = engine::config(None)?;
    let default = engine::default_sandbox()?;
    let mut findings = Findings::of_machine(&config);
    findings.default_level = default.map(|sandbox| sandbox.level);
    let room = tempfile::tempdir().map_err(Failure::attempting(
        "cannot make a directory to try workspaces in",
    ))?;
    (findings.tests, findings.levels, findings.workspaces) = engine::run(async {
        let mut interrupt = Interrupt::listen()?;
        let backend = Arc::new(LocalBackend::new(config));
        let tests = async {
            let tests = self_tests(&backend).await?;
            // At once: most of the time goes in waiting until a limit has ended a process.
            let examine = async |level| {
                let report = backend.examine(level).await;
                let report = report.map_err(|error| error.to_string());
                LevelFindings { level, report }
            };
            // Before the others: beside running calls, namespaces that cannot be had are taken for a lack of room.
            let strict = examine(Level::Strict).await;
            let workspaces = Workspaces::try_in(&backend, room.path()).await;
            let (none, limits, confined) = tokio::join!(
                examine(Level::None),
                examine(Level::Limits),
                examine(Level::Confined),
            );
            let levels = vec![none, limits, confined, strict];
            Ok((tests, levels, workspaces))
        };
        let tests = interrupt.or(tests).await;
        engine::stop(&backend).await;
        tests?
    })?;
    let text = match (args.json, args.fix, args.all) {
        (true, ..) => format!("{}\n", findings.json()),
        (_, true, _) => fix::text(&findings.remedies(&Host::here())),
        (.., true) => findings.text(),
        _ => findings.summary(),
    };
    match Shown::on(io::stdout()).write_all(text.as_bytes()) {
        // A reader that went away is no reason to fail.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Failure::attempting("cannot show the findings")(error));
        }
        _ => {}
    }
    Ok(if findings.works() {
        ExitCode::AllWell
    } else {
        ExitCode::EngineFailed
    })
}

/// All that `doctor` has to say.
struct Findings {
    kernel: String,
    cpus: usize,
    max_workers: usize,
    node_id: String,
    tests: Vec<SelfTest>,
    levels: Vec<LevelFindings>,
    /// The level that `FAIRTRIAL_SANDBOX` puts in the place of the default.
    default_level: Option<Level>,
    measuring: Measuring,
    workspaces: Workspaces,
    spill_dir: SpillDir,
    /// Free bytes, or why it cannot be used.
    spill: Result<u64, String>,
}

/// One kind of call, tried twice: cold, then warm.
struct SelfTest {
    name: &'static str,
    what: &'static str,
    /// The two times, or why it did not work.
    result: Result<[Duration; 2], String>,
}

async fn self_tests(backend: &LocalBackend) -> Result<Vec<SelfTest>, Failure> {
    let none = value::arguments_from_json(&json!([]), &json!({}))
        .map_err(Failure::attempting("cannot encode no arguments"))?;
    let tests = [
        ("command", "`true`", Call::command(["true"])),
        (
            "python",
            "`python3`",
            Call::source("def answer():\n    return 42\n", "answer", none),
        ),
    ];
    let mut done = Vec::new();
    for (name, what, mut call) in tests {
        call.timeout = Some(TEST_TIMEOUT);
        call.sandbox = Sandbox::new(Level::None);
        let result = match try_call(backend, &call).await {
            Ok(cold) => try_call(backend, &call).await.map(|warm| [cold, warm]),
            Err(problem) => Err(problem),
        };
        done.push(SelfTest { name, what, result });
    }
    Ok(done)
}

async fn try_call(backend: &LocalBackend, call: &Call) -> Result<Duration, String> {
    let began = Instant::now();
    match backend.execute(call.clone()).await {
        Ok(outcome) if outcome.verdict == Verdict::Ok => Ok(began.elapsed()),
        Ok(outcome) => Err(show::report(call, &outcome).trim_end().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The state of the spill directory, and its room.
fn spill_state(dir: &SpillDir) -> Result<u64, String> {
    let opened = dir.open().map_err(|error| error.to_string())?;
    nameless::create(&opened)
        .and_then(nameless::free_bytes)
        .map_err(|error| format!("cannot make a file in it: {error}"))
}

impl Findings {
    fn of_machine(config: &LocalConfig) -> Self {
        let spill_dir = SpillDir::new(&config.spill_dir);
        let uname = rustix::system::uname();
        let words = [uname.sysname(), uname.release(), uname.machine()];
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        Self {
            kernel: words.join(" "),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            max_workers: config.max_workers,
            node_id: config.node_id.clone(),
            tests: Vec::new(),
            levels: Vec::new(),
            default_level: None,
            measuring: Measuring::of(Path::new("/")),
            workspaces: Workspaces::default(),
            spill: spill_state(&spill_dir),
            spill_dir,
        }
    }

    /// Whether a call at level `none` can run at all.
    fn works(&self) -> bool {
        self.tests.iter().any(|test| test.result.is_ok())
    }

    fn levels(&self) -> Vec<(Level, String)> {
        let levels = self.levels.iter().map(|found| match found.level {
            level if !self.works() => (level, "does not work, see the self-test".to_owned()),
            level => (level, found.state()),
        });
        levels.collect()
    }

    /// Which way to control groups there is.
    fn cgroups(&self) -> Option<&'static str> {
        let reports = self
            .levels
            .iter()
            .filter_map(|found| found.report.as_ref().ok());
        reports.map(|report| report.cgroups).next()
    }

    fn text(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut text = format!(
            "fairtrial {version} on {}\n{} processors allowed, {} calls at a time, node `{}`\n",
            self.kernel, self.cpus, self.max_workers, self.node_id
        );
        let spill = match &self.spill {
            Ok(free) => format!("{} free", Size(*free)),
            Err(problem) => format!("FAILED: {problem}"),
        };
        let dir = self.spill_dir.path().display();
        text += &format!(
            "spill directory `{dir}`: {spill}
"
        );
        text += "\nisolation levels\n";
        for (level, state) in self.levels() {
            text += &format!("  {:<9} {state}\n", level.to_string());
        }
        if let Some(level) = self.default_level {
            text += &format!("  calls that do not say have `{level}`, by {SANDBOX_VARIABLE}\n");
        }
        for found in &self.levels {
            text += &found.text();
        }
        if let Some(ways) = self.cgroups() {
            text += &format!("\ncontrol groups: {ways}\n");
        }
        text += &self.measuring.text();
        text += &self.workspaces.text();
        text += "\nself-test\n";
        for test in &self.tests {
            text += &format!("  {:<8} {}\n", test.name, test.text());
        }
        text
    }

    fn json(&self) -> Json {
        let levels: Map<_, _> = self
            .levels()
            .into_iter()
            .map(|(level, state)| {
                let entry = json!({"available": state == "available", "state": state});
                (level.to_string(), entry)
            })
            .collect();
        let reports: Map<_, _> = self
            .levels
            .iter()
            .map(|found| (found.level.to_string(), found.json()))
            .collect();
        let mechanisms: Map<_, _> = reports
            .iter()
            .map(|(level, report)| (level.clone(), report["mechanisms"].clone()))
            .collect();
        let tests: Map<_, _> = self
            .tests
            .iter()
            .map(|test| (test.name.to_owned(), test.json()))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "kernel": self.kernel,
            "cpus": self.cpus,
            "max_workers": self.max_workers,
            "node_id": self.node_id,
            "levels": levels,
            "default_level": self.default_level.unwrap_or(DEFAULT_LEVEL).to_string(),
            "mechanisms": mechanisms,
            "reports": reports,
            "cgroups": self.cgroups(),
            "measuring": self.measuring.json(),
            "workspaces": self.workspaces.json(),
            "uid": rustix::process::geteuid().as_raw(),
            "self_test": tests,
            "spill": {
                "dir": self.spill_dir.path().to_string_lossy(),
                "free_bytes": self.spill.as_ref().ok(),
                "error": self.spill.as_ref().err(),
            },
        })
    }
}

impl SelfTest {
    fn text(&self) -> String {
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        match &self.result {
            Ok([cold, warm]) => format!(
                "ok: {} in {:.1} ms, then in {:.1} ms",
                self.what,
                ms(cold),
                ms(warm)
            ),
            Err(problem) => format!("FAILED: {}: {}", self.what, problem.replace('\n', "\n    ")),
        }
    }

    fn json(&self) -> Json {
        match &self.result {
            Ok([cold, warm]) => {
                json!({"ok": true, "first_s": cold.as_secs_f64(), "second_s": warm.as_secs_f64(), "error": null})
            }
            Err(problem) => {
                json!({"ok": false, "first_s": null, "second_s": null, "error": problem})
            }
        }
    }
}
