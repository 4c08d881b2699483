"""Evaluations and the process that makes them: signals, threads, loops, what is left of them (CA-5, CA-30, CA-41)."""

import asyncio
import os
import signal
import threading

from evaluated import INTERRUPTED, lasting
from support import WAIT_S, wait_until

import fairtrial as ft


def test_ctrl_c_is_raised_after_all_has_ended(project, program):
    """CA-5, CA-41: and the evaluation can be gone on with"""
    begun, go = project.rival_that_waits()
    path = str(project.file())
    process = program.start(INTERRUPTED, path)
    wait_until(begun.exists, what="the candidate's beginning")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_S)
    assert (out, err) == ("interrupted []\n", "")
    assert not list((project.directory / "cache").glob("**/workspaces/*/*"))
    go.touch()
    ended = program(INTERRUPTED, path, "resume")
    assert ended.stdout.endswith("'waits': done>,)\n"), ended.stdout + ended.stderr


def test_what_a_signal_handler_raises_in_an_observer_ends_it_too(project, program):
    """CA-5: here the signal comes while the observer runs"""
    ended = program(
        """
        import os, signal, sys
        import fairtrial as ft
        from support import descendants

        def observe(event):
            if event["event"] == "baseline":
                os.kill(os.getpid(), signal.SIGINT)

        try:
            ft.evaluate(sys.argv[1], on_event=observe)
        except KeyboardInterrupt:
            print("interrupted", descendants())
        """,
        str(project.file()),
    )
    assert (ended.stdout, ended.stderr) == ("interrupted []\n", "")


def test_other_threads_run_meanwhile(project):
    """CA-5: the interpreter's lock is not held"""
    begun, go = project.rival_that_waits()

    def let_go():
        wait_until(begun.exists, what="the candidate's beginning")
        go.touch()

    thread = threading.Thread(target=let_go)
    thread.start()
    try:
        assert ft.evaluate(project.spec()).evaluations[0].is_correct
    finally:
        go.touch()
        thread.join()


def test_evaluations_are_made_in_any_thread_and_at_once(project):
    """CA-5"""
    reports = {}

    def evaluate(name):
        reports[name] = ft.evaluate(project.spec(output=name))

    threads = [threading.Thread(target=evaluate, args=[name]) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S * 2)
    assert lasting(reports["one"], "spec") == lasting(reports["two"], "spec")


def test_evaluations_are_made_in_a_running_loop(project):
    """CA-5: in the loop's own thread, which they block, and beside it"""

    async def main():
        here = ft.evaluate(project.spec(output="here"))
        beside = asyncio.create_task(asyncio.to_thread(ft.evaluate, project.spec(output="beside")))
        return here, await beside

    here, beside = asyncio.run(main())
    assert lasting(here, "spec") == lasting(beside, "spec")


def test_the_project_and_the_host_are_left_as_they_were(project):
    """CA-30: processes, threads and descriptors are looked at after each test"""

    def state():
        files = {path: path.read_bytes() for path in project.repo.rglob("*") if path.is_file()}
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        return files, project.git("worktree", "list"), os.getcwd(), dict(os.environ), handlers

    before = state()
    ft.evaluate(project.spec())
    assert state() == before
    left = {path.name for path in project.directory.iterdir()}
    assert left == {"cache", "repo", "results", "rivals.jsonl"}
    assert not list((project.directory / "cache").glob("**/workspaces/*/*"))


def test_an_interpreter_that_ends_takes_a_daemon_threads_evaluation_along(project, program):
    """CA-41: nobody would see what it gives"""
    begun, _ = project.rival_that_waits()
    ended = program(
        """
        import sys, threading
        import fairtrial as ft
        from support import wait_until
        from pathlib import Path
        threading.Thread(target=ft.evaluate, args=[sys.argv[1]], daemon=True).start()
        wait_until(Path(sys.argv[2]).exists, what="the candidate's beginning")
        print("over")
        """,
        str(project.file()),
        str(begun),
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("over\n", "", 0)
