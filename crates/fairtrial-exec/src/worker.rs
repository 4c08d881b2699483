//! Worker states: the pure step. `drive.rs` waits and acts; `judge.rs` turns an end into an outcome.
//!
//! Never waits, never reads a clock, never touches the kernel.

pub(crate) mod ahead;
mod assign;
pub(crate) mod call_frame;
pub(crate) mod current;
pub(crate) mod drive;
mod finish;
pub(crate) mod frames;
pub(crate) mod initialize;
pub(crate) mod judge;
mod launched;
pub(crate) mod link;
mod listen;
mod measured;
pub(crate) mod pipes;
pub(crate) mod said;

use crate::event::ExitReason;
use crate::protocol::launcher::{Cause, End};
use crate::spill::Body;

/// How a worker came about and what a reply means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// Forked for one call; a reply ends it.
    Fresh,
    /// Serves many calls; a reply leaves it idle.
    Reuse,
    /// A program: it acknowledges by starting and replies by ending.
    Command,
}

impl Mode {
    /// The name in the public contract.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Reuse => "reuse",
            Self::Command => "command",
        }
    }
}

/// Where a worker stands. `generation` numbers the dispatch.
#[derive(Debug)]
pub(crate) enum State {
    /// No call.
    Idle,
    /// A call is on its way; nothing says that it began.
    Sent { generation: u32 },
    /// It acknowledged. Once the user's code runs it can no longer blame the set-up.
    Running { generation: u32, user_code: bool },
    /// The end is decided and recorded; the tree is being killed.
    Ending(Ending),
    /// Nothing is left.
    Gone,
}

/// Why a worker ends. Recorded before the kill; later news never replaces it.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It replied, and has no further use.
    Replied(Reply),
    /// Somebody stopped the call.
    Stopped(Cause),
    /// What it sent is no reply.
    Misbehaved(String),
    /// It took too long to acknowledge.
    NoAck,
    /// Its initializer failed.
    Unprepared(Reply),
    /// It has no call and is not needed.
    Retired(ExitReason),
}

/// A complete answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The value.
    Value(Payload),
    /// An error record.
    Error(Payload),
}

/// Where an answer's bytes are.
#[derive(Debug)]
pub(crate) enum Payload {
    /// They came with the frame.
    Inline(Vec<u8>),
    /// In the file that was handed down: so many.
    Filed(u64),
    /// Made safe to read.
    Settled(Body),
}

/// What can happen to a worker.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is given a call.
    Assigned { generation: u32 },
    /// It acknowledged; a command started.
    Began { generation: u32 },
    /// The user's code runs from now on.
    RunsUserCode { generation: u32 },
    /// It has a large answer.
    Needs { generation: u32, bytes: u64 },
    /// It answered.
    Replied {
        generation: u32,
        reply: Reply,
        blames_setup: bool,
    },
    /// It sent something that is no answer.
    Malformed(String),
    /// Its initializer failed.
    Unprepared(Reply),
    /// The call waited too long for its initializer.
    QueueOverdue,
    /// It did not acknowledge in time.
    AckOverdue,
    /// The launcher saw it pass a limit.
    Hit { generation: u32, cause: Cause },
    /// The engine wants the call stopped.
    Stop(Cause),
    /// It is not needed any more.
    Retire(ExitReason),
    /// It and its tree are gone.
    Exited(End),
}

/// What is to be done about it.
#[derive(Debug)]
pub(crate) enum Action {
    /// Nothing.
    Wait,
    /// Send the call.
    Send,
    /// Give the call back, which was not sent.
    GiveBack,
    /// The call began: start its clock, arm its limits.
    Begin,
    /// Hand down a file of this size.
    Provide(u64),
    /// Report this answer; the worker lives on.
    Answer(Reply),
    /// Tell the launcher that this dispatch runs past its deadline.
    Confirm(u32),
    /// Kill the tree.
    Kill(Cause),
    /// Everything is known: report. `None` means that nobody stopped it.
    Judge {
        ending: Option<Ending>,
        began: bool,
        end: End,
    },
    /// A message of another dispatch: count it.
    Stale,
}

/// Decides what happens next; never waits, never touches the kernel.
#[must_use]
pub(crate) fn step(mode: Mode, state: State, event: Event) -> (State, Action) {
    use {Action as A, Event as E, State as S};
    match (state, event) {
        (S::Idle, E::Assigned { generation }) => (S::Sent { generation }, A::Send),
        (S::Idle, E::Retire(reason)) => {
            (S::Ending(Ending::Retired(reason)), A::Kill(Cause::Retired))
        }
        // No call's fault that is still open: one that is given to it meanwhile was not begun.
        (S::Idle, E::Malformed(_)) => (
            S::Ending(Ending::Retired(ExitReason::Crashed)),
            A::Kill(Cause::Misbehaved),
        ),

        (S::Sent { generation }, E::Began { generation: of }) if of == generation => (
            S::Running {
                generation,
                user_code: false,
            },
            A::Begin,
        ),
        (S::Sent { .. }, E::Unprepared(reply)) => (
            S::Ending(Ending::Unprepared(reply)),
            A::Kill(Cause::Retired),
        ),
        (S::Idle, E::Unprepared(_)) => (
            S::Ending(Ending::Retired(ExitReason::Crashed)),
            A::Kill(Cause::Retired),
        ),
        (S::Sent { .. }, E::QueueOverdue) => (S::Idle, A::GiveBack),
        (S::Sent { .. }, E::AckOverdue) => (S::Ending(Ending::NoAck), A::Kill(Cause::Misbehaved)),

        (S::Running { generation, .. }, E::RunsUserCode { generation: of }) if of == generation => {
            (
                S::Running {
                    generation,
                    user_code: true,
                },
                A::Wait,
            )
        }
        (
            S::Running {
                generation,
                user_code,
            },
            E::Needs {
                generation: of,
                bytes,
            },
        ) if of == generation => (
            S::Running {
                generation,
                user_code,
            },
            A::Provide(bytes),
        ),
        (
            S::Running {
                generation,
                user_code,
            },
            E::Replied {
                generation: of,
                reply,
                blames_setup,
            },
        ) if of == generation => {
            if user_code && blames_setup {
                let reason = "it claims a failed set-up after the user's code began".to_owned();
                return (
                    S::Ending(Ending::Misbehaved(reason)),
                    A::Kill(Cause::Misbehaved),
                );
            }
            match mode {
                Mode::Reuse => (S::Idle, A::Answer(reply)),
                Mode::Fresh | Mode::Command => {
                    let cause = match &reply {
                        Reply::Value(_) => Cause::Done,
                        Reply::Error(_) => Cause::Failed,
                    };
                    (S::Ending(Ending::Replied(reply)), A::Kill(cause))
                }
            }
        }

        (
            S::Sent { generation } | S::Running { generation, .. },
            E::Hit {
                generation: of,
                cause,
            },
        ) if of == generation => {
            let action = match cause {
                Cause::Timeout if mode == Mode::Reuse => A::Confirm(generation),
                Cause::Timeout => A::Wait, // the launcher kills by itself, after the stacks or the grace
                _ => A::Kill(cause), // it waits for this word: of an answered call it would never come
            };
            (S::Ending(Ending::Stopped(cause)), action)
        }
        (S::Sent { .. } | S::Running { .. }, E::Stop(cause)) => {
            (S::Ending(Ending::Stopped(cause)), A::Kill(cause))
        }
        (S::Sent { .. } | S::Running { .. }, E::Malformed(reason)) => (
            S::Ending(Ending::Misbehaved(reason)),
            A::Kill(Cause::Misbehaved),
        ),

        (S::Idle | S::Sent { .. }, E::Exited(end)) => (
            S::Gone,
            A::Judge {
                ending: None,
                began: false,
                end,
            },
        ),
        (S::Running { .. }, E::Exited(end)) => (
            S::Gone,
            A::Judge {
                ending: None,
                began: true,
                end,
            },
        ),
        (S::Ending(ending), E::Exited(end)) => {
            let began = !matches!(ending, Ending::NoAck | Ending::Retired(_));
            (
                S::Gone,
                A::Judge {
                    ending: Some(ending),
                    began,
                    end,
                },
            )
        }

        // Late news never replaces the recorded end; what belongs to another dispatch is nobody's.
        (
            state @ (S::Idle | S::Sent { .. } | S::Running { .. }),
            E::Began { .. } | E::RunsUserCode { .. } | E::Needs { .. } | E::Replied { .. },
        ) => (state, A::Stale),
        (state, _) => (state, A::Wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn end() -> End {
        End {
            host_memory: false,
            shortage: None,
            status: 0,
            at_ns: 0,
            user_ns: 0,
            system_ns: 0,
            max_rss_bytes: 0,
            sampled_rss_bytes: None,
            wait_ns: None,
            cpu_use: None,
            counts: Default::default(),
            leaked: 0,
            survivors: 0,
            scratch_full: false,
            upper_full: false,
            passed: None,
            leaf: None,
            counted: Vec::new(),
        }
    }

    fn value(generation: u32) -> Event {
        let reply = Reply::Value(Payload::Inline(vec![b'N']));
        Event::Replied {
            generation,
            reply,
            blames_setup: false,
        }
    }

    fn events(generation: u32) -> impl Strategy<Value = Event> {
        (0..15_u8, 0..2_u32).prop_map(move |(which, other)| {
            let generation = generation + other; // half of the messages are of another dispatch
            match which {
                0 | 1 => Event::Began { generation },
                2 => Event::RunsUserCode { generation },
                3 => Event::Needs {
                    generation,
                    bytes: 9,
                },
                4 | 5 => value(generation),
                6 => Event::Malformed("junk".into()),
                7 => Event::AckOverdue,
                8 => Event::Hit {
                    generation,
                    cause: Cause::Timeout,
                },
                9 => Event::Stop(Cause::Cancelled),
                10 => Event::Retire(ExitReason::Idle),
                11 => Event::Assigned {
                    generation: generation + 1,
                },
                12 => Event::Unprepared(Reply::Error(Payload::Inline(vec![b'N']))),
                13 => Event::QueueOverdue,
                _ => Event::Exited(end()),
            }
        })
    }

    /// Runs events over a worker that has call 1; counts how often that call is answered for.
    fn resolutions(mode: Mode, script: Vec<Event>) -> (usize, bool) {
        let mut state = State::Sent { generation: 1 };
        let (mut resolved, mut current, mut killed) = (0, true, 0);
        for event in script {
            let assigned = matches!(event, Event::Assigned { .. });
            let (next, action) = step(mode, state, event);
            state = next;
            match action {
                Action::Answer(_) if current => (resolved, current) = (resolved + 1, false),
                Action::Judge { .. } | Action::GiveBack if current => {
                    (resolved, current) = (resolved + 1, false)
                }
                Action::Kill(_) => killed += 1,
                Action::Send => assert!(assigned && !current, "a busy worker was given a call"),
                _ => {}
            }
        }
        assert!(killed <= 1, "killed twice");
        (resolved, matches!(state, State::Gone))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100_000, ..ProptestConfig::default() })]

        /// EX-27: whatever races, a call is answered for once: when it replied or when its process is gone.
        #[test]
        fn a_call_resolves_exactly_once(script in prop::collection::vec(events(1), 0..12), fresh: bool) {
            let mode = if fresh { Mode::Fresh } else { Mode::Reuse };
            let (resolved, _) = resolutions(mode, script);
            prop_assert!(resolved <= 1);
        }

        /// EX-27: the end of the process always answers for a call that nothing else did.
        #[test]
        fn no_call_is_forgotten(script in prop::collection::vec(events(1), 0..12), fresh: bool) {
            let mode = if fresh { Mode::Fresh } else { Mode::Reuse };
            let mut script = script;
            script.push(Event::Exited(end()));
            let (resolved, gone) = resolutions(mode, script);
            prop_assert_eq!((resolved, gone), (1, true));
        }
    }

    /// EX-70, SB-7: a reply before the deadline stands, whatever comes after.
    #[test]
    fn late_news_never_replaces_the_recorded_end() {
        let (state, _) = step(
            Mode::Fresh,
            State::Running {
                generation: 1,
                user_code: true,
            },
            value(1),
        );
        let (state, action) = step(
            Mode::Fresh,
            state,
            Event::Hit {
                generation: 1,
                cause: Cause::Timeout,
            },
        );
        assert!(matches!(action, Action::Wait));
        let (_, action) = step(Mode::Fresh, state, Event::Exited(end()));
        assert!(matches!(
            action,
            Action::Judge {
                ending: Some(Ending::Replied(_)),
                ..
            }
        ));
    }

    /// EX-70: a limit that a call passed as it answered is not held against the worker's next one.
    #[test]
    fn a_limit_is_confirmed_for_its_own_call_only() {
        let running = |generation| State::Running {
            generation,
            user_code: true,
        };
        let hit = || Event::Hit {
            generation: 1,
            cause: Cause::CpuLimit,
        };
        let (_, action) = step(Mode::Reuse, running(1), hit());
        assert!(matches!(action, Action::Kill(Cause::CpuLimit)));
        for state in [State::Idle, running(2)] {
            let (_, action) = step(Mode::Reuse, state, hit());
            assert!(matches!(action, Action::Wait));
        }
    }

    /// EX-26, SB-5
    #[test]
    fn a_message_of_another_dispatch_is_dropped_and_counted() {
        let running = State::Running {
            generation: 2,
            user_code: true,
        };
        let generation = 1;
        let others = [
            Event::Began { generation },
            Event::RunsUserCode { generation },
            Event::Needs {
                generation,
                bytes: 9,
            },
            value(generation),
        ];
        let mut state = running;
        for event in others {
            let (next, action) = step(Mode::Reuse, state, event);
            assert!(matches!(action, Action::Stale));
            state = next;
        }
        assert!(matches!(
            state,
            State::Running {
                generation: 2,
                user_code: true
            }
        ));
    }

    /// EX-28
    #[test]
    fn a_death_before_the_ack_is_told_apart() {
        let (_, action) = step(
            Mode::Fresh,
            State::Sent { generation: 1 },
            Event::Exited(end()),
        );
        assert!(matches!(
            action,
            Action::Judge {
                ending: None,
                began: false,
                ..
            }
        ));
    }

    #[test]
    fn a_candidate_cannot_blame_the_set_up() {
        let reply = Reply::Error(Payload::Inline(vec![]));
        let forged = Event::Replied {
            generation: 1,
            reply,
            blames_setup: true,
        };
        let (state, _) = step(
            Mode::Fresh,
            State::Running {
                generation: 1,
                user_code: true,
            },
            forged,
        );
        assert!(matches!(state, State::Ending(Ending::Misbehaved(_))));
    }
}
