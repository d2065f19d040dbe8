"""Many damaged partitions, recovered by `plog recover`: a real Kafka opens them all, and a real client reads exactly
the records that were promised. `scripts/torture --recovered` does it with more.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.support import crafted
from tests.support.damage import cleaner_checkpoint, places, plant, write_log
from tests.support.golden import GOLDEN
from tests.support.kafka_server import KafkaServer
from tests.support.log_model import LogModel
from tests.support.oracle import requires_kafka
from tests.support.server import call_plog
from tests.support.topic_reader import read_partitions, read_topic
from tests.support.wreck import wreck

pytestmark = [requires_kafka, pytest.mark.java]

PARTITIONS = int(os.environ.get("PLOG_RECOVERED_PARTITIONS", "90"))
MODES: list[list[str]] = [[], ["--fix-bits"], ["--like-kafka"]]

Records = dict[int, tuple[bytes | None, bytes | None]]


def damaged(folder: Path, seed: int, mode: list[str], cleaned: list[str]) -> Records:
    """Fills a partition's folder, damages it, and gives what a recovery has to leave. How far a cleaner came in it goes
    to `cleaned`, a line of its checkpoint.
    """
    for path in folder.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    random = Random(seed)
    records = write_log(folder, random, random.randint(6, 24))
    if cleaner_checkpoint(folder).exists():
        cleaned += cleaner_checkpoint(folder).read_text().splitlines(keepends=True)[2:]
    intact = places(folder)
    planted = plant(folder, random)
    if mode == ["--like-kafka"] and planted.first is not None:
        ends = [place.offset for place in intact if (place.path, place.position) == planted.first]
        return {offset: record for offset, record in records.items() if not ends or offset < ends[0]}
    lost = planted.lost - planted.fixable if mode else planted.lost
    return {offset: record for offset, record in records.items() if offset not in lost}


def read(address: str, topic: str) -> dict[int, Records]:
    places = ((topic, number) for number in range(PARTITIONS))
    found = read_partitions(address, *places, isolation="read_uncommitted")
    return {number: {m.offset(): (m.key(), m.value()) for m in of_one} for (_, number), of_one in found.items()}  # type: ignore[misc]


def test_kafka_reads_what_was_promised(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    options = ["--partitions", str(PARTITIONS), "--set", "retention.ms=-1", "--set", "internal.segment.bytes=3000"]
    assert call_plog("topic", "create", "t", *options, "--data-dir", str(data_dir)).returncode == 0
    cleaned: list[str] = []  # where the holes in some of them are from
    expected = {n: damaged(data_dir / f"t-{n}", n, MODES[n % len(MODES)], cleaned) for n in range(PARTITIONS)}
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data_dir / name).unlink()  # of the empty partitions
    (data_dir / "cleaner-offset-checkpoint").write_text(f"0\n{len(cleaned)}\n{''.join(cleaned)}")
    for number, mode in enumerate(MODES):
        folders = [str(data_dir / f"t-{n}") for n in range(number, PARTITIONS, len(MODES))]
        done = call_plog("recover", *folders, *mode, "--accept-visible", "--apply", "--output", "json")
        assert done.returncode == 0, done.stderr.decode()
    assert call_plog("verify", str(data_dir)).returncode == 0
    shutil.copytree(data_dir, tmp_path / "copy")
    with KafkaServer(data_dir) as kafka:
        found = read(kafka.address, "t")
    for number in range(PARTITIONS):
        assert found[number] == expected[number], number


def test_kafka_reads_what_is_left_of_what_others_wrote(tmp_path: Path) -> None:
    """After a compaction of sound logs, and a recovery of damaged ones. Kafka reads more of a wrapper that contradicts
    its neighbours, which is damage, and does not start on one that no reader opens.
    """
    data_dir, count = tmp_path / "data", 40
    options = ["--partitions", str(count), "--set", "cleanup.policy=compact", "--set", "min.cleanable.dirty.ratio=1"]
    assert call_plog("topic", "create", "t", *options, "--data-dir", str(data_dir)).returncode == 0
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data_dir / name).unlink()  # of the empty partitions
    seeds = iter(range(1000))
    for number in range(count):
        folder, is_damaged = data_dir / f"t-{number}", number % 2 == 1
        metadata = (folder / "partition.metadata").read_bytes()
        while True:
            for path in folder.iterdir():
                if path.name != "partition.metadata":
                    path.unlink()
            random = Random(next(seeds))
            crafted.write_partition(folder, crafted.random_log(random)[0])
            model = LogModel(folder)
            is_unopened = any(frame.magic < 2 and frame.base in model.undecodable for frame in model.log)
            if not (model.damage or model.displaced or is_unopened):
                break
        if is_damaged:
            wreck(folder, random)
            (folder / "partition.metadata").write_bytes(metadata)
    sound, damaged = ([str(data_dir / f"t-{n}") for n in range(first, count, 2)] for first in (0, 1))
    done = call_plog("recover", *damaged, "--accept-visible", "--accept-missing", "--apply")
    assert done.returncode == 0, done.stderr.decode()
    done = call_plog("compact", *sound, "--set", "min.cleanable.dirty.ratio=0", "--apply")
    assert b" are gone" in done.stderr, done.stderr.decode()  # batches that nobody opens are refused
    reading = ["--isolation", "read_uncommitted", "--no-exit-on-error", "--format", "%p %o\\n"]
    expected = sorted(call_plog("consume", "t", "--data-dir", str(data_dir), *reading).stdout.splitlines())
    assert len(expected) > count
    with KafkaServer(data_dir) as kafka:
        served = call_plog("consume", "t", "--bootstrap-server", kafka.address, *reading)
    assert sorted(served.stdout.splitlines()) == expected, served.stderr.decode()


def test_kafka_hides_what_was_aborted_by_a_marker_that_was_lost(tmp_path: Path) -> None:
    """Its readers get what Kafka's own index says was committed, no more and no less."""
    data_dir = tmp_path / "data"
    assert call_plog("topic", "create", "t", "--data-dir", str(data_dir)).returncode == 0
    for path in (data_dir / "t-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    source = GOLDEN.parent / "damage" / "05-abort-marker-cut" / "txn_interleaved-0"
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copy(path, data_dir / "t-0" / path.name)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (data_dir / name).unlink()
    assert call_plog("recover", str(data_dir), "--apply").returncode == 0
    read_committed = ["--isolation", "read_committed", "--format", "%o\n"]
    expected = call_plog("consume", "t", "--data-dir", str(data_dir), *read_committed).stdout.split()
    assert not {b"53", b"55"} & set(expected)
    assert {b"62", b"63", b"64"} <= set(expected)
    with KafkaServer(data_dir) as kafka:
        served = call_plog("consume", "t", "--bootstrap-server", kafka.address, *read_committed)
        assert served.stdout.split() == expected
        found = [b"%d" % (message.offset() or 0) for message in read_topic(kafka.address, "t")]
    assert found == expected
