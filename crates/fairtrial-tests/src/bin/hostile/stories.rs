//! Trials that are no single call: the engine's own deaths and shortages, and what the command line shows.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use fairtrial_exec::Call;
use fairtrial_tests::{Cli, Process, arguments};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use serde_json::{Value as Json, json};

use crate::cage::command;
use crate::company::keep_company;
use crate::engine::{
    DIR, GONE_IN, NO_ANSWER, Stage, gate_dir, in_a_word, left_running, tell as hand_over,
    to_answer, wait_until, with_prelude,
};
use crate::expect::{Answer, Got};
use crate::places::{CANARIES, Places};
use crate::show::Refusal;
use crate::table::{Attack, Source, source};

const TERMINAL: Source = source!("h35_terminal.py");
const OUTLIVE: Source = source!("h42_outlive.py");
const HUNT: Source = source!("h29_hunt.py");
const PLANT: Source = source!("plant_canaries.py");
const PATIENCE: Duration = Duration::from_secs(30);

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Story {
    /// H29: the host is the command line.
    Hunt,
    /// H35: the command line has a terminal.
    Terminal,
    /// The worst in one batch with honest calls.
    Company,
    /// H42: the engine is killed with 50 calls running.
    EngineKilled,
    /// H43: the launcher is.
    LauncherKilled,
    /// H45: there are no descriptors left.
    FewDescriptors,
    /// H45: there is no room for more tasks.
    FewTasks,
    /// H45: there are no inotify instances left.
    FewWatches,
}

/// How many calls run at once.
pub(crate) fn slots(attack: &Attack) -> usize {
    match attack {
        Attack::Story(Story::EngineKilled) => 50,
        Attack::Story(Story::FewTasks) => 40,
        _ => 3,
    }
}

pub(crate) async fn tell(stage: &Stage<'_>, story: Story) -> Result<Got, Refusal> {
    match story {
        Story::Hunt => hunt(stage),
        Story::Terminal => terminal(stage),
        Story::Company => keep_company(stage),
        Story::EngineKilled => engine_killed(stage).await,
        Story::LauncherKilled => launcher_killed(stage).await,
        Story::FewDescriptors => few_descriptors(stage).await,
        Story::FewTasks => few_tasks(stage).await,
        Story::FewWatches => few_watches(stage).await,
    }
}

/// A host of the command line's kind, with the same canaries, one of them in its argv.
fn hunt(stage: &Stage<'_>) -> Result<Got, Refusal> {
    let canaries: Json = serde_json::from_str(&fs::read_to_string(CANARIES)?)?;
    let name = canaries["argv"].as_str().unwrap_or_default();
    let file = Path::new(DIR).join("host").join(name);
    fs::write(&file, with_prelude(&HUNT))?;
    let args = json!([Places::new(Path::new(DIR).join("outside"), 30.0), ""]).to_string();
    let (level, python) = (
        stage.level.to_string(),
        stage.plan.python.display().to_string(),
    );
    let words = [
        "--function",
        "attack",
        "--args",
        &args,
        "--sandbox",
        &level,
        "--python",
        &python,
        "--timeout",
        "30s",
        "--json",
    ];
    let ended = command(&stage.plan.python)
        .args([
            "-I",
            "-c",
            PLANT.text,
            CANARIES,
            "/run/hostile/fairtrial",
            "exec",
        ])
        .arg(&file)
        .args(words)
        .env("FAIRTRIAL_SPILL_DIR", Path::new(DIR).join("spill"))
        .output()?;
    fs::remove_file(&file)?;
    let shown = String::from_utf8_lossy(&ended.stdout);
    match serde_json::from_str(&shown) {
        Ok(outcome) => Ok(Got {
            answer: Answer::Outcome(outcome),
            ..Got::default()
        }),
        Err(_) => Ok(problem(format!("{ended:?}"))),
    }
}

/// What a program prints is shown, and not obeyed.
fn terminal(stage: &Stage<'_>) -> Result<Got, Refusal> {
    let file = Path::new(DIR).join("host/terminal.py");
    fs::write(&file, with_prelude(&TERMINAL))?;
    let (file, level) = (file.display().to_string(), stage.level.to_string());
    let python = stage.plan.python.display().to_string();
    let call = [
        "exec",
        &file,
        "--function",
        "attack",
        "--sandbox",
        &level,
        "--python",
        &python,
    ];
    let cli = Cli::new(call).env("FAIRTRIAL_SPILL_DIR", Path::new(DIR).join("spill"));
    let (code, shown) = cli.run_on_terminal();
    let obeyed = |c: char| c.is_control() && !"\r\n\t".contains(c);
    if code != Some(3) || !shown.contains("owned") || shown.contains(obeyed) {
        return Ok(problem(format!(
            "exit {code:?}, on the terminal: {shown:?}"
        )));
    }
    Ok(Got::default())
}

fn problem(what: String) -> Got {
    Got {
        problems: vec![what],
        ..Got::default()
    }
}

/// Calls that mean to outlive everybody, all begun.
async fn start_survivors(
    stage: &Stage<'_>,
    count: usize,
) -> Result<Vec<fairtrial_exec::Execution>, Refusal> {
    let names: Vec<String> = (0..count)
        .map(|number| format!("survivor-{number}"))
        .collect();
    let mut calls = Vec::new();
    for name in &names {
        let mut call = Stage::python(&OUTLIVE, &json!([null, name]));
        call.cwd = Some(gate_dir());
        calls.push(stage.submit(stage.terms(call))?);
    }
    let begun = || {
        names
            .iter()
            .filter(|name| gate_dir().join(format!("{name}.begun")).exists())
            .count()
    };
    if !wait_until(PATIENCE, || begun() == count).await {
        let mut why = format!("only {} of {count} calls began", begun());
        for call in calls {
            // Those that ended have their answer.
            if let Ok(answer) = tokio::time::timeout(Duration::ZERO, call).await {
                why += &format!("; {}", in_a_word(&to_answer(answer), &Json::Null));
            }
        }
        return Err(Refusal(why));
    }
    Ok(calls)
}

/// SB-10. The last thing this process does; what is left is the census's to find.
async fn engine_killed(stage: &Stage<'_>) -> Result<Got, Refusal> {
    let calls = start_survivors(stage, 50).await?;
    hand_over(&Got::default())?;
    rustix::process::kill_process(rustix::process::getpid(), Signal::KILL)?;
    drop(calls);
    Err(Refusal("it survived SIGKILL".into()))
}

/// SB-11
async fn launcher_killed(stage: &Stage<'_>) -> Result<Got, Refusal> {
    let calls = start_survivors(stage, 3).await?;
    let host = Process::find(std::process::id()).expect("this process runs");
    let launcher = host.children();
    let below: Vec<Process> = launcher
        .iter()
        .flat_map(|launcher| launcher.descendants())
        .collect();
    launcher
        .iter()
        .for_each(|launcher| launcher.signal(Signal::KILL));
    let mut got = Got::default();
    let [one, two, three] = calls.try_into().expect("three were asked for");
    let answers = tokio::join!(
        stage.answer_of(one),
        stage.answer_of(two),
        stage.answer_of(three)
    );
    for answer in [answers.0, answers.1, answers.2] {
        match answer {
            Answer::Error { kind, .. } if kind == "LauncherLost" => {}
            other => got.problems.push(format!(
                "not `LauncherLost`: {}",
                in_a_word(&other, &Json::Null)
            )),
        }
    }
    got.left = left_running().await;
    wait_until(GONE_IN, || {
        !below.iter().any(|process| process.is_running())
    })
    .await;
    got.left.extend(
        below
            .iter()
            .filter(|process| process.is_running())
            .map(|process| format!("{process:?}")),
    );
    got.next = Some(stage.next().await?);
    Ok(got)
}

/// A call made in want of something ends well or as the engine's error, and the next, in no want, ends well.
async fn in_want<T>(stage: &Stage<'_>, hoard: T) -> Result<Got, Refusal> {
    let mut got = Got::default();
    for call in [
        Call::command(["true"]),
        Call::source("def attack():\n    return 1\n", "attack", arguments("[]")),
    ] {
        let answer = stage.answer_of(stage.submit(stage.terms(call))?).await;
        got.problems.extend(candidate_blamed(&answer));
    }
    drop(hoard);
    got.next = Some(stage.next().await?);
    Ok(got)
}

/// The engine's shortage is not the call's verdict.
fn candidate_blamed(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Outcome(outcome) if outcome["verdict"] == "ok" => None,
        Answer::Error { kind, .. } if kind != NO_ANSWER => None,
        other => Some(format!(
            "neither `ok` nor an engine error: {}",
            in_a_word(other, &Json::Null)
        )),
    }
}

async fn few_descriptors(stage: &Stage<'_>) -> Result<Got, Refusal> {
    stage.next().await?; // the engine is up
    let few = Rlimit {
        current: Some(200),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, few)?;
    let mut hoard = Vec::new();
    while let Ok(descriptor) = rustix::io::dup(rustix::stdio::stdin()) {
        hoard.push(descriptor);
    }
    in_want(stage, hoard).await
}

async fn few_watches(stage: &Stage<'_>) -> Result<Got, Refusal> {
    stage.next().await?;
    let mut hoard: Vec<OwnedFd> = Vec::new();
    while let Ok(watch) = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC) {
        hoard.push(watch);
    }
    in_want(stage, hoard).await
}

/// More calls at once than there may be tasks; the cell has set the limit.
async fn few_tasks(stage: &Stage<'_>) -> Result<Got, Refusal> {
    let mut got = Got::default();
    let sleep = "import time\ndef attack():\n    time.sleep(0.3)\n    return 1\n";
    let call = || stage.terms(Call::source(sleep, "attack", arguments("[]")));
    let calls: Vec<_> = (0..slots(&stage.trial.attack))
        .map(|_| stage.submit(call()))
        .collect::<Result<_, _>>()?;
    for call in calls {
        got.problems
            .extend(candidate_blamed(&stage.answer_of(call).await));
    }
    got.next = Some(stage.next().await?);
    Ok(got)
}
