//! How agents end, and what becomes of what they run: told to, left alone by the server, or fenced.

use fairtrial_tests::{RedisServer, Shell, wait_until};
use rustix::process::Signal;
use serde_json::json;

use super::cluster_words::{
    agent, agent_status, batch, begun, command, dispatch, has_begun, held_calls, is_alive, number,
    records, told, wait_for,
};

/// CL-7, CL-28: what does not end in time is killed and given back, and does not count as delivered.
#[tokio::test]
async fn what_outlasts_the_drain_is_given_back() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let words = ["--slots", "1", "--drain-timeout", "1s"];
    let leaving = agent(&shell, &server, "leaving", &words);
    let running = batch(&shell, &server, "calls.jsonl", "");
    wait_until("it began", || has_begun(&shell, "leaving")).await;
    leaving.signal(Signal::TERM);
    assert_eq!(leaving.end().code, Some(0));
    assert!(!is_alive(begun(&shell)[0].1));
    let _last = agent(&shell, &server, "last", &["--slots", "1"]);
    assert_eq!(records(&running.end().stdout)[0]["value"], "last");
    let leases = told(&dispatch(&server), "call.leased").await;
    let leases: Vec<&str> = leases.iter().map(|lease| &*lease.data).collect();
    assert_eq!(leases, [r#"{"delivery":1}"#; 2]);
}

/// CL-7, CL-61: a second signal gives back at once what runs; the exit code tells SIGINT from others.
#[tokio::test]
async fn a_second_signal_gives_back_what_runs_at_once() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let running = batch(&shell, &server, "calls.jsonl", "");
    let dispatch = dispatch(&server);
    for (name, signal, code) in [
        ("term", Signal::TERM, 0),
        ("int", Signal::INT, 130),
        ("hup", Signal::HUP, 0),
    ] {
        let leaving = agent(&shell, &server, name, &["--slots", "1"]);
        wait_until("it began", || has_begun(&shell, name)).await;
        leaving.signal(signal);
        wait_until("it drains", || {
            agent_status(&shell, &server, name)["state"] == "draining"
        })
        .await;
        assert!(is_alive(begun(&shell).last().expect("it began").1));
        leaving.signal(signal);
        let ended = leaving.end();
        assert_eq!(ended.code, Some(code), "{name}: {ended:?}");
        wait_for(&dispatch, "agent.draining", name).await;
        wait_for(&dispatch, "agent.down", name).await;
    }
    assert!(begun(&shell).iter().all(|(_, pid)| !is_alive(*pid)));
    let _last = agent(&shell, &server, "last", &["--slots", "1"]);
    assert_eq!(records(&running.end().stdout)[0]["value"], "last");
}

/// CL-7: who drains leases nothing more, though a commit asks for the next task in the same breath.
#[tokio::test]
async fn an_agent_that_drains_begins_nothing_more() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 3);
    let leaving = agent(&shell, &server, "leaving", &["--slots", "1"]);
    let _running = batch(&shell, &server, "calls.jsonl", "");
    let queued = || number(&shell, &server, "q", "queued");
    wait_until("it began", || has_begun(&shell, "leaving")).await;
    wait_until("others wait", || queued() == Some(2)).await;
    leaving.signal(Signal::TERM);
    wait_until("it drains", || {
        agent_status(&shell, &server, "leaving")["state"] == "draining"
    })
    .await;
    shell.write("go", "");
    let ended = leaving.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!((begun(&shell).len(), queued()), (1, Some(2)));
}

/// CL-7: an agent without work ends at the first signal, with the code of that signal.
#[test]
fn an_idle_agent_ends_at_the_first_signal() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    for (signal, code) in [(Signal::TERM, 0), (Signal::INT, 130), (Signal::HUP, 0)] {
        let idle = agent(&shell, &server, "idle", &["--slots", "2"]);
        idle.signal(signal);
        let ended = idle.end();
        assert_eq!(ended.code, Some(code), "{signal:?}: {ended:?}");
    }
}

/// CL-16, CL-61, X4: an agent that stood still past its lease hears that it has it no longer: it kills the call, and says so.
#[tokio::test]
async fn an_agent_that_lost_its_lease_kills_the_call_and_says_so() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let words = ["--slots", "1", "--lease", "3s"];
    let first = agent(&shell, &server, "first", &words);
    let running = batch(&shell, &server, "calls.jsonl", "lease=3s");
    wait_until("it began", || has_begun(&shell, "first")).await;
    first.signal(Signal::STOP);
    let _last = agent(&shell, &server, "last", &words);
    assert_eq!(records(&running.end().stdout)[0]["value"], "last");
    let (_, pid) = begun(&shell)[0].clone();
    assert!(is_alive(pid), "its agent stands still");
    let dispatch = dispatch(&server);
    assert_eq!(told(&dispatch, "call.fenced").await, []);
    first.signal(Signal::CONT);
    wait_for(&dispatch, "call.fenced", "first").await;
    assert!(!is_alive(pid));
}

/// CL-61: who is gone without a word is told of by others.
#[tokio::test]
async fn an_agent_that_is_killed_is_told_of_by_another() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let _stays = agent(&shell, &server, "stays", &["--slots", "1", "--lease", "1s"]);
    let _running = batch(&shell, &server, "calls.jsonl", "");
    wait_until("it began", || has_begun(&shell, "stays")).await;
    let killed = agent(&shell, &server, "killed", &["--slots", "1"]);
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().code, None);
    // Its name would live on for 30 s.
    let () = command(&server, &["PEXPIRE", "ft:node:killed", "1"]);
    let dispatch = dispatch(&server);
    wait_for(&dispatch, "agent.lost", "killed").await;
    let lost = told(&dispatch, "agent.lost").await;
    assert_eq!(lost.len(), 1, "{lost:?}");
}

/// CL-5: the lease is kept by the agent's own timer while a call holds its interpreter's lock for three leases.
#[tokio::test]
async fn a_call_that_holds_the_gil_keeps_its_lease() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let source = "import ctypes\ndef f(): return ctypes.PyDLL(None).sleep(6)";
    let calls = [json!({"id": 1, "source": source, "function": "f"})];
    shell.write_lines("calls.jsonl", &calls);
    let words = ["--slots", "1", "--lease", "2s"];
    let _agents = ["one", "two"].map(|name| agent(&shell, &server, name, &words));
    let ended = batch(&shell, &server, "calls.jsonl", "lease=2s").end();
    assert_eq!(records(&ended.stdout)[0]["value"], 0, "{ended:?}");
    let leases = told(&dispatch(&server), "call.leased").await;
    assert_eq!(leases.len(), 1, "{leases:?}");
}

/// CL-5: the queue says how soon a lease is lost, and an agent that was started for longer ones keeps it all the same.
#[tokio::test]
async fn an_agent_with_long_leases_keeps_a_short_one() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    let begun = shell.path().join("begun").display().to_string();
    let source = "import ctypes
def f(begun):
    open(begun, 'w').close()
    return ctypes.PyDLL(None).sleep(6)";
    let call = json!({"id": 1, "source": source, "function": "f", "args": [begun]});
    shell.write_lines("calls.jsonl", &[call]);
    let _long = agent(&shell, &server, "long", &["--slots", "1", "--lease", "30s"]);
    let running = batch(&shell, &server, "calls.jsonl", "lease=2s");
    wait_until("it began", || shell.path().join("begun").exists()).await;
    // Takes back what is not renewed.
    let _short = agent(&shell, &server, "short", &["--slots", "1", "--lease", "1s"]);
    let ended = running.end();
    assert_eq!(records(&ended.stdout)[0]["value"], 0, "{ended:?}");
    let leases = told(&dispatch(&server), "call.leased").await;
    assert_eq!(leases.len(), 1, "{leases:?}");
}

/// CL-57: an agent that the server has left alone for too long kills what it runs, and ends with 1.
#[tokio::test]
async fn an_agent_gives_up_a_server_that_stays_away() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let words = ["--slots", "1", "--lease", "1s", "--give-up", "1s"];
    let lonely = agent(&shell, &server, "lonely", &words);
    let _running = batch(&shell, &server, "calls.jsonl", "lease=1s");
    wait_until("it began", || has_begun(&shell, "lonely")).await;
    server.kill();
    let ended = lonely.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let says = "the agent ended: no answer from the server for ";
    assert!(ended.stderr.contains(says), "{ended:?}");
    assert!(!is_alive(begun(&shell)[0].1));
}

/// CL-57: what ends while the server is away is kept, and committed when it is back: nothing is run again.
#[tokio::test]
async fn an_outcome_outlives_the_absence_of_the_server() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let mut one = agent(&shell, &server, "one", &["--slots", "1"]);
    let running = batch(&shell, &server, "calls.jsonl", "lease=60s");
    wait_until("it began", || has_begun(&shell, "one")).await;
    let pid = begun(&shell)[0].1;
    server.kill();
    shell.write("go", "");
    let said = one.error_line();
    assert!(said.contains("cannot reach the server"), "{said}");
    wait_until("it ended", || !is_alive(pid)).await;
    server.start_again();
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(records(&ended.stdout)[0]["value"], "one");
    assert_eq!(begun(&shell).len(), 1, "it was not run again");
    let leases = told(&dispatch(&server), "call.leased").await;
    assert_eq!(leases.len(), 1, "{leases:?}");
}

/// CL-57: a server that takes nothing for a while ends neither agent nor coordinator.
#[tokio::test]
async fn a_server_that_refuses_for_a_while_ends_nobody() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 2);
    let words = ["--slots", "1", "--lease", "1s"];
    let mut patient = agent(&shell, &server, "patient", &words);
    let mut running = batch(&shell, &server, "calls.jsonl", "lease=60s");
    wait_until("it began", || has_begun(&shell, "patient")).await;
    let () = command(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let said = patient.error_line();
    assert!(said.contains("READONLY"), "{said}");
    // Who waits for events is sent away, and refused later.
    let said = running.error_line();
    assert!(said.contains("cannot reach the server"), "{said}");
    let () = command(&server, &["REPLICAOF", "NO", "ONE"]);
    shell.write("go", "");
    let ended = running.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(begun(&shell).len(), 2);
    patient.signal(Signal::TERM);
    assert_eq!(patient.end().code, Some(0));
}

/// CL-20: a running call dies by the hint: the next renewal is ten minutes away.
#[tokio::test]
async fn a_cancelled_call_dies_by_the_hint() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let _agent = agent(&shell, &server, "one", &["--slots", "1", "--lease", "30m"]);
    let running = batch(&shell, &server, "calls.jsonl", "lease=30m");
    wait_until("it began", || has_begun(&shell, "one")).await;
    running.signal(Signal::INT);
    let (_, pid) = begun(&shell)[0].clone();
    wait_until("it is killed", || !is_alive(pid)).await;
    let ended = running.end();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stderr.contains("has been killed"), "{ended:?}");
}

/// CL-20: and at the next renewal, if the hint was lost.
#[tokio::test]
async fn a_cancelled_call_dies_at_the_next_renewal_without_the_hint() {
    let Some(server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let _agent = agent(&shell, &server, "one", &["--slots", "1", "--lease", "3s"]);
    let running = batch(&shell, &server, "calls.jsonl", "lease=3s");
    wait_until("it began", || has_begun(&shell, "one")).await;
    let leases = told(&dispatch(&server), "call.leased").await;
    let task = leases[0].task.clone().expect("a task");
    // As `cancel` notes it, and tells nobody.
    let () = command(&server, &["SADD", "ft:{q}:cancel", task.as_str()]);
    let ended = running.end();
    assert_eq!(
        records(&ended.stdout)[0]["verdict"],
        "cancelled",
        "{ended:?}"
    );
    assert!(!is_alive(begun(&shell)[0].1));
}

/// CL-7, CL-57: an outcome that no server takes keeps nobody from ending for longer than they were told to take.
#[tokio::test]
async fn an_agent_whose_server_is_away_drains_in_time() {
    let Some(mut server) = RedisServer::start() else {
        return;
    };
    let shell = Shell::new();
    held_calls(&shell, "calls.jsonl", 1);
    let words = ["--slots", "1", "--drain-timeout", "1s"];
    let mut draining = agent(&shell, &server, "one", &words);
    let _running = batch(&shell, &server, "calls.jsonl", "");
    wait_until("it began", || has_begun(&shell, "one")).await;
    let pid = begun(&shell)[0].1;
    server.kill();
    shell.write("go", "");
    let line = draining.error_line();
    assert!(line.contains("cannot reach the server"), "{line}");
    draining.signal(Signal::TERM);
    let ended = draining.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!is_alive(pid), "its worker is gone");
}
