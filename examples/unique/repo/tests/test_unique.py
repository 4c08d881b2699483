import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from unique import unique


def test_nothing():
    assert unique([]) == []


def test_order():
    assert unique([3, 1, 3, 2, 1]) == [3, 1, 2]


def test_many():
    items = [number * 7 % 100 for number in range(500)]
    assert sorted(unique(items)) == list(range(100))
