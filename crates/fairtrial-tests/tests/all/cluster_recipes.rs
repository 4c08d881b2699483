//! The files of `docs/cluster/`: read as those would who are to use them, and run as plain commands where that can be.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use fairtrial_tests::{RedisServer, Running, Shell, binary, note};
use rustix::process::Signal;
use saphyr_parser::{Event, Parser};

use crate::cluster_users::in_docs;

const SCRIPTS: [&str; 3] = ["ssh.sh", "slurm.sbatch", "hyperqueue.sh"];
const UNIT: &str = "fairtrial-agent.service";
const PODS: &str = "kubernetes.yaml";

fn recipe(name: &str) -> String {
    fs::read_to_string(in_docs("cluster").join(name)).expect("it is shipped")
}

#[expect(
    clippy::disallowed_methods,
    reason = "whoever reads these files is no candidate"
)]
fn command(program: &str) -> Command {
    Command::new(program)
}

/// CL-64: every file is linked, says which level it reaches, and how to check that.
#[test]
fn every_recipe_says_its_level_and_how_to_check_it() {
    let manual = fs::read_to_string(in_docs("cluster.md")).expect("it is shipped");
    let mut shipped: Vec<String> = fs::read_dir(in_docs("cluster"))
        .expect("it is shipped")
        .map(|entry| {
            entry
                .expect("a file")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    shipped.sort();
    let mut known = [&SCRIPTS[..], &[UNIT, PODS, "users.acl"]].concat();
    known.sort_unstable();
    assert_eq!(shipped, known);
    for name in &shipped {
        assert!(
            manual.contains(&format!("(cluster/{name})")),
            "{name} is not in the manual"
        );
    }
    for name in SCRIPTS.iter().chain(&[UNIT, PODS]) {
        let text = recipe(name);
        for word in ["Level: strict", "fairtrial doctor"] {
            assert!(text.contains(word), "{name} lacks {word}");
        }
    }
}

/// CL-64
#[test]
fn scripts_are_bash() {
    for name in SCRIPTS {
        let path = in_docs("cluster").join(name);
        let read = command("bash")
            .arg("-n")
            .arg(&path)
            .output()
            .expect("bash is there");
        assert!(
            read.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&read.stderr)
        );
        let mode = fs::metadata(&path)
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o111, 0o111, "{name} can be run");
    }
}

/// Options of a script's directives: the comments right below its first line, where alone they count.
fn directives(text: &str, mark: &str) -> BTreeMap<String, String> {
    let lines = text
        .lines()
        .skip(1)
        .map_while(|line| line.strip_prefix(mark));
    let options = lines.map(|line| line.trim().strip_prefix("--").expect("an option"));
    let pairs = options.map(|option| option.split_once('=').expect("with its value"));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// CL-64
#[test]
fn jobs_are_asked_for_as_schedulers_want_it() {
    let slurm = recipe("slurm.sbatch");
    let asked = directives(&slurm, "#SBATCH ");
    for (name, value) in [
        ("array", "1-8"),
        ("signal", "B:TERM@120"),
        ("nodes", "1"),
        ("ntasks", "1"),
    ] {
        assert_eq!(
            asked.get(name).map(String::as_str),
            Some(value),
            "{asked:?}"
        );
    }
    assert_eq!(
        slurm.matches("#SBATCH").count(),
        asked.len(),
        "all of them stand at the top"
    );
    assert!(slurm.contains("SLURM_CPUS_PER_TASK") && asked.contains_key("cpus-per-task"));
    let before_end = "--drain-timeout 110s"; // less than the 120 s of the signal
    assert!(slurm.contains(before_end) && slurm.contains("exec fairtrial"));
    let hq = directives(&recipe("hyperqueue.sh"), "#HQ ");
    assert_eq!(hq.get("cpus").map(String::as_str), Some("all"), "{hq:?}");
    assert_eq!(hq.get("array").map(String::as_str), Some("1-8"), "{hq:?}");
}

/// Sections, keys and values of a unit file.
fn unit(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut settings = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name.to_owned();
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .unwrap_or_else(|| panic!("no setting: {line}"));
        settings.push((section.clone(), key.to_owned(), value.to_owned()));
    }
    settings
}

fn setting(name: &str) -> String {
    let settings = unit(&recipe(UNIT));
    let found = settings.into_iter().find(|(_, key, _)| key == name);
    found.unwrap_or_else(|| panic!("{name} is not set")).2
}

/// CL-64: and what systemd itself says of it, where it is installed.
#[test]
fn the_unit_is_one() {
    for (name, value) in [
        ("Delegate", "yes"),
        ("KillMode", "mixed"),
        ("LoadCredential", "redis-url:/etc/fairtrial/redis-url"),
        ("TimeoutStopSec", "11min"), // above the drain timeout's 10
    ] {
        assert_eq!(setting(name), value, "{name}");
    }
    let shell = Shell::new();
    let ours = binary().display().to_string();
    let text = recipe(UNIT).replace("/usr/local/bin/fairtrial", &ours);
    let file = shell.write(UNIT, &text);
    match command("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output()
    {
        Err(error) => note(format!("skipped: no systemd-analyze ({error})")),
        Ok(said) => {
            let complaint = String::from_utf8_lossy(&said.stderr).into_owned();
            let of_ours: Vec<&str> = complaint
                .lines()
                .filter(|line| line.contains("fairtrial-agent"))
                .collect();
            assert!(said.status.success() && of_ours.is_empty(), "{complaint}");
        }
    }
}

/// The scalars of each document of a YAML text, by their place: `spec.template.spec.containers.0.name`.
pub(crate) fn documents(text: &str) -> Vec<BTreeMap<String, String>> {
    /// What is open: its place, and in a list how many items, in a mapping the key that waits for its value.
    enum Open {
        List(String, usize),
        Mapping(String, Option<String>),
    }
    let mut open: Vec<Open> = Vec::new();
    let mut all = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, _) = event.unwrap_or_else(|error| panic!("no YAML: {error}"));
        let is_key = matches!(
            (&event, open.last()),
            (Event::Scalar(..), Some(Open::Mapping(_, None)))
        );
        let place = match open.last() {
            None => String::new(),
            Some(Open::List(place, count)) => format!("{place}{count}."),
            Some(Open::Mapping(place, key)) => {
                format!("{place}{}.", key.clone().unwrap_or_default())
            }
        };
        match event {
            Event::DocumentStart(_) => all.push(BTreeMap::new()),
            Event::Scalar(text, ..) if is_key => {
                if let Some(Open::Mapping(_, key)) = open.last_mut() {
                    *key = Some(text.into_owned());
                }
                continue;
            }
            Event::Scalar(text, ..) => {
                let place = place.trim_end_matches('.').to_owned();
                all.last_mut()
                    .expect("begun")
                    .insert(place, text.into_owned());
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(place, 0));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Mapping(place, None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => drop(open.pop()),
            _ => continue,
        }
        // A value has come to its end.
        match open.last_mut() {
            Some(Open::List(_, count)) => *count += 1,
            Some(Open::Mapping(_, key)) => *key = None,
            None => {}
        }
    }
    all
}

/// CL-64: two levels, each with the security context that it needs; the URL a file; time enough to drain.
#[test]
fn pods_are_deployments_with_a_security_context_for_their_level() {
    let documents = documents(&recipe(PODS));
    assert_eq!(documents[0]["kind"], "Secret");
    let pod = "spec.template.spec";
    let container = format!("{pod}.containers.0");
    for (deployment, level, filter) in [
        (&documents[1], "strict", "Unconfined"),
        (&documents[2], "limits", "RuntimeDefault"),
    ] {
        let says = |place: &str| deployment.get(place).map(String::as_str);
        assert_eq!(says("kind"), Some("Deployment"));
        assert_eq!(
            says("metadata.name"),
            Some(&*format!("fairtrial-agent-{level}"))
        );
        let grace: u64 = deployment[&format!("{pod}.terminationGracePeriodSeconds")]
            .parse()
            .expect("seconds");
        assert!(grace > 600, "{grace} s, and draining takes 10 m");
        let words: Vec<&str> = (0..)
            .map_while(|word| says(&format!("{container}.command.{word}")))
            .collect();
        assert_eq!(words[..2], ["fairtrial", "agent"]);
        for pair in [["--sandbox", level], ["--drain-timeout", "10m"]] {
            assert!(words.windows(2).any(|words| words == pair), "{words:?}");
        }
        assert!(words[3].starts_with("@/"), "the URL is a file: {words:?}");
        let place = format!("{container}.securityContext.seccompProfile.type");
        assert_eq!(says(&place), Some(filter));
        let selected = says("spec.selector.matchLabels.app");
        assert_eq!(selected, says("spec.template.metadata.labels.app"));
        assert_eq!(
            says(&format!("{pod}.volumes.0.secret.secretName")),
            Some("fairtrial-redis")
        );
    }
    let unmasked = format!("{container}.securityContext.procMount");
    assert_eq!(
        documents[1].get(&unmasked).map(String::as_str),
        Some("Unmasked")
    );
}

/// It serves with so many slots; told to end, it ends well.
fn assert_serves(mut agent: Running, name: &str, slots: u32) {
    let line = agent.error_line();
    let with = format!(" with {slots} slots");
    assert!(
        line.starts_with("agent ") && line.contains(" serves ") && line.contains(&with),
        "{name}: {line}"
    );
    agent.signal(Signal::TERM);
    let ended = agent.end();
    assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
}

/// A directory of programs for PATH: `fairtrial`, and those of schedulers, which just run what they are given.
fn programs(shell: &Shell) -> String {
    // `ssh HOST WORDS`, and `systemd-run OPTIONS WORDS`; each becomes the words.
    let ssh = "#!/bin/sh\nshift\nexec \"$@\"\n";
    let systemd_run =
        "#!/bin/sh\nwhile case $1 in -*) ;; *) false ;; esac; do shift; done\nexec \"$@\"\n";
    for (name, text) in [("ssh", ssh), ("systemd-run", systemd_run)] {
        let path = shell.write(&format!("bin/{name}"), text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let bin = shell.path().join("bin");
    std::os::unix::fs::symlink(binary(), bin.join("fairtrial")).expect("a link");
    format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").expect("there is one")
    )
}

/// CL-64: the texts run as plain commands, on this machine.
#[test]
fn what_the_recipes_start_is_an_agent_that_serves() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let path = programs(&shell);
    let url = shell.write("redis-url", &server.url());
    let url = url.to_str().expect("text");
    // `fairtrial` is what each script becomes; the words of a unit are split as systemd does, by spaces.
    let script = |name: &str, words: &[&str]| {
        let file = in_docs("cluster").join(name);
        let line = format!("shift; exec {} \"$@\"", file.display());
        let cli = shell.fairtrial(words.iter().copied());
        cli.env("PATH", &path)
            .env("FAIRTRIAL_REDIS_URL_FILE", url)
            .env("SLURM_CPUS_PER_TASK", "3")
            .env("HQ_CPUS", "0,1")
            .under_all(&["sh", "-c", &line, "sh"])
    };
    // As many slots as each scheduler gave it processors.
    for (name, slots) in [("slurm.sbatch", 3), ("hyperqueue.sh", 2)] {
        assert_serves(script(name, &[]).start(), name, slots);
    }
    let exec = setting("ExecStart");
    let exec = exec
        .replace(
            "${CREDENTIALS_DIRECTORY}",
            shell.path().to_str().expect("text"),
        )
        .replace(
            "${CACHE_DIRECTORY}",
            shell.path().join("cache").to_str().expect("text"),
        );
    let (program, words) = exec.split_once(' ').expect("words");
    assert_eq!(program, "/usr/local/bin/fairtrial");
    assert_serves(shell.fairtrial(words.split(' ')).start(), UNIT, 16);
    // It starts agents and waits for them: they are what is told to end.
    let mut started = script("ssh.sh", &[url, "2", "here"]).start();
    let line = started.error_line();
    assert!(
        line.contains(" serves ") && line.contains("with 2 slots"),
        "{line}"
    );
    let pid = started.pid().as_raw_nonzero();
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it waits");
    for pid in children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"))
    {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, Signal::TERM).expect("it serves");
    }
    let ended = started.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    shell.assert_nothing_left();
}
