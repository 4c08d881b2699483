//! The pages of `docs/hosts/`: each fits a screen, says how it was checked, and what of it can be run here is run.

use std::fs;
use std::process::Command;

use fairtrial_tests::{Shell, note};
use rustix::process::geteuid;
use serde_json::{Value as Json, json as j};

use crate::cluster_recipes::documents;
use crate::cluster_users::in_docs;
use crate::hosts_table::{LEVELS, cell, seccomp_of_engines};
use crate::odd_hosts::{CRUN, Place, container, is_there};

const PAGES: [&str; 7] = [
    "docker",
    "github",
    "kubernetes",
    "podman",
    "slurm",
    "systemd",
    "wsl2",
];

fn page(name: &str) -> String {
    fs::read_to_string(in_docs("hosts").join(format!("{name}.md"))).expect("it is shipped")
}

/// The first block of a page in a language.
fn block(name: &str, language: &str) -> String {
    let text = page(name);
    let begin = format!("```{language}\n");
    let (_, rest) = text.split_once(&begin).expect("a block");
    rest.split_once("```").expect("an end").0.to_owned()
}

/// RE-12
#[test]
fn every_host_has_a_page_of_one_screen_that_says_how_it_was_checked() {
    let manual = fs::read_to_string(in_docs("security.md")).expect("it is shipped");
    for name in PAGES {
        let text = page(name);
        assert!(text.lines().count() <= 40, "{name} is longer than a screen");
        for part in ["\n**Checked**: ", "`confined`", "`strict`", "fairtrial"] {
            assert!(text.contains(part), "{name} lacks {part:?}");
        }
        let link = format!("(hosts/{name}.md)");
        assert!(manual.contains(&link), "{link} is not in the manual");
    }
    let shipped = fs::read_dir(in_docs("hosts"))
        .expect("it is shipped")
        .count();
    assert_eq!(shipped, PAGES.len(), "a page that no test knows");
}

/// The fields of Kubernetes' API that the page uses, with numbers of lists left out.
const POD_FIELDS: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata.name",
    "spec.restartPolicy",
    "spec.hostUsers",
    "spec.automountServiceAccountToken",
    "spec.containers.name",
    "spec.containers.image",
    "spec.containers.command",
    "spec.containers.resources.limits.cpu",
    "spec.containers.resources.limits.memory",
    "spec.containers.securityContext.runAsUser",
    "spec.containers.securityContext.runAsNonRoot",
    "spec.containers.securityContext.allowPrivilegeEscalation",
    "spec.containers.securityContext.capabilities.drop",
    "spec.containers.securityContext.seccompProfile.type",
    "spec.containers.securityContext.appArmorProfile.type",
    "spec.containers.securityContext.procMount",
];

/// RE-12
#[test]
fn the_pod_has_fields_of_the_api_and_needs_no_privileges() {
    let text = block("kubernetes", "yaml");
    let documents = documents(&text);
    let pod = &documents[0];
    for place in pod.keys() {
        let words = place
            .split('.')
            .filter(|word| word.parse::<usize>().is_err());
        let field = words.collect::<Vec<_>>().join(".");
        assert!(POD_FIELDS.contains(&&*field), "unknown field `{field}`");
    }
    let says = |place: &str| pod.get(place).map(String::as_str);
    assert_eq!(
        (says("apiVersion"), says("kind")),
        (Some("v1"), Some("Pod"))
    );
    let context = "spec.containers.0.securityContext";
    for (field, value) in [
        ("seccompProfile.type", "Unconfined"),
        ("procMount", "Unmasked"),
        ("allowPrivilegeEscalation", "false"),
        ("capabilities.drop.0", "ALL"),
    ] {
        assert_eq!(says(&format!("{context}.{field}")), Some(value), "{field}");
    }
    // The API takes `Unmasked` only of pods with users of their own.
    assert_eq!(says("spec.hostUsers"), Some("false"));
    assert!(!text.contains("privileged"));
}

/// RE-12
#[test]
fn the_workflow_is_yaml_with_a_step_for_the_switch() {
    let documents = documents(&block("github", "yaml"));
    let job = &documents[0];
    assert_eq!(job["jobs.trials.runs-on"], "ubuntu-24.04");
    let switch = &job["jobs.trials.steps.0.run"];
    assert!(
        switch.contains("kernel.apparmor_restrict_unprivileged_userns=0"),
        "{switch}"
    );
}

/// RE-12
#[test]
fn systemd_takes_the_unit_of_its_page() {
    let service = block("systemd", "ini");
    assert!(service.contains("\nDelegate=yes\n"), "{service}");
    let user = rustix::process::geteuid().as_raw();
    let service = service.replace("/usr/local/bin/fairtrial", "/bin/true");
    let service = service.replace("User=trials", &format!("User={user}"));
    let shell = Shell::new();
    let file = shell.write("trials.service", &service);
    #[expect(clippy::disallowed_methods, reason = "systemd reads the unit as it is")]
    let said = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&file)
        .output();
    match said {
        Err(error) => note(format!("skipped: no systemd-analyze ({error})")),
        Ok(said) => {
            let complaint = String::from_utf8_lossy(&said.stderr).into_owned();
            let of_ours = complaint
                .lines()
                .filter(|line| line.contains("trials.service"));
            assert_eq!(of_ours.count(), 0, "{complaint}");
        }
    }
}

/// Which levels a container has, by the profile that `change` makes of the engines' default.
fn levels_in_container(name: &str, id: u32, change: fn(&mut Json)) -> Option<Vec<String>> {
    let place = Place::new()?;
    let home = place.dir.path().join(name);
    fs::create_dir_all(home.join("rootfs")).expect("made");
    std::os::unix::fs::chown(&home, Some(id), Some(id)).expect("root may");
    let calls = home.join("calls.jsonl");
    let call = |level: &&str| j!({"argv": ["true"], "sandbox": level}).to_string() + "\n";
    fs::write(&calls, LEVELS.iter().map(call).collect::<String>()).expect("written");
    let arguments = ["batch", calls.to_str().expect("text"), "-j", "1"];
    let mut config = container(&place.program, &arguments);
    config["process"]["user"] = j!({"uid": id, "gid": id});
    if id != 0 {
        config["process"]["capabilities"] = j!({});
    }
    config["linux"]["seccomp"] = seccomp_of_engines();
    change(&mut config);
    fs::write(home.join("config.json"), config.to_string()).expect("written");
    let output = place.run("root", &format!("cd {}; {CRUN}", home.display()), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    let records: Vec<Json> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if records.len() != LEVELS.len() {
        note(format!(
            "skipped: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
        return None;
    }
    Some(
        LEVELS
            .iter()
            .zip(&records)
            .map(|(level, record)| cell(level, record))
            .collect(),
    )
}

/// RE-12: what the pages of Docker, Podman and Kubernetes say of each level, by the runtime below them.
#[test]
fn containers_have_the_levels_that_their_pages_name() {
    if !geteuid().is_root() || !is_there(&"crun") {
        return note("skipped: it takes root and `crun`");
    }
    if let Some(levels) = levels_in_container("default", 0, |_| {}) {
        assert_eq!(levels[..3], ["yes", "yes", "yes"], "{levels:?}");
        assert!(levels[3].starts_with("no: "), "{levels:?}");
    }
    let unconfined = |config: &mut Json| {
        config["linux"]["seccomp"] = Json::Null;
        config["linux"]["maskedPaths"] = j!([]);
        config["linux"]["readonlyPaths"] = j!([]);
    };
    if let Some(levels) = levels_in_container("unconfined", 1000, unconfined) {
        assert_eq!(levels, ["yes", "yes", "yes", "yes"], "{levels:?}");
    }
}
