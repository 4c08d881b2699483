//! The keys of ST-1 that say how runs are ordered, cut, given up and exported.

use std::time::Duration;

use crate::compat::Compat;
use crate::fault::Place;
use crate::format::Format;
use crate::node::{Content, Node};
use crate::read::terms::duration;
use crate::read::{Reader, Record};
use crate::schema::{Field, Kind};
use crate::study::{
    FailurePolicy, FailureTrigger, OrderPolicy, OrderSpec, RunBudget, Sample, SeedPolicy,
};
use crate::value::Value;

pub(super) const ORDER: &[Field] = &[
    Field {
        key: "policy",
        kind: Kind::Own,
    },
    Field {
        key: "seed",
        kind: Kind::MaybeAnyInt { default: 0 },
    },
];

pub(super) const ON_FAILURE: &[Field] = &[
    Field {
        key: "after",
        kind: Kind::MaybeInt { least: 1 },
    },
    Field {
        key: "above",
        kind: Kind::MaybeNumber,
    },
    Field {
        key: "min_runs",
        kind: Kind::Int {
            default: 20,
            least: 1,
        },
    },
    Field {
        key: "grace",
        kind: Kind::Own,
    },
    Field {
        key: "drain",
        kind: Kind::Flag(false),
    },
];

pub(crate) fn order(reader: &mut Reader, node: Option<&Node>, seeds: &SeedPolicy) -> OrderSpec {
    let default = match reader.compat {
        Compat::Native => OrderPolicy::Interleaved,
        Compat::Dre => OrderPolicy::Plan,
    };
    let mut order = OrderSpec {
        policy: default,
        seed: seeds.base(),
    };
    let Some(node) = node else { return order };
    let record = reader.strict_record(node, "`order`", ORDER);
    if let Some(policy) = record.node("policy") {
        let name = reader.choice(policy, "policy", &OrderPolicy::NAMES);
        order.policy = OrderPolicy::from_name(&name.to_str()).unwrap_or(default);
    }
    if record.node("seed").is_some() {
        order.seed = record.get("seed").clone();
        if order.seed == Value::Null {
            let message = "`seed` must be an integer, not null";
            reader.fault(record.place_of("seed"), "type", message, "");
        }
    }
    order
}

pub(crate) fn on_failure(
    reader: &mut Reader,
    node: Option<&Node>,
    budget: &RunBudget,
) -> FailurePolicy {
    let stop = FailurePolicy {
        trigger: FailureTrigger::After(1),
        ..FailurePolicy::default()
    };
    let Some(node) = node else {
        return if budget.fail_fast {
            stop
        } else {
            FailurePolicy::default()
        };
    };
    let policy = match &node.content {
        Content::Scalar(_) => {
            let word = reader.choice(node, "on_failure", &["continue", "stop"]);
            if word == Value::text("stop") {
                stop
            } else {
                FailurePolicy::default()
            }
        }
        _ => {
            let record = reader.strict_record(node, "`on_failure`", ON_FAILURE);
            limits_of_failure(reader, &record)
        }
    };
    if budget.fail_fast && policy.trigger != FailureTrigger::After(1) {
        let message = "`fail_fast: true` contradicts `on_failure`";
        reader.fault(&node.place, "contradiction", message, "keep one of the two");
    }
    policy
}

fn limits_of_failure(reader: &mut Reader, record: &Record<'_>) -> FailurePolicy {
    let trigger = match (record.count("after"), record.get("above").as_number()) {
        (Some(failures), None) => FailureTrigger::After(failures),
        (None, Some(fraction)) => {
            if !(0.0..1.0).contains(&fraction) {
                let message = format!("`above` must be at least 0 and below 1, not {fraction}");
                reader.fault(record.place_of("above"), "range", message, "as in 0.2");
            }
            FailureTrigger::Above {
                fraction,
                min_runs: record.count("min_runs").unwrap_or(20),
            }
        }
        _ => {
            let message = "`on_failure` needs one of `after` and `above`";
            let hint = "or write `continue` or `stop`";
            reader.fault(&record.place, "on_failure", message, hint);
            FailureTrigger::Never
        }
    };
    if record.node("min_runs").is_some() && record.node("above").is_none() {
        let message = "`min_runs` belongs to `above`";
        reader.fault(
            record.place_of("min_runs"),
            "ignored_option",
            message,
            "remove it",
        );
    }
    let grace = record.node("grace");
    FailurePolicy {
        trigger,
        grace: grace
            .and_then(|node| duration(reader, node, "grace"))
            .unwrap_or(Duration::from_secs(5)),
        drain: record.flag("drain"),
    }
}

pub(crate) fn sample(
    reader: &mut Reader,
    node: Option<&Node>,
    budget: &RunBudget,
) -> Option<Sample> {
    let node = node?;
    let word = reader.choice(node, "sample", &["balanced", "first"]);
    if budget.max_runs.is_none() {
        let message = "`sample` is not used without `run_budget.max_runs`";
        reader.fault(&node.place, "ignored_option", message, "add `max_runs`");
    }
    match word.as_text() {
        Some("first") => Some(Sample::First),
        _ => Some(Sample::Balanced),
    }
}

pub(crate) fn export(reader: &mut Reader, node: Option<&Node>) -> Vec<(Format, Place)> {
    let Some(node) = node else { return Vec::new() };
    let Content::List(items) = &node.content else {
        reader.wrong_type(node, "export", "a list", "as in `[sqlite]`");
        return Vec::new();
    };
    let mut formats: Vec<(Format, Place)> = Vec::new();
    for item in items {
        let word = reader.choice(item, "export", &Format::ALL.map(Format::name));
        let Ok(format) = word.to_str().parse::<Format>() else {
            continue; // it was told of
        };
        if formats.iter().any(|(known, _)| *known == format) {
            let message = format!("`{format}` is given twice");
            reader.fault(&item.place, "repeated_name", message, "keep one");
        }
        formats.push((format, item.place.clone()));
    }
    formats
}
