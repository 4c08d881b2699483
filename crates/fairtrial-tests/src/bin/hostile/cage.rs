//! The cage (SB-71, SB-72): own pid, network, mount, ipc and cgroup namespaces, 2 GiB without swap, 2,000 tasks, disks
//! of sized memory, a made-up home. Makes it, checks it from inside, takes it away. Knows nothing of what runs in it.

mod cgroups;
mod namespaces;
mod room;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Options;
use crate::show::{self, Refusal, attempting};
use crate::table;
use cgroups::Group;
pub(crate) use cgroups::{SmallGroup, give_trial_share};
use namespaces::Namespaces;
pub(crate) use room::{BIN, HOME, TMP, WORLD_ADDRESSES};

/// Memory of everything in the cage.
const MEMORY_BYTES: u64 = 2 << 30;
/// Processes and threads in the cage.
const TASKS: u64 = 2_000;
/// For the whole table.
const ALL_IN_ALL: Duration = Duration::from_secs(15 * 60);
/// Where the cage keeps its own things; readable by everybody inside.
const OWN: &str = "/run/hostile";

/// What the parts inside must know of the outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) options: Options,
    groups: Vec<Group>,
    outside: Namespaces,
    /// This program and the one under test.
    hostile: PathBuf,
    fairtrial: PathBuf,
    /// The interpreter, and the directory it lives from.
    pub(crate) python: PathBuf,
    python_home: PathBuf,
    unshare: PathBuf,
}

/// Makes the cage, runs the suite in it, and takes it away, whatever happens.
pub(crate) fn make_and_run(options: Options) -> Result<ExitCode, Refusal> {
    if let Some(name) = options.only.iter().find(|name| table::find(name).is_none()) {
        return Err(Refusal(format!("no row is called `{name}`")));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal(
            "the cage (control groups, namespaces, mounts) needs root; `sudo hostile --uid N` runs the programs as N"
                .into(),
        ));
    }
    let hostile = std::env::current_exe().map_err(attempting("where this program is"))?;
    let fairtrial = hostile.with_file_name("fairtrial");
    if !fairtrial.exists() {
        let path = fairtrial.display();
        return Err(Refusal(format!(
            "`{path}` is missing; `cargo build --bins` makes it"
        )));
    }
    let unshare = find("unshare")
        .ok_or_else(|| Refusal("there is no `unshare` (package util-linux)".into()))?;
    let (python, python_home) = interpreter()?;
    let plan = Plan {
        groups: cgroups::plan()?,
        outside: Namespaces::of_this_process()?,
        options,
        hostile,
        fairtrial,
        python,
        python_home,
        unshare,
    };
    let made = cgroups::make(&plan.groups, MEMORY_BYTES, TASKS);
    let ended = made.and_then(|()| run_inside(&plan));
    cgroups::remove(&plan.groups).and(ended)
}

/// Starts the next part and waits for it; a signal to us, or too long a time, ends it and all that is in the cage.
fn run_inside(plan: &Plan) -> Result<ExitCode, Refusal> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut asked, mut interrupted) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let mut child = command(&plan.hostile)
            .args(["@enter", &serde_json::to_string(plan)?])
            .spawn()?;
        let ended = async {
            loop {
                if let Some(status) = child.try_wait()? {
                    return Ok::<_, std::io::Error>(status);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let status = tokio::select! {
            status = ended => Some(status?),
            _ = asked.recv() => None,
            _ = interrupted.recv() => None,
            () = tokio::time::sleep(ALL_IN_ALL) => None,
        };
        let Some(status) = status else {
            child.kill()?; // `unshare`, with which the cage's first process dies, and all others with that
            child.wait()?;
            return Ok(show::stopped("by a signal, or after 15 minutes"));
        };
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(ExitCode::from(code.unwrap_or(1)))
    })
}

/// Goes into the control groups and becomes `unshare`, which starts the cage's first process.
pub(crate) fn enter(plan: &str) -> Result<ExitCode, Refusal> {
    let text = plan;
    let plan: Plan =
        serde_json::from_str(text).map_err(attempting("a part that people do not start"))?;
    cgroups::enter(&plan.groups)?;
    let kill = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(kill)?;
    let spaces = [
        "--fork",
        "--kill-child",
        "--pid",
        "--mount-proc",
        "--net",
        "--mount",
        "--ipc",
        "--uts",
        "--cgroup",
    ];
    let failed = command(&plan.unshare)
        .args(spaces)
        .arg(&plan.hostile)
        .args(["@init", text])
        .exec();
    Err(attempting("`unshare`")(failed))
}

/// The cage's first process: sets the place up, starts the runner, and inherits orphans until it ends.
pub(crate) fn init(plan: &str) -> Result<ExitCode, Refusal> {
    let plan: Plan =
        serde_json::from_str(plan).map_err(attempting("a part that people do not start"))?;
    if std::process::id() != 1 {
        return Err(Refusal(
            "not in a cage: this is not its first process".into(),
        ));
    }
    plan.outside.must_differ()?; // before anything is mounted
    room::furnish(&plan)?;
    let mut runner = command(Path::new(BIN).join("hostile"))
        .arg("@run")
        .env_clear()
        .envs(room::environment())
        .spawn()?;
    namespaces::reap_until_end_of(&mut runner)
}

/// The plan of the cage this process is in. It is looked at, not believed: without it nothing hostile runs.
pub(crate) fn verified() -> Result<Plan, Refusal> {
    let path = Path::new(OWN).join("plan.json");
    let no_cage = |what: String| Refusal(format!("not in a cage: {what}"));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| no_cage(format!("`{}`: {error}", path.display())))?;
    let plan: Plan = serde_json::from_str(&text)?;
    plan.outside.must_differ()?;
    cgroups::must_be_limited(&plan.groups, MEMORY_BYTES, TASKS)?;
    room::must_be_furnished()?;
    Ok(plan)
}

/// A command of the suite's own.
#[expect(
    clippy::disallowed_methods,
    reason = "the suite starts its own parts and tools; programs under test are the engine's"
)]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).chain(["/usr/bin".into(), "/bin".into()]);
    places
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// The interpreter behind `python3`, which may be a shim, and the directory it lives from.
fn interpreter() -> Result<(PathBuf, PathBuf), Refusal> {
    let ask = "import os, sys; print(os.path.realpath(sys.executable)); print(os.path.realpath(sys.base_prefix))";
    let told = command("python3").args(["-c", ask]).output();
    let told = told.map_err(attempting("there is no `python3`"))?;
    let text = String::from_utf8_lossy(&told.stdout);
    match text.lines().collect::<Vec<_>>()[..] {
        [python, home] => Ok((python.into(), home.into())),
        _ => Err(Refusal("`python3` does not run".into())),
    }
}

/// Starts a trial's first process in a process namespace of its own: what it kills is its own.
pub(crate) fn cell_command(plan: &Plan, job: &str) -> Command {
    let mut command = command(&plan.unshare);
    command
        .args(["--fork", "--kill-child", "--pid", "--mount-proc", "--mount"])
        .arg(Path::new(BIN).join("hostile"))
        .args(["@cell", job]);
    command
}
