//! What an engine tells of its workers, as events of a queue (CL-61), and back again for those who listen. Pure.

use std::collections::BTreeMap;

use fairtrial_exec::{Event, Exit, ExitReason};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::envelope::known;
use crate::terms::NewEvent;

/// An event of an agent's engine, if it is one that queues are told: the others are told by whoever runs the call.
pub(crate) fn to_queue(event: &Event, agent: &str) -> Option<NewEvent> {
    let data = match event {
        Event::WorkerStart {
            worker_id,
            pid,
            zygote_threads,
            closed_fds,
        } => json!({
            "worker_id": worker_id,
            "pid": pid,
            "zygote_threads": zygote_threads,
            "closed_fds": closed_fds,
        }),
        Event::WorkerExit {
            worker_id,
            reason,
            status,
            stale_frames,
        } => {
            let status = status.map(|status| match status {
                Exit::Code(code) => json!({"code": code}),
                Exit::Signal(signal) => json!({"signal": signal}),
            });
            json!({
                "worker_id": worker_id,
                "reason": reason.name(),
                "status": status,
                "stale_frames": stale_frames,
            })
        }
        Event::Degraded {
            requested,
            mechanism,
            reason,
        } => {
            json!({"requested": requested.to_string(), "mechanism": mechanism, "reason": reason})
        }
        Event::Submit { .. } | Event::Start { .. } | Event::Complete { .. } | Event::Shutdown => {
            return None;
        }
    };
    Some(NewEvent {
        name: event.name().to_owned(),
        task: None,
        agent: Some(agent.to_owned()),
        data: data.to_string(),
    })
}

/// The engine's event; none if it is another's, or says something that is not known here.
pub(crate) fn from_queue(event: &NewEvent) -> Option<Event> {
    let is_ours = ["worker_start", "worker_exit", "degraded"].contains(&event.name.as_str());
    let data: Value = is_ours.then(|| serde_json::from_str(&event.data).ok())??;
    let text = |field: &str| data[field].as_str().map(str::to_owned);
    Some(match event.name.as_str() {
        "worker_start" => Event::WorkerStart {
            worker_id: text("worker_id")?,
            pid: number(&data["pid"])?,
            zygote_threads: number(&data["zygote_threads"]),
            closed_fds: BTreeMap::deserialize(&data["closed_fds"]).unwrap_or_default(),
        },
        "worker_exit" => Event::WorkerExit {
            worker_id: text("worker_id")?,
            reason: ExitReason::named(data["reason"].as_str()?)?,
            status: exit(&data["status"]),
            stale_frames: data["stale_frames"].as_u64().unwrap_or(0),
        },
        _ => Event::Degraded {
            requested: data["requested"].as_str()?.parse().ok()?,
            mechanism: known(data["mechanism"].as_str()?),
            reason: text("reason")?,
        },
    })
}

fn number(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok()
}

fn exit(status: &Value) -> Option<Exit> {
    let number = |value: &Value| i32::try_from(value.as_i64()?).ok();
    let code = number(&status["code"]).map(Exit::Code);
    code.or_else(|| number(&status["signal"]).map(Exit::Signal))
}

#[cfg(test)]
mod tests {
    use fairtrial_exec::{CallId, Level, Verdict};

    use super::*;

    /// CL-61
    #[test]
    fn what_an_engine_tells_of_workers_arrives_as_it_was_told() {
        let exit = |reason, status| Event::WorkerExit {
            worker_id: "w".into(),
            reason,
            status,
            stale_frames: 2,
        };
        let told = [
            Event::WorkerStart {
                worker_id: "w".into(),
                pid: 7,
                zygote_threads: Some(3),
                closed_fds: BTreeMap::from([(5, "/etc/passwd".into())]),
            },
            Event::WorkerStart {
                worker_id: "w".into(),
                pid: 7,
                zygote_threads: None,
                closed_fds: BTreeMap::new(),
            },
            exit(ExitReason::CallDone, Some(Exit::Code(0))),
            exit(ExitReason::AfterError, Some(Exit::Signal(9))),
            exit(ExitReason::Limit(Verdict::OutputLimit), None),
            Event::Degraded {
                requested: Level::Strict,
                mechanism: "memory",
                reason: "no \"controller\"".into(),
            },
        ];
        for event in told {
            let queued = to_queue(&event, "here").expect("queues are told of it");
            assert_eq!(queued.agent.as_deref(), Some("here"));
            assert_eq!(from_queue(&queued), Some(event));
        }
        let other = Event::Submit { call: CallId(1) };
        assert_eq!(to_queue(&other, "here"), None);
    }

    /// CL-40, CL-61: a later version may have more to say.
    #[test]
    fn what_is_not_known_is_no_event() {
        for (name, data) in [
            ("worker_exit", r#"{"worker_id":"w","reason":"bored"}"#),
            ("worker_start", "{}"),
            ("worker_start", "no JSON"),
            ("agent.up", "{}"),
        ] {
            let event = NewEvent {
                name: name.into(),
                data: data.into(),
                ..NewEvent::default()
            };
            assert_eq!(from_queue(&event), None, "{name} {data}");
        }
    }
}
