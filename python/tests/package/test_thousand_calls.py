"""A thousand calls, some of them the worst there are: the showing that the package was made for."""

import os
from collections import Counter

import work
from support import WAIT_S

import fairtrial as ft

# What is done, on which terms, and what its future tells: the error and the verdict.
SINS = [
    (work.read_nowhere, {}, ft.WorkerDied, "signal", "SIGSEGV"),
    (os._exit, {}, ft.WorkerDied, "exit", "EXIT("),
    (work.exhaust_memory, {"limits": ft.Limits(memory="200M")}, ft.MemoryExceeded, "memory_limit", "memory"),
    (work.return_lock, {}, TypeError, "bad_result", "cannot pickle"),
    (work.ignore_sigterm_and_hang, {"timeout": 0.1}, ft.TimedOut, "timeout", "stopped"),
]
CALLS, SINNERS_EVERY = 1000, 10


def test_of_a_thousand_calls_each_tells_its_own_story():
    """PY-14, with PY-17 and PY-33: workers die in every way among calls that do as they should"""
    bad, good = [], []
    with ft.Executor(2) as ex:
        on_terms = [ex.options(**terms) for _, terms, *_ in SINS]
        for number in range(CALLS):
            if number % SINNERS_EVERY == SINNERS_EVERY - 1:
                sin = number // SINNERS_EVERY % len(SINS)
                bad.append((sin, on_terms[sin].submit(SINS[sin][0], number)))
            else:
                good.append((number, ex.submit(work.square, number)))
        wrong = [(number, future.exception(WAIT_S)) for number, future in good if future.exception(WAIT_S)]
        assert wrong == []
        assert [future.result() for _, future in good] == [number * number for number, _ in good]
        told = Counter()
        for sin, future in bad:
            function, _, cls, verdict, words = SINS[sin]
            error, outcome = future.exception(WAIT_S), future.outcome(WAIT_S)
            assert (type(error), outcome.verdict) == (cls, verdict), (function, error)
            assert words in str(error)
            told[function.__name__] += 1
        assert told == {function.__name__: CALLS // SINNERS_EVERY // len(SINS) for function, *_ in SINS}
        assert list(ex.map(work.square, range(20))) == [n * n for n in range(20)]
