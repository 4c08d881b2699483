//! Plans: orders, samples, digests, coverage, collisions.

use std::collections::{BTreeMap, HashSet};

use fairtrial_study::{Compat, Plan, Random, Share, Value, sha256_hex};

use crate::{faults, planned, study};

const WIDE: &str = "\
study_id: s
title: t
factors: {x: [1, 2, 3]}
blocks: [{name: b, levels: [u, v]}]
problem_ids: [p1, p2, p3, p4]
agent_specs: [a1, a2, a3]
run_budget: {replicates: 2}
seed_policy: {base_seed: 5}
";

/// Indexes of runs in the order in which they start.
fn started(text: &str) -> Vec<u32> {
    planned(text, None, |plan| plan.run_order())
}

/// SF-41
#[test]
fn conditions_are_outermost_then_replicates_agents_and_problems() {
    planned(WIDE, None, |plan| {
        assert_eq!(plan.len(), 6 * 2 * 3 * 4);
        let runs: Vec<_> = plan.runs().collect();
        let key = |at: usize| {
            let run = &runs[at];
            let ids = (run.agent_id().to_str(), run.problem_id().to_str());
            (run.condition.index(), run.replicate, ids.0, ids.1)
        };
        assert_eq!(key(0), (0, 1, "a1".into(), "p1".into()));
        assert_eq!(key(5), (0, 1, "a2".into(), "p2".into()));
        assert_eq!(key(12), (0, 2, "a1".into(), "p1".into()));
        assert_eq!(key(24), (1, 1, "a1".into(), "p1".into()));
        assert!(runs.iter().enumerate().all(|(at, run)| run.index == at));
    });
}

/// SF-41: an agent chosen by a factor is its text, and replaces the list.
#[test]
fn factors_choose_agents_and_problems_by_their_text() {
    let text = "study_id: s\ntitle: t\nfactors: {agent_spec: [x], agent_id: [1, true], problem: [0.5]}\nagent_specs: [a, b]\nproblem_ids: [p]\n";
    planned(text, None, |plan| {
        let ids: Vec<_> = plan
            .runs()
            .map(|run| (run.agent_id().clone(), run.problem_id().clone()))
            .collect();
        assert_eq!(
            ids,
            [("1".into(), "0.5".into()), ("True".into(), "0.5".into())]
        );
    });
}

/// SF-44
#[test]
fn digests_are_over_ids_and_seeds() {
    planned(WIDE, None, |plan| {
        let lines: Vec<String> = plan
            .runs()
            .map(|run| format!("{} {}", run.run_id, run.seed))
            .collect();
        assert_eq!(plan.digest_runs, sha256_hex(lines.join("\n").as_bytes()));
        let ids: Vec<String> = plan
            .design
            .conditions()
            .map(|c| c.id().to_string())
            .collect();
        assert_eq!(
            plan.digest_conditions,
            sha256_hex(ids.join("\n").as_bytes())
        );
    });
}

/// ST-34, ST-35
#[test]
fn each_policy_orders_runs_as_it_says() {
    let with = |policy: &str| started(&format!("{WIDE}order: {{policy: {policy}}}\n"));
    let all: Vec<u32> = (0..144).collect();
    assert_eq!(with("plan"), all);
    let shuffled = with("shuffled");
    let mut expected = all.clone();
    Random::stream(&5.into(), "run-order", &"all".into()).shuffle(&mut expected);
    assert_eq!(shuffled, expected);
    let interleaved = with("interleaved");
    assert_eq!(interleaved, started(WIDE), "the default");
    let replicate = |run: &u32| run / 12 % 2;
    assert!(interleaved[..72].iter().all(|run| replicate(run) == 0));
    let mut first: Vec<u32> = all
        .iter()
        .copied()
        .filter(|run| replicate(run) == 0)
        .collect();
    Random::stream(&5.into(), "run-order", &1.into()).shuffle(&mut first);
    assert_eq!(interleaved[..72], first);
    let within = with("within_block");
    let block = |run: &u32| run / 24 % 2;
    assert!(within[..72].iter().all(|run| block(run) == 0));
    let mut first: Vec<u32> = all.iter().copied().filter(|run| block(run) == 0).collect();
    let key = Value::map([("b", "u".into())]);
    Random::stream(&5.into(), "run-order", &key).shuffle(&mut first);
    assert_eq!(within[..72], first);
    // Places within the block: runs of equal rank in their blocks do not start in equal order.
    let rank = |run: &u32| run / 48 * 24 + run % 24;
    let ranks = |runs: &[u32]| -> Vec<u32> { runs.iter().map(rank).collect() };
    assert_ne!(ranks(&within[..72]), ranks(&within[72..]));
}

/// ST-30, ST-34: order and its seed change the order alone.
#[test]
fn the_order_changes_no_id_seed_or_index() {
    let of = |keys: &str| {
        planned(&format!("{WIDE}{keys}"), None, |plan| {
            (
                plan.digest_runs.clone(),
                plan.study_sha256.clone(),
                plan.run_order(),
            )
        })
    };
    let (digest, sha, order) = of("");
    let (other_digest, other_sha, other_order) = of("order: {policy: interleaved, seed: 6}\n");
    assert_eq!((&digest, &sha), (&other_digest, &other_sha));
    assert_ne!(order, other_order);
    let (third_digest, ..) = of("order: {policy: plan}\n");
    assert_eq!(digest, third_digest);
}

/// ST-29
#[test]
fn the_studys_hash_leaves_out_what_cannot_change_a_result() {
    let sha = |text: &str| planned(text, None, |plan| plan.study_sha256.clone());
    let bound = format!(
        "{WIDE}agents: {{a1: {{python: 'a.py:f', retries: 1}}, a2: 'a.py:f', a3: 'a.py:f'}}\n"
    );
    for (old, new, is_equal) in [
        ("title: t", "title: t\noutput_dir: elsewhere", true),
        (
            "replicates: 2",
            "replicates: 2, parallelism: 7, fail_fast: true",
            true,
        ),
        (
            "title: t",
            "title: t\non_failure: stop\nexport: [dre]",
            true,
        ),
        ("retries: 1", "retries: 5, retry_delay: 3s", true),
        ("retries: 1", "timeout: 5", false),
        ("title: t", "title: u", false),
        ("base_seed: 5", "base_seed: 6", false),
    ] {
        assert_eq!(
            sha(&bound) == sha(&bound.replace(old, new)),
            is_equal,
            "{new}"
        );
    }
}

/// ST-31
#[test]
fn a_balanced_sample_takes_as_many_runs_of_each_condition() {
    let text = WIDE.replace("replicates: 2", "replicates: 2, max_runs: 15");
    let text = format!("{text}sample: balanced\n");
    planned(&text, None, |plan| {
        assert_eq!(plan.len(), 15);
        let counts: Vec<u64> = plan
            .coverage
            .conditions
            .iter()
            .map(|share| share.planned)
            .collect();
        assert_eq!(counts, [3, 3, 3, 2, 2, 2]);
        assert!(
            plan.coverage
                .conditions
                .iter()
                .all(|share| share.possible == 24)
        );
        // The first condition's runs are the first of its own shuffled list.
        let mut own: Vec<usize> = (0..24).collect();
        let id = Value::Text(plan.design.condition(0).id().to_string());
        Random::stream(&5.into(), "sample", &id).shuffle(&mut own);
        let mut expected = own[..3].to_vec();
        expected.sort_unstable();
        let found: Vec<usize> = plan
            .runs()
            .filter(|run| run.condition.index() == 0)
            .map(|run| {
                let place = |id: &Value| id.to_str()[1..].parse::<usize>().expect("a number") - 1;
                (run.replicate as usize - 1) * 12
                    + place(run.agent_id()) * 4
                    + place(run.problem_id())
            })
            .collect();
        assert_eq!(found, expected);
        let planned: u64 = plan
            .coverage
            .agents
            .iter()
            .map(|(_, share)| share.planned)
            .sum();
        assert_eq!(planned, 15);
    });
}

/// SF-42: under DRE the first runs are kept, whatever `sample` says.
#[test]
fn under_dre_a_plan_is_cut_at_its_end() {
    let text = "study_id: s\ntitle: t\nblocks: [{name: b, levels: [u, v]}]\nproblem_ids: [p, q]\nrun_budget: {max_runs: 3}\nsample: balanced\n";
    planned(text, Some(Compat::Dre), |plan| {
        let counts: Vec<u64> = plan
            .coverage
            .conditions
            .iter()
            .map(|share| share.planned)
            .collect();
        assert_eq!(counts, [2, 1]);
    });
}

/// ST-27, ST-28
#[test]
fn coverage_says_what_is_planned_of_what_is_possible() {
    let text = "study_id: s\ntitle: t\nfactors: {x: [1, 2]}\nconstraints: [{constraint_id: c, expression: 'x == 1'}]\nproblem_ids: [p, q]\nagent_specs: [a]\n";
    planned(text, None, |plan| {
        let share = |planned, possible| Share { planned, possible };
        assert_eq!(plan.coverage.conditions, [share(2, 2), share(0, 0)]);
        assert_eq!(plan.coverage.agents, [("a".into(), share(2, 2))]);
        assert_eq!(
            plan.coverage.problems,
            [("p".into(), share(1, 1)), ("q".into(), share(1, 1))]
        );
    });
    let alone = "study_id: s\ntitle: t\nrunner: 'r.py:f'\n";
    planned(alone, None, |plan| assert!(plan.coverage.agents.is_empty()));
}

/// ST-20, ST-24, SF-5
#[test]
fn equal_run_ids_are_refused_and_both_runs_named() {
    let text = "study_id: s\ntitle: t\nproblem_ids: [p]\nagent_specs: [a, a]\n";
    let found = faults(text, Some(Compat::Dre));
    assert_eq!(found.len(), 1);
    let line = found[0].to_string();
    assert!(
        line.contains("two runs have the id run-")
            && line.contains("run 0 (")
            && line.contains("run 1 ("),
        "{line}"
    );
}

/// ST-9: the unreduced seeds of a large plan are distinct.
#[test]
fn wide_seeds_are_distinct() {
    let text = WIDE.replace("replicates: 2", "replicates: 500");
    planned(&text, None, |plan| {
        let seeds: HashSet<u64> = plan.runs().map(|run| run.seed64).collect();
        assert_eq!(seeds.len() as u64, plan.len());
        let in_range = plan.runs().all(|run| run.seed < 2_147_483_647);
        assert!(in_range);
    });
}

/// SF-13: entropy under DRE; ids and seeds are the same each time, the order is not.
#[test]
fn without_a_base_seed_only_shuffles_differ() {
    let text = "study_id: s\ntitle: t\nproblem_ids: [p]\nblocks: [{name: b, levels: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}]\ndesign_spec: {randomize: true}\nseed_policy: {base_seed: null}\n";
    let study = study(text, Some(Compat::Dre)).expect("valid");
    let seeds = || {
        let plan = Plan::build(&study, None).expect("valid");
        let runs: Vec<_> = plan.runs().map(|run| (run.run_id, run.seed)).collect();
        runs
    };
    let (first, second) = (seeds(), seeds());
    assert_ne!(first, second);
    let sorted = |runs: Vec<_>| runs.into_iter().collect::<BTreeMap<_, _>>();
    assert_eq!(sorted(first), sorted(second));
}
