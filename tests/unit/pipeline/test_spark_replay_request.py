"""What `plog spark-replay` plans for what it is asked, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cli.data_location import Place
from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import LockHolder
from core.pipeline import spark_replay_plan
from core.pipeline.spark_replay_plan import commit_to_group, find_target, make_plan
from core.pipeline.spark_replay_request import ReplayRequest
from core.spark.cluster_access import connect
from tests.cli.conftest import ok
from tests.support.for_each import for_each
from tests.support.server import Server

NOTHING = ReplayRequest(topics=("t",), to="parquet:out", source="x")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """t: two partitions of 1,000 records, one each millisecond from 2013 on."""
    where = tmp_path_factory.mktemp("replayed") / "data"
    ok("topic", "create", "t", "--partitions", "2", "--set", "retention.ms=-1", "--data-dir", str(where))
    lines = b"".join(
        b'{"value": "%d", "partition": %d, "timestamp": %d}\n' % (n, n % 2, 1356998400000 + n) for n in range(2000)
    )
    ok("produce", "t", "--format", "envelope", "--data-dir", str(where), stdin=lines)
    return where


def ends(request: ReplayRequest, data_dir: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for range_ in make_plan(request, Place(data_dir=data_dir).session(), 1 << 30).ranges:
        start, _ = found.get(str(range_.topic_partition), (range_.start_offset, 0))
        found[str(range_.topic_partition)] = start, range_.end_offset
    return found


@for_each(
    "from_, until, expected",
    [
        ("beginning", "end", (0, 1000)),
        ("100", "300", (100, 300)),
        ("-10", "end", (990, 1000)),
        ("2013-01-01T00:00:01Z", "2013-01-01T00:00:01.500Z", (500, 750)),
    ],
)
def test_where_from_and_where_to(data_dir: Path, from_: str, until: str, expected: tuple[int, int]) -> None:
    assert ends(replace(NOTHING, from_=from_, until=until), data_dir) == {"t-0": expected, "t-1": expected}


def test_from_where_a_group_has_read_up_to(data_dir: Path) -> None:
    with pytest.raises(PlogError, match="group etl has committed nothing of these topics"):
        ends(replace(NOTHING, from_group="etl"), data_dir)
    commit_to_group("etl", Place(data_dir=data_dir).session(), {TopicPartition("t", 0): 400})
    found = ends(replace(NOTHING, from_group="etl", from_="900"), data_dir)
    assert found == {"t-0": (400, 1000), "t-1": (900, 1000)}  # what the group has nothing of: as --from says


def test_the_last_of_each_key_is_a_range_a_partition(data_dir: Path) -> None:
    plan = make_plan(replace(NOTHING, latest_per_key=True), Place(data_dir=data_dir).session(), 1)
    assert [(r.start_offset, r.end_offset, r.latest_per_key) for r in plan.ranges] == [(0, 1000, True)] * 2


def test_bad_timestamps_are_an_error_unless_a_plan_says_null(data_dir: Path) -> None:
    """A request that does not name them is the same as those that were frozen before there was the option."""
    plan = make_plan(NOTHING, Place(data_dir=data_dir).session(), 1 << 30)
    assert "bad_timestamps" not in plan.request
    assert not any(range_.nulls_bad_timestamps for range_ in plan.ranges)
    plan = make_plan(replace(NOTHING, bad_timestamps="null"), Place(data_dir=data_dir).session(), 1 << 30)
    assert plan.request["bad_timestamps"] == "null"
    assert all(range_.nulls_bad_timestamps for range_ in plan.ranges)


def test_the_topic_is_known_by_its_id(data_dir: Path) -> None:
    plan = make_plan(NOTHING, Place(data_dir=data_dir).session(), 1 << 30)
    text = (data_dir / "t-0" / "partition.metadata").read_text()
    assert plan.topic_ids == {"t": text.split("topic_id: ")[1].strip()}


@for_each(
    "fields, said",
    [
        ({"to": "parquet"}, "expected parquet:DIR"),
        ({"to": ""}, "name a target: --to parquet:DIR, "),
        ({"to": "avro:x"}, "expected parquet:DIR"),
        ({"to": "file:/x"}, "expected parquet:DIR"),
        ({"partition_by": ["day,hour", "day"]}, "--partition-by day: there is a folder day already"),
        ({"partition_by": ["city"]}, "--partition-by city: there is no column city, only key, value"),
        ({"partition_by": ["value=date(timestamp)"]}, "two columns of the output are one to Spark"),
        ({"partition_by": ["key"], "columns": "key"}, "--partition-by key: the files would have no column"),
        ({"compression": "brotli"}, "--compression brotli: expected zstd, snappy, gzip, lz4, none"),
        ({"file_size": "big"}, "--file-size big: expected a number of bytes"),
        ({"file_size": "0"}, "--file-size 0: expected 1 to"),
        ({"to": "topic:x", "compression": "zstd"}, "a topic gets records as they are"),
        ({"to": "topic:x", "file_size": "1M"}, "a topic gets records as they are"),
        ({"single_writer": True}, "--single-writer is of stores"),
        ({"to": "csv:x", "compression": "zstd"}, "csv files can be compressed with gzip, snappy or lz4"),
        ({"bad_timestamps": "now"}, "--bad-timestamps now: expected error or null"),
        ({"bad_timestamps": "null", "to": "topic:x"}, "a topic's records have a timestamp"),
        ({"schema": "a INT"}, "--schema is of values that are JSON"),
        ({"value_format": "avro"}, "--value-format avro goes with --value-schema"),
        ({"value_format": "thrift"}, "--value-format thrift: no such format"),
        ({"key_format": "registry"}, "the format registry goes with --schema-registry URL"),
        ({"value_format": "json", "columns": "key", "schema": "a INT"}, "--columns leaves out value"),
        ({"value_format": "registry", "schema_registry": "http://u:p@h"}, "and it has a password"),
        ({"timezone": "Mars/Base", "partition_by": ["day"]}, "--timezone Mars/Base: no such zone"),
        ({"timezone": "right/UTC", "partition_by": ["day"]}, "--timezone right/UTC: no such zone"),
        ({"timezone": "localtime", "partition_by": ["day"]}, "--timezone localtime: no such zone"),
        ({"partition_by": [""]}, "--partition-by: its text is empty"),
        ({"value_format": "json", "dead_letter": "csv:x"}, "--dead-letter csv:x: expected parquet:URL"),
        ({"value_format": "json", "dead_letter": "json:"}, "--dead-letter json:: expected parquet:URL"),
        ({"latest_per_key": True, "from_group": "g"}, "--latest-per-key is of the whole topic"),
        ({"to": "topic:u@h:1", "columns": "value"}, "a topic gets records as they are"),
        ({"columns": "offset,nothing"}, "no column 'nothing'"),
        ({"to": "json:~/x"}, "shells leave ~ as it is"),
        ({"to": "parquet:s3a:b/x"}, "a URL has a / after s3a:"),
        ({"to": "json:s3a://KEY:SEC/RET@b/x"}, "--to: plans, manifests and logs keep the URL"),
        ({"to": "json:x", "value_format": "json", "dead_letter": "json:ftp://u:@h/x"}, "--dead-letter: plans"),
    ],
)
def test_what_does_not_fit_together(data_dir: Path, fields: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(replace(NOTHING, **fields), Place(data_dir=data_dir).session(), 1 << 30)  # type: ignore[arg-type]
    assert said in str(caught.value)


@for_each(
    "fields, by_spark",
    [
        ({}, False),
        ({"to": "delta:x", "partition_by": ["day,key", "d=date(timestamp)"], "compression": "gzip"}, False),
        ({"to": "parquet:a:b"}, False),
        ({"to": "topic:t@host:9092"}, False),
        ({"to": "json:x"}, True),
        ({"to": "orc:x"}, True),
        ({"to": "parquet:s3a://bucket/x"}, True),
        ({"to": "delta:file:/x"}, True),
        ({"schema": "a INT", "value_format": "json"}, True),
        ({"transform": "a:b"}, True),
        ({"partition_by": ["country=upper(value.country)"]}, True),
    ],
)
def test_which_writer_does_it(fields: dict[str, object], by_spark: object) -> None:
    assert replace(NOTHING, **fields).by_spark is by_spark  # type: ignore[arg-type]


def test_a_request_is_the_one_of_an_earlier_plan() -> None:
    """Options that came since are not in it unless they are set."""
    kept = replace(NOTHING, partition_by=["hour"]).to_json()
    assert kept["partition_by"] == "hour"
    assert not {"compression", "file_size", "bad_timestamps", "single_writer"} & kept.keys()
    both = [replace(NOTHING, partition_by=by) for by in (["day", "d = date( timestamp )"], ["day,d=date(timestamp)"])]
    assert both[0].to_json() == both[1].to_json()
    assert replace(NOTHING, compression="gzip", file_size="1M").to_json().items() >= {
        "compression": "gzip", "file_size": "1M"
    }.items()  # fmt: skip


def test_tasks_read_as_much_as_a_file_may_have(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        spark_replay_plan, "plan_ranges", lambda _, options, *__: asked.append(options.range_bytes) or ()
    )
    for file_size in "", "1000", "1M":
        make_plan(replace(NOTHING, file_size=file_size), Place(data_dir=data_dir).session(), 2000)
    assert asked == [2000, 2000, 1 << 20]


def test_which_server_a_topic_is_on(data_dir: Path) -> None:
    request = replace(NOTHING, to="topic:u@127.0.0.1:9")
    assert find_target(request, Place(data_dir=data_dir).session()) == "127.0.0.1:9"
    request = replace(NOTHING, to="topic:u")
    for server in "127.0.0.1:8", "[::1]:8":
        assert find_target(request, Place(bootstrap_server=server, data_dir=data_dir).session()) == server
    with pytest.raises(UsageError, match="which server"):
        find_target(request, Place(data_dir=data_dir).session())


def test_the_protocol_of_that_server_is_told(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's tasks connect to its listener: without settings for it, an error says what they need."""
    holder = LockHolder(1, "SASL_SSL://localhost:9093")
    monkeypatch.setattr(spark_replay_plan, "find_lock_holder", lambda _: holder)
    target = find_target(replace(NOTHING, to="topic:u"), Place(data_dir=data_dir).session())
    assert target == holder.address
    with pytest.raises(UsageError, match=r"the settings have security\.protocol=PLAINTEXT"):
        connect(target, "")


@pytest.mark.longer
def test_a_topic_is_on_the_server_that_has_the_directory(data_dir: Path) -> None:
    with Server(data_dir) as server:
        assert find_target(replace(NOTHING, to="topic:u"), Place(data_dir=data_dir).session()) == server.address
