"""Topics that are made out from folders alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.cluster.found_topics import find_topics
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
