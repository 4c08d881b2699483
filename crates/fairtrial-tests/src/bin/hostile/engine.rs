//! The engine's host in a trial: a process like `fairtrial` itself, with secrets to lose, that runs one attack beside a
//! sibling call and says what it saw. Judges nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fairtrial_exec::{
    Answer as EngineAnswer, Backend, Call, CallId, Event, Execution, Level, LocalBackend,
    LocalConfig, Sandbox, Shutdown, Verdict,
};
use fairtrial_tests::{Process, arguments};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::cage::{BIN, Plan};
use crate::expect::{Answer, Got};
use crate::places::Places;
use crate::show::{Refusal, line};
use crate::table::{self, Attack, Setting, Source, Trial, source};
use crate::{census, stories};

/// The trial's own directory: `host` is the suite's, `spill` the engine's, `outside` somebody else's.
pub(crate) const DIR: &str = "/tmp/cell";
/// Longer than an engine takes to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// After a call's own deadline.
const BEYOND: Duration = Duration::from_secs(10);
/// The error of a call that has no outcome.
pub(crate) const NO_ANSWER: &str = "NoAnswer";
/// A program's tree may take so long to vanish.
pub(crate) const GONE_IN: Duration = Duration::from_secs(1);

const PRELUDE: Source = source!("prelude.py");
const SIBLING: Source = source!("sibling.py");

/// Which trial, at which level.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) trial: String,
    pub(crate) level: String,
}

impl Job {
    /// The trial and level of a job's text.
    pub(crate) fn read(text: &str) -> Result<(Trial, Level), Refusal> {
        let job: Self = serde_json::from_str(text)?;
        let trial =
            table::find(&job.trial).ok_or_else(|| Refusal(format!("no trial `{}`", job.trial)))?;
        Ok((trial, job.level.parse()?))
    }
}

/// An engine, and what is known of it.
pub(crate) struct Stage<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) trial: Trial,
    pub(crate) level: Level,
    pub(crate) backend: LocalBackend,
    /// Which process runs which call.
    workers: Arc<Mutex<Workers>>,
}

#[derive(Default)]
struct Workers {
    pids: HashMap<String, u32>,
    ids: HashMap<CallId, String>,
}

pub(crate) fn run(plan: &Plan, job: &str) -> Result<ExitCode, Refusal> {
    let (trial, level) = Job::read(job)?;
    become_like_the_command_line()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let begun = Instant::now();
    let mut got = runtime.block_on(async {
        let stage = Stage::new(plan, trial, level)?;
        let got = match stage.trial.attack {
            Attack::Story(story) => stories::tell(&stage, story).await,
            _ => stage.attack().await,
        };
        let ended = tokio::time::timeout(BEYOND, stage.backend.shutdown(Shutdown::now()));
        if ended.await.is_ok() {
            return got;
        }
        std::mem::forget(stage); // dropped, it would wait for the engine again
        got.map(|mut got| {
            got.problems.push("the engine does not shut down".into());
            got
        })
    })?;
    got.seconds = begun.elapsed().as_secs_f64();
    tell(&got)?;
    Ok(ExitCode::SUCCESS)
}

/// Hands over what was seen.
pub(crate) fn tell(got: &Got) -> Result<(), Refusal> {
    line(serde_json::to_string(got)?);
    Ok(())
}

fn become_like_the_command_line() -> Result<(), Refusal> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(fairtrial_exec::adopt_orphans()?)
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan, trial: Trial, level: Level) -> Result<Self, Refusal> {
        let mut config = LocalConfig::from_env()?;
        config.max_workers = stories::slots(&trial.attack);
        config.spill_dir = Path::new(DIR).join("spill");
        config.adopts_orphans = true;
        config.without.extend(plan.options.withheld());
        if trial.setting == Setting::SmallDisk {
            config.memfd_cap_bytes = Some(1 << 20);
        }
        let backend = LocalBackend::new(config);
        let workers = Arc::new(Mutex::new(Workers::default()));
        let known = workers.clone();
        backend
            .subscribe(Box::new(move |event| {
                let mut known = known.lock().expect("no panic");
                match event {
                    Event::WorkerStart { worker_id, pid, .. } => {
                        known.pids.insert(worker_id.clone(), *pid);
                    }
                    Event::Start { call, worker_id } => {
                        known.ids.insert(*call, worker_id.clone());
                    }
                    _ => {}
                }
            }))
            .expect("a thread can be had");
        Ok(Self {
            plan,
            trial,
            level,
            backend,
            workers,
        })
    }

    /// The attack, with a call beside it all the time and another after it.
    async fn attack(&self) -> Result<Got, Refusal> {
        if self.trial.is_probe() {
            return Ok(self.probe().await);
        }
        let sibling = self.submit(self.sibling("sibling"))?;
        let mut places = Places::new(
            Path::new(DIR).join("outside"),
            self.trial.timeout.as_secs_f64(),
        );
        self.find_everybody(&mut places, &sibling, "sibling")
            .await?;
        let ports = census::ports();
        let call = self.call(&places)?;
        let answer = self.answer_of(self.submit(call)?).await;
        let mut got = Got {
            answer,
            left: left_running().await,
            ..Got::default()
        };
        if matches!(&got.answer, Answer::Error { kind, .. } if kind == NO_ANSWER) {
            return Ok(got); // nobody else would be answered
        }
        let more = census::ports()
            .into_iter()
            .filter(|port| !ports.contains(port));
        got.left.extend(more);
        got.next = Some(self.next().await?);
        open_gate("sibling")?;
        let told = in_a_word(&self.answer_of(sibling).await, &json!("fine"));
        // SB-73: H41 at `none` apart.
        let must_be_fine = self.trial.spares_sibling || self.level != Level::None;
        got.sibling = must_be_fine.then_some(told);
        Ok(got)
    }

    /// Whether this level can be had: a call and nothing else.
    async fn probe(&self) -> Got {
        let places = Places::new(PathBuf::new(), 0.0);
        let answer = match self.call(&places) {
            Ok(call) => to_answer(self.backend.execute(call).await),
            Err(Refusal(message)) => Answer::Error {
                kind: "Refusal".into(),
                message,
            },
        };
        Got {
            answer,
            ..Got::default()
        }
    }

    pub(crate) fn submit(&self, call: Call) -> Result<Execution, Refusal> {
        Ok(self.backend.submit(call)?)
    }

    /// What becomes of a call.
    pub(crate) async fn answer_of(&self, call: Execution) -> Answer {
        let patience = self.trial.timeout + BEYOND;
        match tokio::time::timeout(patience, call).await {
            Ok(answer) => to_answer(answer),
            Err(_) => Answer::Error {
                kind: NO_ANSWER.into(),
                message: format!("no outcome in {} s", patience.as_secs()),
            },
        }
    }

    /// A harmless call, now that the other is over.
    pub(crate) async fn next(&self) -> Result<String, Refusal> {
        let call = self.terms(Call::source(
            "def attack():\n    return 1\n",
            "attack",
            arguments("[]"),
        ));
        Ok(in_a_word(
            &self.answer_of(self.submit(call)?).await,
            &json!(1),
        ))
    }

    /// The trial's call.
    pub(crate) fn call(&self, places: &Places) -> Result<Call, Refusal> {
        let mut call = match &self.trial.attack {
            Attack::Python { source, what } => Self::python(source, &json!([places, what])),
            Attack::C { source, words } => self.command(source, words)?,
            Attack::Story(_) => return Err(Refusal("a story makes its calls itself".into())),
        };
        call.timeout = Some(self.trial.timeout);
        call.limits = self.trial.limits.clone();
        if let Some(python) = call.python_mut() {
            python.result = self.trial.result;
        }
        Ok(self.terms(call))
    }

    /// `attack` of a program, in its own scratch directory.
    pub(crate) fn python(source: &Source, args: &Json) -> Call {
        Call::source(with_prelude(source), "attack", arguments(&args.to_string()))
    }

    /// A compiled program, put where the call works: at `strict` it sees little else.
    fn command(&self, source: &Source, words: &[&str]) -> Result<Call, Refusal> {
        let name = format!("sin-{}", source.name.trim_end_matches(".c"));
        let work = Path::new(DIR).join("host/work");
        let program = work.join(&name);
        std::fs::copy(Path::new(BIN).join(&name), &program)?;
        let argv = std::iter::once(program.display().to_string());
        let mut call = Call::command(argv.chain(words.iter().map(|word| word.to_string())));
        call.cwd = Some(work);
        Ok(call)
    }

    /// At the trial's level, by the cage's interpreter.
    pub(crate) fn terms(&self, mut call: Call) -> Call {
        call.sandbox = Sandbox::new(self.level);
        if let Some(python) = call.python_mut() {
            python.python = self.plan.python.display().to_string();
        }
        call
    }

    /// A call that waits at its gate, and looks after its own.
    pub(crate) fn sibling(&self, name: &str) -> Call {
        let mut call = Call::source(
            SIBLING.text,
            "attack",
            arguments(&json!([name]).to_string()),
        );
        call.cwd = Some(gate_dir());
        call.timeout = Some(Duration::from_secs(120));
        self.terms(call)
    }

    /// Waits until the sibling runs; then all processes of the engine are there.
    pub(crate) async fn find_everybody(
        &self,
        places: &mut Places,
        sibling: &Execution,
        name: &str,
    ) -> Result<(), Refusal> {
        let begun = gate_dir().join(format!("{name}.begun"));
        if !wait_until(PATIENCE, || begun.exists()).await {
            return Err(Refusal(format!(
                "the sibling call does not begin at level {}",
                self.level
            )));
        }
        let told: Json = serde_json::from_str(&std::fs::read_to_string(&begun)?)?;
        places.sibling_scratch = PathBuf::from(told["scratch"].as_str().unwrap_or_default());
        let known = || {
            let workers = self.workers.lock().expect("no panic");
            workers.pids.get(workers.ids.get(&sibling.id())?).copied()
        };
        wait_until(PATIENCE, || known().is_some()).await;
        places.sibling_pid = known().unwrap_or_default();
        let host = Process::find(std::process::id()).expect("this process runs");
        let launcher = host.children().into_iter().next();
        let launcher = launcher.ok_or_else(|| Refusal("there is no launcher".into()))?;
        places.launcher_pid = launcher.pid;
        let oldest = launcher
            .children()
            .into_iter()
            .map(|child| child.pid)
            .find(|pid| *pid != places.sibling_pid);
        places.zygote_pid = oldest.unwrap_or_default();
        Ok(())
    }
}

pub(crate) fn with_prelude(source: &Source) -> String {
    format!("{}\n{}", PRELUDE.text, source.text)
}

pub(crate) fn gate_dir() -> PathBuf {
    Path::new(DIR).join("host/gate")
}

pub(crate) fn open_gate(name: &str) -> Result<(), Refusal> {
    Ok(std::fs::write(gate_dir().join(format!("{name}.gate")), "")?)
}

/// Looks every few milliseconds; whether it came to hold.
pub(crate) async fn wait_until(at_most: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + at_most;
    while !holds() {
        if Instant::now() > give_up {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Processes of a program that are still there when they should be gone; zombies count.
pub(crate) async fn left_running() -> Vec<String> {
    let sinners = || -> Vec<String> {
        let all = census::processes();
        all.into_iter()
            .filter(|process| process.contains(" (sin"))
            .collect()
    };
    wait_until(GONE_IN, || sinners().is_empty()).await;
    sinners()
}

pub(crate) fn to_answer(answer: EngineAnswer) -> Answer {
    match answer {
        Ok(outcome) => Answer::Outcome(outcome.to_json(&Json::Null).unwrap_or_else(|error| {
            // Encoded until asked for (EX-60), and then it was none.
            let mut object = outcome.to_json_without_value(&Json::Null);
            object.insert("value".into(), json!({"$malformed": error.to_string()}));
            Json::Object(object)
        })),
        Err(error) => {
            let shown = format!("{error:?}");
            let kind = shown
                .split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or_default();
            Answer::Error {
                kind: kind.to_owned(),
                message: error.to_string(),
            }
        }
    }
}

/// `ok` for a call that gave this value; else what became of it.
pub(crate) fn in_a_word(answer: &Answer, value: &Json) -> String {
    match answer {
        Answer::Outcome(outcome) if outcome["value"] == *value => Verdict::Ok.name().into(),
        Answer::Outcome(outcome) => {
            let verdict = outcome["verdict"].as_str().unwrap_or("?");
            format!(
                "{verdict}, {} {}",
                outcome["value"], outcome["error"]["message"]
            )
        }
        Answer::Error { kind, message } => format!("{kind}: {message}"),
        Answer::None => "nothing".into(),
    }
}
