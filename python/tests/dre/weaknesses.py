"""What DRE gets wrong and Fairtrial must not be able to get wrong: the [+] requirements that can be put to both.

    python python/tests/dre/weaknesses.py [NUMBER...]    asks both, and prints one line for each

A question is put to one side at a time and tells whether the requirement holds there, and what was seen. It is the same
question to both, so that neither answer can be taken for granted.
"""

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import dre_environment
from side import Dre, Fairtrial

QUESTIONS = []


def question(requirement):
    """Registers a function of a side; its docstring says what must hold."""

    def add(function):
        function.requirement = requirement
        QUESTIONS.append(function)
        return function

    return add


def put(asked, python):
    """[(holds, what was seen)] of DRE and of Fairtrial, asked at the same time."""

    def answer(make):
        with tempfile.TemporaryDirectory(prefix="fairtrial-asks-") as folder:
            holds, seen = asked(make(folder))
            return bool(holds), seen

    with ThreadPoolExecutor(2) as both:
        return list(both.map(answer, (lambda folder: Dre(folder, python), Fairtrial)))


def line(asked, answers):
    (_, theirs), (_, ours) = answers
    return f"{asked.requirement}: {asked.__doc__} DRE: {theirs}; Fairtrial: {ours}."


def main():
    import questions_of_files  # noqa: F401  They register themselves.
    import questions_of_records  # noqa: F401
    import questions_of_runs  # noqa: F401

    try:
        python = dre_environment.dre()
    except dre_environment.Missing as missing:
        sys.exit("SKIPPED: %s" % missing)
    wrong = 0
    for asked in QUESTIONS:
        if len(sys.argv) == 1 or asked.requirement in sys.argv[1:]:
            answers = put(asked, python)
            as_said = [holds for holds, _ in answers] == [False, True]
            wrong += not as_said
            print("" if as_said else "NOT SO: ", line(asked, answers), sep="", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    # The questions import this module by its name, not as the main program.
    import weaknesses

    sys.exit(weaknesses.main())
