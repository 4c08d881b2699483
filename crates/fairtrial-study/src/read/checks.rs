//! What must agree across a study: names, references, columns, budgets.

use std::collections::{HashMap, HashSet};

use crate::fault::{Place, short, suggestion};
use crate::node::{Content, Node};
use crate::read::{Reader, Record};
use crate::report::{AGGREGATIONS, TESTS, is_aggregation};
use crate::schema::LINKED_PLAN;
use crate::study::{AGENT_FACTORS, Block, Factor, PROBLEM_FACTORS, RunBudget, Sample};
use crate::value::Value;

/// Columns that `conditions.csv` always has.
pub(crate) const CONDITION_COLUMNS: [&str; 5] = [
    "study_id",
    "condition_id",
    "admissible",
    "constraint_messages",
    "assignment_meta_json",
];

/// Names of factors and blocks: unique, and each a column of its own.
pub(crate) fn names(reader: &mut Reader, factors: &[Factor], blocks: &[Block]) {
    let factor_names: Vec<_> = factors
        .iter()
        .map(|f| (f.name.as_str(), &f.place))
        .collect();
    let block_names: Vec<_> = blocks.iter().map(|b| (b.name.as_str(), &b.place)).collect();
    unique(reader, &factor_names, "factor");
    unique(reader, &block_names, "block");
    let of_factors: HashSet<&str> = factor_names.iter().map(|(name, _)| *name).collect();
    for (name, place) in &block_names {
        if of_factors.contains(name) {
            let message = format!("`{}` names a factor and a block", short(name));
            reader.dubious(place, "repeated_name", message, "rename one");
        }
    }
    let all: HashSet<&str> = of_factors
        .into_iter()
        .chain(block_names.iter().map(|(name, _)| *name))
        .collect();
    let of_blocks = block_names
        .iter()
        .map(|(name, place)| (format!("block_{name}"), *place));
    let columns = factor_names
        .iter()
        .map(|(name, place)| ((*name).to_owned(), *place));
    let mut taken = Taken::default();
    for (column, place) in columns.chain(of_blocks) {
        let message = |other: &str| {
            let column = short(&column);
            format!("the column `{column}` would stand for `{other}` as well")
        };
        let hint = "rename the factor or block";
        if let Some(other) = taken.by(&column) {
            // Two factors of one name are reported as such.
            let is_said = other == column
                && all.contains(other)
                && !CONDITION_COLUMNS.contains(&other)
                && !column.starts_with("block_");
            if other != column {
                reader.dubious(place, "column", message(other), hint);
            } else if !is_said {
                reader.fault(place, "column", message(other), hint);
            }
        }
        taken.add(column);
    }
}

/// Columns that are taken, looked up without going through all of them: there may be 100,000.
struct Taken {
    exact: HashSet<String>,
    /// The first of those that differ in case only.
    folded: HashMap<String, String>,
}

impl Default for Taken {
    fn default() -> Self {
        let mut taken = Self {
            exact: HashSet::new(),
            folded: HashMap::new(),
        };
        for column in CONDITION_COLUMNS {
            taken.add(column.to_owned());
        }
        taken
    }
}

impl Taken {
    fn add(&mut self, column: String) {
        let folded = column.to_ascii_lowercase();
        self.folded.entry(folded).or_insert_with(|| column.clone());
        self.exact.insert(column);
    }

    /// The column of that name, else the first that differs from it in case only.
    fn by(&self, column: &str) -> Option<&str> {
        let exact = self.exact.get(column);
        let found = exact.or_else(|| self.folded.get(&column.to_ascii_lowercase()));
        found.map(String::as_str)
    }
}

fn unique(reader: &mut Reader, names: &[(&str, &Place)], what: &str) {
    let mut seen = HashSet::new();
    for (name, place) in names {
        if !seen.insert(*name) {
            let message = format!("{what} `{}` is given twice", short(name));
            reader.fault(place, "repeated_name", message, "rename one");
        }
    }
}

/// Hypotheses, outcomes and analysis plans refer to what there is.
pub(crate) fn analysis(reader: &mut Reader, study: &Record<'_>, factors: &[Factor]) {
    let ids = |key: &str, id: &str| -> Vec<String> {
        let list = study.list(key).iter();
        list.filter_map(|item| item.get(id)?.as_text().map(Into::into))
            .collect()
    };
    let outcomes = ids("outcomes", "name");
    let hypotheses = ids("hypotheses", "hypothesis_id");
    let plans = ids("analysis_plans", "analysis_plan_id");
    let factors: Vec<String> = factors.iter().map(|factor| factor.name.clone()).collect();
    for (key, id, known, what) in [
        ("outcomes", "name", &outcomes, "outcome"),
        ("hypotheses", "hypothesis_id", &hypotheses, "hypothesis"),
        (
            "analysis_plans",
            "analysis_plan_id",
            &plans,
            "analysis plan",
        ),
    ] {
        let places = item_places(study, key, id);
        let named: Vec<_> = known
            .iter()
            .map(String::as_str)
            .zip(places.iter())
            .collect();
        unique(reader, &named, what);
    }
    refer(
        reader,
        study,
        "hypotheses",
        "independent_vars",
        &factors,
        "factor",
    );
    refer(
        reader,
        study,
        "hypotheses",
        "dependent_vars",
        &outcomes,
        "outcome",
    );
    refer(
        reader,
        study,
        "analysis_plans",
        "hypothesis_ids",
        &hypotheses,
        "hypothesis",
    );
    refer(
        reader,
        study,
        "analysis_plans",
        "outcomes",
        &outcomes,
        "outcome",
    );
    linked_plans(reader, study);
    legacy_outcomes(reader, study, &outcomes);
    words(reader, study);
}

/// Tables in which an outcome may be.
const SOURCE_TABLES: [&str; 3] = ["runs", "evaluations", "events"];

/// Words that the report would not know. They fail nothing: a plan may register what others compute.
fn words(reader: &mut Reader, study: &Record<'_>) {
    if !reader.is_native() {
        return;
    }
    let is_table = |name: &str| SOURCE_TABLES.contains(&name.trim_end_matches(".csv"));
    let is_test = |name: &str| TESTS.contains(&name.trim());
    let columns = "the column is looked for in runs";
    let mean = "the report shows the mean";
    unknown_words(
        reader,
        study,
        "outcomes",
        "source_table",
        (&SOURCE_TABLES, is_table, columns),
    );
    unknown_words(
        reader,
        study,
        "outcomes",
        "aggregation",
        (&AGGREGATIONS, is_aggregation, mean),
    );
    let computed = "the report does not compute it";
    unknown_words(
        reader,
        study,
        "analysis_plans",
        "tests",
        (&TESTS, is_test, computed),
    );
}

/// Warns of each word of a field of each item that is not known: the words there are, which are known, and what follows.
fn unknown_words(
    reader: &mut Reader,
    study: &Record<'_>,
    key: &str,
    field: &str,
    (words, is_known, then): (&[&str], fn(&str) -> bool, &str),
) {
    let places = item_places(study, key, field);
    for (item, place) in study.list(key).iter().zip(&places) {
        let given = match item.get(field) {
            Some(Value::List(items)) => items.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        let unknown = given.iter().filter_map(Value::as_text);
        for word in unknown.filter(|word| !is_known(word) && *word != "?") {
            let message = format!("`{field}` knows no `{}`; {then}", short(word));
            let hint = suggestion(word, words.iter().copied());
            reader.findings.warn(place, "unknown_word", message, hint);
        }
    }
}

/// A study's id names its directory: natively it is a plain name, and under `dre-0.2` its default stays in `artifacts`.
pub(crate) fn study_id(reader: &mut Reader, study: &Record<'_>) {
    let id = study.text("study_id");
    let is_plain = !id.contains('/') && !id.contains(char::is_control) && id != "." && id != "..";
    let has_own = study
        .maybe_text("output_dir")
        .is_some_and(|given| !given.is_empty());
    let (is_fine, hint) = match reader.is_native() {
        true => (is_plain, "name it in letters, digits, `-` and `_`"),
        false => (
            has_own || stays_inside(&id),
            "rename it, or give `output_dir`",
        ),
    };
    if !is_fine {
        let shown = short(&id.escape_debug().to_string());
        let message = match reader.is_native() {
            true => format!("`study_id` is no plain name: `{shown}`"),
            false => format!("`study_id` names no directory inside `artifacts`: `{shown}`"),
        };
        reader.fault(study.place_of("study_id"), "study_id", message, hint);
    }
}

/// Whether a path below a directory names something below it.
fn stays_inside(path: &str) -> bool {
    let mut depth = 0;
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return false;
        }
    }
    depth > 0 && !path.contains('\0')
}

fn item_places(study: &Record<'_>, key: &str, field: &str) -> Vec<Place> {
    let items = match study.node(key).map(|node| &node.content) {
        Some(Content::List(items)) => items.as_slice(),
        _ => &[],
    };
    let place = |item: &Node| {
        child(item, field)
            .map_or(&item.place, |node| &node.place)
            .clone()
    };
    items.iter().map(place).collect()
}

fn child<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    let Content::Map(entries) = &node.content else {
        return None;
    };
    let mut entries = entries.iter().rev();
    let found = entries.find(|entry| entry.key.as_text() == Some(key));
    found.map(|entry| &entry.value)
}

/// Each name in a list field of each item is known.
fn refer(
    reader: &mut Reader,
    study: &Record<'_>,
    key: &str,
    field: &str,
    known: &[String],
    what: &str,
) {
    let places = item_places(study, key, field);
    let there: HashSet<&str> = known.iter().map(String::as_str).collect();
    for (item, place) in study.list(key).iter().zip(&places) {
        let Some(Value::List(names)) = item.get(field) else {
            continue;
        };
        for name in names.iter().filter_map(Value::as_text) {
            if !there.contains(name) && name != "?" {
                let message = format!("`{}` in `{field}` is no {what}", short(name));
                let hint = suggestion(name, known.iter().map(String::as_str));
                reader.fault(place, "unknown_name", message, hint);
            }
        }
    }
}

/// SF-8: a hypothesis may name the plan that lists it.
fn linked_plans(reader: &mut Reader, study: &Record<'_>) {
    let places = item_places(study, "hypotheses", LINKED_PLAN);
    for (hypothesis, place) in study.list("hypotheses").iter().zip(&places) {
        let Some(linked) = hypothesis.get(LINKED_PLAN).and_then(Value::as_text) else {
            continue;
        };
        let id = hypothesis.get("hypothesis_id");
        let lists = |plan: &&Value| {
            plan.get("analysis_plan_id").and_then(Value::as_text) == Some(linked)
                && matches!((plan.get("hypothesis_ids"), id),
                    (Some(Value::List(ids)), Some(id)) if ids.contains(id))
        };
        if !linked.is_empty() && !study.list("analysis_plans").iter().any(|plan| lists(&plan)) {
            let message = format!("no analysis plan `{}` lists this hypothesis", short(linked));
            let hint = "list it in the plan's `hypothesis_ids`";
            reader.fault(place, "unknown_name", message, hint);
        }
    }
}

/// SF-8: the lists of primary and secondary outcomes of older files.
fn legacy_outcomes(reader: &mut Reader, study: &Record<'_>, outcomes: &[String]) {
    let primary = study.texts("primary_outcomes");
    let secondary = study.texts("secondary_outcomes");
    for (key, names) in [
        ("primary_outcomes", &primary),
        ("secondary_outcomes", &secondary),
    ] {
        let place = study.place_of(key).clone();
        for name in names {
            if !outcomes.contains(name) {
                let message = format!("`{}` in `{key}` is no outcome", short(name));
                let hint = suggestion(name, outcomes.iter().map(String::as_str));
                reader.fault(&place, "unknown_name", message, hint);
            }
        }
    }
    if let Some(name) = primary.iter().find(|name| secondary.contains(name)) {
        let message = format!("`{}` is a primary and a secondary outcome", short(name));
        reader.fault(
            study.place_of("secondary_outcomes"),
            "contradiction",
            message,
            "keep one",
        );
    }
    if !carries_primary(study) {
        return;
    }
    let set = |wanted: bool| -> Vec<&str> {
        let list = study.list("outcomes").iter();
        let chosen = list.filter(|outcome| outcome.get("primary") == Some(&Value::Bool(wanted)));
        chosen
            .filter_map(|outcome| outcome.get("name")?.as_text())
            .collect()
    };
    for (key, names, wanted) in [
        ("primary_outcomes", &primary, true),
        ("secondary_outcomes", &secondary, false),
    ] {
        let expected = set(wanted);
        let same =
            names.len() == expected.len() && names.iter().all(|n| expected.contains(&n.as_str()));
        if study.node(key).is_some() && !same {
            let message = format!("`{key}` differs from what the outcomes say of themselves");
            reader.fault(
                study.place_of(key),
                "contradiction",
                message,
                "remove the list",
            );
        }
    }
}

fn carries_primary(study: &Record<'_>) -> bool {
    match study.node("outcomes").map(|node| &node.content) {
        Some(Content::List(items)) => items.iter().any(|item| child(item, "primary").is_some()),
        _ => false,
    }
}

/// The outcomes in full; where none says whether it is primary, the legacy list does.
pub(crate) fn outcomes_value(study: &Record<'_>) -> Value {
    let primary = study.texts("primary_outcomes");
    let mut outcomes = study.list("outcomes").to_vec();
    if !carries_primary(study) && !primary.is_empty() {
        for outcome in &mut outcomes {
            let name = outcome.get("name").map(Value::to_str).unwrap_or_default();
            let Value::Map(entries) = outcome else {
                continue;
            };
            for (key, value) in entries {
                if key.as_text() == Some("primary") {
                    *value = Value::Bool(primary.contains(&name));
                }
            }
        }
    }
    Value::List(outcomes)
}

/// ST-20: an id that is given twice would make two runs of one id.
pub(crate) fn ids(reader: &mut Reader, study: &Record<'_>, key: &str) {
    let Some(Content::List(items)) = study.node(key).map(|node| &node.content) else {
        return;
    };
    let mut seen = HashSet::new();
    for item in items {
        let id = item.to_value();
        if id.as_text().is_none_or(|id| id.trim().is_empty()) {
            let message = format!("an id in `{key}` must be text that is not blank");
            reader.dubious(&item.place, "type", message, "quote it");
        }
        if !seen.insert(id.equality_key()) {
            let message = format!("`{}` is given twice in `{key}`", short(&id.to_str()));
            reader.dubious(&item.place, "repeated_id", message, "keep one");
        }
    }
}

/// SF-17: a budget that cannot hold one condition.
pub(crate) fn budget(
    reader: &mut Reader,
    budget: &RunBudget,
    factors: &[Factor],
    agents: usize,
    problems: usize,
    sample: Option<Sample>,
) {
    let Some(max_runs) = budget.max_runs else {
        return;
    };
    if reader.is_native() && sample.is_some() {
        return;
    }
    let width = |given: usize, names: &[&str]| {
        let mut factors = factors.iter();
        let factor = factors.find(|factor| names.contains(&factor.name.as_str()));
        match (given, factor) {
            (0, Some(factor)) => factor.levels.len().max(1),
            (0, None) => 1,
            (given, _) => given,
        }
    };
    let problems = width(problems, &PROBLEM_FACTORS) as u64;
    let agents = width(agents, &AGENT_FACTORS) as u64;
    let least = problems
        .saturating_mul(agents)
        .saturating_mul(budget.replicates.into());
    if max_runs < least {
        let replicates = budget.replicates;
        let message = format!(
            "`max_runs` of {max_runs} is below {problems} problems x {agents} agents x {replicates} replicates"
        );
        let hint = format!("allow at least {least}");
        reader.fault(&budget.place, "max_runs", message, hint);
    }
}
