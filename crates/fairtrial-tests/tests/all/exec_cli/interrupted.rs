//! `fairtrial exec` and the signals that end it (EX-98).

use fairtrial_tests::{Process, Shell, note, wait_until};
use rustix::process::{Signal, kill_process_group};

/// EX-98: to the process alone, as `kill` sends it, and to its whole group, as a terminal does.
#[tokio::test]
async fn an_interrupt_exits_130_and_leaves_nothing() {
    for (signal, group) in [
        (Signal::INT, false),
        (Signal::TERM, false),
        (Signal::INT, true),
        (Signal::HUP, false),
        (Signal::HUP, true),
    ] {
        if signal == Signal::HUP && is_ignored(signal) {
            note("skipped: SIGHUP is ignored here (`nohup`?), so in all that is started too");
            continue;
        }
        let shell = Shell::new();
        shell.program("double_fork.py");
        let call = ["exec", "double_fork.py", "--function", "f"];
        let running = shell.fairtrial(call).own_group().start();
        let engine = running.pid().as_raw_nonzero().get().cast_unsigned();
        let engine = Process::find(engine).expect("it runs");
        // Launcher, zygote, worker and what the worker leaves behind.
        wait_until("the call runs", || engine.descendants().len() >= 4).await;
        let below = engine.descendants();
        if group {
            kill_process_group(running.pid(), signal).unwrap();
        } else {
            running.signal(signal);
        }
        let run = running.end();
        assert_eq!(
            (run.code, &*run.stdout, &*run.stderr),
            (
                Some(130),
                "",
                "interrupted: what was running has been killed\n"
            ),
            "{signal:?} {group}"
        );
        wait_until("nothing is left running", || {
            shell.processes().is_empty() && !below.iter().any(|process| process.is_running())
        })
        .await;
        assert!(shell.spilled().is_empty(), "{:?}", shell.spilled());
    }
}

/// Whether this process, and so whatever it starts, ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    ignored & (1 << (signal.as_raw() - 1)) != 0
}

/// EX-98: who ignores the hangup from the start goes on, as under `nohup`.
#[test]
fn a_hangup_that_is_ignored_interrupts_nothing() {
    let shell = Shell::new();
    let script = "echo here; read line; echo $line";
    let call = ["exec", "--", "sh", "-c", script];
    let mut running = shell.fairtrial(call).under("nohup").start();
    assert_eq!(running.line(), "here\n");
    running.signal(Signal::HUP);
    running.say("on");
    let run = running.end();
    assert_eq!((run.code, &*run.stdout), (Some(0), "on\n"));
}

/// EX-98: an interrupt is also heard while a command waits for input, or is not there yet.
#[tokio::test]
async fn an_interrupt_while_input_is_awaited_exits_130() {
    let shell = Shell::new();
    let running = shell.fairtrial(["exec", "--", "cat"]).start();
    let status = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    wait_until("it listens for signals", || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        caught & (1 << (Signal::INT.as_raw() - 1)) != 0
    })
    .await;
    running.signal(Signal::INT);
    assert_eq!(running.end().code, Some(130));
    shell.assert_nothing_left();
}
