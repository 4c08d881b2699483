//! Where an evaluation runs, as far as that can change its figures.

use std::fs;

use crate::evaluation::Machine;

/// What could be used without anybody else going short; 0 where that is not told, and then nothing is kept in memory.
pub(crate) fn available_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

impl Machine {
    /// This one. What it does not tell is empty.
    pub(crate) fn here(node: &str) -> Self {
        let text = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let cpus = text("/proc/cpuinfo");
        let model = cpus
            .lines()
            .find(|line| line.starts_with("model name") || line.starts_with("CPU part"));
        let model = model.and_then(|line| line.split_once(':'));
        Self {
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            cpu: model.map_or_else(String::new, |(_, name)| name.trim().to_owned()),
            cpus: fairtrial_exec::available_cpus(),
            kernel: text("/proc/sys/kernel/osrelease"),
            node: node.to_owned(),
        }
    }
}
