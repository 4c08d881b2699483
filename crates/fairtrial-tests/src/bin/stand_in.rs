//! Stands in for an engine that evaluates, in tests of what several of them share: the machine-wide lock and the store.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fairtrial_exec::{CopySlot, Keep, MachineLock, Reset, Snapshot, Store, list};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Every snapshot that nobody uses goes.
const NONE: Keep = Keep {
    count: 0,
    age: Duration::ZERO,
};

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["turns", file, log, seed, turns] => {
            let lock = MachineLock::at(file);
            wait_for(take_turns(
                &lock,
                Path::new(log),
                seed.parse()?,
                turns.parse()?,
            ))
        }
        ["hold", file, label] => wait_for(hold(&MachineLock::at(file), label)),
        ["crowd", file, kind] => wait_for(crowd(&MachineLock::at(file), kind)),
        ["keep", cache, tree] => keep(&Store::at(cache), Path::new(tree)),
        _ => Err(format!("not a part to play: {words:?}").into()),
    }
}

/// The lock needs no reactor, only somebody who polls.
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime can be had").block_on(future)
}

fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Takes the lock so many times in one way or the other, and writes down when it has it.
async fn take_turns(lock: &MachineLock, log: &Path, seed: u64, turns: u32) -> Result<(), Failure> {
    let mut log = OpenOptions::new().append(true).create(true).open(log)?;
    let mut chance = seed;
    for _ in 0..turns {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (held, letter) = match chance >> 62 {
            0 => (lock.exclusive("turn", |_| ()).await?, 'x'),
            _ => (lock.shared("turn", |_| ()).await?, 's'),
        };
        log.write_all(format!("+{letter}\n").as_bytes())?;
        std::thread::yield_now();
        log.write_all(format!("-{letter}\n").as_bytes())?;
        drop(held);
    }
    Ok(())
}

/// Has the lock, and a child that knows nothing of it, until its input ends.
async fn hold(lock: &MachineLock, label: &str) -> Result<(), Failure> {
    let held = lock.exclusive(label, |_| ()).await?;
    #[expect(clippy::disallowed_methods, reason = "a child like any other")]
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    say(&format!("held {}", child.id()))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    child.kill()?;
    child.wait()?;
    drop(held);
    Ok(())
}

/// Three who want the lock again as soon as they gave it up, so that hardly ever none of them has it, until its input
/// ends.
async fn crowd(lock: &MachineLock, kind: &str) -> Result<(), Failure> {
    let ended = InputEnd::listen();
    let one = || async {
        for turn in 0_u64.. {
            if ended.has_come() {
                break;
            }
            let held = match kind {
                "exclusive" => lock.exclusive("crowd", |_| ()).await?,
                _ => lock.shared("crowd", |_| ()).await?,
            };
            tokio::task::yield_now().await; // the others have their turns
            drop(held);
            if turn == 10 {
                say("busy")?;
            }
        }
        Ok::<(), Failure>(())
    };
    tokio::try_join!(one(), one(), one()).map(|_| ())
}

/// Whether standard input has ended.
struct InputEnd(Arc<()>);

impl InputEnd {
    fn listen() -> Self {
        let open = Arc::new(());
        let listening = Arc::clone(&open);
        std::thread::spawn(move || {
            _ = std::io::stdin().read_to_end(&mut Vec::new()); // ends with the pipe, however that ends
            drop(listening);
        });
        Self(open)
    }

    fn has_come(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// Has a snapshot and a workspace of its own, sweeps what others left, looks whether its own is still there; again and
/// again until its input ends.
fn keep(store: &Store, tree: &Path) -> Result<(), Failure> {
    let ended = InputEnd::listen();
    let me = std::process::id().to_string();
    let mut round = 0;
    while !ended.has_come() {
        for orphan in store.orphans()? {
            let owner = orphan.noted("owner").unwrap_or_default();
            if owner == me.as_bytes() {
                return Err("its own workspace counts as left behind".into());
            }
            orphan.remove()?;
        }
        let root = store.workspace_dir()?;
        root.note("owner", me.as_bytes())?;
        let snapshot = Snapshot::take(store, tree, list(tree, |_| false)?, |_| false)?;
        let mut slot = CopySlot::make(
            Arc::clone(snapshot.tree()),
            &root.path().join("slot-0001"),
            true,
        )?;
        store.sweep(NONE)?;
        snapshot.check()?;
        if slot.reset()? != Reset::default() || !root.path().join("owner").exists() {
            return Err("somebody was at its workspace".into());
        }
        round += 1;
        say(&format!("round {round}"))?;
    }
    Ok(())
}
