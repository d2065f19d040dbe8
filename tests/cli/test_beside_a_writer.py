"""Readers take no lock, and a batch that is just being written is no damage to them."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

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

ROUNDS = 6


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Server]:
    """A server whose topic is written to, rolled and trimmed all the time."""
    with Server(tmp_path / "data", "--set", "log.retention.check.interval.ms=100") as server:
        for name, settings in (("kept", []), ("trimmed", ["--set", "retention.bytes=200000"])):
            options = ["--set", "retention.ms=-1", "--set", "internal.segment.bytes=50000", *settings]
            assert call_plog("topic", "create", name, *options, "--bootstrap-server", server.address).returncode == 0
        has_begun, is_over = threading.Event(), threading.Event()

        def write() -> None:
            producer = Producer({"bootstrap.servers": server.address, "linger.ms": 1, "batch.num.messages": 50})
            number = 0
            while not is_over.is_set():
                for topic in ("kept", "trimmed"):
                    producer.produce(topic, b"%d " % number + b"." * (number % 500))
                number += 1
                if number % 20 == 0:
                    producer.poll(0.002)
                    assert producer.flush(FLUSH_SECONDS) == 0
                    has_begun.set()
            producer.flush(FLUSH_SECONDS)

        writer = threading.Thread(target=write)
        writer.start()
        has_begun.wait()
        yield server
        is_over.set()
        writer.join()


def values(records: list[Record]) -> list[int]:
    return [int((record.value or b"").split(b" ")[0]) for record in records]


@pytest.mark.longer
def test_reading_the_files_of_a_live_server(live: Server) -> None:
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
            done = call_plog(*command, str(live.data_dir))
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr
        reader = DirectoryReader(live.data_dir)
        for partition in reader.partitions:
            log = reader.open(partition)
            batches = log.read(log.start_offset, log.end_offset, read_committed=True)
            found = values([record for batch in batches for record in batch.records()])
            assert found == list(range(log.start_offset, log.end_offset))
            if partition.topic == "kept":
                ends.append(log.end_offset)
            log.close()
    assert ends == sorted(ends)
    assert ends[-1] > ends[0]


@pytest.mark.longer
def test_a_read_only_server_beside_a_live_one(live: Server, tmp_path: Path) -> None:
    for _ in range(3):
        with Server(live.data_dir, "--read-only") as beside:
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
