//! An evaluation's result as people read it: one line for the whole, one per candidate.

use fairtrial_candidates::figures::duration;
use fairtrial_candidates::measure::{Judgement, Leaning, Verdict};
use fairtrial_candidates::search::Ledger;
use fairtrial_candidates::{
    BenchFacts, Compared, Evaluation, EvaluationReport, StartupSource, State, Tiebreak,
};

use crate::terminal::counted;

/// The lines.
pub(super) fn lines(report: &EvaluationReport) -> Vec<String> {
    let mut lines = vec![headline(report)];
    let rows = base(report)
        .into_iter()
        .chain(report.evaluations.iter().map(row));
    lines.extend(aligned(rows.collect()));
    lines.extend(report.proposals.as_ref().and_then(asked));
    lines.push(closing(report));
    lines
}

/// What came of a search; none where nobody was asked.
fn asked(ledger: &Ledger) -> Option<String> {
    let candidates = counted(ledger.proposed as u64, "candidate");
    let mut parts = vec![format!(
        "proposer: {}, {candidates}",
        counted(ledger.requests as u64, "request")
    )];
    if ledger.failed > 0 {
        let errors = ledger.entries.iter();
        let error = errors.filter_map(|entry| entry.error.as_deref()).next();
        let error = first_line(error.unwrap_or_default());
        parts.push(format!("{} failed, the first: {error}", ledger.failed));
    }
    (ledger.requests > 0).then(|| parts.join(" · "))
}

fn headline(report: &EvaluationReport) -> String {
    let baseline = &report.baseline;
    let mut tests = counted(baseline.cases, "test");
    // Candidates need not pass them either.
    if baseline.passing < baseline.judged {
        tests += &format!(", {} not passing", baseline.judged - baseline.passing);
    }
    if !baseline.quarantined.is_empty() {
        tests += &format!(", {} quarantined", baseline.quarantined.len());
    }
    let mut parts = vec![
        format!("base {}", report.base.label),
        format!("{} files", thousands(report.base.files)),
        report.provider.name.clone(),
        tests,
    ];
    if let Some(floor) = report.noise_floor {
        parts.push(format!("noise floor ±{:.1}%", floor * 100.0));
    }
    if report.aa_failed {
        parts.push("the base differs from itself: no verdict on speed holds".to_owned());
    }
    parts.join(" · ")
}

fn closing(report: &EvaluationReport) -> String {
    match report.winner() {
        Some(winner) => format!(
            "winner: {} {}",
            winner.id.as_deref().unwrap_or_default(),
            winner.name
        ),
        None if report.any_correct() && report.measurement.is_some() => {
            "no candidate is shown to be faster".to_owned()
        }
        None if report.any_correct() => {
            let correct = report
                .evaluations
                .iter()
                .filter(|one| one.is_correct())
                .count();
            format!(
                "{} correct; nothing was measured",
                counted(correct as u64, "candidate")
            )
        }
        None => "no candidate is correct".to_owned(),
    }
}

const COLUMNS: usize = 9;

/// The base's own rows, one per bench command: its time and spread, and of how many loops.
fn base(report: &EvaluationReport) -> Vec<[String; COLUMNS]> {
    let Some(measured) = &report.measurement else {
        return Vec::new();
    };
    let is_one = measured.benches.len() == 1;
    let row = |(name, facts): (&String, &BenchFacts)| {
        let times = facts.base()?;
        let seconds = duration(times.compared_s()?);
        let (each, loops) = match (facts.compared, times.loops) {
            (Compared::Net, Some(loops)) => ("per loop", counted(loops, "loop")),
            _ => ("per run", "whole runs".to_owned()),
        };
        let spread = times
            .spread
            .map(|spread| format!("spread {:.1}%", spread * 100.0));
        let terms = [Some(loops), startup(facts)];
        Some([
            "-".to_owned(),
            if is_one {
                "base".to_owned()
            } else {
                format!("base {name}")
            },
            "-".to_owned(),
            "1".to_owned(),
            format!("{seconds} {each}"),
            spread.unwrap_or_default(),
            counted(times.blocks, "block"),
            String::new(),
            terms.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ])
    };
    measured.benches.iter().filter_map(row).collect()
}

fn startup(facts: &BenchFacts) -> Option<String> {
    let (startup_s, share) = (facts.startup_s?, facts.startup_share?);
    let least = match facts.startup_source {
        Some(StartupSource::Interpreter) => "at least ",
        _ => "",
    };
    Some(match facts.compared {
        Compared::Net => format!("start-up of {} left out", duration(startup_s)),
        Compared::Gross => format!("{least}{:.0}% start-up", share * 100.0),
    })
}

/// What a ratio means, and a mark on one that is of start-up too.
fn meaning(one: &Evaluation) -> String {
    let means = one.judgement.as_ref().and_then(Judgement::meaning);
    let mark = one
        .gross_startup
        .map(|share| format!("gross: {:.0}% start-up", share * 100.0));
    let parts: Vec<String> = means.into_iter().chain(mark).collect();
    parts.join(", ")
}

/// A ratio with two digits that say something.
fn ratio(value: f64) -> String {
    match value {
        value if value < 0.001 => format!("{value:.1e}"),
        value if value < 0.01 => format!("{value:.4}"),
        value if value < 0.1 => format!("{value:.3}"),
        value => format!("{value:.2}"),
    }
}

/// Rank, who, tests, ratio, what that means, verdict, blocks, size, and why it failed or what broke its tie.
fn row(one: &Evaluation) -> [String; COLUMNS] {
    let judgement = one.judgement.as_ref();
    let who = match &one.id {
        Some(id) => format!("{id} {}", one.name),
        None => one.name.clone(),
    };
    [
        one.rank
            .map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
        who,
        one.cases.map_or_else(
            || "-".to_owned(),
            |cases| format!("{}/{}", cases.passed, cases.total),
        ),
        judgement.map_or_else(
            || "-".to_owned(),
            |said| {
                let [middle, low, high] = [said.ratio, said.low, said.high].map(ratio);
                format!("{middle} [{low}, {high}]")
            },
        ),
        meaning(one),
        verdict(one),
        judgement.map_or_else(String::new, |said| counted(u64::from(said.blocks), "block")),
        one.size.map_or_else(String::new, |size| {
            format!("+{} -{}", size.added, size.removed)
        }),
        one.failure.as_ref().map_or_else(
            || tiebreak(one).unwrap_or_default(),
            |failure| first_line(&failure.message),
        ),
    ]
}

/// By what it stands where it does among those that equal the leader. A count is not to be taken for a time.
fn tiebreak(one: &Evaluation) -> Option<String> {
    let Tiebreak { by, used, count } = one.tiebreak.as_ref()?;
    if let Some(why) = &count.failed {
        return Some(format!("not counted by {by}: {}", first_line(why)));
    }
    let counts: Vec<String> = count
        .instructions
        .values()
        .copied()
        .map(thousands)
        .collect();
    used.then(|| {
        format!(
            "tie: {} instructions by {by}, not measured time",
            counts.join(" + ")
        )
    })
}

fn verdict(one: &Evaluation) -> String {
    if let Some(of) = &one.duplicate_of {
        return format!("same as {of}");
    }
    if let Some(failure) = &one.failure {
        let kind = failure.kind.name();
        return match failure.diffs_total {
            0 => kind.to_owned(),
            count => format!("{kind} ({count})"),
        };
    }
    if one.state == State::NotRun {
        return "not run".to_owned();
    }
    let Some(said) = &one.judgement else {
        return if one.is_correct() {
            "correct".to_owned()
        } else {
            String::new()
        };
    };
    let word = match said.verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        Verdict::Equal => "equal",
        Verdict::Uncertain => "uncertain",
        Verdict::Eliminated => "eliminated",
    };
    match (&one.confirmation, &said.leaning) {
        (Some(again), _) if again.confirmed => format!("{word}, confirmed"),
        (Some(_), _) => format!("{word}, unconfirmed"),
        (None, Some(Leaning::Faster)) => format!("{word}, perhaps faster"),
        (None, Some(Leaning::Slower)) => format!("{word}, perhaps slower"),
        (None, None) => word.to_owned(),
    }
}

/// Enough to know what it is about; the report has it all.
fn first_line(message: &str) -> String {
    const MOST: usize = 80;
    let line = message.lines().next().unwrap_or_default();
    // How many differ is in the columns before.
    let line = line
        .split_once("; the first: ")
        .map_or(line, |(_, first)| first);
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Columns as wide as their widest entry; the rank to the right.
fn aligned(rows: Vec<[String; COLUMNS]>) -> Vec<String> {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let line = |row: &[String; COLUMNS]| {
        let rank = format!("{:>1$}", row[0], widths[0].max(2));
        let rest = (1..COLUMNS).map(|column| format!("  {:<1$}", row[column], widths[column]));
        let line: String = std::iter::once(rank).chain(rest).collect();
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// `5,012`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let from_end = |(at, digit): (usize, char)| {
        let is_group = at > 0 && (digits.len() - at).is_multiple_of(3);
        [is_group.then_some(','), Some(digit)].into_iter().flatten()
    };
    digits.chars().enumerate().flat_map(from_end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FA-20
    #[test]
    fn small_ratios_keep_two_digits() {
        assert_eq!(
            [1.3, 0.13, 0.0184, 0.0026, 0.000_26].map(ratio),
            ["1.30", "0.13", "0.018", "0.0026", "2.6e-4"]
        );
    }

    #[test]
    fn numbers_are_grouped_and_messages_cut() {
        assert_eq!(
            [7, 999, 5012, 1_234_567].map(thousands),
            ["7", "999", "5,012", "1,234,567"]
        );
        assert_eq!(first_line("one\ntwo"), "one");
        assert_eq!(
            first_line("2 of 2 cases differ; the first: `a` was"),
            "`a` was"
        );
        assert_eq!(first_line(&"é".repeat(90)).chars().count(), 81);
    }
}
