//! A trial's first process: counts, starts the engine's host, waits for its end, counts again. When it ends, the kernel
//! ends whatever is left of the trial.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions, wait, waitpid};
use serde_json::Value as Json;

use crate::cage::{BIN, Plan, SmallGroup, command, give_trial_share};
use crate::census::{Census, processes};
use crate::engine::{DIR, Job};
use crate::expect::Record;
use crate::places::CANARIES;
use crate::show::{Refusal, line};
use crate::stories::Story;
use crate::table::{Attack, Setting, Trial, source};

/// SB-71: of one program.
pub(crate) const AT_MOST: Duration = Duration::from_secs(60);
/// Beyond a program's own deadline: the engine's start, the calls beside it, the host's patience.
const AROUND: Duration = Duration::from_secs(35);
/// SB-10: after the engine's end.
const GONE_IN: Duration = Duration::from_secs(1);

pub(crate) fn run(plan: &Plan, job: &str) -> Result<ExitCode, Refusal> {
    let (trial, _) = Job::read(job)?;
    let uid = plan.options.uid;
    // Small numbers mean somebody inside a namespace of the sandbox; ours are to be told from them.
    fs::write("/proc/sys/kernel/ns_last_pid", "1000")?;
    furnish(&trial, uid)?;
    let host_dir = Path::new(DIR).join("host");
    let few_tasks = match trial.setting {
        Setting::FewTasks(most) | Setting::Contained(most) => SmallGroup::of_tasks(most),
        _ => None,
    };
    if matches!(trial.setting, Setting::FewTasks(_)) && few_tasks.is_none() {
        let skipped = Record {
            skipped: Some("tasks cannot be counted by a control group here".into()),
            ..Record::default()
        };
        line(serde_json::to_string(&skipped)?);
        return Ok(ExitCode::SUCCESS);
    }
    let before = Census::take(&host_dir);
    let mut host = start_host(plan, job, &host_dir)?;
    let ended = wait_for(&mut host, AT_MOST.min(trial.timeout + AROUND))?;
    reap_until_alone()?;
    let record = Record {
        got: read_answer(&host_dir),
        host: strange_end(&trial, ended, &host_dir),
        changes: Census::take(&host_dir).changes_since(&before),
        skipped: None,
    };
    line(serde_json::to_string(&record)?);
    Ok(ExitCode::SUCCESS)
}

/// Disks of its own, so that nothing of one trial is there in the next.
fn furnish(trial: &Trial, uid: u32) -> Result<(), Refusal> {
    disk("/tmp", "size=1g,nr_inodes=400k,mode=1777")?;
    disk("/dev/shm", "size=512m,mode=1777")?;
    let dir = Path::new(DIR);
    for (name, mode) in [
        ("", 0o755),
        ("host", 0o755),
        ("host/gate", 0o777),
        ("host/work", 0o755),
        ("spill", 0o700),
        ("outside", 0o777),
    ] {
        let path = dir.join(name);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        chown(&path, Some(uid), Some(uid))?;
    }
    let keep = dir.join("outside/keep");
    fs::write(&keep, "as it was\n")?;
    chown(&keep, Some(uid), Some(uid))?;
    if trial.setting == Setting::SmallDisk {
        disk(
            "/tmp/cell/spill",
            &format!("size=8m,mode=700,uid={uid},gid={uid}"),
        )?;
    }
    Ok(())
}

fn disk(place: &str, options: &str) -> Result<(), Refusal> {
    let options = std::ffi::CString::new(options).expect("no NUL in it");
    Ok(mount(
        "cell",
        place,
        "tmpfs",
        MountFlags::empty(),
        Some(&*options),
    )?)
}

/// The engine's host, with its canaries: it is what somebody would steal from.
fn start_host(plan: &Plan, job: &str, dir: &Path) -> Result<Child, Refusal> {
    let canaries: Json = serde_json::from_str(&fs::read_to_string(CANARIES)?)?;
    let hostile = Path::new(BIN).join("hostile");
    let uid = plan.options.uid;
    let mut host: Command = command(&plan.python);
    host.args(["-I", "-c", source!("plant_canaries.py").text, CANARIES])
        .arg(hostile)
        .args([
            "@engine",
            job,
            canaries["argv"].as_str().unwrap_or_default(),
        ])
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        // Files, not pipes: whoever is left behind with a pipe's end would keep us waiting.
        .stdout(File::create(dir.join("answer"))?)
        .stderr(File::create(dir.join("errors"))?)
        .current_dir("/");
    if uid != 0 {
        host.uid(uid).gid(uid); // and no other groups
    }
    let host = host.spawn()?;
    give_trial_share(host.id());
    Ok(host)
}

/// Its end, or the end of our patience; meanwhile orphans are taken in, as the first process does.
fn wait_for(host: &mut Child, at_most: Duration) -> Result<ExitStatus, Refusal> {
    let give_up = Instant::now() + at_most;
    let pid = Pid::from_child(host);
    loop {
        while let Ok(Some((ended, status))) = wait(WaitOptions::NOHANG) {
            if ended == pid {
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
        }
        if Instant::now() > give_up {
            rustix::process::kill_process(pid, Signal::KILL)?;
            let (_, status) =
                waitpid(Some(pid), WaitOptions::empty())?.expect("it blocks until there is one");
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
        pause();
    }
}

/// Until nobody else is in this namespace, or a second has passed.
fn reap_until_alone() -> Result<(), Refusal> {
    let give_up = Instant::now() + GONE_IN;
    while !processes().is_empty() && Instant::now() < give_up {
        while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        pause();
    }
    Ok(())
}

/// A few milliseconds.
pub(crate) fn pause() {
    let time = rustix::time::Timespec {
        tv_sec: 0,
        tv_nsec: 5_000_000,
    };
    rustix::event::poll(&mut [], Some(&time)).ok(); // a signal ends it early: as well
}

fn read_answer(dir: &Path) -> Option<crate::expect::Got> {
    let text = fs::read_to_string(dir.join("answer")).ok()?;
    serde_json::from_str(text.trim()).ok()
}

/// How the host ended, unless as it should.
fn strange_end(trial: &Trial, status: ExitStatus, dir: &Path) -> Option<String> {
    let meant = match trial.attack {
        Attack::Story(Story::EngineKilled) => status.signal() == Some(Signal::KILL.as_raw()),
        _ => status.success(),
    };
    let errors = fs::read(dir.join("errors")).unwrap_or_default();
    let errors: String = String::from_utf8_lossy(&errors)
        .chars()
        .take(2000)
        .collect();
    (!meant).then(|| format!("the engine's host ended with {status}: {errors}"))
}
