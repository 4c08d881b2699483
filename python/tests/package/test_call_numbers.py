"""Events, futures and outcomes of one call have one number (PY-43)."""

import pickle

import work
from support import WAIT_S, wait_until

import fairtrial as ft

CALL = ft.Call(source="def f(x): return x", function="f", args=[1])


def test_events_name_the_call_that_a_future_and_an_outcome_belong_to():
    """PY-43"""
    told = []
    with ft.LocalBackend(1) as backend:
        backend.on_submit(told.append)
        backend.on_complete(told.append)
        futures = [backend.submit(CALL) for _ in range(3)]
        outcomes = [future.outcome(WAIT_S) for future in futures] + [backend.execute(CALL)]
        numbers = [outcome.call_id for outcome in outcomes]
        assert numbers[:3] == [future.call_id for future in futures] and len(set(numbers)) == 4
        for name in ("submit", "complete"):
            wait_until(lambda: sorted(event.call_id for event in told if event.name == name) == sorted(numbers))
    assert pickle.loads(pickle.dumps(outcomes[0])).call_id == numbers[0]


def test_a_call_that_never_reached_the_engine_has_no_number(one):
    """PY-15"""
    assert one.submit(work.same, (n for n in ())).call_id is None
    future = one.submit(work.same, 1)
    assert future.call_id == future.outcome(WAIT_S).call_id is not None
