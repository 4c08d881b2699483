"""What a driver decides, without Ray: who has which task, what follows from its loss, what is told of workers."""

from fairtrial._ray_table import Table, Unserved
from fairtrial._ray_workers import Workers


def table(*slots, max_deliver=3):
    made = Table(max_deliver)
    for number, count in enumerate(slots):
        made.add_node(f"n{number}", count)
        made.set_up(f"n{number}", True)
    return made


def submitted(table, count, alone=False):
    first = len(table.tasks) + 1
    for call in range(first, first + count):
        table.submit(call, alone, 0.0, None)


def started(table):
    found = []
    while (task := table.start(1.0)) is not None:
        found.append((task.call, task.node))
    return found


def test_tasks_start_in_order_while_there_is_room():
    """CL-36, CL-66"""
    made = table(2, 1)
    submitted(made, 5)
    assert [call for call, _ in started(made)] == [1, 2, 3]
    assert sorted(task.node for task in made.running()) == ["n0", "n0", "n1"]
    assert made.returned(2, 1) is not None
    assert [call for call, _ in started(made)] == [4]


def test_a_task_that_was_sent_to_nobody_is_first_again_and_has_all_its_attempts():
    """CL-66"""
    made = table(1, 1, max_deliver=1)
    submitted(made, 3)
    assert [call for call, _ in started(made)] == [1, 2]
    unsent = made.tasks[2]
    made.remove_node("n1")
    made.take_back(unsent)
    assert [task.call for task in made.queued()] == [2, 3]
    assert made.current(2, 1) is None
    assert made.returned(1, 1) is not None
    assert started(made) == [(2, "n0")] and (unsent.attempt, unsent.deliveries) == (2, 1)


def test_a_node_that_is_not_up_is_given_nothing():
    """CL-66: so that no attempt is wasted on an actor that is being started again."""
    made = table(1)
    made.set_up("n0", False)
    submitted(made, 1)
    assert started(made) == []
    made.set_up("n0", True)
    assert started(made) == [(1, "n0")]


def test_a_lost_task_comes_first_and_its_older_attempts_are_nobodys():
    """CL-66"""
    made = table(1)
    submitted(made, 2)
    assert started(made) == [(1, "n0")]
    task = made.returned(1, 1)
    assert made.try_again(task)
    assert started(made) == [(1, "n0")]
    assert task.attempt == 2
    assert made.returned(1, 1) is None
    assert made.returned(1, 2) is task


def test_a_task_is_lost_after_as_many_deliveries_as_it_may_have():
    """CL-66"""
    made = table(1, max_deliver=2)
    submitted(made, 1)
    started(made)
    assert made.try_again(made.returned(1, 1))
    started(made)
    assert not made.try_again(made.returned(1, 2))


def test_a_refused_task_goes_to_who_has_not_refused_it_and_that_does_not_count():
    """CL-22"""
    made = table(1, 1, max_deliver=1)
    submitted(made, 1)
    [(_, first)] = started(made)
    assert made.try_elsewhere(made.returned(1, 1), "no such directory")
    [(_, second)] = started(made)
    assert {first, second} == {"n0", "n1"}
    task = made.returned(1, 2)
    assert not made.try_elsewhere(task, "no such program")
    assert task.refusals == {first: "no such directory", second: "no such program"}


def test_who_waits_for_a_node_that_goes_is_refused_by_all_that_are_left():
    """CL-22"""
    made = table(1, 1)
    submitted(made, 1)
    [(_, first)] = started(made)
    made.try_elsewhere(made.returned(1, 1), "no such program")
    assert made.refused_by_all() == []
    made.remove_node("n1" if first == "n0" else "n0")
    assert [task.call for task in made.refused_by_all()] == [1]
    made.remove_node(first)
    assert made.refused_by_all() == [], "where nobody is, nobody refused"


def test_a_task_alone_has_a_node_to_itself():
    """CL-69"""
    made = table(2)
    submitted(made, 1)
    submitted(made, 1, alone=True)
    submitted(made, 1)
    assert started(made) == [(1, "n0")], "the second waits for the node, and the third does not overtake it there"
    made.end(made.returned(1, 1))
    assert started(made) == [(2, "n0")]
    made.end(made.returned(2, 1))
    assert started(made) == [(3, "n0")]


def test_a_task_alone_keeps_one_node_waiting_and_no_more():
    """CL-69"""
    made = table(2, 2)
    submitted(made, 2)
    submitted(made, 1, alone=True)
    submitted(made, 2)
    assert sorted(call for call, _ in started(made)) == [1, 2, 4]


def test_only_what_never_began_waits_too_long():
    """EX-46"""
    made = table(1)
    made.submit(1, False, 0.0, 5.0)
    made.submit(2, False, 0.0, 5.0)
    started(made)
    made.try_again(made.returned(1, 1))
    assert [task.call for task in made.overdue(10.0)] == [2]
    assert made.next_overdue() == 5.0


def test_a_refused_task_still_may_wait_so_long_only():
    """EX-46"""
    made = table(1, 1)
    made.submit(1, False, 0.0, 5.0)
    [(call, node)] = started(made)
    assert made.next_overdue() is None  # it runs
    made.set_up("n1" if node == "n0" else "n0", False)
    assert made.try_elsewhere(made.returned(call, 1), "not here")
    assert made.next_overdue() == 5.0
    assert [task.call for task in made.overdue(5.0)] == [1]


def test_a_task_that_all_who_are_up_refused_is_not_served():
    """CL-38: whatever else they run."""
    made = table(1, 1)
    made.set_up("n1", False)
    assert made.is_served()
    submitted(made, 3)
    assert started(made) == [(1, "n0")]
    assert made.is_served(), "it runs, and the others wait their turn"
    assert made.try_elsewhere(made.returned(1, 1), "no such program")
    assert started(made) == [(2, "n0")]
    assert not made.is_served()
    made.set_up("n1", True)
    assert made.is_served()


def test_that_tasks_wait_is_said_once_and_again_when_they_wait_anew():
    """CL-38"""
    unserved = Unserved(patience_s=5.0)
    assert unserved.next_look() is None
    assert not unserved.look(1.0, waits=True)
    assert unserved.next_look() == 6.0
    assert [unserved.look(at, waits=True) for at in (5.9, 6.0, 7.0, 60.0)] == [False, True, False, False]
    assert unserved.next_look() is None
    assert not unserved.look(61.0, waits=False)
    assert [unserved.look(at, waits=True) for at in (70.0, 75.0)] == [False, True]


def test_a_worker_is_told_of_once_and_its_exit_only_if_it_was():
    """CL-61"""
    workers = Workers()
    assert [workers.is_new("n0", "w") for _ in range(2)] == [True, False]
    assert workers.exited("w", "idle") == [("w", "idle")]
    assert workers.exited("w", "idle") == []
    assert workers.exited("unheard-of", "idle") == []


def test_an_exit_that_overtook_the_words_of_its_calls_waits_for_them():
    """CL-61"""
    made, workers = table(3), Workers()
    submitted(made, 3)
    started(made)
    made.tasks[1].worker = "other"  # known to run there
    behind = made.perhaps_on("n0", "w")
    assert behind == [(2, 1), (3, 1)]
    assert workers.exited("w", "timeout", behind) == []
    assert workers.heard_of((3, 1), "other") == [], "it runs elsewhere"
    assert workers.is_new("n0", "w")
    assert workers.heard_of((2, 1), "w") == [], "it runs there, it is said, and will say how it ended"
    assert workers.heard_of((2, 1)) == [("w", "timeout")]
    assert workers.heard_of((2, 1)) == []


def test_the_workers_of_a_node_that_is_gone_are_gone():
    """CL-61, CL-66"""
    workers = Workers()
    for node, worker in (("n0", "a"), ("n0", "b"), ("n1", "c")):
        workers.is_new(node, worker)
    workers.exited("b", "timeout", [(1, 1)])
    assert workers.of_node("n0") == ["a"]
    assert workers.node_is_gone("n0", "crashed") == [("a", "crashed"), ("b", "timeout")]
    assert workers.heard_of((1, 1)) == []
    assert workers.of_node("n1") == ["c"]
