//! The page: head, overview, sections.

use crate::clock::{Precision, time_text};
use crate::html::{begin, count, counted, end, percent, put, short};
use crate::journal::{History, PastInvocation};
use crate::plan::Plan;
use crate::report::chart::strip;
use crate::report::figures::duration;
use crate::report::gather::Gathered;
use crate::report::timeline::{STATUSES, Timeline};
use crate::report::{failed, grouped, hypotheses, provenance};
use crate::stats::wilson;
use crate::value::Value;

/// Strips of time that are drawn.
const MOST_STRIPS: usize = 12;

/// What is known without looking at runs.
pub(crate) struct Source<'s> {
    pub(crate) plan: &'s Plan<'s>,
    pub(crate) history: &'s History,
    pub(crate) invocations: &'s [PastInvocation],
    pub(crate) accepted: &'s [(String, String)],
    /// `fairtrial.json`
    pub(crate) seal: &'s Value,
    /// `manifest.json`
    pub(crate) manifest: &'s Value,
}

impl Source<'_> {
    /// Recorded runs that are no longer planned.
    pub(crate) fn orphans(&self) -> u64 {
        let planned = self.plan.runs();
        let known = planned.filter(|run| self.history.find(run.run_id.number()).is_some());
        self.history.len() as u64 - known.count() as u64
    }
}

/// The whole page.
pub(crate) fn page(source: &Source<'_>, gathered: Gathered) -> String {
    let study = &source.plan.study.normalised;
    let text = |key: &str| study.get(key).and_then(Value::as_text).unwrap_or_default();
    let mut out = begin(
        &short(text("title"), 200),
        include_str!("style.css"),
        &short(text("study_id"), 200),
        &short(text("title"), 300),
    );
    if !text("description").is_empty() {
        put(
            &mut out,
            format_args!(
                "<p class=\"lead\">{}</p>\n",
                short(text("description"), 6000)
            ),
        );
    }
    if let Some(Value::List(authors)) = study.get("authors") {
        let authors: Vec<_> = authors.iter().map(Value::to_str).collect();
        put(
            &mut out,
            format_args!(
                "<p class=\"eyebrow\">{}</p>\n",
                short(&authors.join(", "), 400)
            ),
        );
    }
    overview(&mut out, source, &gathered);
    out.push_str("</header>\n<main>\n");
    hypotheses::section(&mut out, source.plan, &gathered);
    grouped::section(&mut out, &gathered);
    timeline(&mut out, source, &gathered.timeline);
    let mut gathered = gathered;
    let failures = std::mem::take(&mut gathered.failures);
    let unevaluated = std::mem::take(&mut gathered.unevaluated);
    failed::section(&mut out, failures, unevaluated);
    provenance::section(&mut out, source, &gathered);
    end(&mut out, "the study’s journal");
    out
}

fn overview(out: &mut String, source: &Source<'_>, gathered: &Gathered) {
    let planned = source.plan.len();
    let of = |status: &str| gathered.statuses.get(status).copied().unwrap_or(0);
    let ended: u64 = gathered.statuses.values().sum();
    let failed = ended - of("success");
    let rate = match wilson(failed, ended) {
        None => ("–".to_owned(), "failed".to_owned()),
        Some(interval) => (
            percent(failed as f64 / ended as f64),
            format!(
                "failed, 95 % [{}, {}]",
                percent(interval.low),
                percent(interval.high)
            ),
        ),
    };
    let spent = source
        .invocations
        .iter()
        .filter_map(|one| Some((one.end.as_ref()?.0 - one.begun.started_at_ns) as f64 / 1e9));
    let spent: f64 = spent.sum();
    let admissible = source.plan.admissible() as u64;
    let facts = [
        (
            count(ended),
            format!("of {} ended", counted(planned, "run")),
        ),
        rate,
        (
            count(admissible),
            if admissible == 1 {
                "condition".into()
            } else {
                "conditions".into()
            },
        ),
        (
            duration(spent),
            format!(
                "in {}",
                counted(source.invocations.len() as u64, "invocation")
            ),
        ),
    ];
    out.push_str("<div class=\"facts\">");
    for (number, what) in facts {
        put(
            out,
            format_args!("<div class=\"fact\"><b>{number}</b><span>{what}</span></div>"),
        );
    }
    out.push_str("</div>\n<div class=\"share\">");
    let mut parts: Vec<_> = STATUSES
        .iter()
        .map(|status| (status.name(), of(status.name())))
        .collect();
    parts.push(("other", planned.saturating_sub(ended)));
    parts.retain(|(_, runs)| *runs > 0);
    for (name, runs) in &parts {
        let share = *runs as f64 / planned.max(1) as f64 * 100.0;
        put(
            out,
            format_args!("<i class=\"{name}\" style=\"width:{share:.3}%\"></i>"),
        );
    }
    out.push_str("</div><p class=\"legend\">");
    for (name, runs) in &parts {
        let label = if *name == "other" { "not ended" } else { name };
        put(
            out,
            format_args!(
                "<span><i class=\"{name}\"></i>{} {label}</span>",
                count(*runs)
            ),
        );
    }
    out.push_str("</p>\n");
    if gathered.unevaluated.total > 0 {
        put(
            out,
            format_args!(
                "<p class=\"alert\">{} did not go well.</p>\n",
                counted(gathered.unevaluated.total, "evaluation")
            ),
        );
    }
    if gathered.retried_successes > 0 {
        put(
            out,
            format_args!(
                "<p class=\"alert\">{} succeeded only after an attempt that failed.</p>\n",
                counted(gathered.retried_successes, "run")
            ),
        );
    }
    navigation(out, gathered);
}

fn navigation(out: &mut String, gathered: &Gathered) {
    let [_, agents, problems] = &gathered.groups;
    let register = &gathered.register;
    let has_claims = !register.hypotheses.is_empty() || !register.plans.is_empty();
    out.push_str("<nav>");
    for (id, title, is_there) in [
        ("hypotheses", "Hypotheses", has_claims),
        ("conditions", "Conditions", true),
        ("agents", "Agents", agents.groups.len() > 1),
        ("problems", "Problems", problems.groups.len() > 1),
        ("timeline", "Timeline", true),
        ("failures", "Failures", true),
        ("provenance", "Provenance", true),
    ] {
        if is_there {
            put(out, format_args!("<a href=\"#{id}\">{title}</a>"));
        }
    }
    out.push_str("</nav>\n");
}

fn timeline(out: &mut String, source: &Source<'_>, timeline: &Timeline) {
    out.push_str("<h2 id=\"timeline\">Timeline</h2>\n");
    out.push_str("<p class=\"note\">The attempt of each run that tables show, by the invocation that ran it.</p>\n");
    let shown: Vec<_> = timeline
        .strips
        .iter()
        .filter(|(_, strip)| strip.runs > 0)
        .collect();
    for (id, of_time) in shown.iter().rev().take(MOST_STRIPS).rev() {
        let workers = source
            .invocations
            .iter()
            .find(|one| one.begun.id == **id)
            .map_or(0, |one| one.begun.workers);
        let title = format!(
            "Invocation {id}: {}, {}",
            counted(of_time.runs, "run"),
            counted(workers.into(), "worker")
        );
        let began = time_text(of_time.begin_ns, Precision::Seconds);
        put(
            out,
            format_args!(
                "<h3>{title}</h3><p class=\"note\">from {began}</p>\n{}",
                strip(of_time, &title)
            ),
        );
    }
    out.push_str("<p class=\"legend\">");
    for status in STATUSES {
        put(
            out,
            format_args!("<span><i class=\"{status}\"></i>{status}</span>"),
        );
    }
    out.push_str("</p>\n");
    if shown.len() > MOST_STRIPS {
        put(
            out,
            format_args!(
                "<p class=\"note\">The last {MOST_STRIPS} of {} invocations.</p>\n",
                shown.len()
            ),
        );
    }
}
