"""Waits for what never comes."""

import threading


def wait_for_nothing():
    threading.Event().wait(300)


def f():
    wait_for_nothing()
