"""Options by the names, and in the JSON, of Spark's Kafka source."""

from __future__ import annotations

import pytest

from core.common.errors import UsageError
from core.common.topic_partition import TopicPartition
from core.spark.record_schema import COLUMNS
from core.spark.source_options import EARLIEST, LATEST, Bound, SourceOptions
from tests.support.for_each import for_each

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse(
        {"path": "/data", "subscribe": "t"} | {k.replace("__", "."): v for k, v in options.items()}
    )


def test_what_is_said_of_nothing() -> None:
    options = parse()
    assert options.paths == ("/data",)
    assert options.starting is None
    assert options.ending is None
    assert options.read_committed
    assert options.fails_on_data_loss
    assert options.columns == tuple(name for name in COLUMNS if name != "headers")
    assert options.range_bytes == 64 * 1024 * 1024


@for_each(
    "given, expected",
    [
        ({"startingOffsets": "earliest"}, Bound("startingOffsets", EARLIEST)),
        ({"startingOffsets": "Latest"}, Bound("startingOffsets", LATEST)),
        ({"startingoffsets": '{"t": {"0": 23, "1": -2}}'}, Bound("startingOffsets", {T0: 23, T1: -2})),
        ({"startingTimestamp": "1357000000000"}, Bound("startingTimestamp", 1357000000000, is_time=True)),
        (
            {"startingOffsetsByTimestamp": '{"t": {"0": 5}}'},
            Bound("startingOffsetsByTimestamp", {T0: 5}, is_time=True),
        ),
        (
            {"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"},
            Bound("startingTimestamp", 7, is_time=True),
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "startingOffsets": "earliest"},
            Bound("startingOffsetsByTimestamp", {T0: 5}, is_time=True),
        ),
    ],
)
def test_where_to_begin(given: dict[str, str], expected: Bound) -> None:
    assert parse(**given).starting == expected


def test_the_others() -> None:
    options = SourceOptions.parse(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "assign": '{"t": [0, 1]}',
            "includeHeaders": "true",
            "minPartitions": "7",
            "maxRecordsPerPartition": "1000",
            "failOnDataLoss": "false",
            "isolationLevel": "read_uncommitted",
            "maxOffsetsPerTrigger": "10",
            "minOffsetsPerTrigger": "5",
            "maxTriggerDelay": "30s",
            "kafka.fetch.max.bytes": "1",
            "kafkaConsumer.pollTimeoutMs": "1",
            "fetchOffset.numRetries": "1",
            "groupIdPrefix": "x",
        }
    )
    assert options.assigned == (T0, T1)
    assert options.columns == COLUMNS
    assert (options.min_partitions, options.max_records_per_partition) == (7, 1000)
    assert not options.fails_on_data_loss
    assert not options.read_committed
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (10, 5)
    assert options.max_trigger_delay_ms == 30_000
    assert parse(columns="offset, value").columns == ("offset", "value")
    assert SourceOptions.parse({"paths": '["/a", "/b,c"]'}).paths == ("/a", "/b,c")


@for_each(
    "given, said",
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'"),
        ({"startingOffsets": "sometime"}, "option startingOffsets: 'sometime' is not understood"),
        ({"startingTimestamp": "yesterday"}, "'yesterday' is not understood: expected milliseconds since 1970"),
        ({"endingOffsets": "earliest"}, "endingOffsets can't be earliest"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets can't be earliest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "option startingOffsets: t-0 at -3, expected an offset, -2 or -1"),
        ({"minPartitions": "0"}, "option minPartitions: 0, expected 1 or more"),
        ({"latestPerKey": "true", "minPartitions": "2"}, "latestPerKey reads each partition by one task"),
        ({"latestPerKey": "true", "maxRecordsPerPartition": "9"}, "latestPerKey reads each partition by one task"),
        ({"minPartitions": "many"}, "option minPartitions: 'many' is not understood: expected a whole number"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss: 'maybe', expected true or false"),
        ({"subscribePattern": "["}, "option subscribePattern"),
        ({"assign": "[1]"}, "option assign"),
        ({"assign": '{"t": [0]}'}, "which topics"),
        ({"kafka__bootstrap__servers": "a:1"}, "read from where"),
        ({"kafka.security.protocol": "none"}, "security.protocol=none, expected one of"),
        ({"commandConfig": "/no/such"}, "could not read /no/such"),
        ({"columns": "offset,nonsense"}, "no column 'nonsense'"),
        ({"maxTriggerDelay": "a while"}, "option maxTriggerDelay"),
        ({"subscribe": ""}, "option subscribe: ''"),
        ({"subscribe": " , "}, "option subscribe"),
        ({"subscribePattern": ""}, "option subscribePattern"),
        ({"assign": "{}"}, "option assign"),
        ({"kafka__auto__offset__reset": "earliest"}, "option kafka.auto.offset.reset"),
        ({"kafka__enable__auto__commit": "true"}, "option kafka.enable.auto.commit"),
        ({"kafka__key__deserializer": "x"}, "option kafka.key.deserializer"),
        ({"kafka__value__deserializer": "x"}, "option kafka.value.deserializer"),
        ({"kafka__interceptor__classes": "x"}, "option kafka.interceptor.classes"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger is 9"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'},
            "startingOffsetsByTimestamp of t-0 is 5, greater than endingOffsetsByTimestamp, 4",
        ),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":6}}'},
            "startingOffsets and endingOffsets are not of the same partitions: t-0",
        ),
    ],
)
def test_what_is_not_understood_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(**given)
    assert said in str(caught.value)


OFFSETS = 'expected a number for each partition, as {"topic": {"0": 23, "1": 42}}'
PARTITIONS = 'expected partitions, as {"topic": [0, 1]}'


@for_each(
    "value",
    ['{"t": "earliest"}', '{"t": "latest"}', '{"t": {"0": "earliest"}}', '{"t": 5}', '{"t": [0]}', '{"t": null}',
     '{"t": {"0": null}}', '{"t": {"0": 1.5}}', '{"t": {"0": true}}', '{"t": {"zero": 1}}', '{"t": {"0": "1_0"}}',
     "5", "[]", "null", '"t"', "t:0:5", '{"t": {"0": 5}'],
)  # fmt: skip
@for_each("name", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_what_is_no_offset_of_each_partition_is_refused_in_words(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(**{name: value})
    assert str(caught.value) == f"option {name}: {value!r} is not understood: {OFFSETS}"


@for_each(
    "value",
    ['{"t": 0}', '{"t": "01"}', '{"t": [0.5]}', '{"t": [true]}', '{"t": {"0": 1}}', '{"t": []}', "{}", "[1]", "t"],
)
def test_what_names_no_partitions_is_refused_in_words(value: str) -> None:
    with pytest.raises(UsageError) as caught:
        SourceOptions.parse({"path": "/data", "assign": value})
    assert str(caught.value) == f"option assign: {value!r} is not understood: {PARTITIONS}"


def test_a_partition_that_is_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="a topic or partition is named twice"):
        parse(startingOffsets='{"t": {"0": 5, "0": 6}}')
    assert parse(startingOffsets='{"t": {"0": "5"}}').starting == Bound("startingOffsets", {T0: 5})


@for_each("value, is_good", [("-1", True), ("1", True), ("30000", True), ("0", False), ("-2", False), ("1s", False)])
def test_how_long_the_kafka_source_believes_its_metadata(value: str, is_good: bool) -> None:
    """It has no meaning here, and the same values are refused."""
    name = "partition.metadata.cache.ttl.ms"
    if is_good:
        assert parse(**{name: value}) == parse()
        return
    with pytest.raises(UsageError, match=f"option {name}: "):
        parse(**{name: value})


def test_a_slip_of_the_pen_gets_a_hint() -> None:
    with pytest.raises(UsageError) as caught:
        parse(startingOffset="earliest")
    assert caught.value.hint == "did you mean startingOffsets?"
