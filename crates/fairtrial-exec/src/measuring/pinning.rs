//! One processor for what is measured, the others for everybody who watches (CA-73).

use std::fmt;
use std::path::Path;
use std::sync::Mutex;

use rustix::process::Pid;

use crate::config::available_cpus;
use crate::linux::affinity;
use crate::linux::proc_tree::children;
use crate::linux::scheduling::can_go_ahead;

/// More than this is not what one processor can do.
const ALMOST_ONE: f64 = 1.05;

/// As a user asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// Where it does more good than harm.
    #[default]
    Auto,
    /// Never.
    Off,
    /// To these.
    Cpus(Vec<usize>),
}

/// The processors that there are for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usable {
    /// Those that affinity allows.
    pub cpus: Vec<usize>,
    /// How many of them a quota lets us use at a time.
    pub at_once: usize,
    /// Whether what is measured can go before others there.
    pub ahead: bool,
}

/// Where measured processes run.
#[derive(Clone, Debug, PartialEq)]
pub enum Pinning {
    /// There, and nobody of ours besides.
    On {
        /// For what is measured.
        measuring: Vec<usize>,
        /// For engine and launcher; none if they have to share.
        others: Vec<usize>,
        /// Whether what is measured goes before others there, as [`Call::ahead`](crate::Call::ahead) asks.
        ahead: bool,
    },
    /// Anywhere.
    Off(WhyNotPinned),
}

/// Why measured processes are not pinned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyNotPinned {
    /// The user does not want it.
    NotWanted,
    /// Nothing would be left for engine and launcher.
    OneCpu,
    /// The base uses more than one.
    Parallel {
        /// How many, in the mean.
        cpus: f64,
    },
}

/// A processor was asked for that cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("CPU {cpu} cannot be used here; usable: {}", affinity::ranges(.usable))]
pub struct UnusableCpu {
    /// The one asked for.
    pub cpu: usize,
    /// Those that can be.
    pub usable: Vec<usize>,
}

impl Usable {
    /// As this thread may use them.
    #[must_use]
    pub fn now() -> Self {
        Self {
            cpus: affinity::allowed(),
            at_once: available_cpus(),
            ahead: can_go_ahead(),
        }
    }
}

impl Pinning {
    /// Decides by what the base used, as processor time per wall time.
    ///
    /// # Errors
    /// A processor is named that is not usable, or none is.
    pub fn choose(pin: &Pin, usable: &Usable, base_cpus: f64) -> Result<Self, UnusableCpu> {
        let measuring = match pin {
            Pin::Off => return Ok(Self::Off(WhyNotPinned::NotWanted)),
            Pin::Cpus(cpus) => {
                let unusable = cpus.iter().find(|cpu| !usable.cpus.contains(cpu));
                match unusable {
                    Some(cpu) => {
                        return Err(UnusableCpu {
                            cpu: *cpu,
                            usable: usable.cpus.clone(),
                        });
                    }
                    None if cpus.is_empty() => return Ok(Self::Off(WhyNotPinned::NotWanted)),
                    None => cpus.clone(),
                }
            }
            Pin::Auto if usable.at_once < 2 || usable.cpus.len() < 2 => {
                return Ok(Self::Off(WhyNotPinned::OneCpu));
            }
            Pin::Auto if base_cpus > ALMOST_ONE => {
                return Ok(Self::Off(WhyNotPinned::Parallel { cpus: base_cpus }));
            }
            // The first has most of the machine's interrupts.
            Pin::Auto => usable.cpus.last().copied().into_iter().collect(),
        };
        let others = others(&measuring, &usable.cpus, affinity::siblings);
        Ok(Self::On {
            measuring,
            others,
            ahead: usable.ahead,
        })
    }
}

/// What is left, without the other halves of the same cores where more than those is left.
fn others(
    measuring: &[usize],
    usable: &[usize],
    siblings: impl Fn(usize) -> Vec<usize>,
) -> Vec<usize> {
    let left: Vec<usize> = usable
        .iter()
        .copied()
        .filter(|cpu| !measuring.contains(cpu))
        .collect();
    let halves: Vec<usize> = measuring.iter().flat_map(|cpu| siblings(*cpu)).collect();
    let apart: Vec<usize> = left
        .iter()
        .copied()
        .filter(|cpu| !halves.contains(cpu))
        .collect();
    if apart.is_empty() { left } else { apart }
}

impl fmt::Display for Pinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On {
                measuring,
                others,
                ahead,
            } => {
                write!(f, "pinned to CPU {}", affinity::ranges(measuring))?;
                match &**others {
                    [] => f.write_str(", which engine and launcher share"),
                    others => write!(f, ", engine and launcher on {}", affinity::ranges(others)),
                }?;
                match ahead {
                    true => f.write_str(", ahead of other processes"),
                    false => f.write_str(", not ahead of other processes: that takes root"),
                }
            }
            Self::Off(why) => write!(f, "not pinned: {why}"),
        }
    }
}

impl fmt::Display for WhyNotPinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("not wanted"),
            Self::OneCpu => f.write_str("only one CPU is usable"),
            Self::Parallel { cpus } => write!(f, "the base uses {cpus:.2} CPUs"),
        }
    }
}

/// Processors that this process keeps off just now, one entry per [`KeptOff`]: calls may still be given them.
static KEPT_FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The processors that calls may be given: those of this thread, and those that it keeps off for their sake.
pub(crate) fn for_calls() -> Vec<usize> {
    let mut cpus = affinity::allowed();
    cpus.extend(
        KEPT_FREE
            .lock()
            .expect("nothing panics under the lock")
            .iter(),
    );
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// As long as it is held, engine and launchers stay off the processors that are measured on; then all is as before.
///
/// What a launcher starts inherits that: the measured process has to be given its own processors when it is started.
#[derive(Debug)]
#[must_use = "they return when this is dropped"]
pub struct KeptOff {
    /// Every thread that was moved, with what it had.
    moved: Vec<(Pid, Vec<usize>)>,
    others: Vec<usize>,
    free: Vec<usize>,
}

/// Moves every thread of this process, and of the launchers it started, off the processors that are measured on. Threads
/// and launchers that are started later follow those that start them.
pub fn keep_off(pinning: &Pinning) -> KeptOff {
    let mut kept = KeptOff {
        moved: Vec::new(),
        others: Vec::new(),
        free: Vec::new(),
    };
    let Pinning::On {
        others, measuring, ..
    } = pinning
    else {
        return kept;
    };
    if others.is_empty() {
        return kept;
    }
    kept.others.clone_from(others);
    kept.free.clone_from(measuring);
    let mut all_free = KEPT_FREE.lock().expect("nothing panics under the lock");
    all_free.extend(measuring);
    drop(all_free);
    for thread in our_threads() {
        let Ok(had) = affinity::of(Some(thread)) else {
            continue; // it ended
        };
        let stays: Vec<usize> = had
            .iter()
            .copied()
            .filter(|cpu| others.contains(cpu))
            .collect();
        // One that was put elsewhere by somebody else stays there.
        if stays.is_empty() || stays == had {
            continue;
        }
        match affinity::set(Some(thread), &stays) {
            Ok(()) => kept.moved.push((thread, had)),
            Err(errno) => {
                log::warn!("cannot keep thread {thread:?} off the measuring CPU: {errno}")
            }
        }
    }
    kept
}

impl Drop for KeptOff {
    fn drop(&mut self) {
        let mut all_free = KEPT_FREE.lock().expect("nothing panics under the lock");
        for cpu in &self.free {
            if let Some(place) = all_free.iter().position(|free| free == cpu) {
                all_free.swap_remove(place);
            }
        }
        drop(all_free);
        let Some((_, usual)) = self.moved.first() else {
            return;
        };
        for thread in our_threads() {
            let moved = self.moved.iter().find(|(other, _)| *other == thread);
            // Started meanwhile, it has what its starter had.
            let had = moved.map_or(usual, |(_, had)| had);
            let is_ours = affinity::of(Some(thread))
                .is_ok_and(|now| now.iter().all(|cpu| self.others.contains(cpu)) && now != *had);
            if is_ours {
                affinity::set(Some(thread), had).ok(); // it ended just now
            }
        }
    }
}

/// Those of this process and of its launchers.
fn our_threads() -> Vec<Pid> {
    let me = std::process::id();
    let launchers = children(me)
        .unwrap_or_default()
        .into_iter()
        .filter(|pid| is_launcher(*pid));
    [me].into_iter()
        .chain(launchers)
        .flat_map(threads)
        .collect()
}

fn threads(process: u32) -> Vec<Pid> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task"));
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names
        .filter_map(|name| Pid::from_raw(name.to_str()?.parse().ok()?))
        .collect()
}

/// By its program, whose name holds also where it is a file in memory.
fn is_launcher(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|path| {
        let name = Path::file_name(&path).unwrap_or_default();
        name.as_encoded_bytes()
            .windows(LAUNCHER.len())
            .any(|part| part == LAUNCHER)
    })
}

const LAUNCHER: &[u8] = b"fairtrial-launcher";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    fn usable(cpus: &[usize], at_once: usize) -> Usable {
        Usable {
            cpus: cpus.to_vec(),
            at_once,
            ahead: at_once > 1,
        }
    }

    fn text(pin: &Pin, usable: &Usable, base_cpus: f64) -> String {
        match Pinning::choose(pin, usable, base_cpus) {
            Ok(pinning) => pinning.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// CA-73
    #[test]
    fn the_choice_is_explained() {
        let four = usable(&[0, 1, 2, 3], 4);
        let named = |cpus: &[usize]| Pin::Cpus(cpus.to_vec());
        assert!(
            text(&Pin::Auto, &four, 1.04).starts_with("pinned to CPU 3, engine and launcher on 0")
        );
        assert!(text(&Pin::Auto, &four, 1.04).ends_with(", ahead of other processes"));
        for (pin, usable, base_cpus, wanted) in [
            (
                Pin::Auto,
                &four,
                1.06,
                "not pinned: the base uses 1.06 CPUs",
            ),
            (
                Pin::Auto,
                &usable(&[2], 1),
                1.0,
                "not pinned: only one CPU is usable",
            ),
            (
                Pin::Auto,
                &usable(&[0, 1], 1),
                1.0,
                "not pinned: only one CPU is usable",
            ),
            (Pin::Off, &four, 1.0, "not pinned: not wanted"),
            (
                named(&[7]),
                &four,
                1.0,
                "CPU 7 cannot be used here; usable: 0-3",
            ),
            (
                named(&[0]),
                &usable(&[0], 1),
                1.0,
                "pinned to CPU 0, which engine and launcher share, not ahead of other processes: that takes root",
            ),
        ] {
            assert_eq!(text(&pin, usable, base_cpus), wanted);
        }
        // Named ones are taken even for a base that would rather have more.
        assert!(text(&named(&[1, 2]), &four, 2.0).starts_with("pinned to CPU 1-2, "));
    }

    /// CA-73
    #[test]
    fn the_other_half_of_a_core_is_left_alone_where_it_can_be() {
        let pairs = |cpu| vec![cpu & !1, cpu | 1];
        assert_eq!(others(&[3], &[0, 1, 2, 3], pairs), [0, 1]);
        assert_eq!(others(&[1], &[0, 1], pairs), [0]);
        assert_eq!(others(&[0, 1], &[0, 1], pairs), [0; 0]);
    }

    /// CA-73
    #[test]
    fn all_threads_leave_the_measuring_cpu_and_return() {
        let before = affinity::allowed();
        let pinning = Pinning::choose(&Pin::Auto, &Usable::now(), 1.0);
        let Ok(pinning @ Pinning::On { others, .. }) = &pinning else {
            return skipped("with one CPU there is nowhere to go");
        };
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (say, said) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for () in stopped {
                seen.push(affinity::allowed());
                say.send(()).unwrap();
            }
            seen
        });
        let kept = keep_off(pinning);
        assert_eq!(affinity::allowed(), *others);
        let late = std::thread::spawn(affinity::allowed).join().unwrap();
        assert_eq!(late, *others);
        stop.send(()).unwrap();
        said.recv().unwrap();
        drop(kept);
        assert_eq!(affinity::allowed(), before);
        stop.send(()).unwrap();
        drop(stop);
        assert_eq!(sleeper.join().unwrap(), [others.clone(), before]);
    }
}
