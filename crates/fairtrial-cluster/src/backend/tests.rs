//! A backend, in memory.

use fairtrial_exec::{SpillDir, Verdict};

use super::*;
use crate::memory::MemoryDispatch;

/// The queue `q`, named, with room for a hundred.
pub(super) fn config(spill: &std::path::Path) -> ClusterConfig {
    ClusterConfig {
        queue: QueueName::new("q").expect("a name"),
        named: true,
        class: Class::Cpu,
        weight: 1,
        max_queue: 100,
        max_inflight: None,
        on_full: OnFull::Wait,
        server_timeout: Duration::from_secs(60),
        lease: Duration::from_secs(30),
        packs_cwd: false,
        sends_passed: false,
        spill: SpillPolicy {
            dir: SpillDir::new(spill),
            memfd_cap_bytes: u64::MAX,
            memory_limit_bytes: None,
        },
        python: None,
    }
}

fn backend(on_full: OnFull) -> ClusterBackend<MemoryDispatch> {
    let config = ClusterConfig {
        named: false,
        max_queue: 1,
        on_full,
        ..config(&std::env::temp_dir())
    };
    ClusterBackend::new(MemoryDispatch::new(), None, config)
}

/// CL-33: a full queue makes calls wait; only whoever asked for it is told.
#[tokio::test]
async fn a_full_queue_is_an_error_only_if_that_was_asked_for() {
    for (on_full, says) in [
        (OnFull::Error, Some("queue `q` is full (full)")),
        (OnFull::Wait, None),
    ] {
        let backend = backend(on_full);
        let call = || Call::command(["true"]);
        let first = backend.submit(call()).expect("it is taken");
        let mut second = backend.submit(call()).expect("it is taken");
        let told = tokio::time::timeout(Duration::from_secs(2), &mut second).await;
        let error = told.ok().map(|told| told.expect_err("there is no room"));
        assert_eq!(error.map(|error| error.to_string()).as_deref(), says);
        first.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(30), first).await;
        let ended = ended.expect("in time").expect("an outcome");
        assert_eq!(ended.verdict, Verdict::Cancelled);
    }
}

/// CL-56: who is told to end with patience, and then at once, ends at once.
#[tokio::test]
async fn the_second_shutdown_may_be_the_quicker_one() {
    let backend = Arc::new(backend(OnFull::Wait));
    let call = backend.submit(Call::command(["true"])).expect("taken");
    let patient = Shutdown {
        kill_after: Some(Duration::from_secs(3600)),
        ..Shutdown::default()
    };
    let first = backend.shutdown(patient);
    tokio::pin!(first);
    assert!(futures_util::poll!(&mut first).is_pending());
    let both = async { tokio::join!(first, backend.shutdown(Shutdown::now())) };
    let in_time = tokio::time::timeout(Duration::from_secs(60), both).await;
    in_time.expect("it ended");
    assert!(
        call.await
            .is_ok_and(|outcome| outcome.verdict == Verdict::Cancelled)
    );
}
