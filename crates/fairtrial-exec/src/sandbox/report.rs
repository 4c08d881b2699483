//! What is really in force: the words for it, and their JSON. What holds is found in `mechanisms.rs`.

use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::{Level, OnMissing};

/// How well a mechanism holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The kernel sees to it.
    Enforced,
    /// Looked at every so often; spikes can be missed.
    Sampled,
    /// Holds against accidents, not against a determined program.
    Partial,
    /// Not there.
    Unavailable,
}

impl State {
    /// The name in the public contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Sampled => "sampled",
            Self::Partial => "partial",
            Self::Unavailable => "unavailable",
        }
    }
}

/// One mechanism, and how well it held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mechanism {
    /// Its name in the contract (`tree_kill`, `memory`).
    pub name: &'static str,
    /// How well it held.
    pub state: State,
    /// By what means, or why not.
    pub via: &'static str,
    /// The kernel's refusal, by name, where that is why not.
    pub errno: Option<&'static str>,
    /// What would make it better; empty if nothing is known to.
    pub hint: &'static str,
}

impl Mechanism {
    /// One that needs no further words.
    #[must_use]
    pub fn new(name: &'static str, state: State, via: &'static str) -> Self {
        Self {
            name,
            state,
            via,
            errno: None,
            hint: "",
        }
    }

    /// By what means, or why not and what helps, in one line.
    #[must_use]
    pub fn why(&self) -> String {
        let errno = self
            .errno
            .map_or(String::new(), |errno| format!(" {errno}"));
        let hint = match self.hint {
            "" => String::new(),
            hint => format!("; {hint}"),
        };
        format!("{}{errno}{hint}", self.via)
    }

    /// The contract's object for it.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = serde_json::json!({"state": self.state.name(), "via": self.via});
        if let Some(errno) = self.errno {
            object["errno"] = errno.into();
        }
        if !self.hint.is_empty() {
            object["hint"] = self.hint.into();
        }
        object
    }
}

/// The isolation that really held for a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InForce {
    /// The level asked for.
    pub requested: Level,
    /// The level had.
    pub effective: Level,
    /// What was to become of the call if the machine lacked something.
    pub on_missing: OnMissing,
    /// How the process came about: `fresh`, `reuse` or `command`.
    pub mode: &'static str,
    /// What was in force, the weak spots included.
    pub mechanisms: Vec<Mechanism>,
    /// Preloaded modules whose memory the call shared with others, as it was asked to.
    pub preload_shared: Vec<String>,
    /// What the kernel counted.
    pub counters: Counters,
    /// The digest as another machine gave it, which also has the mechanisms that are not listed here.
    pub elsewhere: Option<String>,
}

/// What the kernel counted of a call. What was not measured is `None`, never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times it gave its processor up.
    pub voluntary_switches: Option<u64>,
    /// Times its processor was taken from it.
    pub involuntary_switches: Option<u64>,
    /// Page faults that needed no disk.
    pub minor_faults: Option<u64>,
    /// Page faults that did.
    pub major_faults: Option<u64>,
    /// Time in which it had to wait because a processor quota was used up.
    pub throttled_ns: Option<u64>,
    /// Time in which some task of it waited for memory.
    pub memory_stall_ns: Option<u64>,
}

impl Counters {
    /// The contract's `counters` object.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        serde_json::json!({
            "voluntary_switches": self.voluntary_switches,
            "involuntary_switches": self.involuntary_switches,
            "minor_faults": self.minor_faults,
            "major_faults": self.major_faults,
            "throttled_s": seconds(self.throttled_ns),
            "memory_stall_s": seconds(self.memory_stall_ns),
        })
    }
}

impl InForce {
    /// The contract's `in_force` object: of the mechanisms only those that are not enforced.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut object = serde_json::json!({
            "requested": self.requested.to_string(),
            "effective": self.effective.to_string(),
            "mode": self.mode,
            "digest": self.digest(),
            "mechanisms": named(self.weak()),
            "counters": self.counters.to_json(),
        });
        if !self.preload_shared.is_empty() {
            object["preload_shared"] = self.preload_shared.clone().into();
        }
        object
    }

    /// The whole of it, with all mechanisms and without the counters of one call.
    #[must_use]
    pub fn report_json(&self) -> serde_json::Value {
        let machine = Machine::here();
        serde_json::json!({
            "requested": self.requested.to_string(),
            "effective": self.effective.to_string(),
            "on_missing": self.on_missing.to_string(),
            "mode": self.mode,
            "kernel": machine.kernel,
            "uid": machine.uid,
            "mechanisms": named(self.mechanisms.iter()),
            "digest": self.digest(),
        })
    }

    /// The mechanisms that are not enforced.
    pub fn weak(&self) -> impl Iterator<Item = &Mechanism> {
        let mechanisms = self.mechanisms.iter();
        mechanisms.filter(|mechanism| mechanism.state != State::Enforced)
    }

    /// The same for calls that had the same isolation on equal machines: covers all of the report.
    #[must_use]
    pub fn digest(&self) -> String {
        if let Some(digest) = &self.elsewhere {
            return digest.clone();
        }
        // Most calls have what the call before had, and to compare costs a tenth of hashing.
        static LAST: Mutex<Option<(InForce, String)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, digest)) = &*last
            && self.differs_only_in_counters(of)
        {
            return digest.clone();
        }
        let digest = self.digest_on(&Machine::here());
        let of = Self {
            counters: Counters::default(),
            ..self.clone()
        };
        *last = Some((of, digest.clone()));
        digest
    }

    fn differs_only_in_counters(&self, other: &Self) -> bool {
        let Self {
            requested,
            effective,
            on_missing,
            mode,
            mechanisms,
            preload_shared,
            counters: _,
            elsewhere: _,
        } = self;
        (requested, effective, on_missing, mode)
            == (
                &other.requested,
                &other.effective,
                &other.on_missing,
                &other.mode,
            )
            && *mechanisms == other.mechanisms
            && *preload_shared == other.preload_shared
    }

    fn digest_on(&self, machine: &Machine) -> String {
        let Self {
            requested,
            effective,
            on_missing,
            mode,
            mechanisms,
            preload_shared,
            counters: _, // they differ from call to call
            elsewhere: _,
        } = self;
        let Machine { kernel, uid } = machine;
        let mut hash = Sha256::new();
        hash.update(format!(
            "{requested} {effective} {on_missing} {mode}\n{kernel}\n{uid}\n"
        ));
        for Mechanism {
            name,
            state,
            via,
            errno,
            hint,
        } in mechanisms
        {
            let (state, errno) = (state.name(), errno.unwrap_or_default());
            hash.update(format!("{name}\t{state}\t{via}\t{errno}\t{hint}\n"));
        }
        for module in preload_shared {
            hash.update(format!("preload_shared\t{module}\n"));
        }
        let bytes = hash.finalize();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hex}")
    }
}

fn named<'a>(mechanisms: impl Iterator<Item = &'a Mechanism>) -> serde_json::Value {
    let named = mechanisms.map(|mechanism| (mechanism.name.to_owned(), mechanism.to_json()));
    serde_json::Value::Object(named.collect())
}

/// What a report says of the machine itself.
struct Machine {
    kernel: String,
    uid: u32,
}

impl Machine {
    fn here() -> Self {
        let uname = rustix::system::uname();
        Self {
            kernel: uname.release().to_string_lossy().into_owned(),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            kernel: "6.8.0".into(),
            uid: 1000,
        }
    }

    fn in_force() -> InForce {
        InForce {
            requested: Level::Strict,
            effective: Level::Limits,
            on_missing: OnMissing::Degrade,
            mode: "fresh",
            mechanisms: vec![
                Mechanism::new("session", State::Enforced, "setsid"),
                Mechanism {
                    errno: Some("EPERM"),
                    hint: "a switch",
                    ..Mechanism::new("userns", State::Unavailable, "no namespaces")
                },
            ],
            preload_shared: Vec::new(),
            elsewhere: None,
            counters: Counters::default(),
        }
    }

    /// SB-43
    #[test]
    fn equal_machines_have_equal_digests_and_every_difference_shows() {
        let digest = in_force().digest_on(&machine());
        let mut counted = in_force();
        counted.counters.minor_faults = Some(7);
        assert_eq!(counted.digest_on(&machine()), digest);
        let changes: [fn(&mut InForce, &mut Machine); 9] = [
            |one, _| one.requested = Level::Limits,
            |one, _| one.effective = Level::None,
            |one, _| one.on_missing = OnMissing::Fail,
            |one, _| one.mode = "reuse",
            |one, _| one.mechanisms[1].state = State::Partial,
            |one, _| one.mechanisms[1].errno = Some("ENOSYS"),
            |one, _| one.mechanisms[1].hint = "another switch",
            |_, machine| machine.kernel = "6.8.1".into(),
            |_, machine| machine.uid = 0,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let (mut other, mut machine) = (in_force(), machine());
            change(&mut other, &mut machine);
            assert_ne!(other.digest_on(&machine), digest, "change {number}");
        }
    }

    /// SB-43
    #[test]
    fn an_outcome_carries_what_was_weak_and_the_report_everything() {
        let weak = in_force().to_json()["mechanisms"].clone();
        let userns = serde_json::json!({
            "state": "unavailable", "via": "no namespaces", "errno": "EPERM", "hint": "a switch",
        });
        assert_eq!(weak, serde_json::json!({"userns": userns}));
        let report = in_force().report_json();
        assert_eq!(report["mechanisms"]["session"]["state"], "enforced");
        assert_eq!(report["on_missing"], "degrade");
    }
}
