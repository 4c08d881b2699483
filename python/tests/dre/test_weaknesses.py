"""Each [+] requirement of study.md that can be put to DRE: it fails there, and holds here."""

import pytest
import questions_of_files  # noqa: F401  They register themselves.
import questions_of_records  # noqa: F401
import questions_of_runs  # noqa: F401
from weaknesses import QUESTIONS, line, put

SEEN = []  # what the terminal summary says


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: f"{asked.requirement}-{asked.__name__}")
def test_dre_fails_what_holds_here(asked, dre_python):
    answers = put(asked, dre_python)
    SEEN.append(line(asked, answers))
    assert [holds for holds, _ in answers] == [False, True], SEEN[-1]
