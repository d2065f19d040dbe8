"""The clients of a life: all must get on, and one that gets nowhere is killed and made again, as somebody would who
looks after it; it is counted as stuck.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tests.crash.chaos.client_process import ClientProcess
from tests.crash.chaos.ledger import Ledger
from tests.support.waiting import machine_seconds

_PATIENCE_S = 120.0
"""How many of the machine's seconds a client that gets nowhere is left alone."""
_POLL_SECONDS = 0.05


class Crew:
    """Owned by one thread. `stuck` counts by the kind of client; `note` and `problem` are called with what happens, in
    words.
    """

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str],
        random: Random,
        *,
        stuck: dict[str, int],
        note: Callable[[str], None],
        problem: Callable[[str], None],
    ) -> None:
        self._clients = [ClientProcess(directory, kind, number) for number, kind in enumerate(kinds)]
        self._random = random
        self._stuck = stuck
        self._note = note
        self._problem = problem
        self._address = ""

    def start(self, address: str) -> None:
        self._address = address
        for client in self._clients:
            client.start(address, self._random)

    def wait_for_progress(self, ensure: Callable[[], None] = lambda: None) -> None:
        """Until every client got on; `ensure` is called again and again meanwhile."""
        for client in self._clients:
            client.mark()
        for attempt in (1, 2):
            deadline = machine_seconds() + _PATIENCE_S
            while machine_seconds() < deadline:
                if all(client.has_moved() for client in self._clients):
                    return
                ensure()
                self.ensure_alive()
                time.sleep(_POLL_SECONDS)
            for client in self._clients:
                if not client.has_moved():
                    self._end_stuck(client, "is stuck")
                    if attempt == 2:
                        self._problem(f"{client.name} gets nowhere, made again too")
                    client.start(self._address, self._random)

    def ensure_alive(self) -> None:
        for client in self._clients:
            if client.has_ended():
                self._problem(f"{client.name} ended by itself: {client.errors.read_text()[-500:]}")
                client.start(self._address, self._random)

    def stop(self) -> None:
        """Asks all to come to an end, and ends who does not."""
        self._note("the clients are asked to stop")
        for client in self._clients:
            client.terminate()
        deadline = machine_seconds() + _PATIENCE_S
        for client in self._clients:
            while not client.has_ended() and machine_seconds() < deadline:
                time.sleep(_POLL_SECONDS)
            if not client.has_ended():
                self._end_stuck(client, "did not come to an end")
        self._note("the clients have stopped")

    def _end_stuck(self, client: ClientProcess, how: str) -> None:
        self._note(f"{client.name} {how}; it stood at {client.kill()}")
        self._stuck[client.kind] = self._stuck.get(client.kind, 0) + 1

    def kill(self) -> None:
        for client in self._clients:
            client.kill()

    def ledger(self) -> Ledger:
        """What all of them were told."""
        ledger = Ledger()
        for client in self._clients:
            ledger.add(client.ledger)
        return ledger
