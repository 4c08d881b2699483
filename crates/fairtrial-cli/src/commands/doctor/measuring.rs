//! What of the machine bears on measuring (SB-46). Reads the kernel's files and changes nothing; what they do not say is
//! unknown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fairtrial_exec::Size;
use serde_json::{Value as Json, json};

/// Such facts; `None` is unknown.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Measuring {
    clock_source: Option<String>,
    counters: Option<Counters>,
    governor: Option<String>,
    smt: Option<String>,
    turbo: Option<bool>,
    swap_bytes: Option<u64>,
    aslr: Option<u8>,
    load: Option<[f64; 3]>,
}

/// Hardware counters, and who may read them.
#[derive(Debug, PartialEq)]
struct Counters {
    there: bool,
    /// `kernel.perf_event_paranoid`: from 3 on only for root.
    paranoid: Option<i64>,
}

impl Measuring {
    /// Of the machine whose files are below `root`: `/`, but for tests.
    pub(super) fn of(root: &Path) -> Self {
        let files = Files(root.to_path_buf());
        Self {
            clock_source: files
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            counters: files.counters(),
            governor: files.governor(),
            smt: files.text("sys/devices/system/cpu/smt/control"),
            turbo: files.turbo(),
            swap_bytes: files.swap_bytes(),
            aslr: files.number("proc/sys/kernel/randomize_va_space"),
            load: files.load(),
        }
    }

    /// A line each, for people.
    pub(super) fn text(&self) -> String {
        let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        let lines = [
            ("clock source", known(self.clock_source.clone())),
            (
                "counters",
                known(self.counters.as_ref().map(Counters::text)),
            ),
            ("governor", known(self.governor.clone())),
            ("SMT", known(self.smt.clone())),
            (
                "turbo",
                known(self.turbo.map(|on| if on { "on" } else { "off" }.into())),
            ),
            ("swap", known(self.swap_bytes.map(swap))),
            ("ASLR", known(self.aslr.map(aslr))),
            (
                "load",
                known(self.load.map(|[one, five, fifteen]| {
                    format!("{one:.2} {five:.2} {fifteen:.2} over 1, 5 and 15 minutes")
                })),
            ),
        ];
        let lines = lines.map(|(name, fact)| format!("  {name:<12}  {fact}\n"));
        format!("\nmeasuring\n{}", lines.concat())
    }

    pub(super) fn json(&self) -> Json {
        json!({
            "clock_source": self.clock_source,
            "counters": self.counters.as_ref().map(|counters| {
                json!({"available": counters.there, "perf_event_paranoid": counters.paranoid})
            }),
            "governor": self.governor,
            "smt": self.smt,
            "turbo": self.turbo,
            "swap_bytes": self.swap_bytes,
            "aslr": self.aslr,
            "load": self.load,
        })
    }
}

impl Measuring {
    /// The value of `kernel.perf_event_paranoid` if only root may read the counters that are there.
    pub(super) fn counters_withheld(&self) -> Option<i64> {
        let counters = self.counters.as_ref().filter(|counters| counters.there)?;
        counters.paranoid.filter(|paranoid| *paranoid > 2)
    }
}

impl Counters {
    fn text(&self) -> String {
        match (self.there, self.paranoid) {
            (false, _) => "none here".to_owned(),
            (true, Some(paranoid)) => format!("available (kernel.perf_event_paranoid={paranoid})"),
            (true, None) => "available".to_owned(),
        }
    }
}

fn swap(bytes: u64) -> String {
    match bytes {
        0 => "none".to_owned(),
        bytes => Size(bytes).to_string(),
    }
}

fn aslr(level: u8) -> String {
    let words = match level {
        0 => "off",
        1 => "on, but for the heap",
        _ => "on",
    };
    words.to_owned()
}

struct Files(PathBuf);

impl Files {
    fn text(&self, file: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn number<T: std::str::FromStr>(&self, file: &str) -> Option<T> {
        self.text(file)?.parse().ok()
    }

    fn names(&self, directory: &str) -> Option<Vec<String>> {
        let entries = std::fs::read_dir(self.0.join(directory)).ok()?;
        let names = entries.flatten().map(|entry| entry.file_name());
        Some(names.filter_map(|name| name.into_string().ok()).collect())
    }

    fn counters(&self) -> Option<Counters> {
        let devices = self.names("sys/bus/event_source/devices")?;
        Some(Counters {
            // `cpu`, on machines with two kinds of cores `cpu_core`, on ARM `armv8_pmuv3_0`.
            there: devices
                .iter()
                .any(|name| name.starts_with("cpu") || name.starts_with("armv8")),
            paranoid: self.number("proc/sys/kernel/perf_event_paranoid"),
        })
    }

    /// Of all processors, each once.
    fn governor(&self) -> Option<String> {
        let cpus = self.names("sys/devices/system/cpu")?;
        let of = |cpu: &String| {
            self.text(&format!(
                "sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor"
            ))
        };
        let governors: BTreeSet<String> = cpus.iter().filter_map(of).collect();
        let governors: Vec<_> = governors.into_iter().collect();
        (!governors.is_empty()).then(|| governors.join(", "))
    }

    fn turbo(&self) -> Option<bool> {
        let off: Option<u8> = self.number("sys/devices/system/cpu/intel_pstate/no_turbo");
        let on = || self.number("sys/devices/system/cpu/cpufreq/boost");
        match off {
            Some(off) => Some(off == 0),
            None => on().map(|on: u8| on == 1),
        }
    }

    fn swap_bytes(&self) -> Option<u64> {
        let text = self.text("proc/meminfo")?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("SwapTotal:"))?;
        let kilobytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }

    fn load(&self) -> Option<[f64; 3]> {
        let text = self.text("proc/loadavg")?;
        let numbers = text
            .split_whitespace()
            .take(3)
            .map(|word| word.parse().ok());
        let numbers: Option<Vec<f64>> = numbers.collect();
        numbers?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these files.
    fn machine(files: &[(&str, &str)]) -> Measuring {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Measuring::of(dir.path())
    }

    /// SB-46
    #[test]
    fn each_fact_is_read_from_its_file() {
        let found = machine(&[
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
            ("sys/bus/event_source/devices/cpu/type", "4\n"),
            ("proc/sys/kernel/perf_event_paranoid", "2\n"),
            (
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
                "powersave\n",
            ),
            (
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "performance\n",
            ),
            ("sys/devices/system/cpu/smt/control", "on\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
            (
                "proc/meminfo",
                "MemTotal:  9 kB\nSwapTotal:     2097152 kB\n",
            ),
            ("proc/sys/kernel/randomize_va_space", "2\n"),
            ("proc/loadavg", "0.52 0.25 1.00 1/99 4242\n"),
        ]);
        assert_eq!(
            found.text(),
            "\nmeasuring\n  clock source  tsc\n  counters      available (kernel.perf_event_paranoid=2)\n  \
             governor      performance, powersave\n  SMT           on\n  turbo         on\n  swap          2 GiB\n  \
             ASLR          on\n  load          0.52 0.25 1.00 over 1, 5 and 15 minutes\n"
        );
        assert_eq!(
            found.json(),
            json!({
                "clock_source": "tsc",
                "counters": {"available": true, "perf_event_paranoid": 2},
                "governor": "performance, powersave",
                "smt": "on",
                "turbo": true,
                "swap_bytes": 2_u64 << 30,
                "aslr": 2,
                "load": [0.52, 0.25, 1.0],
            })
        );
        let amd = machine(&[("sys/devices/system/cpu/cpufreq/boost", "0\n")]);
        assert_eq!(amd.turbo, Some(false));
    }

    /// SB-46
    #[test]
    fn what_no_file_says_is_unknown() {
        let nothing = machine(&[]);
        assert_eq!(nothing, Measuring::default());
        assert_eq!(nothing.text().matches("  unknown\n").count(), 8);
        let facts = nothing.json();
        assert!(facts.as_object().unwrap().values().all(Json::is_null));
        let nonsense = machine(&[
            ("proc/loadavg", "a b\n"),
            ("proc/meminfo", "SwapTotal: x\n"),
        ]);
        assert_eq!(nonsense, Measuring::default());
    }
}
