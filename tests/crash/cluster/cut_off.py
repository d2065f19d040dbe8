"""Cuts brokers off: routes into a black hole for the one address of loopback that a broker listens on.

What is sent to it is lost, on connections that there are and on new ones; what it sends itself arrives. So it is alive
for ZooKeeper, and reaches its leaders and the controller, and nobody reaches it. Linux, and root, are needed.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class CutOff:
    """Owned by one thread. `note` is called with the reason if nobody can be cut off."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._net = f"127.{random.randint(64, 254)}.{random.randint(1, 254)}"  # not that of another test
        reason = self._why_not()
        self.is_possible = not reason
        if reason:
            note(f"no broker is cut off: {reason}")

    def host_of(self, node_id: int) -> str:
        """Gives the address on which a broker is to listen."""
        return f"{self._net}.{node_id}" if self.is_possible else "127.0.0.1"

    def _why_not(self) -> str:
        if os.geteuid() != 0:
            return "only root may change routes"
        try:
            with self._black_hole(f"{self._net}.1"):
                return ""
        except (OSError, subprocess.CalledProcessError) as error:
            return f"routes can't be changed: {error}"

    @contextmanager
    def of(self, node_id: int) -> Iterator[None]:
        """Nobody reaches that broker meanwhile."""
        with self._black_hole(self.host_of(node_id)):
            yield

    @contextmanager
    def _black_hole(self, address: str) -> Iterator[None]:
        route = ["blackhole", address, "table", "local"]
        subprocess.run(["ip", "route", "add", *route], check=True, capture_output=True)
        try:
            yield
        finally:
            subprocess.run(["ip", "route", "del", *route], check=True, capture_output=True)
