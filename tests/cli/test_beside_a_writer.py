"""Readers take no lock, and a batch that is just being written is no damage to them."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer

from core.files.directory_lock import DirectoryLock
from core.forensics.partition_reader import DirectoryReader
from core.inspector.check.findings import Code
from core.inspector.check.verify import verify
from core.records.record import Record
from tests.support.golden import GOLDEN
from tests.support.logs import append, make_batch, open_log
from tests.support.server import Server, call_plog
from tests.support.waiting import FLUSH_SECONDS

ROUNDS = 3
TURN = 600
"""Records to each topic beside one command: three segments."""


class Writer:
    """Writes a turn of records to both topics each time that it is asked to, so that a slow machine's topics are no
    longer than a fast one's.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._turns = threading.Semaphore(0)
        self._has_written, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._turns.release()
        self._thread.join()

    def begin_turn(self) -> None:
        """Returns when the first of its records are in the log; the others are written meanwhile."""
        self._has_written.clear()
        self._turns.release()
        self._has_written.wait()

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self.server.address, "linger.ms": 1, "batch.num.messages": 50})
        numbers = itertools.count()
        while self._turns.acquire() and not self._is_over.is_set():
            for number in itertools.islice(numbers, TURN):
                for topic in ("kept", "trimmed"):
                    producer.produce(topic, b"%d " % number + b"." * (number % 500))
                if number % 20 == 19:
                    assert producer.flush(FLUSH_SECONDS) == 0
                    self._has_written.set()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Writer]:
    """A server one of whose topics is rolled, and one rolled and trimmed, as they are written to."""
    with Server(tmp_path / "data", "--set", "log.retention.check.interval.ms=100") as server:
        for name, settings in (("kept", []), ("trimmed", ["--set", "retention.bytes=200000"])):
            options = ["--set", "retention.ms=-1", "--set", "internal.segment.bytes=50000", *settings]
            assert call_plog("topic", "create", name, *options, "--bootstrap-server", server.address).returncode == 0
        with Writer(server) as writer:
            writer.begin_turn()
            yield writer


def values(records: list[Record]) -> list[int]:
    return [int((record.value or b"").split(b" ")[0]) for record in records]


@pytest.mark.longer
def test_reading_the_files_of_a_live_server(live: Writer) -> None:
    ends: list[int] = []
    for _ in range(ROUNDS):
        for command in (
            ["verify"],
            ["gaps"],
            ["stats"],
            ["doctor"],
            ["recover"],
            ["dump-segment", "--format", "ndjson", "--print-data-log"],
        ):
            live.begin_turn()
            done = call_plog(*command, str(live.server.data_dir))
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        live.begin_turn()
        reader = DirectoryReader(live.server.data_dir)
        for partition in reader.partitions:
            log = reader.open(partition)
            batches = log.read(log.start_offset, log.end_offset, read_committed=True)
            found = values([record for batch in batches for record in batch.records()])
            assert found == list(range(log.start_offset, log.end_offset))
            if partition.topic == "kept":
                ends.append(log.end_offset)
            log.close()
    assert ends == sorted(set(ends))


@pytest.mark.longer
def test_a_read_only_server_beside_a_live_one(live: Writer, tmp_path: Path) -> None:
    for _ in range(3):
        with Server(live.server.data_dir, "--read-only") as beside:
            live.begin_turn()
            found = call_plog("consume", "kept", "--bootstrap-server", beside.address)
            numbers = [int(line.split(b" ")[0]) for line in found.stdout.splitlines()]
            assert numbers == list(range(len(numbers)))
            assert numbers
            said = beside.log.read_text()
            assert "damaged" not in said
            beside.stop()


def test_a_cleaning_that_is_going_on_is_no_damage(tmp_path: Path) -> None:
    """Its files are left behind only where nobody is at work."""
    root = tmp_path / "data"
    shutil.copytree(GOLDEN / "multisegment", root / "multisegment-0")
    folder = root / "multisegment-0"
    shutil.copy(folder / f"{118:020d}.log", folder / f"{118:020d}.log.cleaned")
    for base_offset in (200, 240):
        for suffix in (".index", ".timeindex"):
            shutil.copy(folder / f"{232:020d}{suffix}", folder / f"{base_offset:020d}{suffix}")
    assert {finding.code for finding in verify(root)} == {Code.UNFINISHED_SWAP, Code.INDEX_CORRUPT}
    lock = DirectoryLock(root)
    lock.acquire()
    assert list(verify(root)) == []
    lock.release()
    assert len(list(verify(root))) == 5


def test_a_batch_that_is_just_being_written_is_no_damage_to_stats_and_diff(tmp_path: Path) -> None:
    """Half of it is in the file, and its writer holds the directory's lock. Once nobody does, it is a torn tail."""
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"whole"))
    append(log, make_batch(bytes(5000)))
    log.close()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    os.truncate(path, path.stat().st_size - 100)
    for left in (tmp_path / "t-0").glob("*.snapshot"):
        left.unlink()
    copy = tmp_path / "copy-0"
    shutil.copytree(tmp_path / "t-0", copy)
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    for command in (["stats", str(tmp_path / "t-0")], ["stats", str(path)], ["diff", str(path.parent), str(copy)]):
        done = call_plog(*command)
        assert done.returncode == 0, command
        assert b"torn-tail" not in done.stdout + done.stderr
    lock.release()
    for command in (["stats", str(tmp_path / "t-0")], ["diff", str(path.parent), str(copy)]):
        done = call_plog(*command)
        assert b"torn-tail" in done.stdout + done.stderr
