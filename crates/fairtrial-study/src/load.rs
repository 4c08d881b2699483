//! From a study file to a [`Study`], or to everything that is wrong with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::compat::Compat;
use crate::design::{Design, check_rules};
use crate::fault::{Fault, Findings, Invalid, Place, fault, short, suggestion};
use crate::files::read_file;
use crate::node::{self, Content, Entry, Node};
use crate::read::{Reader, Record, TOP, bindings, checks, design, factors, policies};
use crate::schema::STUDY;
use crate::study::{Bindings, Study};
use crate::value::Value;

impl Study {
    /// Reads and checks a study file. Looks at no other file but one that `problems` names.
    pub fn load(path: &Path, compat: Option<Compat>) -> Result<Self, Invalid> {
        Self::load_with_input(path, compat).map(|(study, _)| study)
    }

    /// As [`Study::load`], with the bytes that were read: what is recorded is what was planned, whatever becomes of the file.
    pub fn load_with_input(
        path: &Path,
        compat: Option<Compat>,
    ) -> Result<(Self, Vec<u8>), Invalid> {
        let file: Arc<str> = Arc::from(path.display().to_string());
        let input = read_file(path).map_err(|error| unreadable(&file, &error.to_string()))?;
        let text = std::str::from_utf8(&input).map_err(|error| {
            let good = &input[..error.valid_up_to()];
            not_text(&file, &String::from_utf8_lossy(good))
        })?;
        let study = Self::parse(path, text, compat)?;
        Ok((study, input))
    }

    /// Reads and checks the text of a study file; the path says its format and what its paths are relative to.
    pub fn parse(path: &Path, text: &str, compat: Option<Compat>) -> Result<Self, Invalid> {
        let file: Arc<str> = Arc::from(path.display().to_string());
        let root = node::parse(path, &file, text).map_err(one)?;
        let mut findings = Findings::default();
        let compat = design::compat(&mut findings, &root, compat);
        let mut reader = Reader { compat, findings };
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let (mut study, is_plannable) = read(&mut reader, &root, file, directory);
        check_rules(&study, &mut reader.findings);
        if !reader.findings.faults.is_empty() {
            // Otherwise the planner says it, but a file with other faults never gets there.
            let unresolved = study.resolve_bindings().err();
            let undesigned = if is_plannable {
                Design::unjudged(&study).err()
            } else {
                None
            };
            let later = unresolved.into_iter().chain(undesigned);
            reader
                .findings
                .faults
                .extend(later.flat_map(|invalid| invalid.faults));
        }
        study.warnings = reader.findings.settle()?;
        Ok(study)
    }
}

fn one(fault: Fault) -> Invalid {
    Invalid {
        faults: vec![fault],
    }
}

fn start_of(file: &Arc<str>) -> Place {
    Place {
        file: file.clone(),
        line: 1,
        column: 1,
    }
}

fn unreadable(file: &Arc<str>, error: &str) -> Invalid {
    let reason = error.split(" (os error").next().unwrap_or(error);
    let message = format!("cannot read it: {reason}");
    one(fault(&start_of(file), "file", message, "name a study file"))
}

fn not_text(file: &Arc<str>, before: &str) -> Invalid {
    let place = Place {
        file: file.clone(),
        line: before.matches('\n').count() + 1,
        column: before.rsplit('\n').next().unwrap_or(before).chars().count() + 1,
    };
    one(fault(
        &place,
        "encoding",
        "not UTF-8 text",
        "save the file as UTF-8",
    ))
}

/// The study, and whether what its design is made of has no faults.
fn read(reader: &mut Reader, root: &Node, file: Arc<str>, directory: PathBuf) -> (Study, bool) {
    reader.repeated_keys(root);
    let top = reader.record(root, TOP, STUDY);
    schema_version(reader, &top);
    let before = reader.findings.faults.len();
    let (factors, factors_value) = factors::factors(reader, top.node("factors"));
    let (blocks, blocks_value) = factors::blocks(reader, top.node("blocks"));
    let (constraints, constraints_value) = factors::constraints(reader, top.node("constraints"));
    let (design, design_value) = design::design(reader, top.node("design_spec"), &root.place);
    let (seeds, seeds_value) = design::seeds(reader, top.node("seed_policy"), &root.place);
    checks::names(reader, &factors, &blocks);
    let is_plannable = reader.findings.faults.len() == before;
    let (budget, budget_value) = design::budget(reader, top.node("run_budget"), &root.place);
    checks::analysis(reader, &top, &factors);
    checks::ids(reader, &top, "agent_specs");
    checks::ids(reader, &top, "problem_ids");
    let order = policies::order(reader, top.node("order"), &seeds);
    let on_failure = policies::on_failure(reader, top.node("on_failure"), &budget);
    let sample = policies::sample(reader, top.node("sample"), &budget);
    let export = policies::export(reader, top.node("export"));
    let bindings = bindings_of(reader, &top, &directory);
    let agents = ids_or_keys(&top, "agent_specs", bindings.agents.as_deref());
    let problems = ids_or_keys(&top, "problem_ids", bindings.problems.as_deref());
    checks::budget(
        reader,
        &budget,
        &factors,
        agents.len(),
        problems.len(),
        sample,
    );
    checks::study_id(reader, &top);
    let study_id = top.text("study_id");
    let output_dir = match top.maybe_text("output_dir") {
        Some(given) if !given.is_empty() => given,
        _ => format!("artifacts/{study_id}"),
    };
    let replaced = [
        ("schema_version", "0.2.0".into()),
        ("factors", factors_value),
        ("blocks", blocks_value),
        ("constraints", constraints_value),
        ("design_spec", design_value),
        ("outcomes", checks::outcomes_value(&top)),
        ("hypotheses", hypotheses_value(&top)),
        ("run_budget", budget_value),
        ("seed_policy", seeds_value),
        ("output_dir", Value::text(&output_dir)),
        ("problem_ids", Value::List(problems.clone())),
        ("agent_specs", Value::List(agents.clone())),
    ];
    let study = Study {
        compat: reader.compat,
        normalised: normalised(&top, replaced, reader.compat),
        file,
        directory,
        study_id,
        factors,
        blocks,
        constraints,
        design,
        budget,
        seeds,
        agents,
        problems,
        bindings,
        order,
        on_failure,
        sample,
        export,
        output_dir: output_dir.into(),
        warnings: Vec::new(),
    };
    check_bound(reader, &study, &top);
    (study, is_plannable)
}

fn schema_version(reader: &mut Reader, top: &Record<'_>) {
    let version = top.get("schema_version");
    let known =
        matches!(version, Value::Null) || matches!(version.as_text(), Some("0.1.0" | "0.2.0"));
    if reader.is_native() && !known {
        let message = format!("unknown schema version `{}`", short(&version.to_str()));
        let hint = "it is `0.2.0`, or left out";
        reader.fault(
            top.place_of("schema_version"),
            "schema_version",
            message,
            hint,
        );
    }
}

fn bindings_of(reader: &mut Reader, top: &Record<'_>, directory: &Path) -> Bindings {
    let given = |key: &str| top.node(key).filter(|node| !node.is_null());
    let defaults: &[Entry] = match given("defaults") {
        Some(node) => bindings::defaults(reader, node),
        None => &[],
    };
    let found = Bindings {
        agents: given("agents").map(|node| bindings::agents(reader, node, defaults)),
        problems: given("problems")
            .map(|node| bindings::problems(reader, node, defaults, directory)),
        evaluator: given("evaluator")
            .and_then(|node| bindings::binding(reader, node, "`evaluator`", defaults)),
        runner: given("runner")
            .and_then(|node| bindings::binding(reader, node, "`runner`", defaults)),
        defaults: defaults.to_vec(),
    };
    if given("runner").is_some() {
        for key in ["agents", "problems"] {
            if let Some(node) = given(key) {
                let message = format!("`{key}` and `runner` exclude each other");
                reader.fault(&node.place, "contradiction", message, "keep one of the two");
            }
        }
    }
    found
}

/// The ids of a list; without any, those of the bindings.
fn ids_or_keys<T>(top: &Record<'_>, key: &str, bound: Option<&[(String, T)]>) -> Vec<Value> {
    match (top.list(key), bound) {
        ([], Some(bound)) => bound.iter().map(|(id, _)| Value::text(id)).collect(),
        (given, _) => given.to_vec(),
    }
}

fn hypotheses_value(top: &Record<'_>) -> Value {
    let without_legacy = |hypothesis: &Value| match hypothesis {
        Value::Map(entries) => {
            let mut entries = entries.clone();
            entries.retain(|(key, _)| key.as_text() != Some(crate::schema::LINKED_PLAN));
            Value::Map(entries)
        }
        other => other.clone(),
    };
    Value::List(top.list("hypotheses").iter().map(without_legacy).collect())
}

/// The file in full: 21 keys, then the mode and those of ST-1 that were given.
fn normalised<const N: usize>(
    top: &Record<'_>,
    mut replaced: [(&'static str, Value); N],
    compat: Compat,
) -> Value {
    let shared = STUDY.iter().take_while(|field| field.key != "compat");
    let mut entries: Vec<(Value, Value)> = shared
        .map(|field| {
            let replaced = replaced.iter_mut().find(|(key, _)| *key == field.key);
            let value = match replaced {
                Some((_, value)) => std::mem::replace(value, Value::Null),
                None => top.get(field.key).clone(),
            };
            (field.key.into(), value)
        })
        .collect();
    entries.push(("compat".into(), compat.name().into()));
    let own = STUDY.iter().skip_while(|field| field.key != "agents");
    for field in own.take_while(|field| field.key != "primary_outcomes") {
        if let Some(node) = top.node(field.key) {
            entries.push((field.key.into(), node.to_value()));
        }
    }
    Value::Map(entries)
}

/// ST-2: every id that will be used has a binding, where the file binds any.
fn check_bound(reader: &mut Reader, study: &Study, top: &Record<'_>) {
    let factor_ids = |names: &[&str]| -> Option<Vec<(Value, Place)>> {
        let factor = names
            .iter()
            .find_map(|name| study.factors.iter().find(|f| f.name == *name))?;
        let ids = factor.values().into_iter();
        Some(
            ids.map(|id| (Value::text(id.to_str()), factor.place.clone()))
                .collect(),
        )
    };
    let listed = |key: &str, ids: &[Value]| -> Vec<(Value, Place)> {
        let items: &[Node] = match top.node(key).map(|node| &node.content) {
            Some(Content::List(items)) => items,
            _ => &[],
        };
        let place = |index| {
            items
                .get(index)
                .map_or(&top.place, |node: &Node| &node.place)
                .clone()
        };
        ids.iter()
            .enumerate()
            .map(|(index, id)| (id.clone(), place(index)))
            .collect()
    };
    if study.bindings.runner.is_some() {
        return;
    }
    if let Some(agents) = &study.bindings.agents {
        let used = factor_ids(&crate::study::AGENT_FACTORS)
            .unwrap_or_else(|| listed("agent_specs", &study.agents));
        let known: Vec<_> = agents
            .iter()
            .map(|(id, b)| (id.as_str(), &b.place))
            .collect();
        bound(reader, &used, &known, "agent");
    }
    if let Some(problems) = &study.bindings.problems {
        let used = factor_ids(&crate::study::PROBLEM_FACTORS)
            .unwrap_or_else(|| listed("problem_ids", &study.problems));
        let known: Vec<_> = problems
            .iter()
            .map(|(id, p)| (id.as_str(), &p.place))
            .collect();
        bound(reader, &used, &known, "problem");
    }
}

fn bound(reader: &mut Reader, used: &[(Value, Place)], known: &[(&str, &Place)], what: &str) {
    for (id, place) in used {
        let text = id.to_str();
        if !known.iter().any(|(known, _)| id.as_text() == Some(known)) {
            let message = format!("{what} `{}` is not in `{what}s`", short(&text));
            let hint = suggestion(&text, known.iter().map(|(known, _)| *known));
            reader.fault(place, "unbound", message, hint);
        }
    }
    for (id, place) in known {
        if !used.iter().any(|(used, _)| used.as_text() == Some(id)) {
            let message = format!("{what} `{}` is not used", short(id));
            reader.findings.warn(place, "unused_binding", message, "");
        }
    }
}
