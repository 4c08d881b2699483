//! `fairtrial plan`: what a study would run.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use fairtrial_study::{
    Action, Decide, Fault, Fresh, Invalid, Plan, Ready, Recorded, Share, Study, Survey, Value,
    Wishes, WriteError,
};
use fairtrial_study::{JournalError, JournalReader};

use crate::args::PlanArgs;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, reason};
use crate::terminal::Shown;

/// Lines of a long list that people read.
const SHOWN: usize = 20;

/// Plans the study that `args` name.
pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let study = Study::load(&args.study, args.compat).map_err(invalid)?;
    let plan = planned(&study)?;
    // That a host program binds agents is news, no fault.
    let strictly = plan
        .warnings
        .iter()
        .filter(|fault| args.strict && fault.code != "unbound");
    let faults: Vec<Fault> = strictly.cloned().collect();
    if !faults.is_empty() {
        return Err(invalid(Invalid { faults }));
    }
    if let Some(path) = &args.conditions {
        write_conditions(&plan, path)?;
    }
    let directory = args.out.as_ref().unwrap_or(&study.output_dir);
    let shown = decided(&plan, directory, |decide, rate| {
        if args.json {
            let mut out = BufWriter::with_capacity(1 << 16, Shown::on(io::stdout()));
            plan.write_json(decide, &plan.warnings, &mut out)?;
            Ok(out.flush()?)
        } else {
            show(&plan, decide, rate)
        }
    })?;
    match shown {
        Err(WriteError::Journal(error)) => Err(Failure::Usage(error.to_string())),
        Err(WriteError::Io(error)) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::attempting("cannot show the plan")(error))
        }
        _ => Ok(ExitCode::AllWell),
    }
}

/// The plan of a study all of whose programs are there.
pub(crate) fn planned(study: &Study) -> Result<Plan<'static>, Failure> {
    Plan::resolved(study.clone()).map_err(invalid)
}

/// By what a directory recorded, if it holds the study and its programs are there; else everything is new.
fn decided<T>(
    plan: &Plan<'_>,
    directory: &Path,
    act: impl FnOnce(&dyn Decide, Option<f64>) -> T,
) -> Result<T, Failure> {
    let failed = |error: JournalError| Failure::Usage(error.to_string());
    let reader = match JournalReader::open(directory) {
        Ok(reader) => reader,
        Err(JournalError::Missing(_)) => return Ok(act(&Fresh, None)),
        Err(error) => return Err(failed(error)),
    };
    let Ok(ready) = Ready::load(plan) else {
        return Ok(act(&Fresh, None)); // its agents are the host program's
    };
    reader.hold_still().map_err(failed)?;
    let history = reader.history().map_err(failed)?;
    let rate = reader.rate().map_err(failed)?;
    let wishes = Wishes::default();
    let recorded = Recorded::new(&history, &reader, &ready, &wishes).map_err(failed)?;
    Ok(act(&recorded, rate))
}

/// Each fault on a line of its own.
pub(crate) fn invalid(invalid: Invalid) -> Failure {
    Failure::Usage(invalid.to_string())
}

fn write_conditions(plan: &Plan<'_>, path: &Path) -> Result<(), Failure> {
    let written = File::create(path).and_then(|file| {
        let mut out = BufWriter::new(file);
        plan.write_conditions(&mut out)?;
        out.flush()
    });
    written.map_err(|error| {
        let (place, reason) = (path.display(), reason(&error));
        let hint = "name a file in a directory that exists and can be written";
        Failure::usage(
            "--conditions",
            format!("cannot write `{place}`: {reason} ({hint})"),
        )
    })
}

/// `run 10 (8 new, 2 cancelled), reuse 5 (finished)`.
fn actions(survey: &Survey) -> String {
    let mut said = Vec::new();
    for action in Action::ALL {
        let of_it: Vec<_> = survey
            .reasons
            .iter()
            .filter(|((of, _), _)| *of == action)
            .map(|((_, reason), count)| (reason, count))
            .collect();
        let (action, all) = (action.name(), survey.count(action));
        match &of_it[..] {
            [] => {}
            [(reason, _)] => said.push(format!("{action} {all} ({reason})")),
            several => {
                let parts = several
                    .iter()
                    .map(|(reason, count)| format!("{count} {reason}"));
                let parts: Vec<_> = parts.collect();
                said.push(format!("{action} {all} ({})", parts.join(", ")));
            }
        }
    }
    match said.is_empty() {
        true => "nothing to do".into(),
        false => said.join(", "),
    }
}

fn show(plan: &Plan<'_>, decide: &dyn Decide, rate: Option<f64>) -> Result<(), WriteError> {
    let survey = decide.survey(plan)?;
    warn(plan)?;
    let mut out = BufWriter::new(Shown::on(io::stdout()));
    let study = &plan.study;
    let kind = study.design.kind.name();
    let alone = if plan.is_standalone {
        ", standalone"
    } else {
        ""
    };
    writeln!(
        out,
        "study {}: {kind}, compat {}{alone}",
        study.study_id, study.compat
    )?;
    let (conditions, admissible) = (plan.design.len(), plan.admissible());
    writeln!(
        out,
        "{conditions} conditions, {admissible} admissible, {} runs",
        plan.len()
    )?;
    let order = &study.order;
    writeln!(
        out,
        "order: {}, seed {}",
        order.policy.name(),
        order.seed.to_str()
    )?;
    let (actions, orphans) = (actions(&survey), survey.orphans);
    writeln!(out, "actions: {actions}; {orphans} orphans")?;
    let to_do = survey.to_do();
    if let Some(rate) = rate.filter(|rate| *rate > 0.0 && to_do > 0) {
        let seconds = (to_do as f64 / rate).ceil();
        writeln!(out, "time: about {seconds} s, at the rate of the last time")?;
    }
    let coverage = &plan.coverage;
    let of_conditions = plan.design.conditions().zip(&coverage.conditions);
    let of_conditions = of_conditions.map(|(condition, share)| {
        let mut label: Vec<_> = condition
            .factors()
            .chain(condition.blocks())
            .map(pair)
            .collect();
        if !condition.is_admissible() {
            label.push(format!(
                "not admissible: {}",
                condition.messages().join("; ")
            ));
        }
        (format!("{}  {}", condition.id(), label.join(" ")), *share)
    });
    coverage_list(&mut out, "conditions", of_conditions.collect())?;
    let named = |all: &[(Value, Share)]| {
        all.iter()
            .map(|(id, share)| (id.to_str(), *share))
            .collect()
    };
    coverage_list(&mut out, "agents", named(&coverage.agents))?;
    coverage_list(&mut out, "problems", named(&coverage.problems))?;
    Ok(out.flush()?)
}

/// What is odd about a plan, a line each.
pub(crate) fn warn(plan: &Plan<'_>) -> io::Result<()> {
    let mut err = Shown::on(io::stderr());
    let mut warnings = plan.warnings.iter();
    warnings.try_for_each(|warning| writeln!(err, "{}", line(warning)))
}

fn line(warning: &Fault) -> String {
    let text = warning.to_string();
    match text.split_once(": ") {
        Some((place, rest)) => format!("{place}: warning: {rest}"),
        None => text,
    }
}

fn pair((name, value): (&str, &Value)) -> String {
    format!("{name}={}", value.to_str())
}

/// Planned of possible runs, one line each.
fn coverage_list(out: &mut impl Write, what: &str, shares: Vec<(String, Share)>) -> io::Result<()> {
    if shares.is_empty() {
        return Ok(());
    }
    writeln!(out, "{what}, runs planned/possible:")?;
    for (name, Share { planned, possible }) in shares.iter().take(SHOWN) {
        writeln!(out, "  {planned}/{possible}  {name}")?;
    }
    if shares.len() > SHOWN {
        writeln!(
            out,
            "  ... and {} more (all with --json)",
            shares.len() - SHOWN
        )?;
    }
    Ok(())
}
