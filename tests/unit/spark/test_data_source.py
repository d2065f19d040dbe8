"""The data source's own part, without a JVM: what is planned, and what tasks read. tests/interop has Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, InputPartition, LessThan
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import IntegerType, StringType, StructType

from core.client.admin.admin import Admin
from core.client.net.kafka_client import KafkaClient
from core.client.write.producer import Producer, RecordsToSend
from core.common.endpoint import parse_bootstrap
from core.common.errors import PlogError, UsageError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import write_offset_checkpoint, write_partition_metadata
from core.files.file_names import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from core.records.byte_strings import ByteStrings
from core.spark.data_source import PlogDataSource
from core.spark.record_schema import ARROW_SCHEMA, COLUMNS
from core.spark.source_options import EARLIEST, LATEST, SourceOptions
from core.spark.source_reader import PlogReader, PlogStreamReader, RangePartition
from plog.testing import running_broker
from tests.support.compaction import write_thinned_log
from tests.support.for_each import for_each
from tests.support.golden import golden_cases
from tests.support.logs import NOW, append, append_marker, make_batch, open_log

pytestmark = pytest.mark.longer


def reader_of(names: tuple[str, ...] = ("topic", "partition", "offset", "value"), **options: str) -> PlogReader:
    return PlogReader(SourceOptions.parse({k.replace("__", "."): v for k, v in options.items()}), names)


def stream_of(**options: str) -> PlogStreamReader:
    return PlogStreamReader(SourceOptions.parse(options), ("topic", "partition", "offset", "value"))


def rows(reader: PlogReader | PlogStreamReader, partitions: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for partition in partitions:
        task = pickle.loads(pickle.dumps(reader))
        for batch in task.read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


def offsets(reader: PlogReader) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row in rows(reader, reader.partitions()):
        found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """t with two partitions of 300 and 200 records, one for each millisecond; u with one of 100."""
    for name, count in (("t-0", 300), ("t-1", 200), ("u-0", 100)):
        log = open_log(tmp_path / "data" / name, segment_bytes=4000, index_interval_bytes=200)
        for n in range(0, count, 2):
            append(log, make_batch(b"%d" % n, b"%d" % (n + 1), timestamp=NOW + n))
        log.close()
    return tmp_path / "data"


def grow(folder: Path, *values: bytes) -> None:
    log = open_log(folder)
    append(log, make_batch(*values, timestamp=NOW))
    log.close()


@contextmanager
def served(tmp_path: Path, *counts: int) -> Iterator[tuple[str, KafkaClient]]:
    """The address of a broker and a client of it; t has a partition for each count, with so many records."""
    with running_broker(tmp_path / "data") as broker:
        broker.create_topic("t", len(counts))
        with closing(KafkaClient(parse_bootstrap(broker.bootstrap_servers))) as client:
            producer = Producer(client, "t")
            for partition, count in enumerate(counts):
                numbers = np.arange(count)
                values = ByteStrings.of_list([b"%d" % n for n in numbers])
                producer.send(RecordsToSend(partition, NOW + numbers, None, values, None, numbers))
            producer.flush()
            yield broker.bootstrap_servers, client


# --- which, from where, until where


def test_every_record_of_the_topics_that_are_asked_for(data: Path) -> None:
    path = str(data)
    of_t = {"t-0": list(range(300)), "t-1": list(range(200))}
    of_u = {"u-0": list(range(100))}
    assert offsets(reader_of(path=path)) == of_t | of_u
    assert offsets(reader_of(path=path, subscribe="t")) == of_t
    assert offsets(reader_of(path=path, subscribe="u,t")) == of_t | of_u
    assert offsets(reader_of(path=path, subscribePattern="[a-t]")) == of_t
    assert offsets(reader_of(path=path, subscribePattern=" nothing ", startingOffsets="{}", endingOffsets="{}")) == {}
    assert offsets(reader_of(path=path, assign='{"t":[1],"u":[0]}')) == of_u | {"t-1": of_t["t-1"]}
    assert offsets(reader_of(path=str(data / "u-0"))) == of_u
    assert offsets(reader_of(path=f"{data / 'u-0'},{data / 't-1'}")) == of_u | {"t-1": of_t["t-1"]}


def test_a_stream_that_has_read_uncommitted_records_waits_for_their_end(tmp_path: Path) -> None:
    """Its isolation level was changed under its checkpoint: it is further than what is committed, of a log that is
    whole. A log that ends before is another.
    """
    path = tmp_path / "t-0"
    log = open_log(path)
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    append(log, make_batch(b"0"))
    append(log, make_batch(b"1", base_sequence=0, **fields))
    append(log, make_batch(b"2"))
    log.flush()
    before = stream_of(path=str(path), startingOffsets="earliest", isolationLevel="read_uncommitted")
    read = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    assert read["t"] == {"0": 3}
    for limit in (ReadAllAvailable(), ReadMaxRows(10)):
        stream = stream_of(path=str(path))
        assert stream.latestOffset(read, limit) == read
        assert rows(stream, stream.partitions(read, read)) == []
        stream.prepareForTriggerAvailableNow()
        assert stream.latestOffset(read, limit) == read
    append_marker(log, 1, is_commit=True)
    append(log, make_batch(b"4"))
    log.flush()
    stream = stream_of(path=str(path))
    end = stream.latestOffset(read, ReadAllAvailable())
    assert [row["value"] for row in rows(stream, stream.partitions(read, end))] == [b"4"]
    log.close()
    with pytest.raises(
        PlogError, match="t-0 ends at offset 5 and was read up to 9: this is another topic, or its log was cut"
    ):
        stream.latestOffset(read | {"t": {"0": 9}}, ReadAllAvailable())


def test_a_stream_has_no_end(data: Path) -> None:
    for name, value in (("endingOffsets", "latest"), ("endingTimestamp", "5"), ("endingOffsetsByTimestamp", "{}")):
        source = PlogDataSource({"path": str(data), "subscribe": "t", name: value})
        with pytest.raises(UsageError, match=f"{name}: a stream has no end"):
            source.streamReader(StructType())


def test_a_pattern_is_found_anywhere_in_a_name_and_in_no_internal_one(tmp_path: Path) -> None:
    """As the Kafka source does it: which topics are internal is known by their names, and not by how they begin."""
    for name in ("outer", "router", "__routes", "__consumer_offsets", "__cluster_metadata"):
        log = open_log(tmp_path / f"{name}-0")
        append(log, make_batch(b"v"))
        log.close()
    assert set(offsets(reader_of(path=str(tmp_path), subscribePattern="out"))) == {"outer-0", "router-0", "__routes-0"}
    assert set(offsets(reader_of(path=str(tmp_path), subscribePattern="^out"))) == {"outer-0"}
    assert set(offsets(reader_of(path=str(tmp_path)))) == {"outer-0", "router-0", "__routes-0"}
    assert set(offsets(reader_of(path=str(tmp_path), subscribe="__consumer_offsets"))) == {"__consumer_offsets-0"}


def test_offsets_to_begin_and_to_end_at(data: Path) -> None:
    ends = '{"t":{"0":12,"1":-1}}'
    found = offsets(
        reader_of(path=str(data), subscribe="t", startingOffsets='{"t":{"0":7,"1":-2}}', endingOffsets=ends)
    )
    assert found == {"t-0": list(range(7, 12)), "t-1": list(range(200))}


def test_times_to_begin_and_to_end_at(data: Path) -> None:
    found = offsets(
        reader_of(path=str(data), subscribe="t", startingTimestamp=str(NOW + 100), endingTimestamp=str(NOW + 150))
    )
    assert found == {"t-0": list(range(100, 150)), "t-1": list(range(100, 150))}
    late = {"path": str(data), "subscribe": "t", "startingTimestamp": str(NOW + 250)}
    with pytest.raises(UsageError, match="no record of t-1 is as new as"):
        reader_of(**late).partitions()
    found = offsets(reader_of(**late, startingOffsetsByTimestampStrategy="latest"))
    assert found == {"t-0": list(range(250, 300))}
    times = f'{{"t":{{"0":{NOW + 298},"1":{NOW}}}}}'
    found = offsets(reader_of(path=str(data), subscribe="t", startingOffsetsByTimestamp=times))
    assert found == {"t-0": [298, 299], "t-1": list(range(200))}


@for_each(
    "options, said",
    [
        ({"startingOffsets": "latest"}, "can't be latest"),
        ({"startingOffsets": '{"t":{"0":-1,"1":0}}'}, "can't be latest"),
        ({"startingOffsets": '{"t":{"0":5}}'}, "must name every partition that is read; it lacks t-1"),
        ({"startingOffsets": '{"t":{"0":5,"1":5,"2":5}}'}, "there is no t-2"),
        ({"endingOffsets": '{"t":{"0":301,"1":-1}}'}, "t-0 holds offsets 0 to 300"),
        ({"startingOffsets": '{"t":{"0":301,"1":0}}'}, "t-0 is to be read from offset 301 by startingOffsets"),
        (
            {"startingOffsets": '{"t":{"0":0,"1":201}}', "failOnDataLoss": "false"},
            "ends at offset 200 by endingOffsets",
        ),
        ({"startingOffsets": '{"t":{"0":9,"1":9}}', "endingOffsets": '{"t":{"0":8,"1":9}}'}, "t-0 is 9, greater than"),
        ({"subscribe": "nope"}, "no topic 'nope'"),
    ],
)
def test_what_can_not_be_read(data: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(PlogError) as caught:
        reader_of(**({"path": str(data), "subscribe": "t"} | options)).partitions()
    assert said in str(caught.value)


def test_what_is_there_of_what_is_asked_for(data: Path) -> None:
    ends = '{"t":{"0":999,"1":-1}}'
    found = offsets(reader_of(path=str(data), subscribe="t", endingOffsets=ends, failOnDataLoss="false"))
    assert found == {"t-0": list(range(300)), "t-1": list(range(200))}


def test_tasks(data: Path) -> None:
    def ranges(**options: str) -> list[tuple[int, int, int]]:
        partitions = reader_of(path=str(data), subscribe="t", **options).partitions()
        assert all(isinstance(p, RangePartition) for p in partitions)
        found = [p.range for p in partitions]  # type: ignore[attr-defined]
        assert sum(r.end_offset - r.start_offset for r in found) == 500
        return [(r.partition, r.start_offset, r.end_offset) for r in found]

    assert ranges() == [(0, 0, 300), (1, 0, 200)]
    assert len(ranges(minPartitions="10")) == 10
    assert all(end - start <= 60 for _, start, end in ranges(maxRecordsPerPartition="60"))
    assert len(ranges(rangeBytes="5000")) > 4
    size = sum(p.stat().st_size for p in data.glob("t-*/*.log"))
    partitions = reader_of(path=str(data), subscribe="t", rangeBytes="5000").partitions()
    assert sum(p.range.size_bytes for p in partitions) == size  # type: ignore[attr-defined]


# --- nothing


def test_nothing_to_read_is_nothing(data: Path) -> None:
    """PySpark makes one task of a plan without ranges, and gives it a partition that is no range."""
    open_log(data / "empty-0").close()
    (data / "emptied-0").symlink_to(data / "u-0")
    write_offset_checkpoint(data / LOG_START_OFFSET_CHECKPOINT, {TopicPartition("emptied", 0): 100}, FileSystem())
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    nothing: list[dict[str, str]] = [
        {"subscribe": "empty"},
        {"subscribe": "emptied"},
        {"subscribe": "emptied", "latestPerKey": "true"},
        {"subscribe": "u", "startingOffsets": '{"u":{"0":100}}'},
        {"subscribe": "u", "endingOffsets": '{"u":{"0":0}}'},
        {"subscribe": "u", "startingTimestamp": str(NOW + 10**9), **latest},
        {"subscribe": "u", "endingTimestamp": "1000"},
        {"subscribe": "u,empty", "endingTimestamp": "1000"},
    ]
    for options in nothing:
        reader = reader_of(path=str(data), **options)
        assert reader.partitions() == [], options
        assert rows(reader, [InputPartition(None)]) == [], options


# --- conditions


def test_no_condition_is_kept_in_the_reader(data: Path) -> None:
    """Spark hands one reader to all scans of a DataFrame: `pushFilters` is the base class's, which takes nothing."""
    assert PlogReader.pushFilters is DataSourceReader.pushFilters
    reader = reader_of(path=str(data), subscribe="t")
    conditions: list[Filter] = [EqualTo(("partition",), 1), LessThan(("offset",), 14)]
    assert list(reader.pushFilters(conditions)) == conditions
    assert offsets(reader) == {"t-0": list(range(300)), "t-1": list(range(200))}


def test_the_last_record_of_each_key(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=500)
    for n in range(100):
        append(log, make_batch(b"%d" % n, key=b"k%d" % (n % 10)))
    append(log, make_batch(None, key=b"k7"))  # type: ignore[arg-type]
    log.close()
    reader = reader_of(path=str(tmp_path), latestPerKey="true", rangeBytes="100")
    assert len(reader.partitions()) == 1
    assert offsets(reader) == {"t-0": [90, 91, 92, 93, 94, 95, 96, 98, 99]}
    with pytest.raises(UsageError, match="no minPartitions"):
        reader_of(path=str(tmp_path), latestPerKey="true", minPartitions="4")


# --- what is read


@for_each("case", golden_cases(), ids=lambda case: case.name)
def test_committed_records_of_what_kafka_wrote(tmp_path: Path, case: Any) -> None:
    (tmp_path / "x-0").symlink_to(case.directory)
    begin = {TopicPartition("x", 0): case.truth["begin_offset"]}
    write_offset_checkpoint(tmp_path / LOG_START_OFFSET_CHECKPOINT, begin, FileSystem())
    reader = reader_of(COLUMNS, path=str(tmp_path))
    found = rows(reader, reader.partitions())
    wanted = case.committed_records()
    assert [(r["offset"], r["key"]) for r in found] == [(r.offset, r.key) for r in wanted]
    for row, record in zip(found, wanted, strict=True):
        assert record.has_value(row["value"])
        assert row["timestamp"] == datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=record.timestamp)
        types = {0: "CreateTime", 1: "LogAppendTime", -1: "NoTimestampType"}
        assert types[row["timestampType"]] == record.timestamp_type
        headers = [(h["key"].encode(), h["value"]) for h in row["headers"] or ()]
        assert headers == [(k, v) for k, v in record.headers]


def test_types_are_what_spark_expects() -> None:
    schema = from_arrow_schema(ARROW_SCHEMA)
    types = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
    }
    options = {"path": "/x", "subscribe": "t", "includeHeaders": "true"}
    source = PlogDataSource(options)
    assert {field.name: field.dataType.simpleString() for field in source.schema()} == types
    chosen = StructType([schema["offset"], schema["value"]])
    reader = source.reader(chosen)
    assert isinstance(reader, PlogReader)
    assert reader._columns == ("offset", "value")
    with pytest.raises(UsageError, match="no column 'size'"):
        source.reader(StructType([schema["offset"], schema["value"]]).add("size", IntegerType()))
    with pytest.raises(UsageError, match="column key is binary, not string"):
        source.reader(StructType().add("key", StringType()))


@for_each("sign", [1, -1])
def test_times_that_sparks_type_does_not_hold(tmp_path: Path, sign: int) -> None:
    """Microseconds of 64 bits: 2**63 // 1000 is 9223372036854775."""
    log = open_log(tmp_path / "t-0", message_timestamp_after_max_ms=2**63 - 1)
    for time in (9223372036854775, 9223372036854776):
        append(log, make_batch(b"x", timestamp=sign * time))
    log.close()
    reader = reader_of(("offset", "timestamp"), path=str(tmp_path))
    with pytest.raises(PlogError, match=f"t-0: the timestamp of offset 1 is {sign * 9223372036854776} ms"):
        list(reader.read(reader.partitions()[0]))
    without = reader_of(("offset",), path=str(tmp_path))
    assert [r["offset"] for r in rows(without, without.partitions())] == [0, 1]
    tolerant = reader_of(("offset", "timestamp"), path=str(tmp_path), badTimestamps="null")
    (batch,) = tolerant.read(tolerant.partitions()[0])
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [sign * 9223372036854775000, None]


def test_a_range_whose_beginning_went_away_fails_its_task(data: Path) -> None:
    reader = reader_of(path=str(data), subscribe="t")
    partitions = reader.partitions()
    first, second, *_ = sorted((data / "t-0").glob("*.log"))
    for path in (data / "t-0").glob(f"{first.stem}.*"):  # as retention leaves the folder
        path.unlink()
    (data / "t-0" / LEADER_EPOCH_CHECKPOINT).write_text(f"0\n1\n0 {int(second.stem)}\n")
    with pytest.raises(PlogError, match="are gone, deleted since the reading was planned"):
        rows(reader, partitions)
    allowing = reader_of(path=str(data), subscribe="t", failOnDataLoss="false")
    assert rows(allowing, allowing.partitions())


def test_records_that_were_deleted_from_within_a_batch_are_not_read(tmp_path: Path) -> None:
    """DeleteRecords moved the log's start into one after the range was planned; from files, and from a server."""
    options = {"subscribe": "t", "failOnDataLoss": "false"}
    with served(tmp_path, 10) as (servers, client):
        from_server = reader_of(kafka__bootstrap__servers=servers, **options)
        planned = from_server.partitions()
        Admin(client).delete_records({TopicPartition("t", 0): 7})
        assert [r["offset"] for r in rows(from_server, planned)] == [7, 8, 9]
    write_offset_checkpoint(tmp_path / "data" / LOG_START_OFFSET_CHECKPOINT, {TopicPartition("t", 0): 0}, FileSystem())
    from_files = reader_of(path=str(tmp_path / "data"), **options)
    planned = from_files.partitions()
    write_offset_checkpoint(tmp_path / "data" / LOG_START_OFFSET_CHECKPOINT, {TopicPartition("t", 0): 7}, FileSystem())
    assert [r["offset"] for r in rows(from_files, planned)] == [7, 8, 9]


def test_a_range_whose_beginning_was_lost_fails_its_task(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody deleted it: an index of the segment is there. Where only an epoch tells, the driver warns."""
    first, *_ = sorted((data / "t-0").glob("*.log"))
    first.unlink()
    reader = reader_of(path=str(data), subscribe="t")
    with pytest.raises(PlogError, match="segment 0 is missing"):
        rows(reader, reader.partitions())
    for path in (data / "t-0").glob(f"{first.stem}.*"):
        path.unlink()
    reader = reader_of(path=str(data), subscribe="t")
    caplog.clear()
    assert rows(reader, reader.partitions())
    assert "offsets 0 to 97 are not in the log" in caplog.text


def test_from_servers(tmp_path: Path) -> None:
    with served(tmp_path, 500, 50) as (servers, _):
        reader = reader_of(kafka__bootstrap__servers=servers, subscribe="t", minPartitions="6")
        partitions = reader.partitions()
        assert len(partitions) >= 6
        found = rows(reader, partitions)
    assert [(r["offset"], r["value"]) for r in found] == [(n, b"%d" % n) for n in (*range(500), *range(50))]


def test_servers_that_trim_what_was_planned(tmp_path: Path) -> None:
    """With failOnDataLoss=false there is what there is, as of files."""
    with served(tmp_path, 100) as (servers, client):
        options = {"kafka__bootstrap__servers": servers, "subscribe": "t", "minPartitions": "4"}
        strict, lenient = reader_of(**options), reader_of(**options, failOnDataLoss="false")
        planned = strict.partitions(), lenient.partitions()
        Admin(client).delete_records({TopicPartition("t", 0): 33})
        assert [row["offset"] for row in rows(lenient, planned[1])] == list(range(33, 100))
        with pytest.raises(PlogError, match="outside the range that the partition holds"):
            rows(strict, planned[0])


def test_times_before_1970_are_not_words_to_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To ListOffsets -1 is the end, -2 the beginning, -3 the largest timestamp, and others are refused."""
    asked: set[int] = set()
    list_offsets = Admin.list_offsets

    def note(self: Admin, wanted: Any, **options: Any) -> Any:
        asked.update(wanted.values())
        return list_offsets(self, wanted, **options)

    monkeypatch.setattr(Admin, "list_offsets", note)
    with served(tmp_path, 10) as (address, _):
        servers = {"kafka__bootstrap__servers": address, "subscribe": "t"}
        for timestamp in (-1, -2, -3, -4, -5, -6, -1000):
            each = json.dumps({"t": {"0": timestamp}})
            for options in ({"startingTimestamp": str(timestamp)}, {"startingOffsetsByTimestamp": each}):
                assert offsets(reader_of(**servers, **options)) == {"t-0": list(range(10))}
            for options in ({"endingTimestamp": str(timestamp)}, {"endingOffsetsByTimestamp": each}):
                assert offsets(reader_of(**servers, **options)) == {}
            by_server = {"kafka.bootstrap.servers": address, "subscribe": "t", "startingTimestamp": str(timestamp)}
            stream = stream_of(**by_server)
            assert stream.initialOffset()["t"] == {"0": 0}
    assert asked == {EARLIEST, LATEST}


# --- streams


def test_a_stream_goes_on_from_offsets(data: Path) -> None:
    stream = stream_of(path=str(data), subscribe="t", startingOffsets="earliest")
    start = stream.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}}
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end == {"t": {"0": 300, "1": 200}}
    assert len(rows(stream, stream.partitions(start, end))) == 500
    assert stream.partitions(end, end) == []
    grow(data / "t-1", b"new")
    again = stream.latestOffset(end, ReadAllAvailable())
    assert again == {"t": {"0": 300, "1": 201}}
    assert [(r["partition"], r["offset"], r["value"]) for r in rows(stream, stream.partitions(end, again))] == [
        (1, 200, b"new")
    ]
    assert stream_of(path=str(data), subscribe="t").initialOffset() == {"t": {"0": 300, "1": 201}}
    assert stream.reportLatestOffset() == again


def test_admission_control(data: Path) -> None:
    stream = stream_of(path=str(data), subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    limit = stream.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    at = stream.initialOffset()
    sizes = []
    while (following := stream.latestOffset(at, limit)) != at:
        sizes.append(len(rows(stream, stream.partitions(at, following))))
        at = following
    assert sum(sizes) == 500
    assert max(sizes) <= 100
    assert sizes[0] == 100


def test_a_stream_waits_for_enough(data: Path) -> None:
    stream = stream_of(
        path=str(data), subscribe="t", startingOffsets="earliest", minOffsetsPerTrigger="501", maxTriggerDelay="1h"
    )
    start = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    assert isinstance(limit, ReadMinRows)
    assert stream.latestOffset(start, limit) == start
    stream._last_trigger_s -= 3601
    assert stream.latestOffset(start, limit) == {"t": {"0": 300, "1": 200}}


def test_available_now_does_not_follow_what_comes_later(data: Path) -> None:
    stream = stream_of(path=str(data), subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="300")
    stream.prepareForTriggerAvailableNow()
    grow(data / "t-0", *[b"new"] * 50)
    at = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    for _ in range(5):
        at = stream.latestOffset(at, limit)
    assert at == {"t": {"0": 300, "1": 200}}


def test_a_stream_whose_topic_is_another_now_fails(data: Path) -> None:
    stream = stream_of(path=str(data), subscribe="t")
    with pytest.raises(PlogError, match="t-0 ends at offset 300 and was read up to 400"):
        stream.partitions({"t": {"0": 400, "1": 0}}, {"t": {"0": 300, "1": 200}})
    with pytest.raises(PlogError, match="t-2 is not there any more"):
        stream.partitions({"t": {"0": 0, "1": 0, "2": 9}}, {"t": {"0": 300, "1": 200}})
    # a partition that came since is read from its beginning
    found = rows(stream, stream.partitions({"t": {"0": 299}}, {"t": {"0": 300, "1": 3}}))
    assert [(r["partition"], r["offset"]) for r in found] == [(0, 299), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_topic_that_was_made_again_fails_its_stream(data: Path, *, is_available_now: bool) -> None:
    """With more records, with fewer and with as many: the id tells."""
    first, second = bytes(range(16)), bytes(range(16, 32))
    write_partition_metadata(data / "t-0", first, FileSystem())
    before = stream_of(path=str(data), subscribe="t", startingOffsets="earliest")
    start = before.initialOffset()
    assert start == {"t": {"0": 0, "1": 0}, "#topicIds": {"t": "AAECAwQFBgcICQoLDA0ODw"}}
    end = before.latestOffset(start, ReadAllAvailable())
    (data / "t-0" / "partition.metadata").unlink()
    write_partition_metadata(data / "t-0", second, FileSystem())
    stream = stream_of(path=str(data), subscribe="t")
    if is_available_now:
        stream.prepareForTriggerAvailableNow()
    for at in ({"t": {"0": n, "1": 0}, "#topicIds": start["#topicIds"]} for n in (400, 300, 5)):
        with pytest.raises(PlogError, match="t was deleted and made again since the stream read it"):
            stream.latestOffset(at, ReadAllAvailable())
    # a batch that was planned before, and is done again
    with pytest.raises(PlogError, match="t was deleted and made again"):
        stream.partitions(start, end)
    tolerant = stream_of(path=str(data), subscribe="t", failOnDataLoss="false")
    again = tolerant.latestOffset(end, ReadAllAvailable())
    assert again == {"t": {"0": 300, "1": 200}, "#topicIds": {"t": "EBESExQVFhcYGRobHB0eHw"}}
    assert len(rows(tolerant, tolerant.partitions(end, again))) == 500


def test_available_now_that_begins_after_what_was_there(data: Path) -> None:
    """The log grew between the preparation and the first look at the latest offset: that is no loss."""
    stream = stream_of(path=str(data), subscribe="t", startingOffsets="latest")
    stream.prepareForTriggerAvailableNow()
    grow(data / "t-0", b"new")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadAllAvailable()) == start == {"t": {"0": 301, "1": 200}}


def test_available_now_over_a_shorter_log_fails(data: Path) -> None:
    stream = stream_of(path=str(data), subscribe="t")
    stream.prepareForTriggerAvailableNow()
    with pytest.raises(PlogError, match="t-0 ends at offset 300 and was read up to 400"):
        stream.latestOffset({"t": {"0": 400, "1": 0}}, ReadAllAvailable())
    tolerant = stream_of(path=str(data), subscribe="t", failOnDataLoss="false")
    tolerant.prepareForTriggerAvailableNow()
    assert tolerant.latestOffset({"t": {"0": 400, "1": 0}}, ReadAllAvailable()) == {"t": {"0": 300, "1": 200}}


def test_a_stream_sees_what_is_committed_only(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fields = {"producer_id": 1, "producer_epoch": 0, "is_transactional": True}
    append(log, make_batch(b"a", base_sequence=0, **fields))
    log.flush()
    stream = stream_of(path=str(tmp_path), subscribe="t", startingOffsets="earliest")
    assert stream.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 0}}
    append_marker(log, 1, is_commit=True)
    log.flush()
    assert stream.latestOffset({"t": {"0": 0}}, ReadAllAvailable()) == {"t": {"0": 2}}
    log.close()


# --- holes that nothing explains


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_the_driver_says_which_offsets_are_missing_for_no_known_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, has_checkpoint: bool
) -> None:
    left = write_thinned_log(tmp_path / "data" / "t-0")
    if has_checkpoint:
        (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 58\n")
    reader = reader_of(path=str(tmp_path / "data"), subscribe="t")
    assert offsets(reader) == {"t-0": left}
    told = sorted({record.getMessage() for record in caplog.records if "not in the log" in record.getMessage()})
    assert len(told) == int(not has_checkpoint)
    if told:
        count = 60 - len(left)
        assert told[0].startswith(f"t-0: {count} offsets in {count} holes from 1 to ")
        assert told[0].endswith("cleaner-offset-checkpoint is not beside the folder, and would tell")


def test_a_stream_says_it_of_the_batch_that_meets_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_thinned_log(tmp_path / "data" / "t-0")
    stream = stream_of(path=str(tmp_path / "data"), subscribe="t", startingOffsets="earliest")
    for start, end, is_told in ((0, 30, True), (59, 60, False)):
        caplog.clear()
        stream.partitions({"t": {"0": start}}, {"t": {"0": end}})
        assert ("are not in the log" in caplog.text) == is_told
