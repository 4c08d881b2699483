//! What a large plan takes. In a process of its own, since the allocator counts for all that run in it.

use std::io;

use fairtrial_study::{Fresh, Plan, Study};
use peak_alloc::PeakAlloc;

#[global_allocator]
static PEAK: PeakAlloc = PeakAlloc;

/// ST-89: beyond its conditions a plan takes at most 24 bytes per run, written as JSON or not.
#[test]
fn a_plan_is_walked_and_not_held() {
    let agents: Vec<String> = (0..100).map(|n| format!("a{n}")).collect();
    let text = format!(
        "study_id: s\ntitle: t\nfactors: {{x: [1, 2]}}\nproblem_ids: [p]\nagent_specs: [{}]\nrun_budget: {{replicates: 2000}}\n",
        agents.join(", ")
    );
    let study = Study::parse("study.yaml".as_ref(), &text, None).expect("valid");
    PEAK.reset_peak_usage();
    let before = PEAK.current_usage();
    let plan = Plan::build(&study, None).expect("valid");
    assert_eq!(plan.len(), 400_000);
    plan.write_json(&Fresh, &[], &mut io::sink())
        .expect("a sink takes it");
    let used = PEAK.peak_usage().saturating_sub(before);
    let slack = 4 << 20;
    assert!(used < 400_000 * 24 + slack, "{used} bytes");
}
