import random

import pytest
from orders import order


def test_a_chain_is_followed():
    assert order("abc", {"a": "b", "b": "c"}) == ["c", "b", "a"]


def test_of_several_the_first_by_name_is_next():
    assert order(["d", "c", "b", "a"], {"a": ["d"]}) == ["b", "c", "d", "a"]


def test_nothing_is_in_order():
    assert order([], {}) == []


def test_what_is_given_stays_as_it_was():
    needs = {"a": ["b"], "b": ["c"]}
    order("abc", needs)
    assert needs == {"a": ["b"], "b": ["c"]}


def test_a_circle_is_named():
    with pytest.raises(ValueError, match="circle: a, b"):
        order("abc", {"a": "b", "b": "a"})


@pytest.mark.parametrize("seed", range(8))
def test_each_comes_after_what_it_needs(seed, record_value):
    chance = random.Random(seed)
    tasks = [f"t{number:02}" for number in range(40)]
    needs = {task: chance.sample(tasks[:at], min(at, 3)) for at, task in enumerate(tasks)}
    chance.shuffle(tasks)
    found = order(tasks, needs)
    record_value("order", found)
    for task in tasks:
        assert all(found.index(need) < found.index(task) for need in needs[task])
