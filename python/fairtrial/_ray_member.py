"""A node of a Ray cluster with its actor: all that a driver says to it, and when."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ASK_AGAIN_S = 0.2  # an actor that is being started again


@dataclass(eq=False)
class Member:
    """A node with its actor. Its answers come as notes, which name who was asked: `("ready", member, future)`."""

    name: str
    actor: Any
    note: Callable[[Any], None]
    asked: bool = False  # whether it is ready: the answer is on its way
    ask_at: float | None = None
    listened_to: bool = False  # its news are on their way

    def ask_ready(self, known: list[tuple[int, int]]) -> None:
        """Whether it can run calls; it is told what it is known to have, and kills the rest."""
        self.asked, self.ask_at = True, None
        self._await("ready", self.actor.ready.remote(known))

    def listen(self) -> None:
        """Asks for news, which come when there are any."""
        if not self.listened_to:
            self.listened_to = True
            self._await("news", self.actor.news.remote())

    def ask_later(self) -> None:
        """Asks once more whether it is ready, unless that is asked already."""
        if not self.asked and self.ask_at is None:
            self.ask_at = time.monotonic() + ASK_AGAIN_S

    def run(self, call: int, attempt: int, *parcel: Any) -> None:
        name, note = self.name, self.note
        reply = self.actor.run.remote(call, attempt, *parcel).future()
        reply.add_done_callback(lambda future: note(("reply", name, call, attempt, future)))

    def cancel(self, call: int, attempt: int) -> None:
        self.actor.cancel.remote(call, attempt)  # `run` tells what came of it

    def _await(self, kind: str, answer: Any) -> None:
        note = self.note
        answer.future().add_done_callback(lambda future: note((kind, self, future)))
