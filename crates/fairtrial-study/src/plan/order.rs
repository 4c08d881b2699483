//! In which order runs are to start.

use std::collections::HashMap;

use super::Plan;
use crate::random::Random;
use crate::study::OrderPolicy;
use crate::value::Value;

/// Of each run in plan order, its place in the run order.
pub(super) fn places(plan: &Plan<'_>) -> Vec<u32> {
    let policy = plan.study.order.policy;
    if policy == OrderPolicy::Plan {
        return (0..plan.runs as u32).collect();
    }
    let (groups, keys) = groups(plan, policy);
    let mut starts = bucketed(&groups, keys.len());
    let mut begin = 0;
    for (key, size) in keys.iter().zip(sizes(&groups, keys.len())) {
        let stream = match &plan.study.order.seed {
            Value::Null => Random::from_entropy(),
            seed => Random::stream(seed, "run-order", key),
        };
        let mut stream = stream;
        stream.shuffle(&mut starts[begin..begin + size]);
        begin += size;
    }
    let mut places = vec![0; starts.len()];
    for (place, run) in starts.iter().enumerate() {
        places[*run as usize] = place as u32;
    }
    places
}

/// The group of each run, and the groups' keys in the order in which they run.
fn groups(plan: &Plan<'_>, policy: OrderPolicy) -> (Vec<u32>, Vec<Value>) {
    match policy {
        OrderPolicy::Interleaved => {
            let groups = plan.steps().map(|step| step.replicate - 1).collect();
            let replicates = 1..=plan.study.budget.replicates;
            (groups, replicates.map(|r| Value::Int(r.into())).collect())
        }
        OrderPolicy::WithinBlock => {
            let mut known: HashMap<&[u32], u32> = HashMap::new();
            let mut keys = Vec::new();
            let groups = plan.steps().map(|step| {
                *known
                    .entry(step.condition.block_cells())
                    .or_insert_with(|| {
                        keys.push(step.condition.block_assignment());
                        keys.len() as u32 - 1
                    })
            });
            (groups.collect(), keys)
        }
        _ => (vec![0; plan.runs as usize], vec!["all".into()]),
    }
}

fn sizes(groups: &[u32], count: usize) -> Vec<usize> {
    let mut sizes = vec![0; count];
    for group in groups {
        sizes[*group as usize] += 1;
    }
    sizes
}

/// Runs sorted by group, in plan order within each.
fn bucketed(groups: &[u32], count: usize) -> Vec<u32> {
    let mut next: Vec<usize> = Vec::with_capacity(count);
    let mut begin = 0;
    for size in sizes(groups, count) {
        next.push(begin);
        begin += size;
    }
    let mut runs = vec![0; groups.len()];
    for (run, group) in groups.iter().enumerate() {
        let slot = &mut next[*group as usize];
        runs[*slot] = run as u32;
        *slot += 1;
    }
    runs
}
