"""How many files one request or one command enters, and how many lines those files have: neither grows.

A reader who follows a Produce opens each file that runs. tests/form/ways.json has today's numbers. Lower them
when a way enters fewer files, or files with a tenth fewer lines: its test asks for that. What a module does while it is
imported does not count, nor does what not each of several runs does: the first fills caches, a slow one shows progress.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from confluent_kafka import Producer

from core.client.net.client_connection import ClientConnection, SocketTransport
from core.common.error_code import ErrorCode
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from plog.testing import running_broker
from tests.cli.conftest import ok
from tests.cli.inspect.support import inspecting, with_loop
from tests.support.broker import fetch_request
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.member import OTHER, playing
from tests.support.server import call_plog

ROOT = Path(__file__).resolve().parents[2]
OURS = tuple(f"{ROOT / package}{os.sep}" for package in ("core", "cli", "plog"))
NUMBERS = ROOT / "tests" / "form" / "ways.json"
DAMAGED = GOLDEN.parent / "damage" / "00-one-bit-of-length-silent-loss" / "t-0"
SEGMENT = SAMPLE_DATA / "partition" / "txn_multisegment-0" / f"{0:020d}.log"


class Entered:
    """The files of plog whose functions are called while `is_on`, by threads that started under it."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.is_on = False

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.is_on or event != "call" or frame.f_code.co_name == "<module>":
            return
        file = frame.f_code.co_filename
        if file.startswith(OURS) and file not in self.files and not _is_importing(frame):
            self.files.add(file)

    @contextmanager
    def here(self) -> Iterator[None]:
        """Notes what this thread, and those that it starts, do in the block."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(OURS):
            return True
        frame = frame.f_back
    return False


@cache
def lines_of(file: str) -> int:
    return Path(file).read_bytes().count(b"\n")


def ensure_no_longer(way: str, entered: Entered) -> None:
    most_files, most_lines = json.loads(NUMBERS.read_text())[way]
    files, lines = len(entered.files), sum(map(lines_of, entered.files))
    shown = " ".join(sorted(file.removeprefix(f"{ROOT}{os.sep}") for file in entered.files))
    assert files <= most_files, f"{way} enters {files} files, at most {most_files} were allowed: {shown}"
    assert lines <= most_lines, f"the files of {way} have {lines} lines, at most {most_lines} were allowed: {shown}"
    is_right = files == most_files and lines * 10 >= most_lines * 9
    assert is_right, f"{way} enters {files} files of {lines} lines: lower its numbers in {NUMBERS.name}"


def entered_by(call: Callable[[], object], rounds: int = 3) -> Entered:
    call()
    entered = Entered()
    with entered.here():
        return entered_each_time(entered, [call] * rounds)


def plog(*arguments: str | Path, stdin: bytes = b"") -> Callable[[], object]:
    return lambda: call_plog(*map(str, arguments), stdin=stdin)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Entered]]:
    """A broker with a topic of one partition, and what its threads enter."""
    entered = Entered()
    threading.setprofile(entered.note)
    with running_broker() as broker:
        threading.setprofile(None)
        broker.create_topic("t")
        yield broker.bootstrap_servers, entered


def entered_each_time(entered: Entered, calls: Iterable[Callable[[], object]]) -> Entered:
    """What all calls have in common: what a broker does once a second is not theirs."""
    found = []
    for call in calls:
        entered.files = set()
        entered.is_on = True
        call()
        entered.is_on = False
        found.append(entered.files)
    entered.files = set.intersection(*found)
    return entered


def test_a_produce(served: tuple[str, Entered]) -> None:
    address, entered = served
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})

    def produce() -> None:
        producer.produce("t", b"v")
        assert producer.flush() == 0

    produce()
    ensure_no_longer("Produce", entered_each_time(entered, [produce] * 3))


def test_a_fetch_that_waits(served: tuple[str, Entered]) -> None:
    """Nothing comes within 20 ms; each round is one request and its answer."""
    address, entered = served
    host, _, port = address.rpartition(":")
    with closing(ClientConnection(SocketTransport(host, int(port)))) as connection:
        topic_id = connection.call(METADATA, MetadataRequest([MetadataRequestTopic(name="t")])).topics[0].topic_id
        request = fetch_request(0, max_wait_ms=20, session_id=0, session_epoch=-1)
        request.topics[0].topic_id = topic_id
        request.topics[0].partitions[0].fetch_offset = (
            connection.call(FETCH, request).responses[0].partitions[0].high_watermark
        )

        def fetch() -> None:
            (partition,) = connection.call(FETCH, request).responses[0].partitions
            assert (partition.error_code, partition.records) == (0, b"")

        fetch()
        ensure_no_longer("Fetch that waits", entered_each_time(entered, [fetch] * 3))


@for_each("words", ["topic list", "produce t", "consume t", "consume t --group g --max-messages 1"])
def test_a_command_that_asks_a_server(words: str, served: tuple[str, Entered]) -> None:
    where = ["--bootstrap-server", served[0]]
    ok("produce", "t", *where, stdin=b"a\nb\n")
    ensure_no_longer(words, entered_by(plog(*words.split(), *where, stdin=b"a\n")))


def test_a_command_of_a_directory(tmp_path: Path) -> None:
    where = ["--data-dir", str(tmp_path / "data")]
    ok("produce", "t", *where, stdin=b"a\n")
    ensure_no_longer("consume t --data-dir", entered_by(plog("consume", "t", *where)))


def test_a_command_of_files() -> None:
    for words, path in (("dump-segment", SEGMENT), ("verify", DAMAGED), ("recover", DAMAGED)):
        ensure_no_longer(words, entered_by(plog(words, path)))


def test_a_recovery(tmp_path: Path) -> None:
    def recover() -> None:
        shutil.rmtree(tmp_path / "t-0", ignore_errors=True)
        shutil.copytree(DAMAGED, tmp_path / "t-0")
        call_plog("recover", str(tmp_path / "t-0"), "--apply")

    ensure_no_longer("recover --apply", entered_by(recover))


async def test_a_leader_and_isr(tmp_path: Path) -> None:
    """A partition is led, then followed."""
    async with playing(tmp_path) as member:
        numbers = iter((0, 1))

        def assign() -> None:
            number = next(numbers)
            assert member.assign(number) is ErrorCode.NONE
            assert member.assign(number, leader=OTHER, epoch=1) is ErrorCode.NONE

        ensure_no_longer("LeaderAndIsr", entered_by(assign, 1))


@pytest.mark.longer
@with_loop
async def test_the_records_screen() -> None:
    """From its start to the first rows."""
    found = []
    for _ in range(3):
        entered = Entered()
        with entered.here():
            entered.is_on = True
            async with inspecting(SEGMENT.parent):
                pass
        found.append(entered.files)
    entered.files = set.intersection(*found[1:])
    ensure_no_longer("records screen", entered)
