"""What `multiprocessing` makes of a worker."""

import multiprocessing

import fairtrial as ft


def put(events, name):
    events[name] = multiprocessing.current_process().name


def test_a_worker_uses_a_manager_of_its_host():
    """PY-29"""
    with multiprocessing.get_context("spawn").Manager() as manager, ft.Executor(1) as executor:
        seen = manager.dict()
        executor.submit(put, seen, "name").result()
        assert seen["name"] != "MainProcess"
