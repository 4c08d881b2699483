//! What became of a candidate, in a word and a colour.

use crate::evaluate::State;
use crate::evaluation::Evaluation;
use crate::measure::{Doubt, Judgement, Leaning, Verdict};

/// Groups of the overview: class, and name.
pub(super) const GROUPS: [(&str, &str); 8] = [
    ("faster", "faster"),
    ("equal", "equal"),
    ("uncertain", "uncertain"),
    ("eliminated", "eliminated"),
    ("slower", "slower"),
    ("correct", "correct, not measured"),
    ("failed", "failed"),
    ("other", "same as another, or not run"),
];

/// The class that colours a candidate.
pub(super) fn class(one: &Evaluation) -> &'static str {
    if one.duplicate_of.is_some() || one.state == State::NotRun {
        return "other";
    }
    if one.failure.is_some() || !one.is_correct() {
        return "failed";
    }
    match one.judgement.as_ref().map(|said| said.verdict) {
        Some(Verdict::Faster)
            if one
                .confirmation
                .as_ref()
                .is_some_and(|again| !again.confirmed) =>
        {
            "uncertain"
        }
        Some(Verdict::Faster) => "faster",
        Some(Verdict::Slower) => "slower",
        Some(Verdict::Equal) => "equal",
        Some(Verdict::Uncertain) => "uncertain",
        Some(Verdict::Eliminated) => "eliminated",
        None => "correct",
    }
}

/// What became of it.
pub(super) fn word(one: &Evaluation) -> String {
    if let Some(of) = &one.duplicate_of {
        return format!("same as {of}");
    }
    if let Some(failure) = &one.failure {
        let kind = failure.kind.name().replace('_', " ");
        return match failure.diffs_total {
            0 => kind,
            count => format!("{kind} ({count})"),
        };
    }
    let Some(said) = &one.judgement else {
        let word = if one.is_correct() {
            "correct"
        } else {
            "not run"
        };
        return word.to_owned();
    };
    let word = match said.verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Equal => "equal",
        Verdict::Uncertain => "uncertain",
        Verdict::Eliminated => "eliminated",
    };
    match (&one.confirmation, said.leaning) {
        (Some(again), _) if again.confirmed => format!("{word}, confirmed"),
        (Some(_), _) => format!("{word}, unconfirmed"),
        (None, Some(Leaning::Faster)) => format!("{word}, perhaps faster"),
        (None, Some(Leaning::Slower)) => format!("{word}, perhaps slower"),
        (None, None) => word.to_owned(),
    }
}

/// Marks a ratio of whole runs of which much is start-up.
pub(super) fn gross_mark(one: &Evaluation) -> Option<String> {
    let share = one.gross_startup?;
    Some(format!(
        "whole runs, {:.0}% of the base’s is start-up",
        share * 100.0
    ))
}

/// What a ratio means, and whether it is one of start-up too.
pub(super) fn meaning(one: &Evaluation) -> Option<String> {
    let said = one.judgement.as_ref().and_then(Judgement::meaning);
    let parts: Vec<String> = said.into_iter().chain(gross_mark(one)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Why a verdict says less than its interval.
pub(super) fn doubt(doubt: Doubt) -> &'static str {
    match doubt {
        Doubt::AaFailed => "the base differed from itself",
        Doubt::CpuContradicts => "processor time says the opposite",
        Doubt::WithinNoise => "within the noise floor",
        Doubt::NoLoopTime => "its loops took no measurable time in many blocks",
        Doubt::NotRecorded => "blocks that would tell were never run",
    }
}
