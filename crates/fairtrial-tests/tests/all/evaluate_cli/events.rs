//! What those who watch are told, and what is left when nobody waits for the end.

use std::collections::BTreeMap;

use fairtrial_candidates::spec::Spec;
use fairtrial_candidates::{EvaluateError, EvaluationReport, Evaluator, Event, Onset, State};
use fairtrial_exec::{Backend, LocalConfig, Shutdown};
use fairtrial_tests::{PATIENCE, stress};
use tokio::sync::mpsc;

use super::trial::{Trial, answers, right, wrong};

fn evaluator(trial: &Trial) -> Evaluator {
    let mut config = LocalConfig::from_env().expect("the test's environment is sound");
    config.spill_dir = trial.path("spill");
    for (name, place) in [
        ("FAIRTRIAL_CACHE_DIR", "cache"),
        ("FAIRTRIAL_MACHINE_LOCK", "machine.lock"),
    ] {
        config
            .host_env
            .insert(name.into(), trial.path(place).into());
    }
    let spec = Spec::load(&trial.path("EVAL.yaml")).expect("the file is sound");
    Evaluator::new(spec, config).expect("there is a cache directory")
}

/// Evaluates until `enough` events were told, then drops it; gives them, and the end if it came first.
async fn watched(
    trial: &Trial,
    enough: usize,
) -> (Vec<Event>, Option<Result<EvaluationReport, EvaluateError>>) {
    let evaluator = evaluator(trial);
    let (events, mut told) = mpsc::unbounded_channel();
    let mut heard = Vec::new();
    let ended = {
        let evaluating = evaluator.evaluate(Onset::Begin, events);
        tokio::pin!(evaluating);
        loop {
            tokio::select! {
                biased;
                Some(event) = told.recv() => {
                    heard.push(event);
                    if heard.len() >= enough {
                        break None;
                    }
                }
                ended = &mut evaluating => break Some(ended),
                () = tokio::time::sleep(PATIENCE) => panic!("it does not end; told so far: {heard:?}"),
            }
        }
    };
    while let Ok(event) = told.try_recv() {
        heard.push(event);
    }
    evaluator.backend().shutdown(Shutdown::now()).await;
    (heard, ended)
}

/// CA-93: states only advance, also of who is measured again; the end is told last, and the beginning first.
#[tokio::test]
async fn those_who_watch_are_told_in_order() {
    let trial = Trial::new();
    trial.write("repo/answer.sh", "sleep 0.1; echo 42\n");
    trial.commit();
    trial.write(
        "proposer.py",
        "import json, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n    \
         text = asked['parents'][0]['sources']['answer.sh']\n    \
         print(json.dumps({'id': asked['id'], 'candidates': [{'files': {'answer.sh': text.replace('41', '42') + '#\\n'}}]}), flush=True)\n",
    );
    trial.spec(
        "bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0, confirm: false}\n\
         search: {proposer: {command: [python3, proposer.py]}, repair: {max_diff_share: 100%}, budget: {requests: 2}}\n",
    );
    trial.candidates(&[
        answers("fast", "echo 42\n"),
        wrong("bad"),
        right("same"),
        right("again"),
    ]);
    let (events, ended) = watched(&trial, usize::MAX).await;
    let report = ended.expect("it ends").expect("and well");
    assert!(
        matches!(events.first(), Some(Event::Snapshot { .. })),
        "{events:?}"
    );
    assert!(matches!(events.last(), Some(Event::Done { winner }) if *winner == report.winner));
    let mut states: BTreeMap<String, Vec<State>> = BTreeMap::new();
    for event in &events {
        if let Event::Candidate { id, name, state } = event {
            states
                .entry(format!("{name} {id:?}"))
                .or_default()
                .push(*state);
        }
    }
    for (who, states) in &states {
        let advance = states
            .windows(2)
            .all(|two| two[0] < two[1] || two == [State::Duplicate; 2]);
        assert!(advance, "{who}: {states:?}");
    }
    let rounds = report.measurement.expect("it was measured").rounds;
    assert!(rounds >= 2, "the best one raced again");
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count();
    assert!(count(|event| matches!(event, Event::Block { .. })) >= 12);
    assert!(count(|event| matches!(event, Event::Look { .. })) >= 2);
    assert_eq!(count(|event| matches!(event, Event::Baseline { .. })), 1);
    assert_eq!(count(|event| matches!(event, Event::Proposal { .. })), 4);
}

/// CA-41: dropped after any event, nothing of it remains.
#[tokio::test]
async fn whenever_nobody_waits_any_more_nothing_remains() {
    let step = if stress() { 1 } else { 4 };
    let mut enough = 1;
    loop {
        let trial = Trial::new();
        trial.spec(
            "build: {command: 'echo b > built; sleep 0.05'}\ntests: [{name: t, command: 'sleep 0.05; sh tests/check.sh'}]\n\
             bench: [{name: b, command: [sh, answer.sh]}]\nmeasure: {max_blocks: 6, repeats: 0, min_effect: 0, confirm: false}\n",
        );
        trial.candidates(&[right("one"), wrong("two"), right("three")]);
        let before = trial.census("repo");
        let (events, ended) = watched(&trial, enough).await;
        // The engine runs in this process, whose own environment does not name the place.
        trial.assert_nothing_left();
        assert_eq!(trial.census("repo"), before, "after {:?}", events.last());
        if ended.is_some() {
            assert!(enough > 12, "{events:?}");
            return;
        }
        enough += step;
    }
}
