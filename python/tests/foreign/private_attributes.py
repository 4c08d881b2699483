"""Private attributes that tests of peers read on the way to what they are about."""

import types


def note_workers(executor):
    """Keeps `_processes` and their kin as `ProcessPoolExecutor` does."""
    executor._pool._start()
    workers, engine = {}, executor._pool.engine

    def note(name, fields):
        if name == "worker_start":
            workers[fields["worker_id"]] = types.SimpleNamespace(join=lambda: None)
        elif name == "worker_exit":
            workers.pop(fields["worker_id"], None)

    engine.subscribe(note)
    ended = types.SimpleNamespace(join=lambda: engine.shutdown(True, False, None))
    executor._processes, executor._executor_manager_thread = workers, ended
    executor._call_queue = types.SimpleNamespace(join_thread=ended.join)
