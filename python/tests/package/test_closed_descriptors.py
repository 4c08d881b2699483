"""A host that closes descriptors which are not its own: its calls end with an EngineError, and later ones work."""

import os
import subprocess
import sys

import pytest

# What each host begins with. `fairtrial` is imported late, as hosts do that detach themselves from a terminal.
PROLOGUE = """
import faulthandler, os, sys, threading
faulthandler.dump_traceback_later(60, exit=True)
import fairtrial as ft

def double(number):
    return 2 * number

def wait_for_ever(begun):
    open(begun, "w").close()
    import threading
    threading.Event().wait()

def how_it_ended(future):
    try:
        return future.result(timeout=30)
    except ft.EngineError as error:
        return "EngineError: " + str(error)

def own_descriptors():
    return sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2)

def begin(executor, begun):
    future = executor.submit(wait_for_ever, begun)
    while not os.path.exists(begun):
        pass
    return future
"""


def host(tmp_path, body, *arguments):
    """Runs a host, gives what it printed."""
    script = tmp_path / "host.py"
    script.write_text(PROLOGUE + body)
    command = [sys.executable, str(script), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert "panicked" not in ended.stderr, ended.stderr
    if ended.returncode == -6 and "IO Safety violation" in ended.stderr:
        pytest.skip("a debug build aborts where it would close what the host closed at that very moment")
    assert ended.returncode == 0, (ended.returncode, ended.stdout, ended.stderr)
    return ended.stdout.splitlines()


def test_all_closed_before_the_first_call(tmp_path):
    """FA-13"""
    body = """
with ft.Executor(2) as executor:
    os.closerange(3, 4096)
    print(how_it_ended(executor.submit(double, 21)))
"""
    assert host(tmp_path, body) == ["42"]


@pytest.mark.parametrize("isolation", ["fresh", "reuse"])
def test_all_closed_while_calls_wait_and_run(tmp_path, isolation):
    """FA-13: without another call that would find it out, too."""
    body = """
with ft.Executor(1, isolation=sys.argv[1]) as executor:
    calls = [begin(executor, "begun"), executor.submit(double, 1)]
    os.closerange(3, 4096)
    for call in calls:
        print(how_it_ended(call))
    print(how_it_ended(executor.submit(double, 21)))
"""
    running, waiting, later = host(tmp_path, body, isolation)
    assert running.startswith("EngineError: the engine's descriptors were closed by this process (`os.closerange`")
    assert waiting == running
    assert later == "42"


def test_all_closed_between_calls(tmp_path):
    """FA-13: nothing was lost."""
    body = """
with ft.Executor(2) as executor:
    for _ in range(3):
        print(how_it_ended(executor.submit(double, 21)))
        os.closerange(3, 4096)
"""
    assert host(tmp_path, body) == ["42"] * 3


def test_descriptors_that_the_host_opens_instead_are_left_alone(tmp_path):
    """FA-13: they have the same numbers."""
    body = """
with ft.Executor(2) as executor:
    call = begin(executor, "begun")
    numbers = own_descriptors()
    os.closerange(3, 4096)
    mine = [os.open("mine", os.O_RDWR | os.O_CREAT) for _ in numbers]
    print(how_it_ended(call)[:11])
    print(how_it_ended(executor.submit(double, 21)))
executor.shutdown()
assert set(mine) <= set(own_descriptors()), "the engine closed some"
print(os.path.getsize("mine"))
"""
    assert host(tmp_path, body) == ["EngineError", "42", "0"]


def test_an_event_loop_that_the_host_makes_afterwards_is_its_own(tmp_path):
    """FA-13: it has an epoll where the engine had one."""
    body = """
import asyncio
executor = ft.Executor(2)
call = begin(executor, "begun")
os.closerange(3, 4096)

async def main():
    future = executor.submit(double, 21)
    return await asyncio.wait_for(asyncio.wrap_future(future), 30)

print(asyncio.run(main()))
print(how_it_ended(call)[:11])
executor.shutdown()
"""
    assert host(tmp_path, body) == ["42", "EngineError"]


def test_each_single_descriptor_of_the_engine_may_be_closed(tmp_path):
    """FA-13: calls give their value, or say that a descriptor was closed; later ones give their value."""
    body = """
with ft.Executor(2) as executor:
    before = set(own_descriptors()) - {max(own_descriptors())}
    print(how_it_ended(executor.submit(double, 21)))
    calls = [begin(executor, "begun" + sys.argv[1])]
    numbers = [number for number in own_descriptors() if number not in before]
    if int(sys.argv[1]) >= len(numbers):
        print("all")
        os._exit(0)
    try:
        os.close(numbers[int(sys.argv[1])])
    except OSError:
        os._exit(0)  # the directory that was listed
    for _ in range(2):
        print(how_it_ended(executor.submit(double, 21)))
    executor.shutdown(wait=False, kill_after=0)
"""
    for index in range(64):
        lines = host(tmp_path, body, index)
        if lines[-1] == "all":
            assert index > 10, "the engine has more"
            return
        allowed = ("42", "EngineError: the engine's descriptors were closed by this process")
        assert all(line.startswith(allowed) for line in lines), (index, lines)
        assert lines[-1] == "42", (index, lines)
    pytest.fail("the engine has no end of descriptors")


def test_the_launcher_ends_whatever_was_closed(tmp_path):
    """FA-13: no process of a call is left, and none of the engine's."""
    body = """
with ft.Executor(2) as executor:
    call = begin(executor, "begun")
    os.closerange(3, 4096)
    print(how_it_ended(call)[:11])
left = "/proc/self/task/%d/children" % os.getpid()
for _ in range(3000):
    children = [open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")]
    if not "".join(children).strip():
        break
    threading.Event().wait(0.01)
print("".join(children).split())
"""
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        pytest.skip("this kernel does not list children")
    assert host(tmp_path, body) == ["EngineError", "[]"]


@pytest.mark.parametrize("how", ["with", "wait=False", "none"])
def test_a_host_whose_engine_was_lost_can_end(tmp_path, how):
    """FA-13"""
    body = """
executor = ft.Executor(2)
call = begin(executor, "begun")
os.closerange(3, 4096)
if sys.argv[1] == "with":
    with executor:
        pass
elif sys.argv[1] == "wait=False":
    executor.shutdown(wait=False, cancel_futures=True)
print(how_it_ended(call)[:11])
"""
    assert host(tmp_path, body, how) == ["EngineError"]


def test_echoed_output_ends_with_the_engine(tmp_path):
    """FA-13: the thread that passes it on does not wait for a lost one."""
    body = """
def say(word, begun):
    print(word, flush=True)
    wait_for_ever(begun)

with ft.Executor(2) as executor:
    call = executor.submit(say, "said", "begun")
    while not os.path.exists("begun"):
        pass
    os.closerange(3, 4096)
    print(how_it_ended(call)[:11])
"""
    assert any(line.endswith("EngineError") for line in host(tmp_path, body))  # after what was echoed


@pytest.mark.parametrize("isolation", ["fresh", "reuse"])
def test_all_closed_in_the_middle_of_many_calls(tmp_path, isolation):
    """FA-13: each call has its value or the error."""
    body = """
with ft.Executor(4, isolation=sys.argv[1]) as executor:
    calls = [executor.submit(double, 21) for _ in range(100)]
    calls[int(sys.argv[2])].result()
    os.closerange(3, 4096)
    mine = [open("mine", "a+") for _ in range(30)]
    for call in calls:
        print(how_it_ended(call))
    print(how_it_ended(executor.submit(double, 21)))
"""
    for number in (0, 1, 5, 20, 60):
        *lines, later = host(tmp_path, body, isolation, number)
        errors = [line for line in lines if line != "42"]
        assert all(line.startswith("EngineError: the engine's descriptors were closed") for line in errors)
        assert later == "42"
