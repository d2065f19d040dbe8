"""A topic is described alike by a server and, once it is gone, from the same directory's files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ok
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.server import Server

pytestmark = pytest.mark.longer

_FROM_KAFKA = ["__consumer_offsets-0", "__cluster_metadata-0"]


def describe(*where: str) -> list[dict[str, Any]]:
    listed = json.loads(ok("topic", "list", "--internal", "--output", "json", *where))
    names = [topic["topic"] for topic in listed]
    rows: list[dict[str, Any]] = json.loads(ok("topic", "describe", *names, "--output", "json", *where))
    return rows


def test_topics_with_settings(tmp_path: Path) -> None:
    with Server(tmp_path / "data") as server:
        where = ["--bootstrap-server", server.address]
        ok("topic", "create", "t", "--partitions", "2", "--set", "retention.ms=-1", *where)
        ok("topic", "create", "u", *where)
        ok("produce", "t", *where, stdin=b"a\nb\nc\n")
        served = describe(*where)
    assert describe("--data-dir", str(tmp_path / "data")) == served
    assert [row["settings"] for row in served] == [{"retention.ms": "-1"}, {"retention.ms": "-1"}, {}]
    assert len({row["topic_id"] for row in served}) == 2
    assert {len(row["topic_id"]) for row in served} == {22}


@pytest.mark.parametrize("how", [["--read-only"], []], ids=["read-only", "owner"])
@pytest.mark.parametrize("kind", ["copied folders", "of Kafka"])
def test_directories_of_others(tmp_path: Path, kind: str, how: list[str]) -> None:
    data = tmp_path / "data"
    if kind == "copied folders":
        shutil.copytree(SAMPLE_DATA / "partition", data)
    else:
        shutil.copytree(GOLDEN / "_root", data)
        for name in _FROM_KAFKA:
            shutil.copytree(GOLDEN / name, data / name)
    with Server(data, *how) as server:
        served = describe("--bootstrap-server", server.address)
    assert describe("--data-dir", str(data)) == served
    of_folders = [row for row in served if (data / f"{row['topic']}-{row['partition']}").is_dir()]
    assert of_folders
    assert all((row["leader"], row["replicas"], row["isr"]) == (1, [1], [1]) for row in of_folders)
