//! What agents cannot run goes to others, and ends when there are none.

use fairtrial_cluster::{Agent, Dispatch, Leased, Place, Refusal, Release, Released, TaskId};

use crate::stage::Stage;
use crate::words::*;

fn refused(refusal: Refusal, reason: &str) -> Release {
    Release::Refused {
        refusal,
        reason: reason.to_owned(),
    }
}

/// An agent takes the next task and refuses it.
async fn refuse(dispatch: &impl Dispatch, agent: &Agent, refusal: Refusal, reason: &str) -> TaskId {
    let leased = lease(dispatch, &agent.slot(0)).await;
    assert_eq!(leased.token.delivery, 1);
    let released = dispatch
        .release(&leased, &refused(refusal, reason))
        .await
        .unwrap();
    assert_eq!(released, Released::Released);
    leased.task
}

/// CL-22
pub(crate) async fn another_agent_gets_what_one_refused(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a", "b"]).await;
    assert_eq!(
        refuse(dispatch, &agent("n1"), Refusal::Setup, "no gpu").await,
        ids[0]
    );
    // No slot of it is given that one again; what else there is, is.
    assert_eq!(lease(dispatch, &agent("n1").slot(1)).await.task, ids[1]);
    assert_eq!(
        try_lease(dispatch, &agent("n1").slot(2)).await,
        Leased::Empty
    );
    let taken = lease(dispatch, &slot("n2")).await;
    assert_eq!((&taken.task, taken.token.delivery), (&ids[0], 1));
    let told = told_of(dispatch, &ids[0]).await;
    assert_eq!(
        told,
        ["submit", "call.leased", "call.refused", "call.leased"]
    );
}

/// CL-22, CL-38
pub(crate) async fn what_all_live_agents_refused_is_recorded_with_every_reason(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    refuse(dispatch, &agent("n1"), Refusal::Setup, "no gpu").await;
    assert_eq!(reap(dispatch, &[agent("n1"), agent("n2")]).await.refused, 0);
    assert_eq!(place(dispatch, &ids[0]).await, Place::Queued);
    refuse(dispatch, &agent("n2"), Refusal::Protocol, "too new").await;
    // With nobody alive it waits for somebody.
    assert_eq!(reap(dispatch, &[]).await.refused, 0);
    assert_eq!(
        reap(dispatch, &[agent("n1"), agent("n2"), agent("n3")])
            .await
            .refused,
        0
    );
    // Of those that have refused, one may be gone by now.
    assert_eq!(reap(dispatch, &[agent("n2")]).await.refused, 1);
    let recorded = recorded(dispatch, &ids[0]).await;
    assert_eq!(recorded["verdict"], "setup_failed");
    assert_eq!(recorded["reason"], "n1: no gpu; n2: too new");
    assert_eq!(try_lease(dispatch, &slot("n3")).await, Leased::Empty);
}

/// CL-23, X21 as far as dispatch goes
pub(crate) async fn a_newer_protocol_ends_as_invalid(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    for name in ["n1", "n2"] {
        refuse(dispatch, &agent(name), Refusal::Protocol, "protocol 2.0").await;
    }
    assert_eq!(reap(dispatch, &[agent("n1"), agent("n2")]).await.refused, 1);
    let recorded = recorded(dispatch, &ids[0]).await;
    assert_eq!(
        (&recorded["kind"], &recorded["verdict"]),
        (&"error".into(), &"invalid".into())
    );
}

/// CL-8, CL-22
pub(crate) async fn an_agent_started_again_is_asked_again(stage: &impl Stage) {
    let dispatch = stage.dispatch();
    let ids = with_tasks(dispatch, &["a"]).await;
    refuse(dispatch, &agent("n1"), Refusal::Setup, "no gpu").await;
    let restarted = Agent::new("n1", "n1-second").unwrap();
    assert_eq!(
        reap(dispatch, std::slice::from_ref(&restarted))
            .await
            .refused,
        0
    );
    refuse(dispatch, &restarted, Refusal::Setup, "still no gpu").await;
    assert_eq!(reap(dispatch, &[restarted]).await.refused, 1);
    assert_eq!(
        recorded(dispatch, &ids[0]).await["reason"],
        "n1: still no gpu"
    );
}
