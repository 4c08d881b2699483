//! What the kernel counts of a measured command, through the engine and the launcher.

use fairtrial_exec::{Counted, NoCounters, probe_counters};
use fairtrial_tests::note;

use super::ground::{Ground, kinds, said};

/// The shell itself does nothing: a child of its child is busy, and an orphan.
const BUSY: &str =
    "sh -c '(i=0; while test $i -lt 20000; do i=$((i+1)); done; echo done >&3) & ' 3>&1 | cat";

/// CA-72: in a workspace or not, at every level, all processes of a command are counted, from its program on.
#[tokio::test]
async fn a_command_is_counted_with_all_that_it_starts() {
    let ground = Ground::new(&[]);
    for kind in kinds() {
        let workspace = ground.call(kind, ground.workspace(kind), BUSY);
        let mut plain = workspace.clone();
        (plain.workspace, plain.cwd) = (None, None);
        for mut call in [workspace, plain] {
            call.counted = vec![Counted::TaskClock, Counted::Instructions, Counted::Cycles];
            let outcome = ground.story.run(call).await;
            assert_eq!(said(&outcome, kind), "done\n", "{kind:?}");
            let counted = &outcome.metrics.counted;
            let kinds: Vec<Counted> = counted.iter().map(|count| count.of).collect();
            let asked = [Counted::TaskClock, Counted::Instructions, Counted::Cycles];
            assert_eq!(kinds, asked);
            let spent = outcome.metrics.user_ns.zip(outcome.metrics.system_ns);
            let (user_ns, system_ns) = spent.expect("measured");
            match &counted[0].count {
                // The shell's own share is far below a half.
                Ok(clock_ns) => assert!(
                    *clock_ns > (user_ns + system_ns) / 2,
                    "{kind:?}: {clock_ns} of {user_ns} + {system_ns}"
                ),
                Err(NoCounters(why)) => {
                    assert!(why.contains("perf"), "{why}");
                    note(format!("not counted: {why}"));
                }
            }
            for count in &counted[1..] {
                match (&count.count, probe_counters()) {
                    (Ok(count), Ok(())) => assert!(*count > 20_000),
                    // Absent, and never 0.
                    (Err(why), Err(probed)) => assert_eq!(*why, probed),
                    (found, probed) => panic!("{kind:?}: {found:?} though {probed:?}"),
                }
            }
        }
    }
    ground.story.end().await;
}

/// CA-72: who asks for nothing is told nothing, and a command that cannot be started has no counts.
#[tokio::test]
async fn what_never_ran_was_not_counted() {
    let ground = Ground::new(&[]);
    let kind = kinds()[0];
    let mut call = ground.call(kind, ground.workspace(kind), "true");
    assert_eq!(ground.story.run(call.clone()).await.metrics.counted, []);
    call.work = fairtrial_exec::Call::command(["no-such-program"]).work;
    call.counted = vec![Counted::TaskClock];
    let counted = ground.story.run(call).await.metrics.counted;
    assert!(
        counted.iter().all(|count| count.count.is_err()),
        "{counted:?}"
    );
    ground.story.end().await;
}
