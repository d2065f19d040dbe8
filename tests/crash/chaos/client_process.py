"""A client of the chaos in its process, and the process that comes after it if it is stuck."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

from tests.support.waiting import machine_seconds

_PROGRESS = (b'"acknowledged"', b'"committed"', b'"moved"', b'"cut_done"', b'"ended"')
"""What a client notes when it got on."""

_TELLING_S = 1


class ClientProcess:
    """Owned by one thread."""

    def __init__(self, directory: Path, kind: str, number: int) -> None:
        self.kind = kind
        self.name = f"{kind}{number}"
        self.ledger = directory / f"{self.name}.jsonl"
        self.errors = directory / f"{self.name}.err"
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._read_to = 0
        self._has_moved = False

    def start(self, address: str, random: Random) -> None:
        self._starts += 1
        name = self.name if self.kind == "teller" else f"{self.name}.{self._starts}"  # an id that fences the one before
        self.ledger.touch()
        arguments = (self.kind, name, address, str(self.ledger), str(random.randrange(1 << 30)))
        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.chaos.clients", *arguments], stdout=errors, stderr=errors
            )

    def mark(self) -> None:
        """What is written from now on counts for `has_moved`."""
        self._read_to = self.ledger.stat().st_size
        self._has_moved = False

    def has_moved(self) -> bool:
        if not self._has_moved:
            with self.ledger.open("rb") as file:
                file.seek(self._read_to)
                text = file.read()
            self._has_moved = any(what in text for what in _PROGRESS)
        return self._has_moved

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def terminate(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> str:
        """Ends it, if it runs; gives the lines of the clients' program at which its threads say that they stood."""
        if self._process is None or self._process.poll() is not None:
            return ""
        told = last = self.errors.stat().st_size
        self._process.send_signal(signal.SIGUSR1)
        deadline = machine_seconds() + _TELLING_S
        while (last == told or last < self.errors.stat().st_size) and machine_seconds() < deadline:
            last = self.errors.stat().st_size
            time.sleep(0.05)  # a kill would come before the other signal, or cut off what is told
        self._process.kill()
        self._process.wait()
        return ", ".join(re.findall(r"clients\.py\", (line \d+ in .*)", self.errors.read_text()[told:]))
