//! Takes the table row by row: each trial in a cell of its own, judged and shown as it ends.

use std::collections::HashMap;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use fairtrial_exec::Level;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::args::Options;
use crate::cage::{self, Plan};
use crate::cell::{self, pause};
use crate::census::processes;
use crate::compile::{self, Compiled};
use crate::engine::Job;
use crate::expect::{Answer, Expected, Judgement, Record};
use crate::judge::{in_short, judge};
use crate::report::{Line, Report};
use crate::servers;
use crate::show::Refusal;
use crate::table::{self, Attack, Trial};

/// Beyond the host's own time: the cell's work around it.
const AROUND: Duration = Duration::from_secs(15);
/// SB-71: of the cage's 15 minutes; the rest is for the trial under way.
const LAST_START: Duration = Duration::from_secs(13 * 60 + 30);
/// SB-71: these rows never as somebody who logs in.
const NOT_AS_A_LOGIN: [&str; 3] = ["H7", "H14", "H22"];

pub(crate) fn run(plan: &Plan) -> Result<ExitCode, Refusal> {
    let begun = Instant::now();
    servers::start()?;
    let wanted = |trial: &Trial, level| is_wanted(&plan.options, trial, level);
    let levels: Vec<Level> = Level::ALL
        .into_iter()
        .filter(|level| is_level(plan, *level))
        .collect();
    let mut trials = table::all();
    trials.retain(|trial| levels.iter().any(|level| wanted(trial, *level)));
    let compiled = compile::all(trials.iter());
    let mut report = Report::new(plan);
    for level in levels {
        let unavailable = probe(plan, level)?;
        for trial in trials.iter().filter(|trial| wanted(trial, level)) {
            let since = Instant::now();
            let expected = trial.expected(level);
            let (got, judgement) = match reason_to_skip(plan, trial, level, &unavailable, &compiled)
            {
                Some(reason) => (String::new(), Judgement::Skipped(reason)),
                None if begun.elapsed() > LAST_START => (
                    String::new(),
                    Judgement::Failed(vec!["15 minutes are over".into()]),
                ),
                None => attempt(plan, trial, level)?,
            };
            report.add(Line {
                name: trial.name(),
                level,
                expected,
                got,
                seconds: since.elapsed().as_secs_f64(),
                judgement,
            });
        }
    }
    Ok(report.end())
}

fn is_wanted(options: &Options, trial: &Trial, level: Level) -> bool {
    let named = options.only.is_empty() || options.only.iter().any(|name| trial.is_called(name));
    let claimed = trial.expected(level) != Expected::NotClaimed || options.unclaimed;
    named && claimed && (!options.fast || trial.is_fast_at(level, options.uid))
}

fn is_level(plan: &Plan, level: Level) -> bool {
    plan.options
        .level
        .as_ref()
        .is_none_or(|only| *only == level.to_string())
}

/// Why nothing can be tried at this level.
fn probe(plan: &Plan, level: Level) -> Result<Option<String>, Refusal> {
    let record = run_cell(plan, &table::probe(), level)?;
    Ok(match record.got.map(|got| got.answer) {
        Some(Answer::Outcome(outcome)) if outcome["verdict"] == "ok" => None,
        Some(Answer::Outcome(outcome)) => Some(format!(
            "{}: {}",
            outcome["verdict"], outcome["error"]["message"]
        )),
        Some(Answer::Error { message, .. }) => Some(message),
        _ => Some(record.host.unwrap_or_else(|| "no answer".into())),
    })
}

fn reason_to_skip(
    plan: &Plan,
    trial: &Trial,
    level: Level,
    unavailable: &Option<String>,
    compiled: &Compiled,
) -> Option<String> {
    if unavailable.is_some() {
        return unavailable.clone();
    }
    if NOT_AS_A_LOGIN.contains(&trial.row) && is_login(plan.options.uid) {
        return Some(format!("uid {} can log in", plan.options.uid));
    }
    // What kills everybody kills the suite's own, if nothing holds it back.
    if trial.name() == "H7 everybody" && level == Level::None {
        return Some("nothing holds it back".into());
    }
    match &trial.attack {
        Attack::C { source, .. } => compiled[source.name].as_ref().err().cloned(),
        _ => None,
    }
}

/// Whether people log in as this uid. Root inside the cage is nobody's login.
fn is_login(uid: u32) -> bool {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entries: HashMap<u32, &str> = text
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            Some((fields.get(2)?.parse().ok()?, *fields.get(6)?))
        })
        .collect();
    let shell = entries.get(&uid).copied();
    uid != 0 && shell.is_some_and(|shell| !shell.ends_with("nologin") && !shell.ends_with("false"))
}

fn attempt(plan: &Plan, trial: &Trial, level: Level) -> Result<(String, Judgement), Refusal> {
    let record = run_cell(plan, trial, level)?;
    let judgement = match trial.expected(level) {
        Expected::NotClaimed => Judgement::Skipped(match &record.host {
            Some(host) => format!("not claimed; {host}"),
            None => "not claimed".into(),
        }),
        _ => judge(trial, level, plan.options.uid, &record),
    };
    Ok((in_short(&record), judgement))
}

/// One trial, from its first process to the last.
fn run_cell(plan: &Plan, trial: &Trial, level: Level) -> Result<Record, Refusal> {
    let job = Job {
        trial: trial.name(),
        level: level.to_string(),
    };
    let told = "/run/hostile/told";
    let mut cell = cage::cell_command(plan, &serde_json::to_string(&job)?)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(told)?)
        .spawn()?;
    let handle = pidfd_open(Pid::from_child(&cell), PidfdFlags::empty())?;
    let patience = rustix::time::Timespec {
        tv_sec: (cell::AT_MOST + AROUND).as_secs() as i64,
        tv_nsec: 0,
    };
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&patience))?;
    if ended == 0 {
        cell.kill()?;
    }
    let status = cell.wait()?;
    wait_until_alone();
    let text = std::fs::read_to_string(told)?;
    Ok(
        serde_json::from_str(text.trim()).unwrap_or_else(|_| Record {
            host: Some(format!("the trial's first process ended with {status}")),
            ..Record::default()
        }),
    )
}

/// The kernel takes its time to bury a crowd, and each of them counts as a task of the cage's.
fn wait_until_alone() {
    let give_up = Instant::now() + AROUND;
    while processes().len() > 1 && Instant::now() < give_up {
        pause();
    }
}
