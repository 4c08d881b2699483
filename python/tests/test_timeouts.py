"""Errors of calls that took too long."""

import concurrent.futures

import fairtrial as ft


def test_a_call_that_timed_out_is_caught_as_a_timeout_of_futures():
    """PY-41"""
    for error in (ft.TimedOut, ft.QueueTimedOut):
        assert issubclass(error, TimeoutError)
        assert issubclass(error, concurrent.futures.TimeoutError)
