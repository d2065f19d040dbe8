"""What arrives in a cluster's network while brokers are cut off: datagrams from everybody to everybody."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import pytest

from tests.crash.cluster.network import Network
from tests.support.waiting import wait_until

NODES = (1, 2, 3)
ADDRESSES = (1, 101, 2, 102, 3, 103, 253, 254)
"""Where brokers listen and whence they call, ZooKeeper's, and the clients'."""

Ways = set[tuple[int, int]]
"""From one address to another."""

OWNERS = {last: last if last > 200 else last % 100 for last in ADDRESSES}
PEERS = {(a, b) for a in ADDRESSES for b in ADDRESSES if OWNERS[a] != OWNERS[b]}
BETWEEN_BROKERS = {(a, b) for a, b in PEERS if {OWNERS[a], OWNERS[b]} <= {*NODES}}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(NODES, print) as made:
        if not made.is_possible:
            pytest.skip(made.reason)
        yield made


class Post:
    """A socket at each address, in its owner's namespace."""

    def __init__(self, network: Network) -> None:
        self._net = network.zookeeper.host.rpartition(".")[0]
        self.sockets = {last: self._open(network, last) for last in ADDRESSES}
        self._round = 0

    def _open(self, network: Network, last: int) -> socket.socket:
        def work() -> socket.socket:
            if OWNERS[last] in NODES:
                (_, option) = network.place_of(OWNERS[last]).command
                self._enter(Path(option.partition("=")[2]))
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            opened.bind((f"{self._net}.{last}", 7000))
            opened.setblocking(False)
            return opened

        with ThreadPoolExecutor(1) as pool:  # a thread that ends there: it stays in that namespace
            return pool.submit(work).result()

    def _enter(self, namespace: Path) -> None:
        descriptor = os.open(namespace, os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)

    def ensure_lost(self, lost: Ways) -> None:
        """What is not lost arrives; by then what was sent before it would have arrived. It is sent until it does: after
        a cut the first may go with the question whose address that is.
        """
        self._round += 1
        self._send(lost)
        arrived: Ways = set()

        def has_all() -> bool:
            self._send(PEERS - lost - arrived)
            for receiver, opened in self.sockets.items():
                with suppress(BlockingIOError):
                    while True:
                        number, sender = map(int, opened.recv(100).split())
                        if number == self._round:
                            arrived.add((sender, receiver))
            return arrived >= PEERS - lost

        wait_until(has_all, "what is not lost arrives")
        assert arrived == PEERS - lost

    def _send(self, ways: Ways) -> None:
        for sender, receiver in sorted(ways):
            with suppress(OSError):  # nobody has answered there for long
                self.sockets[sender].sendto(b"%d %d" % (self._round, sender), (f"{self._net}.{receiver}", 7000))


@pytest.fixture(scope="module")
def post(network: Network) -> Iterator[Post]:
    with ExitStack() as closing:
        made = Post(network)
        for opened in made.sockets.values():
            closing.enter_context(opened)
        yield made


def test_what_is_lost_in_each_cut(network: Network, post: Post) -> None:
    cuts: dict[str, tuple[AbstractContextManager[None], Ways]] = {
        "cut off": (network.cut_off(1), {(a, b) for a, b in PEERS if 1 in (OWNERS[a], OWNERS[b])}),
        "cut from ZooKeeper": (network.cut_from_zookeeper(1), {(1, 253), (101, 253)}),
        "unreachable": (network.unreachable(1), {(a, b) for a, b in PEERS if b == 1}),
        "mute": (network.mute(1), {(a, b) for a, b in BETWEEN_BROKERS if OWNERS[a] == 1 and b in NODES}),
        "parted": (network.parted(1, 2), {(a, b) for a, b in BETWEEN_BROKERS if {OWNERS[a], OWNERS[b]} == {1, 2}}),
        "slow": (network.slow(1), set()),
    }
    post.ensure_lost(set())
    for cut, lost in cuts.values():
        with cut:
            post.ensure_lost(lost)
        post.ensure_lost(set())
