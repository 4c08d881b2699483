"""The suite itself: how much it asks of each kind of backend, and what it leaves out (CL-75)."""

import importlib
import inspect
from pathlib import Path

from conformance_kinds import KINDS
from conformance_skips import SKIPS

OF_A_KIND = {"make", "backend", "own"}  # who asks for one of these is run for every kind


def areas():
    return [importlib.import_module(file.stem) for file in Path(__file__).parent.glob("test_conformance_*.py")]


def cases():
    """Those that are run for every kind, by name."""
    found = [each for area in areas() for each in vars(area).items() if each[0].startswith("test_")]
    return {name for name, test in found if OF_A_KIND & inspect.signature(test).parameters.keys()}


def test_there_are_at_least_forty_tests_for_every_kind_of_backend():
    """CL-75"""
    assert len(cases()) >= 40


def test_what_is_skipped_is_in_the_list_with_a_reason():
    """CL-75: and what is in the list is a test."""
    for area in areas():
        assert "skip" not in inspect.getsource(area), f"{area.__name__} skips by itself"
    for (kind, name), reason in SKIPS.items():
        assert kind in KINDS and name in cases() and reason, (kind, name)
