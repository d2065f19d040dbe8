"""A network of a cluster's own, in which its brokers can be cut off: each broker is in a namespace, which a pair of
virtual interfaces joins to a bridge. ZooKeeper and the clients are outside, at the bridge. Linux, and root, are needed.

    198.18.N.I          the address on which broker I listens
    198.18.N.(100 + I)  the address from which it calls others
    198.18.N.253        ZooKeeper's
    198.18.N.254        the clients'

So what is lost can be chosen: what is sent to one of a broker's addresses, by one of the others or by all. It goes to a
hardware address that nobody has, and is lost without a word, on connections that there are and on new ones. On a route
into a black hole a new connection would fail at once.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress

from tests.support.kafka39 import Place

_NOBODY = "02:00:00:00:00:00"
_SLOW = "rate 400kbit burst 16kb latency 1s"


class Network:
    """Made and removed by `with`; owned by one thread. If it is not `is_possible`, everything is at 127.0.0.1 and
    nobody can be cut off; `note` is called with the reason then.
    """

    def __init__(self, nodes: Collection[int], note: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._note = note
        self._made = ExitStack()
        self.reason = ""
        """Why nobody can be cut off."""

    @property
    def is_possible(self) -> bool:
        return not self.reason

    def __enter__(self) -> Network:
        self.reason = "" if os.geteuid() == 0 else "only root may make networks"
        if not self.reason:
            try:
                self._make()
            except (OSError, subprocess.CalledProcessError) as error:
                self._made.close()
                said = getattr(error, "stderr", b"") or b""
                self.reason = f"there is no network of its own: {error} {said.decode().strip()}"
        if self.reason:
            self._note(f"no broker is cut off: {self.reason}")
        return self

    def __exit__(self, *exception: object) -> None:
        self._made.close()

    def _make(self) -> None:
        number = self._make_bridge()
        self._net = f"198.18.{number}"  # of addresses for tests of networks (RFC 2544)
        self._bridge = f"plog{number}"
        for last in (254, 253):
            _ip("addr", "add", f"{self._net}.{last}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for node in self._nodes:
            self._join(node)
        with self.slow(next(iter(self._nodes))):
            pass

    def _make_bridge(self) -> int:
        """Finds a number that no other test has."""
        for number in random.sample(range(1, 255), 20):
            with suppress(subprocess.CalledProcessError):
                _ip("link", "add", f"plog{number}", "type", "bridge")
                self._made.callback(_ip, "link", "del", f"plog{number}")
                return number
        raise OSError("no bridge can be made")

    def _join(self, node: int) -> None:
        name = self._name(node)
        _ip("netns", "add", name)
        self._made.callback(_ip, "netns", "del", name)
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", self._bridge, "up")
        for last in (100 + node, node):
            _ip("-n", name, "addr", "add", f"{self._net}.{last}/24", "dev", "eth0")
        for interface in ("lo", "eth0"):
            _ip("-n", name, "link", "set", interface, "up")

    def _name(self, node: int) -> str:
        return f"{self._bridge}-{node}"

    # --- where everybody is

    def place_of(self, node: int) -> Place:
        if not self.is_possible:
            return Place()
        return Place(f"{self._net}.{node}", ("nsenter", f"--net=/run/netns/{self._name(node)}"))

    @property
    def zookeeper(self) -> Place:
        return Place(f"{self._net}.253") if self.is_possible else Place()

    # --- what is lost; all is well again when the context ends

    @contextmanager
    def cut_off(self, node: int) -> Iterator[None]:
        """Nothing reaches that broker, and nothing leaves it."""
        with _put_back("link", "set", self._name(node), "down", back=("link", "set", self._name(node), "up")):
            yield

    @contextmanager
    def cut_from_zookeeper(self, node: int) -> Iterator[None]:
        """It serves its clients and the other brokers, and can't keep its session."""
        with self._lost(node, f"{self._net}.253"):
            yield

    @contextmanager
    def unreachable(self, node: int) -> Iterator[None]:
        """Nobody can call it. It reaches ZooKeeper and the other brokers itself, so it is alive."""
        with ExitStack() as lost:
            for other in (None, *self._nodes):
                if other != node:
                    lost.enter_context(self._lost(other, f"{self._net}.{node}"))
            yield

    @contextmanager
    def mute(self, node: int) -> Iterator[None]:
        """It can call none of the other brokers, which reach it, as ZooKeeper and clients do."""
        with ExitStack() as lost:
            for other in self._nodes:
                if other != node:
                    lost.enter_context(self._lost(node, f"{self._net}.{other}"))
            yield

    @contextmanager
    def parted(self, one: int, other: int) -> Iterator[None]:
        """These two do not reach each other, and everybody else reaches both."""
        with ExitStack() as lost:
            for sender, receiver in ((one, other), (other, one)):
                for address in (receiver, 100 + receiver):
                    lost.enter_context(self._lost(sender, f"{self._net}.{address}"))
            yield

    @contextmanager
    def slow(self, node: int) -> Iterator[None]:
        """What it sends goes out slowly, and what does not fit is lost."""
        inside = ("nsenter", f"--net=/run/netns/{self._name(node)}", "tc", "qdisc")
        there = ("dev", "eth0", "root")
        _run(*inside, "add", *there, "tbf", *_SLOW.split())
        try:
            yield
        finally:
            _run(*inside, "del", *there)

    @contextmanager
    def _lost(self, sender: int | None, address: str) -> Iterator[None]:
        """Loses what a broker, or with None whoever is at the bridge, sends to that address."""
        where = () if sender is None else ("-n", self._name(sender))
        entry = (address, "dev", self._bridge if sender is None else "eth0")
        set_wrong = (*where, "neigh", "replace", *entry, "lladdr", _NOBODY, "nud", "permanent")
        with _put_back(*set_wrong, back=(*where, "neigh", "del", *entry)):
            yield


@contextmanager
def _put_back(*arguments: str, back: tuple[str, ...]) -> Iterator[None]:
    _ip(*arguments)
    try:
        yield
    finally:
        _ip(*back)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
