"""Topics that are made out from folders alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.cluster.image.topics_from_folders import find_topics
from core.common.topic_partition import TopicPartition
from tests.support.golden import SAMPLE_DATA

FOLDER = SAMPLE_DATA / "damaged" / "c_torn_tail-0"


def test_a_copied_folder_is_left_alone_and_its_original_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody's copy has the topic id of the folder that it is of."""
    folders = {TopicPartition(name, 0): tmp_path / f"{name}-0" for name in ("t", "t_copy")}
    for path in folders.values():
        shutil.copytree(FOLDER, path)
    assert [topic.name for topic in find_topics(folders)] == ["t"]
    assert "the folders of t_copy are left alone: t has the same topic id" in caplog.text


def test_who_only_reads_goes_by_the_names(tmp_path: Path) -> None:
    """As all who read the files: a folder's id may be damaged, or a copy's."""
    folders = {TopicPartition(name, number): tmp_path / f"{name}-{number}" for name in ("t", "u") for number in (0, 1)}
    for path in folders.values():
        shutil.copytree(FOLDER, path)
    (tmp_path / "t-1" / "partition.metadata").write_text("version: 0\ntopic_id: v4v9DZUSTxOpRvsnuK76xg")
    found = find_topics(folders, goes_by_name=True)
    assert {topic.name: set(partitions) for topic, partitions in found.items()} == {"t": {0, 1}, "u": {0, 1}}
    assert len({topic.topic_id for topic in found}) == 2
