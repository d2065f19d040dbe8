"""Topics that are described from a directory's files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.cluster.description.directory_topics import DirectoryTopics
from core.cluster.image.metadata_log import MetadataLog
from core.common.filesystem import FileSystem
from core.files.checkpoint_file import read_partition_metadata
from core.forensics.partition_reader import DirectoryReader
from core.protocol.schema.metadata_records import PartitionRecord, TopicRecord
from tests.support.for_each import for_each
from tests.support.golden import SAMPLE_DATA
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock

FOLDER = SAMPLE_DATA / "damaged" / "c_torn_tail-0"


@for_each("of_metadata, of_log, expected", [(None, 7, 8), (3, 7, 8), (3, 3, 3), (9, 7, 9)])
def test_the_epoch_is_that_of_a_start(of_metadata: int | None, of_log: int, expected: int, tmp_path: Path) -> None:
    """A partition that is led again has an epoch that none of its records has, unless its own leader wrote them all."""
    folder = tmp_path / "t-0"
    shutil.copytree(FOLDER, folder)
    (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{of_log} 0\n")
    if of_metadata is not None:
        topic_id = read_partition_metadata(folder)
        assert topic_id is not None
        partition = PartitionRecord(0, topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=of_metadata)
        log = MetadataLog(tmp_path, 1, ManualClock(NOW), FileSystem())
        log.append([TopicRecord("t", topic_id), partition])
        log.close()
    (described,) = DirectoryTopics(DirectoryReader(tmp_path)).describe("t").partitions
    assert described.leader_epoch == expected


def test_topics_are_listed_without_a_look_at_their_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`t` has partitions here and elsewhere; `u` is known by its folder alone."""
    shutil.copytree(FOLDER, tmp_path / "t-1")
    topic_id = read_partition_metadata(FOLDER)
    assert topic_id is not None
    log = MetadataLog(tmp_path, 1, ManualClock(NOW), FileSystem())
    log.append(
        [
            TopicRecord("t", topic_id),
            *[PartitionRecord(number, topic_id, replicas=[node], isr=[node]) for number, node in ((0, 2), (1, 1))],
        ]
    )
    log.close()
    (tmp_path / "u-7").mkdir()
    (tmp_path / "u-7" / "00000000000000000000.log").touch()
    topics = DirectoryTopics(DirectoryReader(tmp_path))
    described = {name: [p.partition for p in topics.describe(name).partitions] for name in ("t", "u")}
    monkeypatch.setattr("core.cluster.description.directory_topics.describe_log", None)
    found = topics.partitions()
    found.pop("__cluster_metadata", None)
    assert found == described == {"t": [0, 1], "u": [7]}
