"""A data directory that plog makes is its user's alone, whatever the umask; one that is there keeps its mode."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.processes.local_cluster import ClusterDirectory
from plog.testing import running_broker
from tests.support.broker import open_broker
from tests.support.for_each import for_each
from tests.support.server import call_plog


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def create_topic(directory: Path) -> None:
    assert call_plog("topic", "create", "t", "--data-dir", str(directory)).returncode == 0


def produce(directory: Path) -> None:
    assert call_plog("produce", "t", "--data-dir", str(directory), stdin=b"1\n").returncode == 0


def serve(directory: Path) -> None:
    open_broker(directory).close()


def use_fixture(directory: Path) -> None:
    with running_broker(directory):
        pass


def begin_cluster(directory: Path) -> None:
    cluster = ClusterDirectory(directory)
    cluster.acquire()
    cluster.lock.release()


DOORS = [create_topic, produce, serve, use_fixture, begin_cluster]


@for_each("door", DOORS)
def test_a_new_one_is_private(tmp_path: Path, door: Callable[[Path], None]) -> None:
    directory = tmp_path / door.__name__ / "data"
    door(directory)
    assert (oct(mode(directory)), oct(mode(directory.parent))) == ("0o700", "0o775")


@for_each("door", DOORS)
def test_one_that_is_there_stays_as_it_is(tmp_path: Path, door: Callable[[Path], None]) -> None:
    directory = tmp_path / door.__name__
    directory.mkdir(0o750)
    door(directory)
    assert oct(mode(directory)) == "0o750"
