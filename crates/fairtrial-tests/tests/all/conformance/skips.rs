//! What a kind of backend does not show, and why (CL-75). Nothing else of the suite is skipped where its kind runs.

const ALONE: &str = "one call at a time has no sibling";
const WORKERS: &str = "a `reuse` worker is its agent's, and does not end with the backend";

/// Kind, case, reason.
pub(super) const SKIPS: &[(&str, &str, &str)] = &[
    (
        "local_serially",
        "a_call_beside_one_that_crashes_is_unharmed",
        ALONE,
    ),
    (
        "local_serially",
        "a_call_beside_one_that_hangs_is_unharmed",
        ALONE,
    ),
    (
        "local_serially",
        "a_call_beside_a_memory_bomb_is_unharmed",
        ALONE,
    ),
    (
        "redis",
        "each_worker_that_starts_also_exits_and_says_why",
        WORKERS,
    ),
];

/// Why this kind does not show that.
pub(super) fn reason(kind: &str, case: &str) -> Option<&'static str> {
    let found = SKIPS.iter().find(|skip| (skip.0, skip.1) == (kind, case));
    found.map(|skip| skip.2)
}
