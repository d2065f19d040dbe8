"""The figures of topics are those of `plog topic describe`, and rates and lags come by arithmetic."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.client.admin.admin import Admin
from core.client.net.kafka_client import KafkaClient
from core.cluster.description.directory_topics import DirectoryTopics
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import DirectoryReader
from core.pipeline.session import Session
from core.view.figures.topic_figures import ServerFigures, TopicFigures, TopicRow
from core.view.target.log_figures import LogFigures, PartitionFigures
from tests.support.coordinated import commit, golden_directory, inspected, write_values
from tests.support.golden import GOLDEN, SAMPLE_DATA
from tests.support.logs import NOW, fingerprint
from tests.support.manual_clock import ManualClock


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = golden_directory(tmp_path_factory.mktemp("figures") / "data")
    for name in ("multisegment", "deleterecords_all", "compacted_zstd"):
        shutil.copytree(GOLDEN / name, directory / f"{name}-0")
    shutil.copytree(GOLDEN / "multisegment", directory / "multisegment-2")
    return directory


@pytest.fixture
def client(golden: Path) -> Iterator[KafkaClient]:
    with Session(directory=golden).open_client(is_read_only=True) as client:
        yield client


def _rows(figures: TopicFigures) -> dict[str, TopicRow]:
    return {row.topic: row for row in list(figures.steps())[-1].rows}


def test_figures_are_those_of_topic_describe(golden: Path) -> None:
    topics = DirectoryTopics(DirectoryReader(golden))
    rows = _rows(TopicFigures(inspected(golden)))
    assert sorted(rows) == sorted(topics.partitions())
    assert [name.startswith("__") for name in rows] == sorted(name.startswith("__") for name in rows)
    for name, row in rows.items():
        described = [p for p in topics.describe(name).partitions if (golden / f"{name}-{p.partition}").exists()]
        assert row.records == sum(p.end_offset - p.start_offset for p in described)
        assert row.size_bytes == sum(p.size_bytes or 0 for p in described)
        assert row.damaged == ()
    assert (rows["multisegment"].partitions, rows["multisegment"].problem) == (
        3,
        "partition 1: no folder of multisegment-1 is here",
    )


def test_a_server_is_asked_the_same(golden: Path, client: KafkaClient) -> None:
    source = ServerFigures(client)
    source.look_again()
    for name, numbers in source.topics.items():
        described = {p.partition: p for p in Admin(client).describe_topic(name).partitions}
        found = source.of_topic(name, numbers)
        assert found.keys() == described.keys()
        for number, one in found.items():
            p = described[number]
            if one.problem:  # of a partition without a folder nobody knows anything
                continue
            assert (one.start_offset, one.end_offset, one.size_bytes) == (p.start_offset, p.end_offset, p.size_bytes)
            assert one.damaged == p.damaged


def test_names_come_first(golden: Path) -> None:
    first = next(iter(TopicFigures(inspected(golden)).steps()))
    assert [(row.topic, row.partitions) for row in first.rows if row.topic == "multisegment"] == [("multisegment", 3)]
    assert {row.records for row in first.rows} == {None}
    assert not first.is_whole


def test_rates_are_what_was_appended_since_the_last_look(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"a")
    write_values(tmp_path, "t-1", b"a")
    clock = ManualClock(NOW)
    figures = TopicFigures(inspected(tmp_path), clock)
    before = _rows(figures)["t"]
    assert (before.records, before.records_per_s, before.bytes_per_s) == (2, None, None)
    write_values(tmp_path, "t-0", *[b"x" * 100] * 50)
    write_values(tmp_path, "t-1", *[b"x"] * 10)
    clock.advance(4000)
    after = _rows(figures)["t"]
    sizes = [path.stat().st_size for path in sorted(tmp_path.glob("t-*/*.log"))]
    assert after.size_bytes == sum(sizes)
    assert after.records_per_s == 15.0
    assert after.bytes_per_s == (sum(sizes) - (before.size_bytes or 0)) / 4
    clock.advance(1000)
    assert _rows(figures)["t"].records_per_s == 0.0


def test_deletion_is_no_rate(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "multisegment", tmp_path / "t-0")
    clock = ManualClock(NOW)
    figures = TopicFigures(inspected(tmp_path), clock)
    size_bytes = _rows(figures)["t"].size_bytes
    for path in (tmp_path / "t-0").glob("00000000000000000000.*"):
        path.unlink()
    clock.advance(1000)
    after = _rows(figures)["t"]
    assert (after.records_per_s, after.bytes_per_s) == (0.0, 0.0)
    assert after.size_bytes is not None
    assert size_bytes is not None
    assert after.size_bytes < size_bytes


def test_groups_behind_are_counted_by_topic(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", *[b"x"] * 10)
    write_values(tmp_path, "t-1", *[b"x"] * 10)
    write_values(tmp_path, "u-0", b"x")
    for group, offsets in {"a": (10, 10), "b": (10, 4), "c": (7, 2)}.items():
        commit(tmp_path, group, {TopicPartition("t", n): offset for n, offset in enumerate(offsets)})
    figures = TopicFigures(inspected(tmp_path))
    rows = _rows(figures)
    assert (rows["t"].groups_behind, rows["t"].largest_lag) == (2, 11)
    again = _rows(figures)
    assert (again["t"].groups_behind, again["t"].largest_lag) == (2, 11)
    assert (rows["u"].groups_behind, rows["u"].largest_lag) == (0, None)


def test_known_damage_is_shown_without_reading() -> None:
    sample = SAMPLE_DATA / "damaged"
    before = fingerprint(sample)
    rows = _rows(TopicFigures(inspected(sample)))
    assert {name: row.damaged for name, row in rows.items()} == dict.fromkeys(rows, ())
    assert fingerprint(sample) == before


def test_the_ledger_of_damage_is_shown(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE_DATA / "damaged" / "c_bitflip_middle-0", tmp_path / "t-0")
    (tmp_path / "t-0" / "damaged-ranges").write_text("0\n1\n20 25 0 2222 2800\n")
    (expected,) = DirectoryTopics(DirectoryReader(tmp_path)).describe("t").partitions
    assert expected.damaged == ("20-24",)
    assert _rows(TopicFigures(inspected(tmp_path)))["t"].damaged == ("0: 20-24",)


def test_a_folder_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    write_values(tmp_path, "t-0", b"a", b"b")
    (tmp_path / "t-1").symlink_to(tmp_path / "nowhere")
    row = _rows(TopicFigures(inspected(tmp_path)))["t"]
    assert row.records == 2
    assert row.partitions in (1, 2)


def test_a_directory_that_goes_away_is_an_error_and_comes_back(tmp_path: Path) -> None:
    write_values(tmp_path / "data", "t-0", b"a")
    figures = TopicFigures(inspected(tmp_path / "data"))
    assert _rows(figures)["t"].records == 1
    (tmp_path / "data").rename(tmp_path / "away")
    with pytest.raises(AccessError):
        list(figures.steps())
    (tmp_path / "away").rename(tmp_path / "data")
    assert _rows(figures)["t"].records == 1


def test_one_partition_alone_has_its_own_figures(golden: Path) -> None:
    rows = _rows(TopicFigures(inspected(golden / "multisegment-2")))
    assert {name: row.partitions for name, row in rows.items()} == {"multisegment": 1}


def test_only_what_changed_is_opened_again(tmp_path: Path) -> None:
    for number in range(4):
        write_values(tmp_path, f"t-{number}", b"a")
    logs = LogFigures(tmp_path, ManualClock(NOW + 10**12))  # so that every change lies long ago
    opened: list[TopicPartition] = []
    describe = logs._describe

    def note_and_describe(partition: TopicPartition) -> PartitionFigures:
        opened.append(partition)
        return describe(partition)

    logs._describe = note_and_describe  # type: ignore[method-assign]
    partitions = [TopicPartition("t", number) for number in range(4)]
    ends = [logs.of(partition).end_offset for partition in partitions]
    assert (ends, opened) == ([1] * 4, partitions)
    opened.clear()
    write_values(tmp_path, "t-2", b"b")
    logs.look_again()
    assert [logs.of(partition).end_offset for partition in partitions] == [1, 1, 2, 1]
    assert opened == [TopicPartition("t", 2)]
