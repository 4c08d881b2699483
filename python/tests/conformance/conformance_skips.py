"""What a kind of backend does not show, and why (CL-75). Nothing else of the suite is skipped where its kind runs."""

_WORKERS = "workers are those of the node that runs them, and so are their events"

SKIPS = {
    ("redis", "test_each_worker_that_starts_also_exits"): _WORKERS,
}
