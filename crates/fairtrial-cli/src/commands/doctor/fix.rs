//! What is missing on this host, and the exact commands that would provide it. Prints them; runs none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fairtrial_exec::{Level, Mechanism, State};

use super::Findings;

/// What decides which commands fit.
#[derive(Clone, Debug)]
pub(super) struct Host {
    root: bool,
    container: bool,
    systemd: bool,
    /// This program.
    program: PathBuf,
}

impl Host {
    pub(super) fn here() -> Self {
        let there = |file: &str| Path::new(file).exists();
        let in_kubernetes = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        Self {
            root: rustix::process::geteuid().is_root(),
            container: in_kubernetes || there("/.dockerenv") || there("/run/.containerenv"),
            systemd: there("/run/systemd/system"),
            program: std::env::current_exe().unwrap_or_else(|_| "/usr/local/bin/fairtrial".into()),
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Remedy {
    /// What it brings.
    brings: String,
    /// What is missing, and why.
    missing: String,
    /// The commands, or where they are found.
    commands: String,
}

impl Remedy {
    /// In one line.
    pub(super) fn title(&self) -> String {
        format!("{}: {}", self.brings, self.missing)
    }
}

/// All of it, for people.
pub(super) fn text(remedies: &[Remedy]) -> String {
    if remedies.is_empty() {
        return "nothing is missing here that a command could provide\n".to_owned();
    }
    let mut text = String::from("# None of these commands was run.\n");
    for remedy in remedies {
        text += &format!("\n# {}\n{}\n", remedy.title(), remedy.commands);
    }
    text
}

impl Findings {
    /// One for each missing piece that something can be done about, the highest levels first.
    pub(super) fn remedies(&self, host: &Host) -> Vec<Remedy> {
        let mut remedies = Vec::new();
        let mut known = BTreeSet::new();
        let mut add = |remedy: Remedy| {
            if known.insert(remedy.commands.clone()) {
                remedies.push(remedy);
            }
        };
        for found in self.levels.iter().rev() {
            let Ok(report) = &found.report else { continue };
            for mechanism in &report.missing {
                add_some(&mut add, remedy(found.level, mechanism, host));
            }
        }
        let limits = self
            .levels
            .iter()
            .find(|found| found.level == Level::Limits);
        if let Some(Ok(report)) = limits.map(|found| &found.report) {
            let mechanisms = report.in_force.mechanisms.iter();
            let memory = mechanisms.filter(|one| one.name == "memory");
            for sampled in memory.filter(|one| one.state == State::Sampled) {
                add(control_groups(sampled, host));
            }
        }
        let python = self.tests.iter().find(|test| test.name == "python");
        if self.works() && python.is_some_and(|test| test.result.is_err()) {
            add(Remedy {
                brings: "Python calls".into(),
                missing: "`python3` does not work".into(),
                commands: "sudo apt-get install python3    # or a directory that has `python3`, first in PATH".into(),
            });
        }
        if let Some(paranoid) = self.measuring.counters_withheld().filter(|_| !host.root) {
            add(Remedy {
                brings: "hardware counters".into(),
                missing: format!("kernel.perf_event_paranoid={paranoid}"),
                commands: sysctl("kernel.perf_event_paranoid", 2),
            });
        }
        remedies
    }
}

fn add_some(add: &mut impl FnMut(Remedy), remedy: Option<Remedy>) {
    if let Some(remedy) = remedy {
        add(remedy);
    }
}

/// What helps against one thing that a level needs and does not have.
fn remedy(level: Level, mechanism: &Mechanism, host: &Host) -> Option<Remedy> {
    let commands = match (mechanism.name, mechanism.hint) {
        (_, hint) if hint.contains("user.max_user_namespaces") => {
            sysctl("user.max_user_namespaces", 15000)
        }
        (_, hint) if hint.contains("unprivileged_userns_clone") => {
            sysctl("kernel.unprivileged_userns_clone", 1)
        }
        (_, hint) if hint.contains("apparmor_restrict") => app_armor_profile(&host.program),
        (_, hint) if hint.contains("SETFCAP") => {
            "docker run --cap-add SETFCAP ...    # or run as another user: docker run --user 1000:1000 ...".into()
        }
        ("userns" | "mountns" | "network", hint) if hint.contains("--security-opt") => {
            container_flags(host)
        }
        (_, hint) if hint.contains("Landlock") => landlock(hint),
        (_, hint) if hint.contains("CONFIG_SECCOMP_FILTER") => {
            "sudo apt-get install linux-image-generic    # any distribution's kernel has it".into()
        }
        _ => return None,
    };
    let errno = mechanism
        .errno
        .map_or(String::new(), |errno| format!(" {errno}"));
    Some(Remedy {
        brings: format!("level `{level}`"),
        missing: format!("`{}`{errno}, {}", mechanism.name, mechanism.hint),
        commands,
    })
}

fn sysctl(name: &str, value: u32) -> String {
    format!(
        "sudo sysctl -w {name}={value}\n\
         echo '{name} = {value}' | sudo tee /etc/sysctl.d/60-fairtrial.conf    # also after the next start"
    )
}

/// For Ubuntu 24.04 and later, where only programs with a profile may make user namespaces.
fn app_armor_profile(program: &Path) -> String {
    let program = program.display();
    format!(
        "sudo tee /etc/apparmor.d/fairtrial <<'EOF'\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\
         profile fairtrial \"{program}\" flags=(unconfined) {{\n\
         \x20 userns,\n\
         }}\n\
         EOF\n\
         sudo apparmor_parser -r /etc/apparmor.d/fairtrial    # for Python hosts: the same with the interpreter's path"
    )
}

fn container_flags(host: &Host) -> String {
    let flags = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined \\\n    \
                 --security-opt apparmor=unconfined";
    let text = format!(
        "docker run --user 1000:1000 {flags} ...\n\
         podman run --user 1000:1000 --security-opt seccomp=unconfined --security-opt unmask=ALL ..."
    );
    match host.container {
        true => text,
        false => format!("# if this is a container:\n{text}"),
    }
}

fn landlock(hint: &str) -> String {
    match hint.contains("lsm=") {
        true => "grep -o 'lsm=[^ ]*' /proc/cmdline; cat /sys/kernel/security/lsm    # is `landlock` in either?\n\
                 sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&lsm=landlock,lockdown,yama,integrity,apparmor /' /etc/default/grub\n\
                 sudo update-grub && sudo reboot"
            .into(),
        false => format!(
            "sudo apt-get install linux-generic-hwe-$(. /etc/os-release && echo $VERSION_ID)    # {hint}; then restart"
        ),
    }
}

/// Limits that the kernel keeps for a whole call.
fn control_groups(memory: &Mechanism, host: &Host) -> Remedy {
    let commands = match (host.container, host.systemd, host.root) {
        (true, ..) => "docker run --memory 8g --pids-limit 4096 ...    # holds the engine with all its calls".into(),
        (_, true, false) => format!(
            "systemd-run --user --scope -p Delegate=yes {} ...",
            host.program.display()
        ),
        (_, true, true) => format!(
            "systemd-run --scope -p Delegate=yes {} ...",
            host.program.display()
        ),
        (_, false, _) => "sudo sh -c 'mkdir -p /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup'    # if nothing is mounted there\n\
                          sudo sh -c 'echo +memory +pids +cpu > /sys/fs/cgroup/cgroup.subtree_control'"
            .into(),
    };
    Remedy {
        brings: "`memory` and `processes` enforced by the kernel".into(),
        missing: memory.hint.to_owned(),
        commands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            root: false,
            container: false,
            systemd: true,
            program: "/usr/local/bin/fairtrial".into(),
        }
    }

    fn lacking(name: &'static str, errno: Option<&'static str>, hint: &'static str) -> Mechanism {
        Mechanism {
            errno,
            hint,
            ..Mechanism::new(name, State::Unavailable, "a test")
        }
    }

    fn shown(level: Level, mechanism: &Mechanism, host: &Host) -> String {
        text(
            &remedy(level, mechanism, host)
                .into_iter()
                .collect::<Vec<_>>(),
        )
    }

    /// RE-11
    #[test]
    fn each_missing_piece_has_the_commands_that_provide_it() {
        let userns = lacking("userns", Some("ENOSPC"), "user.max_user_namespaces=0");
        assert_eq!(
            shown(Level::Strict, &userns, &host()),
            "# None of these commands was run.\n\n\
             # level `strict`: `userns` ENOSPC, user.max_user_namespaces=0\n\
             sudo sysctl -w user.max_user_namespaces=15000\n\
             echo 'user.max_user_namespaces = 15000' | sudo tee /etc/sysctl.d/60-fairtrial.conf    \
             # also after the next start\n"
        );
        let hint = "kernel.apparmor_restrict_unprivileged_userns=1";
        let profile = shown(
            Level::Strict,
            &lacking("userns", Some("EPERM"), hint),
            &host(),
        );
        for part in [
            "profile fairtrial \"/usr/local/bin/fairtrial\" flags=(unconfined) {\n  userns,\n}\n",
            "sudo apparmor_parser -r /etc/apparmor.d/fairtrial",
        ] {
            assert!(profile.contains(part), "{profile}");
        }
        let hint = "in a container, run that with `--security-opt seccomp=unconfined";
        let flags = shown(
            Level::Strict,
            &lacking("mountns", Some("EPERM"), hint),
            &host(),
        );
        assert!(flags.contains("\ndocker run --user 1000:1000 --security-opt seccomp=unconfined"));
        assert!(flags.contains("\npodman run "), "{flags}");
        let hint = "needs Landlock ABI 6: Linux 6.12";
        let kernel = shown(
            Level::Confined,
            &lacking("signal_scope", None, hint),
            &host(),
        );
        assert!(
            kernel.contains("apt-get install linux-generic-hwe-"),
            "{kernel}"
        );
        let nothing = lacking("slot_uid", None, "");
        assert_eq!(remedy(Level::Strict, &nothing, &host()), None);
        assert!(text(&[]).starts_with("nothing is missing"));
    }

    /// RE-11
    #[test]
    fn control_groups_come_by_the_way_that_the_host_has() {
        let memory = lacking("memory", None, "no control group is delegated");
        for (container, systemd, root, wanted) in [
            (true, true, true, "docker run --memory 8g"),
            (
                false,
                true,
                false,
                "systemd-run --user --scope -p Delegate=yes /usr/local/bin/fairtrial",
            ),
            (
                false,
                true,
                true,
                "systemd-run --scope -p Delegate=yes /usr/local/bin/fairtrial",
            ),
            (false, false, true, "sudo sh -c 'mkdir -p /sys/fs/cgroup"),
        ] {
            let host = Host {
                root,
                container,
                systemd,
                ..host()
            };
            let found = control_groups(&memory, &host).commands;
            assert!(found.starts_with(wanted), "{found}");
        }
    }
}
