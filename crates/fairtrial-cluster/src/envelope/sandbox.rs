//! Limits and isolation as they travel.

use std::collections::BTreeSet;
use std::time::Duration;

use fairtrial_exec::{Limits, Resource, Sandbox};
use serde::{Deserialize, Serialize};

use super::call::OsText;
use super::is_default;

/// As [`Limits`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LimitsRecord {
    #[serde(skip_serializing_if = "is_default")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    cpu_ns: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    processes: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    open_files: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    file_bytes: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    output_bytes: Option<u64>,
    #[serde(skip_serializing_if = "is_default")]
    lifted: Vec<String>,
}

impl From<&Limits> for LimitsRecord {
    fn from(limits: &Limits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes,
            cpu_ns: limits.cpu.map(nanoseconds),
            processes: limits.processes,
            open_files: limits.open_files,
            file_bytes: limits.file_bytes,
            output_bytes: limits.output_bytes,
            lifted: limits
                .lifted
                .iter()
                .map(|resource| resource.field().to_owned())
                .collect(),
        }
    }
}

impl LimitsRecord {
    pub(super) fn to_limits(&self) -> Limits {
        let lifted = Resource::ALL
            .into_iter()
            .filter(|resource| self.lifted.iter().any(|field| field == resource.field()));
        Limits {
            memory_bytes: self.memory_bytes,
            cpu: self.cpu_ns.map(Duration::from_nanos),
            processes: self.processes,
            open_files: self.open_files,
            file_bytes: self.file_bytes,
            output_bytes: self.output_bytes,
            lifted: lifted.collect::<BTreeSet<_>>(),
        }
    }
}

/// As [`Sandbox`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SandboxRecord {
    pub(super) level: String,
    on_missing: String,
    network: String,
    #[serde(default, skip_serializing_if = "is_default")]
    read: Vec<OsText>,
    #[serde(default, skip_serializing_if = "is_default")]
    write: Vec<OsText>,
    #[serde(default, skip_serializing_if = "is_default")]
    scratch_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    scratch_inodes: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    address_space: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) devices: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    cpus: Option<Vec<usize>>,
}

impl From<&Sandbox> for SandboxRecord {
    fn from(sandbox: &Sandbox) -> Self {
        let texts = |paths: &[std::path::PathBuf]| {
            let paths = paths.iter();
            paths.map(|path| OsText::of(path.as_os_str())).collect()
        };
        Self {
            level: sandbox.level.to_string(),
            on_missing: sandbox.on_missing.to_string(),
            network: sandbox.network.to_string(),
            read: texts(&sandbox.read),
            write: texts(&sandbox.write),
            scratch_bytes: sandbox.scratch_bytes,
            scratch_inodes: sandbox.scratch_inodes,
            address_space: sandbox.address_space,
            devices: sandbox.devices.clone(),
            cpus: sandbox.cpus.clone(),
        }
    }
}

impl SandboxRecord {
    /// `None` where a word is not known here.
    pub(super) fn to_sandbox(&self) -> Option<Sandbox> {
        let paths = |texts: &[OsText]| {
            let paths = texts.iter();
            paths.map(|text| text.to_os().into()).collect()
        };
        let mut sandbox = Sandbox::new(self.level.parse().ok()?);
        sandbox.on_missing = self.on_missing.parse().ok()?;
        sandbox.network = self.network.parse().ok()?;
        sandbox.read = paths(&self.read);
        sandbox.write = paths(&self.write);
        sandbox.scratch_bytes = self.scratch_bytes;
        sandbox.scratch_inodes = self.scratch_inodes;
        sandbox.address_space = self.address_space;
        sandbox.devices = self.devices.clone();
        sandbox.cpus = self.cpus.clone();
        Some(sandbox)
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
