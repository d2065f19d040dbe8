"""Ports of tests are nobody else's: neither another worker's, nor those that the system gives."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.support.free_ports import FIRST, LAST, free_ports, ports_of

GIVEN_BY_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_workers_share_the_ports_without_overlap() -> None:
    shares = [ports_of(f"gw{number}") for number in range(16)]
    assert sorted(port for share in shares for port in share) == list(range(FIRST, LAST + 1))
    assert ports_of("gw16") == shares[0]


@pytest.mark.skipif(not GIVEN_BY_THE_SYSTEM.exists(), reason="the system does not say which ports it gives")
def test_the_system_gives_others() -> None:
    assert int(GIVEN_BY_THE_SYSTEM.read_text().split()[0]) > LAST


def test_a_port_that_is_taken_is_left_out() -> None:
    (port,) = free_ports(1)
    following = range(port + 1, port + 10)
    with socket.socket() as taken:
        for one in following:
            try:
                taken.bind(("127.0.0.1", one))
                break
            except OSError:
                continue
        given = free_ports(20)
        assert taken.getsockname()[1] not in given
    assert len({port, *given}) == 21
