"""What a terminal sends to a host's process group is the host's to answer (PY-49)."""

import os

import pytest

HOST = """
import os, signal, sys, time
import fairtrial as ft

name = sys.argv[1]
heard = []
signal.signal(getattr(signal, name), lambda *_: heard.append(name))

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.002)
    return "done"

with ft.Executor(1, timeout=60) as executor:
    future = executor.submit(wait_for, os.path.abspath("open"))
    while not future.running():
        time.sleep(0.002)
    os.killpg(0, getattr(signal, name))  # as a terminal does
    while not heard:
        time.sleep(0.002)
    slow = executor.options(timeout=0.1).submit(time.sleep, 60)  # whoever stops it is there
    open("open", "w").close()
    print(future.result(), slow.outcome().verdict, executor.submit(pow, 2, 3).result())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGHUP", "SIGTSTP"])
def test_calls_go_on_when_the_host_answers_the_terminals_signals_itself(program, name):
    """PY-49: they reach every process of the host's group, and none of ours is in it"""
    done = program(HOST, name, preexec_fn=os.setpgrp)  # in our session, so that SIGTSTP stops whom it reaches
    assert (done.returncode, done.stdout) == (0, "done timeout 8\n"), done.stderr
