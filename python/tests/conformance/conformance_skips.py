"""What a kind of backend does not show, and why (CL-75). Nothing else of the suite is skipped where its kind runs."""

_WORKERS = "workers are those of the node that runs them, and so are their events"
_BEGINS = "that a call has begun is told with its end: nobody asks an actor before"

SKIPS = {
    ("ray", "test_each_worker_that_starts_also_exits"): _WORKERS,
    ("ray", "test_a_call_is_running_while_it_runs"): _BEGINS,
}
