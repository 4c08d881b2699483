//! What follows from what a program does or fails to do (CA-86, CA-87). Pure: events and moments in, actions out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::answer::{Answer, Failure, FailureKind, Malformed};
use super::super::ask::RequestId;
use super::super::proposer::News;
use super::super::secrets::Secrets;
use super::super::settings::CommandSettings;
use super::super::wire::{self, Said};

/// What may come between two answers before it is a flood: more than two of the longest.
const MOST_BYTES: usize = 40 << 20;

/// As [`MOST_BYTES`], in lines that answer nothing.
const MOST_STRAYS: usize = 200;

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    Asked {
        id: RequestId,
        line: Arc<[u8]>,
    },
    GivenUp(RequestId),
    Line(Vec<u8>),
    TooLong {
        beginning: Vec<u8>,
        bytes: u64,
    },
    /// The process is gone.
    Ended(String),
    /// None could be had: nobody was asked anything.
    NotStarted(String),
    TimePassed,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    Start,
    Send(Arc<[u8]>),
    /// Reads no more of what it writes.
    StopReading,
    Kill,
    Resolve(RequestId, Result<Answer, Failure>),
    Tell(News),
}

/// The program and the requests it has not answered.
#[derive(Debug)]
pub(super) struct Supervisor {
    timeout: Duration,
    restarts_left: u32,
    secrets: Secrets,
    process: Process,
    /// Why the last process ended; none before there was one.
    trouble: Option<String>,
    dead: Option<String>,
    open: BTreeMap<RequestId, Open>,
    given_up: BTreeSet<RequestId>,
    answered: BTreeSet<RequestId>,
    /// Since the last answer.
    bytes: usize,
    strays: usize,
    actions: VecDeque<Action>,
}

#[derive(Debug, PartialEq, Eq)]
enum Process {
    Absent,
    Running,
    /// Killed for a reason, and not yet gone.
    Ending(String),
}

#[derive(Debug)]
struct Open {
    line: Arc<[u8]>,
    /// None until it is sent.
    deadline: Option<Instant>,
    /// How many processes it was sent to.
    sent: u32,
}

impl Supervisor {
    pub(super) fn new(settings: &CommandSettings, secrets: Secrets) -> Self {
        Self {
            timeout: settings.timeout,
            restarts_left: settings.restarts,
            secrets,
            process: Process::Absent,
            trouble: None,
            dead: None,
            open: BTreeMap::new(),
            given_up: BTreeSet::new(),
            answered: BTreeSet::new(),
            bytes: 0,
            strays: 0,
            actions: VecDeque::new(),
        }
    }

    /// When to come back though nothing happened.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        match self.process {
            Process::Running => self.open.values().filter_map(|open| open.deadline).min(),
            Process::Absent | Process::Ending(_) => None,
        }
    }

    pub(super) fn step(&mut self, event: Event, now: Instant) -> VecDeque<Action> {
        match event {
            Event::Asked { id, line } => self.asked(id, line, now),
            Event::GivenUp(id) => self.give_up(id),
            Event::Line(line) => self.read(&line, now),
            Event::TooLong { beginning, bytes } => {
                let problem = format!("has {bytes} bytes or more, more than 16 MiB");
                self.stray(Malformed::of_part(
                    problem,
                    &beginning,
                    bytes,
                    &self.secrets,
                ));
                self.stop_flood("wrote a line of more than 16 MiB");
            }
            Event::Ended(how) => self.ended(how, now),
            Event::NotStarted(why) => self.not_started(why, now),
            Event::TimePassed => {
                if self.wake_at().is_some_and(|deadline| deadline <= now) {
                    let seconds = self.timeout.as_secs_f64();
                    self.kill(&format!("did not answer within {seconds} s"));
                }
            }
        }
        std::mem::take(&mut self.actions)
    }

    fn asked(&mut self, id: RequestId, line: Arc<[u8]>, now: Instant) {
        if let Some(why) = &self.dead {
            let failure = Failure::new(FailureKind::ProposerDead, why.clone());
            return self.actions.push_back(Action::Resolve(id, Err(failure)));
        }
        let (deadline, sent) = (None, 0);
        self.given_up.remove(&id);
        self.answered.remove(&id);
        self.open.insert(
            id,
            Open {
                line,
                deadline,
                sent,
            },
        );
        match self.process {
            Process::Absent => self.start(now),
            Process::Running => self.send_unsent(now),
            Process::Ending(_) => {}
        }
    }

    fn give_up(&mut self, id: RequestId) {
        if self.open.remove(&id).is_some() {
            self.given_up.insert(id);
        }
    }

    /// The first start is free.
    fn start(&mut self, now: Instant) {
        if let Some(trouble) = self.trouble.take() {
            let Some(left) = self.restarts_left.checked_sub(1) else {
                return self.die(&trouble);
            };
            self.restarts_left = left;
            self.actions
                .push_back(Action::Tell(News::Restarted(trouble)));
        }
        (self.bytes, self.strays) = (0, 0);
        self.process = Process::Running;
        self.actions.push_back(Action::Start);
        self.send_unsent(now);
    }

    fn send_unsent(&mut self, now: Instant) {
        for open in self
            .open
            .values_mut()
            .filter(|open| open.deadline.is_none())
        {
            open.deadline = Some(now + self.timeout);
            open.sent += 1;
            self.actions.push_back(Action::Send(open.line.clone()));
        }
    }

    fn die(&mut self, trouble: &str) {
        let why = format!("the proposer {trouble}, and was not started again");
        for id in std::mem::take(&mut self.open).into_keys() {
            let failure = Failure::new(FailureKind::ProposerDead, why.clone());
            self.actions.push_back(Action::Resolve(id, Err(failure)));
        }
        self.dead = Some(why);
    }

    fn kill(&mut self, why: &str) {
        if self.process == Process::Running {
            self.process = Process::Ending(why.to_owned());
            self.actions.push_back(Action::Kill);
        }
    }

    /// It may write faster than anybody can read.
    fn stop_flood(&mut self, why: &str) {
        self.actions.push_back(Action::StopReading);
        self.kill(why);
    }

    /// What was to be sent was sent to nobody, and is not lost by that.
    fn not_started(&mut self, why: String, now: Instant) {
        for open in self
            .open
            .values_mut()
            .filter(|open| open.deadline.is_some())
        {
            open.sent = open.sent.saturating_sub(1);
        }
        self.ended(why, now);
    }

    /// Requests that two processes did not answer are lost; the others are sent again. With the last restart the proposer
    /// is dead, if it left anything unanswered.
    fn ended(&mut self, how: String, now: Instant) {
        let trouble = match std::mem::replace(&mut self.process, Process::Absent) {
            Process::Ending(why) => why,
            Process::Running | Process::Absent => how,
        };
        if self.restarts_left == 0 && !self.open.is_empty() {
            return self.die(&trouble);
        }
        let asked_twice = self.open.iter().filter(|(_, open)| open.sent >= 2);
        let lost: Vec<RequestId> = asked_twice.map(|(id, _)| *id).collect();
        for id in lost {
            self.open.remove(&id);
            let message = format!("the proposer {trouble}; it was asked twice");
            let failure = Failure::new(FailureKind::Lost, message);
            self.actions.push_back(Action::Resolve(id, Err(failure)));
        }
        for open in self.open.values_mut() {
            open.deadline = None;
        }
        self.trouble = Some(trouble);
        if !self.open.is_empty() {
            self.start(now);
        }
    }

    fn read(&mut self, line: &[u8], now: Instant) {
        self.bytes += line.len() + 1;
        match line.trim_ascii() {
            [] => self.strays += 1,
            line => self.hear(line, now),
        }
        if self.bytes > MOST_BYTES || self.strays > MOST_STRAYS {
            self.stop_flood("wrote far more than it was asked for");
        }
    }

    fn hear(&mut self, line: &[u8], now: Instant) {
        let Said { id, what } = wire::read(line, &self.secrets);
        let Some(text) = id else {
            let malformed = what.err().and_then(|failure| failure.malformed);
            return self.stray(malformed.expect("what has no id is malformed"));
        };
        let problem = match RequestId::try_from(text) {
            Ok(id) if self.open.remove(&id).is_some() => {
                self.answered.insert(id);
                (self.bytes, self.strays) = (0, 0);
                self.extend_deadlines(now);
                return self.actions.push_back(Action::Resolve(id, what));
            }
            Ok(id) if self.given_up.remove(&id) => {
                self.answered.insert(id);
                return;
            }
            Ok(id) if self.answered.contains(&id) => format!("is a second answer to `{id}`"),
            Ok(id) => format!("answers `{id}`, which was not asked"),
            Err(problem) => problem,
        };
        self.stray(Malformed::new(problem, line, &self.secrets));
    }

    /// Who answers does not hang: it may take one request after the other.
    fn extend_deadlines(&mut self, now: Instant) {
        for open in self
            .open
            .values_mut()
            .filter(|open| open.deadline.is_some())
        {
            open.deadline = Some(now + self.timeout);
        }
    }

    fn stray(&mut self, malformed: Malformed) {
        self.strays += 1;
        // What comes after a flood was noticed is more of the same.
        if self.strays <= MOST_STRAYS + 1 {
            let news = News::Stray(malformed);
            self.actions.push_back(Action::Tell(news));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// A supervisor, and a clock that only this moves.
    struct Stage {
        supervisor: Supervisor,
        now: Instant,
    }

    impl Stage {
        fn new(restarts: u32) -> Self {
            let settings = CommandSettings {
                argv: vec!["propose".to_owned()],
                timeout: TIMEOUT,
                restarts,
            };
            Self {
                supervisor: Supervisor::new(&settings, Secrets::none()),
                now: Instant::now(),
            }
        }

        fn step(&mut self, event: Event) -> Vec<Action> {
            self.supervisor.step(event, self.now).into()
        }

        fn ask(&mut self, number: usize) -> Vec<Action> {
            let id = RequestId::numbered(number);
            self.step(Event::Asked {
                id,
                line: line(number),
            })
        }

        fn say(&mut self, text: &str) -> Vec<Action> {
            self.step(Event::Line(text.into()))
        }

        fn end(&mut self) -> Vec<Action> {
            self.step(Event::Ended("exited with code 1".to_owned()))
        }
    }

    fn line(number: usize) -> Arc<[u8]> {
        format!("{number}\n").into_bytes().into()
    }

    fn answer(number: usize) -> String {
        format!(r#"{{"id": "r-{number}", "candidates": []}}"#)
    }

    fn resolved(actions: &[Action]) -> Vec<(String, Option<FailureKind>)> {
        let ends = actions.iter().filter_map(|action| match action {
            Action::Resolve(id, what) => {
                Some((id.to_string(), what.as_ref().err().map(|why| why.kind)))
            }
            _ => None,
        });
        ends.collect()
    }

    fn strays(actions: &[Action]) -> Vec<&str> {
        let told = actions.iter().filter_map(|action| match action {
            Action::Tell(News::Stray(malformed)) => Some(&*malformed.problem),
            _ => None,
        });
        told.collect()
    }

    fn restarted() -> Action {
        Action::Tell(News::Restarted("exited with code 1".to_owned()))
    }

    /// CA-84
    #[test]
    fn it_starts_with_the_first_question_and_answers_in_any_order() {
        let mut stage = Stage::new(3);
        assert_eq!(stage.ask(1), [Action::Start, Action::Send(line(1))]);
        assert_eq!(stage.ask(2), [Action::Send(line(2))]);
        assert_eq!(resolved(&stage.say(&answer(2))), [("r-2".to_owned(), None)]);
        assert_eq!(resolved(&stage.say(&answer(1))), [("r-1".to_owned(), None)]);
        assert_eq!(stage.supervisor.wake_at(), None);
    }

    /// CA-86
    #[test]
    fn what_answers_nothing_is_told_and_changes_nothing() {
        let mut stage = Stage::new(3);
        stage.ask(1);
        assert_eq!(
            strays(&stage.say(&answer(7))),
            ["answers `r-7`, which was not asked"]
        );
        assert_eq!(
            strays(&stage.say(&answer(0))),
            ["`r-0` is no id of a request"]
        );
        assert!(strays(&stage.say("starting up"))[0].starts_with("is not JSON"));
        assert!(stage.say("  ").is_empty());
        assert_eq!(resolved(&stage.say(&answer(1))).len(), 1);
        assert_eq!(
            strays(&stage.say(&answer(1))),
            ["is a second answer to `r-1`"]
        );
    }

    /// CA-87
    #[test]
    fn who_exits_is_started_again_and_asked_again_once() {
        let mut stage = Stage::new(3);
        stage.ask(1);
        assert_eq!(
            stage.end(),
            [restarted(), Action::Start, Action::Send(line(1))]
        );
        stage.ask(2);
        let actions = stage.end();
        assert_eq!(
            resolved(&actions),
            [("r-1".to_owned(), Some(FailureKind::Lost))]
        );
        assert_eq!(
            actions[1..],
            [restarted(), Action::Start, Action::Send(line(2))]
        );
        assert_eq!(resolved(&stage.say(&answer(2))), [("r-2".to_owned(), None)]);
    }

    /// CA-87
    #[test]
    fn after_its_restarts_it_is_dead_and_so_is_all_that_is_open() {
        let mut stage = Stage::new(1);
        stage.ask(1);
        stage.end();
        stage.ask(2);
        let actions = stage.end();
        let dead = Some(FailureKind::ProposerDead);
        let ends = ["r-1", "r-2"].map(|id| (id.to_owned(), dead));
        assert_eq!(resolved(&actions), ends);
        assert_eq!(resolved(&stage.ask(3)), [("r-3".to_owned(), dead)]);
    }

    /// CA-87: what was sent to nobody is not lost.
    #[test]
    fn who_never_starts_is_dead_after_its_restarts_and_not_before() {
        let mut stage = Stage::new(3);
        let mut actions = stage.ask(1);
        for _ in 0..3 {
            assert_eq!(
                actions[actions.len() - 2..],
                [Action::Start, Action::Send(line(1))]
            );
            actions = stage.step(Event::NotStarted("cannot be started".to_owned()));
            assert_ne!(
                resolved(&actions),
                [("r-1".to_owned(), Some(FailureKind::Lost))]
            );
        }
        assert_eq!(resolved(&actions), []);
        let actions = stage.step(Event::NotStarted("cannot be started".to_owned()));
        let dead = Some(FailureKind::ProposerDead);
        assert_eq!(resolved(&actions), [("r-1".to_owned(), dead)]);
    }

    /// CA-87
    #[test]
    fn who_exits_between_questions_is_started_when_the_next_comes() {
        let mut stage = Stage::new(1);
        stage.ask(1);
        stage.say(&answer(1));
        assert!(stage.end().is_empty());
        assert_eq!(
            stage.ask(2),
            [restarted(), Action::Start, Action::Send(line(2))]
        );
        stage.say(&answer(2));
        stage.end();
        assert_eq!(
            resolved(&stage.ask(3)),
            [("r-3".to_owned(), Some(FailureKind::ProposerDead))]
        );
    }

    /// CA-87
    #[test]
    fn who_hangs_is_killed_and_what_it_says_meanwhile_still_counts() {
        let mut stage = Stage::new(3);
        stage.ask(1);
        stage.now += TIMEOUT / 2;
        stage.ask(2);
        stage.now += TIMEOUT / 2;
        assert_eq!(stage.step(Event::TimePassed), [Action::Kill]);
        assert!(
            stage.step(Event::TimePassed).is_empty(),
            "one kill, one cause"
        );
        assert!(stage.ask(3).is_empty(), "it waits for the next process");
        assert_eq!(resolved(&stage.say(&answer(2))), [("r-2".to_owned(), None)]);
        let why = News::Restarted("did not answer within 10 s".to_owned());
        let again = [
            Action::Tell(why),
            Action::Start,
            Action::Send(line(1)),
            Action::Send(line(3)),
        ];
        assert_eq!(stage.end(), again);
        assert_eq!(stage.supervisor.wake_at(), Some(stage.now + TIMEOUT));
    }

    /// CA-87: `concurrency` requests are open at once, and a plain loop over lines takes them in turn.
    #[test]
    fn who_answers_one_request_after_the_other_does_not_hang() {
        let mut stage = Stage::new(3);
        (1..=3).for_each(|number| _ = stage.ask(number));
        for number in 1..=3 {
            stage.now += TIMEOUT * 9 / 10;
            assert!(stage.step(Event::TimePassed).is_empty());
            assert_eq!(resolved(&stage.say(&answer(number))).len(), 1);
        }
    }

    /// CA-87
    #[test]
    fn who_floods_is_killed() {
        let mut stage = Stage::new(3);
        stage.ask(1);
        let kills = (0..=MOST_STRAYS)
            .map(|_| stage.say("y").contains(&Action::Kill))
            .filter(|kill| *kill);
        assert_eq!(kills.count(), 1);
        let mut stage = Stage::new(3);
        stage.ask(1);
        let too_long = Event::TooLong {
            beginning: b"xxx".to_vec(),
            bytes: 17 << 20,
        };
        let actions = stage.step(too_long);
        assert_eq!(strays(&actions).len(), 1);
        assert_eq!(actions[1..], [Action::StopReading, Action::Kill]);
        let mut stage = Stage::new(3);
        stage.ask(1);
        let blank = " ".repeat(MOST_BYTES);
        let stopped = [Action::StopReading, Action::Kill];
        assert_eq!(stage.say(&blank), stopped, "blanks are a flood, too");
    }

    #[test]
    fn an_answer_that_nobody_wants_any_more_is_dropped() {
        let mut stage = Stage::new(3);
        stage.ask(1);
        assert!(
            stage
                .step(Event::GivenUp(RequestId::numbered(1)))
                .is_empty()
        );
        assert_eq!(stage.supervisor.wake_at(), None);
        assert!(stage.say(&answer(1)).is_empty());
    }
}
