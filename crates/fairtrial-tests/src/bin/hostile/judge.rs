//! Whether a trial ended as it should. Pure: judges records, looks at nothing.

use fairtrial_exec::{Level, Verdict};
use serde_json::Value as Json;

use crate::expect::{Answer, Expected, Got, Judgement, Record};
use crate::table::{Check, Trial};

/// Refusals that mean: this cannot be reached from here. Others (EINVAL, EFAULT) would be the program's own mistakes.
const REFUSALS: [&str; 19] = [
    "EPERM",
    "EACCES",
    "EROFS",
    "ESRCH",
    "ENOENT",
    "ENXIO",
    "ENOSYS",
    "ENOMEM",
    "EXDEV",
    "ENETUNREACH",
    "ENETDOWN",
    "EHOSTUNREACH",
    "ECONNREFUSED",
    "EADDRNOTAVAIL",
    "EAFNOSUPPORT",
    "EPROTONOSUPPORT",
    "ENODEV",
    "no effect",
    "no answer",
];

/// What became of it, in a word or two.
pub(crate) fn in_short(record: &Record) -> String {
    match record.got.as_ref().map(|got| &got.answer) {
        None => "no report".into(),
        Some(Answer::None) => "story".into(),
        Some(Answer::Error { kind, .. }) => format!("error {kind}"),
        Some(Answer::Outcome(outcome)) => {
            let verdict = outcome["verdict"].as_str().unwrap_or("?");
            match attempts(outcome) {
                Some(list) => {
                    let allowed = list.iter().filter(|(_, how)| how == "ALLOWED").count();
                    format!("{verdict}, {allowed}/{} allowed", list.len())
                }
                None => verdict.to_owned(),
            }
        }
    }
}

/// Judges a trial by what it should have ended as.
pub(crate) fn judge(trial: &Trial, level: Level, uid: u32, record: &Record) -> Judgement {
    if let Some(reason) = &record.skipped {
        return Judgement::Skipped(reason.clone());
    }
    let mut wrong = Vec::new();
    match &record.got {
        None => wrong.push("the engine's host told nothing".to_owned()),
        Some(got) => {
            wrong.extend(ending(trial.expected(level), &got.answer));
            if !wrong.is_empty()
                && let Some(reason) = missing_mechanism(trial, level, &got.answer)
            {
                return Judgement::Skipped(reason);
            }
            wrong.extend(around(trial, level, uid, got));
        }
    }
    wrong.extend(record.host.clone());
    wrong.extend(first_few(&record.changes, ""));
    let known = trial.known.filter(|known| (known.shows)(level, uid));
    match (wrong.is_empty(), known) {
        // Above `none` a race or another machine may have spared it.
        (true, Some(known)) if level == Level::None => Judgement::Failed(vec![format!(
            "mended: {}; take it out of the table",
            known.defect
        )]),
        (true, _) => Judgement::Held,
        (false, Some(known)) => Judgement::Known(known.defect, wrong),
        (false, None) => Judgement::Failed(wrong),
    }
}

/// What else is not as it should be: the trial's own checks, the calls beside it, what it left, what a story found.
fn around(trial: &Trial, level: Level, uid: u32, got: &Got) -> Vec<String> {
    let checks = trial.checks.iter();
    let mut wrong: Vec<_> = checks
        .filter_map(|check| check_fails(*check, level, uid, &got.answer))
        .collect();
    for (who, told) in [
        ("the sibling call", &got.sibling),
        ("the next call", &got.next),
    ] {
        if let Some(told) = told.as_ref().filter(|told| *told != "ok") {
            wrong.push(format!("{who}: {told}"));
        }
    }
    wrong.extend(first_few(&got.left, "after the outcome: "));
    wrong.extend(got.problems.iter().cloned());
    wrong
}

/// A bomb leaves thousands.
fn first_few(found: &[String], what: &str) -> Vec<String> {
    const FEW: usize = 5;
    let mut told: Vec<_> = found
        .iter()
        .take(FEW)
        .map(|one| format!("{what}{one}"))
        .collect();
    if found.len() > FEW {
        told.push(format!("{what}and {} more", found.len() - FEW));
    }
    told
}

/// A verdict that is not the table's is claimed where its mechanisms are had; the outcome says which were weak.
fn missing_mechanism(trial: &Trial, level: Level, answer: &Answer) -> Option<String> {
    let Answer::Outcome(outcome) = answer else {
        return None;
    };
    if level == Level::None {
        return None;
    }
    let state = |name: &str| {
        outcome["in_force"]["mechanisms"][name]["state"]
            .as_str()
            .map(str::to_owned)
    };
    trial
        .needs
        .iter()
        .find_map(|name| match state(name)?.as_str() {
            "enforced" => None,
            weak => Some(format!("{name} is {weak} here")),
        })
}

fn ending(expected: Expected, answer: &Answer) -> Vec<String> {
    let wanted: Vec<Verdict> = match expected {
        Expected::NotClaimed | Expected::Held => return Vec::new(),
        Expected::Verdict(verdict) => vec![verdict],
        Expected::OneOf(verdicts) => verdicts.to_vec(),
        Expected::Denied => vec![Verdict::Ok],
        Expected::EngineError(wanted) => {
            return match answer {
                Answer::Error { kind, .. } if kind == wanted => Vec::new(),
                other => vec![format!("not the engine's error `{wanted}`: {other:?}")],
            };
        }
    };
    let Answer::Outcome(outcome) = answer else {
        return vec![format!("no outcome: {answer:?}")];
    };
    let verdict = outcome["verdict"].as_str().unwrap_or_default();
    if !wanted.iter().any(|wanted| wanted.name() == verdict) {
        let (message, shown) = (&outcome["error"]["message"], &outcome["stdout"]);
        return vec![
            format!("{verdict}: {message} {shown}")
                .chars()
                .take(600)
                .collect(),
        ];
    }
    match expected {
        Expected::Denied => allowed(outcome),
        _ => Vec::new(),
    }
}

/// Attempts that were not refused, or in a way that shows nothing.
fn allowed(outcome: &Json) -> Vec<String> {
    match attempts(outcome) {
        None => vec!["no list of attempts".into()],
        Some(list) => list
            .into_iter()
            .filter(|(_, how)| !REFUSALS.contains(&how.as_str()))
            .map(|(what, how)| format!("{what}: {how}"))
            .collect(),
    }
}

/// The program's value, if it is a list of attempts: `[[what, how], ...]`.
fn attempts(outcome: &Json) -> Option<Vec<(String, String)>> {
    let pair = |pair: &Json| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()));
    let list: Vec<_> = outcome["value"]
        .as_array()?
        .iter()
        .map(pair)
        .collect::<Option<_>>()?;
    (!list.is_empty()).then_some(list)
}

fn check_fails(check: Check, level: Level, uid: u32, answer: &Answer) -> Option<String> {
    let Answer::Outcome(outcome) = answer else {
        return None;
    };
    let (value, metrics) = (&outcome["value"], &outcome["metrics"]);
    let number = |name: &str| metrics[name].as_f64();
    let cpu_s = number("user_s")
        .zip(number("system_s"))
        .map(|(user, system)| user + system);
    let fine = match check {
        Check::Leaked(processes) => metrics["leaked_processes"] == processes,
        Check::AtOnce => number("wall_s").is_some_and(|wall_s| wall_s < 20.0),
        Check::Idle => cpu_s.is_some_and(|cpu_s| cpu_s < 0.3),
        Check::TrueMetrics => {
            number("wall_s").is_some_and(|wall_s| wall_s >= 0.4)
                && cpu_s.is_some_and(|cpu_s| cpu_s >= 0.2)
                && number("peak_rss_bytes").is_some_and(|bytes| bytes >= 80e6)
        }
        Check::EuidUnchanged => value["before"].is_u64() && value["before"] == value["after"],
        Check::Signal(signal) => outcome["exit"]["signal"] == signal,
        Check::ErrorType(kind) => outcome["error"]["type"] == kind,
        Check::Value(text) => {
            serde_json::from_str::<Json>(text).is_ok_and(|wanted| wanted == *value)
        }
        Check::NothingFound => return found(value, level, uid),
    };
    (!fine).then(|| format!("{check:?} does not hold: {}", shortened(outcome)))
}

/// H29: where a canary was found that must not be.
fn found(value: &Json, level: Level, uid: u32) -> Option<String> {
    const OWN: [&str; 3] = ["os.environ", "/proc/self/environ", "own descriptors"];
    const OTHERS: [&str; 2] = ["/proc/*/environ", "others' descriptors"];
    const REST: [&str; 3] = ["/proc/*/cmdline", "files", "keyrings"];
    let mut places = OWN.to_vec();
    // SB-65: at `none` root reads whatever it likes.
    if level != Level::None || uid != 0 {
        places.extend(OTHERS);
    }
    if level >= Level::Confined {
        places.extend(REST);
    }
    let bad = |place: &&str| {
        value[*place]
            .as_array()
            .is_none_or(|found| !found.is_empty())
    };
    let bad: Vec<_> = places.into_iter().filter(bad).collect();
    (!bad.is_empty()).then(|| format!("canaries found in {}: {value}", bad.join(", ")))
}

fn shortened(outcome: &Json) -> String {
    let text = serde_json::json!({
        "verdict": outcome["verdict"], "value": outcome["value"], "error": outcome["error"]["message"],
        "exit": outcome["exit"], "metrics": outcome["metrics"],
    });
    text.to_string().chars().take(600).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use serde_json::json;

    fn record(outcome: Json) -> Record {
        let got = Got {
            answer: Answer::Outcome(outcome),
            ..Got::default()
        };
        Record {
            got: Some(got),
            ..Record::default()
        }
    }

    fn denied(attempts: Json, mechanisms: Json) -> Judgement {
        let trial = table::find("H13").expect("it is in the table");
        let outcome =
            json!({"verdict": "ok", "value": attempts, "in_force": {"mechanisms": mechanisms}});
        judge(&trial, Level::Strict, 0, &record(outcome))
    }

    /// SB-74
    #[test]
    fn a_list_of_attempts_holds_only_if_each_was_refused() {
        assert_eq!(
            denied(json!([["a", "EPERM"], ["b", "no effect"]]), json!({})),
            Judgement::Held
        );
        for bad in [
            json!([["a", "EPERM"], ["b", "ALLOWED"]]),
            json!([["a", "EFAULT"]]),
            json!([]),
            json!(null),
        ] {
            assert!(
                matches!(denied(bad.clone(), json!({})), Judgement::Failed(_)),
                "{bad}"
            );
        }
    }

    /// SB-74
    #[test]
    fn what_a_machine_cannot_hold_is_skipped_with_the_reason() {
        let weak = json!({"seccomp": {"state": "unavailable"}});
        let judgement = denied(json!([["a", "ALLOWED"]]), weak);
        assert_eq!(
            judgement,
            Judgement::Skipped("seccomp is unavailable here".into())
        );
    }

    /// SB-73
    #[test]
    fn what_is_left_fails_a_trial_whatever_its_verdict() {
        let trial = table::find("H5 python").expect("it is in the table");
        let mut record = record(json!({"verdict": "timeout"}));
        assert_eq!(judge(&trial, Level::None, 0, &record), Judgement::Held);
        record.changes.push("left: process 7".into());
        assert!(matches!(
            judge(&trial, Level::None, 0, &record),
            Judgement::Failed(_)
        ));
    }

    #[test]
    fn a_known_defect_fails_nothing_until_it_is_mended() {
        let trial = table::find("H6 10,000 orphans").expect("it is in the table");
        let ended_as =
            |verdict| judge(&trial, Level::None, 0, &record(json!({"verdict": verdict})));
        assert!(matches!(ended_as("exit"), Judgement::Known(..)));
        assert!(matches!(ended_as("ok"), Judgement::Failed(_)));
    }

    /// SB-64, SB-65
    #[test]
    fn canaries_may_be_found_only_where_a_level_leaves_them() {
        let value = |place: &str| {
            let mut value = json!({
                "os.environ": [], "/proc/self/environ": [], "own descriptors": [], "/proc/*/environ": [],
                "others' descriptors": [], "/proc/*/cmdline": [], "files": [], "keyrings": [],
            });
            value[place] = json!(["environment"]);
            value
        };
        let is_fine = |place, level, uid| found(&value(place), level, uid).is_none();
        assert!(!is_fine("os.environ", Level::None, 0));
        assert!(is_fine("/proc/*/environ", Level::None, 0));
        assert!(!is_fine("/proc/*/environ", Level::None, 1000));
        assert!(!is_fine("/proc/*/environ", Level::Limits, 0));
        assert!(is_fine("files", Level::Limits, 0));
        assert!(!is_fine("files", Level::Confined, 0));
        assert!(!is_fine("files", Level::Strict, 0));
    }
}
