//! The design, the budget and the seeds.

use crate::compat::Compat;
use crate::design::{DesignKind, DesignSpec};
use crate::fault::{Place, listed, short, suggestion};
use crate::node::{Content, Node};
use crate::read::{Reader, Record};
use crate::schema::{DESIGN, DESIGN_OPTIONS, RUN_BUDGET, SEED_POLICY};
use crate::study::{RunBudget, SeedPolicy};
use crate::value::Value;

/// The design, and its mapping in full.
pub(crate) fn design(
    reader: &mut Reader,
    node: Option<&Node>,
    file: &Place,
) -> (DesignSpec, Value) {
    let empty = empty_map(file);
    let node = node.unwrap_or(&empty);
    let record = reader.record(node, "`design_spec`", DESIGN);
    let options_node = record.node("options").unwrap_or(&empty);
    let options = reader.record(options_node, "`design_spec.options`", DESIGN_OPTIONS);
    let kind = kind(reader, &record);
    let own_or_option = |key: &str| match record.get(key) {
        Value::Null => options.get(key).clone(),
        given => given.clone(),
    };
    let count = |key: &str| match own_or_option(key) {
        Value::Int(int) => Some(u64::try_from(int).unwrap_or(u64::MAX)),
        _ => None,
    };
    let places = DESIGN.iter().chain(DESIGN_OPTIONS).filter_map(|field| {
        let node = record.node(field.key).or_else(|| options.node(field.key));
        node.map(|node| (field.key, node.place.clone()))
    });
    let spec = DesignSpec {
        place: node.place.clone(),
        kind,
        replicates: record.count("replicates").unwrap_or(1),
        randomize: record.flag("randomize"),
        counterbalance: record.flag("counterbalance"),
        matrix_path: own_or_option("matrix_path").as_text().map(Into::into),
        n_samples: count("n_samples"),
        center_points: count("center_points").unwrap_or(0),
        block_randomization_key: own_or_option("block_randomization_key")
            .as_text()
            .map(Into::into),
        bounds: options.node("bounds").map(Node::to_value),
        backend: options.maybe_text("backend"),
        resolution: options.maybe_text("resolution"),
        row_factor: options.maybe_text("row_factor"),
        column_factor: options.maybe_text("column_factor"),
        treatment_factor: options.maybe_text("treatment_factor"),
        scramble: options.flag("scramble"),
        places: places.collect(),
    };
    let options = record
        .node("options")
        .map_or(Value::Map(Vec::new()), Node::to_value);
    let value = full(&spec, options);
    ignored_options(reader, &spec);
    (spec, value)
}

fn kind(reader: &mut Reader, record: &Record<'_>) -> DesignKind {
    let text = record.text("kind");
    let name = text.trim().to_lowercase();
    let kind = DesignKind::from_name(&name);
    let known = kind.filter(|kind| *kind != DesignKind::Sobol || reader.is_native());
    known.unwrap_or_else(|| {
        let message = format!("unknown kind of design `{}`", short(&text));
        let names = DesignKind::ALL.iter().map(|kind| kind.name());
        let names = names.filter(|name| reader.is_native() || *name != "sobol");
        let hint = match kind {
            Some(_) => "it is natively known: drop `schema_version` or set `compat: native`".into(),
            None => suggestion(&name, names),
        };
        reader.fault(record.place_of("kind"), "design_kind", message, hint);
        DesignKind::Full
    })
}

fn full(spec: &DesignSpec, options: Value) -> Value {
    let text = |text: &Option<String>| text.as_deref().map_or(Value::Null, Value::from);
    let count = |count: u64| Value::Int(count.into());
    Value::map([
        ("kind", spec.kind.name().into()),
        ("replicates", count(spec.replicates)),
        ("randomize", spec.randomize.into()),
        ("counterbalance", spec.counterbalance.into()),
        ("matrix_path", text(&spec.matrix_path)),
        ("n_samples", spec.n_samples.map_or(Value::Null, count)),
        ("center_points", count(spec.center_points)),
        (
            "block_randomization_key",
            text(&spec.block_randomization_key),
        ),
        ("options", options),
    ])
}

/// Options that the kind does not look at, and pairs that contradict each other.
fn ignored_options(reader: &mut Reader, spec: &DesignSpec) {
    use DesignKind::{
        Constrained, CustomMatrix, Fraction, Full, LatinHypercube, LatinSquare, RandomizedBlock,
        RepeatedMeasures, Sobol,
    };
    const SAMPLED: &[DesignKind] = &[LatinHypercube, Fraction, Sobol];
    const SPACE: &[DesignKind] = &[LatinHypercube, Sobol];
    const SQUARE: &[DesignKind] = &[LatinSquare];
    let given: [(&str, bool, &[DesignKind]); 14] = [
        ("replicates", spec.replicates != 1, SAMPLED),
        (
            "randomize",
            spec.randomize,
            &[
                Full,
                Constrained,
                RandomizedBlock,
                LatinHypercube,
                Fraction,
                Sobol,
            ],
        ),
        (
            "counterbalance",
            spec.counterbalance,
            &[
                Full,
                Constrained,
                RepeatedMeasures,
                LatinHypercube,
                Fraction,
                Sobol,
            ],
        ),
        ("matrix_path", spec.matrix_path.is_some(), &[CustomMatrix]),
        ("n_samples", spec.n_samples.is_some(), SPACE),
        ("center_points", spec.center_points > 0, SAMPLED),
        (
            "block_randomization_key",
            spec.block_randomization_key.is_some(),
            SAMPLED,
        ),
        ("bounds", spec.bounds.is_some(), SPACE),
        (
            "backend",
            spec.backend.is_some(),
            &[LatinHypercube, Fraction],
        ),
        ("resolution", spec.resolution.is_some(), &[Fraction]),
        ("row_factor", spec.row_factor.is_some(), SQUARE),
        ("column_factor", spec.column_factor.is_some(), SQUARE),
        ("treatment_factor", spec.treatment_factor.is_some(), SQUARE),
        ("scramble", spec.scramble, &[Sobol]),
    ];
    for (key, is_given, users) in given {
        if is_given && !users.contains(&spec.kind) {
            let message = format!("`{key}` is not used by `{}`", spec.kind.name());
            let users = users.iter().map(|kind| kind.name());
            let users = users.filter(|name| reader.is_native() || *name != "sobol");
            let hint = format!("it is used by {}; remove it", listed(users));
            reader.dubious(spec.place_of(key), "ignored_option", message, hint);
        }
    }
    if spec.randomize && spec.counterbalance {
        let message = "`randomize` undoes what `counterbalance` does";
        reader.dubious(
            spec.place_of("counterbalance"),
            "ignored_option",
            message,
            "keep one",
        );
    }
    if spec.block_randomization_key.is_some() && !spec.randomize && SAMPLED.contains(&spec.kind) {
        let place = spec.place_of("block_randomization_key");
        let message = "`block_randomization_key` is not used without `randomize`";
        reader.dubious(place, "ignored_option", message, "add `randomize: true`");
    }
}

/// The budget, and its mapping in full.
pub(crate) fn budget(reader: &mut Reader, node: Option<&Node>, file: &Place) -> (RunBudget, Value) {
    let empty = empty_map(file);
    let node = node.filter(|node| !node.is_null()).unwrap_or(&empty);
    let record = reader.strict_record(node, "`run_budget`", RUN_BUDGET);
    let replicates = record.count("replicates").unwrap_or(1);
    let budget = RunBudget {
        replicates: u32::try_from(replicates).unwrap_or_else(|_| {
            let message = format!("`replicates` of {replicates} is beyond any plan");
            reader.fault(record.place_of("replicates"), "range", message, "");
            1
        }),
        max_runs: record.count("max_runs"),
        place: record.place_of("max_runs").clone(),
        parallelism: record.count("parallelism"),
        fail_fast: record.flag("fail_fast"),
    };
    let Value::Map(mut entries) = record.to_value(&[]) else {
        unreachable!("a record is a mapping");
    };
    for (key, value) in &mut entries {
        if key.as_text() == Some("parallelism") && *value == Value::Null && !reader.is_native() {
            *value = 1.into();
        }
    }
    (budget, Value::Map(entries))
}

/// The seeds, and their mapping in full.
pub(crate) fn seeds(reader: &mut Reader, node: Option<&Node>, file: &Place) -> (SeedPolicy, Value) {
    let empty = empty_map(file);
    let node = node.filter(|node| !node.is_null()).unwrap_or(&empty);
    let record = reader.strict_record(node, "`seed_policy`", SEED_POLICY);
    let base_seed = record.int("base_seed");
    if base_seed.is_none() {
        let message = "`base_seed` is null: the design's shuffles could not be repeated";
        reader.dubious(
            record.place_of("base_seed"),
            "base_seed",
            message,
            "write an integer",
        );
    }
    if record.get("per_run_offset") == &Value::Null {
        let message = "`per_run_offset` must be an integer, not null";
        reader.fault(record.place_of("per_run_offset"), "type", message, "");
    }
    let policy = SeedPolicy {
        base_seed,
        strategy: record.text("strategy"),
        per_run_offset: record.get("per_run_offset").clone(),
    };
    (policy, record.to_value(&[]))
}

/// SF-1: the flag, else the file's key, else what its version says.
pub(crate) fn compat(
    findings: &mut crate::fault::Findings,
    root: &Node,
    flag: Option<Compat>,
) -> Compat {
    let Content::Map(entries) = &root.content else {
        return flag.unwrap_or(Compat::Native);
    };
    let find = |key: &str| {
        let mut entries = entries.iter().rev();
        entries
            .find(|entry| entry.key.as_text() == Some(key))
            .map(|entry| &entry.value)
    };
    let said = find("compat").map(|node| {
        let text = node.to_value().to_str();
        text.parse().unwrap_or_else(|_: String| {
            let message = format!("unknown mode `{}`", short(&text));
            let hint = "the modes are `native` and `dre-0.2`";
            findings.fault(&node.place, "compat", message, hint);
            Compat::Native
        })
    });
    let version = find("schema_version").map(|node| node.to_value().to_str());
    let by_version = match version.as_deref() {
        Some("0.1.0" | "0.2.0") => Compat::Dre,
        _ => Compat::Native,
    };
    flag.or(said).unwrap_or(by_version)
}

fn empty_map(place: &Place) -> Node {
    Node {
        place: place.clone(),
        content: Content::Map(Vec::new()),
        doubt: None,
    }
}
