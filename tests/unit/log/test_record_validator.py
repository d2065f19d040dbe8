"""Records inside a batch: what a topic that has them opened takes, refuses and compresses again, in short steps."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.common.decompression_limit import expansion_limited_to
from core.common.error_code import ErrorCode
from core.common.errors import InvalidRecordsError, KafkaError
from core.common.varint import varint
from core.files.log_config import LogConfig
from core.log import log_validator
from core.log.log_validator import validate_batch, validate_in_steps
from core.records import compression, record_walk
from core.records.compression import CompressionType, compress
from core.records.record import Record, encode_record, encode_records
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import batch_of, build_batch
from tests.support.for_each import for_each
from tests.support.logs import NOW

NONE, GZIP, _, LZ4, ZSTD = CompressionType
DAY = 24 * 3600 * 1000


def writable(data: bytes) -> RecordBatch:
    return RecordBatch(memoryview(bytearray(data)))


def of_section(section: bytes, count: int, codec: CompressionType = NONE) -> RecordBatch:
    return writable(
        build_batch(section, count=count, base_timestamp=NOW, max_timestamp=NOW, compression=codec, base_offset=0)
    )


def of_records(items: list[Record], codec: CompressionType = NONE) -> RecordBatch:
    return writable(batch_of(items, compression=codec))


def verdict(batch: RecordBatch, **config: object) -> ErrorCode | RecordBatch:
    try:
        return validate_batch(batch, LogConfig(**config), NOW)  # type: ignore[arg-type]
    except KafkaError as error:
        return error.code


def is_as_it_was(found: ErrorCode | RecordBatch, batch: RecordBatch) -> bool:
    return isinstance(found, RecordBatch) and found.buffer is batch.buffer


def steps_of(batch: RecordBatch, **config: object) -> tuple[int, ErrorCode | RecordBatch]:
    """How many they were, and what they came to."""
    steps, count = validate_in_steps(batch, LogConfig(**config), NOW), 0  # type: ignore[arg-type]
    try:
        while True:
            next(steps)
            count += 1
    except StopIteration as end:
        return count, end.value
    except KafkaError as error:
        return count, error.code


@pytest.fixture(params=[False, True], ids=["at once", "in steps"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read one by one, and as columns, a few bytes and records a step."""
    if request.param:
        monkeypatch.setattr(record_walk, "SMALL_SECTION_BYTES", -1)
        monkeypatch.setattr(log_validator, "_COMPRESSED_AT_ONCE", 5)
        monkeypatch.setattr(compression, "PIECE_BYTES", 11)
        monkeypatch.setattr(record_walk, "MOST_RECORDS", 2)


@pytest.mark.usefixtures("both_ways")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.sampled_from([-1, NOW, NOW - 5, NOW - DAY, NOW - 2 * DAY]), min_size=1, max_size=8),
    keys=st.lists(st.sampled_from([b"k", b"", b"key" * 20, b"another", None]), min_size=8, max_size=8),
    codec=st.sampled_from(CompressionType),
    target=st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
    policy=st.sampled_from(["compact", "delete"]),
    before_ms=st.sampled_from([DAY, 2**63 - 1]),
    is_append_time=st.booleans(),
)
def test_what_is_taken_and_what_is_stored(
    times: list[int],
    keys: list[bytes | None],
    codec: CompressionType,
    target: str,
    policy: str,
    before_ms: int,
    is_append_time: bool,
) -> None:
    items = [Record(n, time, keys[n], b"value" * n, ((b"h", None),) * (n % 2)) for n, time in enumerate(times)]
    batch = of_records(items, codec)
    found = verdict(
        batch,
        compression_type=target,
        cleanup_policy=frozenset({policy}),
        message_timestamp_before_max_ms=before_ms,
        message_timestamp_type="LogAppendTime" if is_append_time else "CreateTime",
    )
    wrong = set()
    if policy == "compact" and None in keys[: len(times)]:
        wrong.add(ErrorCode.INVALID_RECORD)
    if before_ms == DAY and NOW - 2 * DAY in times and not is_append_time:
        wrong.add(ErrorCode.INVALID_TIMESTAMP)
    if isinstance(found, ErrorCode):
        assert found in wrong
    else:
        assert not wrong
        found.ensure_valid()
        assert found.records() == items
        stored = {"producer": codec.text, "uncompressed": "none"}.get(target, target)
        assert found.compression.text == stored
        same = ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id", "count", "magic")
        assert [getattr(found, name) for name in same] == [getattr(batch, name) for name in same]
        assert found.size_bytes == len(found.buffer)


# --- which records are to blame


def blamed(records: list[Record], codec: CompressionType = NONE, **config: object) -> tuple[ErrorCode, list[int]]:
    """The error, and the numbers of the records that have it."""
    with pytest.raises(InvalidRecordsError) as caught:
        validate_batch(of_records(records, codec), LogConfig(**config), NOW)  # type: ignore[arg-type]
    return caught.value.code, [number for number, _ in caught.value.records]


COMPACTED = {"cleanup_policy": frozenset({"compact"})}


@pytest.mark.parametrize("codec", [NONE, ZSTD])
@pytest.mark.parametrize("count", [10, 20_000], ids=["small", "in steps"])
def test_the_records_that_are_wrong_are_named(codec: CompressionType, count: int) -> None:
    """By their numbers in the batch; of very many the first thousand."""
    wrong = {1, 3, count - 2} if count == 10 else set(range(0, count, 7))
    records = [Record(n, NOW, None if n in wrong else b"k", b"v") for n in range(count)]
    assert blamed(records, codec, **COMPACTED) == (ErrorCode.INVALID_RECORD, sorted(wrong)[:1000])


def test_a_timestamp_out_of_range_goes_before_a_missing_key() -> None:
    records = [Record(0, NOW, None, b"v"), Record(1, NOW - 2 * DAY, b"k", b"v"), Record(2, NOW, b"k", b"v")]
    found = blamed(records, message_timestamp_before_max_ms=DAY, **COMPACTED)
    assert found == (ErrorCode.INVALID_TIMESTAMP, [0, 1])
    records = [Record(n, NOW + (2 * DAY if n == 1 else 0), b"k", b"v") for n in range(3)]
    assert blamed(records) == (ErrorCode.INVALID_TIMESTAMP, [1]), "ahead of the clock"


# --- what nobody can read


def body(record: bytes) -> bytes:
    return varint(len(record)) + record


SOUND = encode_records([Record(n, NOW, b"k", b"v") for n in range(3)], 0, NOW)
NULL_HEADER = body(b"\0\0\0" + varint(1) + b"k" + varint(1) + b"v" + varint(1) + varint(-1) + varint(1) + b"x")
UNREADABLE: dict[str, tuple[bytes, int]] = {
    "no varint": (b"\xff" * 40, 3),
    "letters": (b"A" * 60, 3),
    "a long varint": (b"\x0c\x00\x00\x00\x01\x01\xff\xff\xff\xff\x0f" * 2, 3),
    "cut": (SOUND[:-1], 3),
    "more bytes": (SOUND + b"\0\0", 3),
    "more records": (SOUND + encode_record(3, 0, b"k", b"v"), 3),
    "fewer records": (SOUND + bytes(10), 4),
    "a header without a key": (NULL_HEADER, 1),
    "a value over the end": (body(b"\0\0\0" + varint(1) + b"k" + varint(50) + b"v\0"), 1),
    "a negative number of headers": (body(b"\0\0\0" + varint(1) + b"k" + varint(1) + b"v" + varint(-1)), 1),
}


@pytest.mark.usefixtures("both_ways")
@for_each("codec", [NONE, GZIP])
@for_each("what", UNREADABLE)
def test_what_does_not_decode_is_an_invalid_record(what: str, codec: CompressionType) -> None:
    """As Kafka 4.3.1 answers, or with an unexpected error (probed); if nobody asks, what costs little is seen."""
    section, count = UNREADABLE[what]
    batch = of_section(section, count, codec)
    if count <= 2 or (codec is NONE and what in ("no varint", "letters")):
        assert verdict(batch) is ErrorCode.INVALID_RECORD
    else:
        assert is_as_it_was(verdict(batch), batch)
    for config in ({"plog_validate_records": True}, {"cleanup_policy": frozenset({"compact"})}):
        assert verdict(batch, **config) is ErrorCode.INVALID_RECORD
    if codec is not GZIP:
        assert verdict(batch, compression_type="gzip") is ErrorCode.INVALID_RECORD


@pytest.mark.usefixtures("both_ways")
@for_each("codec", [codec for codec in CompressionType if codec is not NONE])
def test_what_does_not_decompress_is_an_invalid_record(codec: CompressionType) -> None:
    data = bytearray(of_section(SOUND, 3, codec).buffer)
    data[61:] = b"no compressed data, whatever it says"
    batch = RecordBatch(memoryview(data))
    batch.length = len(data) - 12
    batch.size_bytes = len(data)
    crc = batch.computed_crc()
    batch.crc = crc
    assert verdict(batch, plog_validate_records=True) is ErrorCode.INVALID_RECORD


@pytest.mark.usefixtures("both_ways")
@for_each("codec", [NONE, GZIP])
@for_each("deltas", [(0, 0, 0), (0, 2, 1), (1, 2, 3), (0, 1, 3), (0, -1, 2)])
def test_offsets_that_do_not_rise_by_one(deltas: tuple[int, ...], codec: CompressionType) -> None:
    section = b"".join(encode_record(delta, 0, b"k", b"v") for delta in deltas)
    batch = of_section(section, 3, codec)
    assert verdict(batch, plog_validate_records=True) is ErrorCode.INVALID_RECORD
    assert is_as_it_was(verdict(batch, cleanup_policy=frozenset({"compact"})), batch)


@pytest.mark.usefixtures("both_ways")
@for_each("codec", CompressionType)
def test_a_sound_batch_stays_as_it_is(codec: CompressionType) -> None:
    batch = of_records([Record(n, NOW, None, None, ((b"", None),)) for n in range(7)], codec)
    assert is_as_it_was(verdict(batch, plog_validate_records=True), batch)


ONE = encode_record(0, 0, b"k", b"v" * 50)
POISON_OF_ONE: dict[str, bytes] = {
    "garbage": b"\xff" * 30,
    "zeros": bytes(30),
    "a negative length": varint(-5) + ONE[1:],
    "a length beyond the batch": varint(500) + ONE[1:],
    "a length that is too small": varint(20) + ONE[1:],
    "a length of six bytes": b"\x8c\x80\x80\x80\x80\0" + ONE[1:],
    "a second record": ONE + encode_record(1, 0, b"k", b"v"),
    "bytes after it": ONE + b"JUNKJUNK",
    "half a record": ONE[:-10],
    "a key over the end": body(b"\0\0\0" + varint(400) + b"k" + varint(1) + b"v\0"),
    "a key that leaves no value": body(b"\0\0\0" + varint(50) + b"k" * 50),
    "a timestamp of eleven bytes": body(b"\0" + b"\xff" * 11 + b"\0\1\1\0"),
    "headers fewer than their count": body(b"\0\0\0\1\1" + varint(3) + varint(1) + b"h" + varint(-1)),
    "a header without a key": NULL_HEADER,
    "no record": b"",
}
"""Sections that Kafka 4.4.0 does not acknowledge, but for wrong lengths of compressed records (docs/validation.md)."""

NOT_COMPRESSED: dict[str, tuple[CompressionType, bytes]] = {
    "zlib": (GZIP, zlib.compress(SOUND)),
    "zstd as gzip": (GZIP, compress(ZSTD, SOUND)),
    "records as zstd": (ZSTD, SOUND),
    "gzip as lz4": (LZ4, compress(GZIP, SOUND)),
    "lz4 with linked blocks": (LZ4, lz4.frame.compress(SOUND * 9000, block_linked=True)),
    "lz4 of an older version": (LZ4, b"\x04\x22\x4d\x18\x20" + compress(LZ4, SOUND)[5:]),
    "lz4 of the legacy format": (LZ4, b"\x02\x21\x4c\x18" + SOUND),
}
"""Frames that are refused by their first bytes, however many records they are said to hold."""


@pytest.mark.usefixtures("both_ways")
@for_each("codec", CompressionType)
@for_each("what", POISON_OF_ONE)
def test_a_batch_of_one_record_that_nobody_can_read_is_not_kept(what: str, codec: CompressionType) -> None:
    assert verdict(of_section(POISON_OF_ONE[what], 1, codec)) is ErrorCode.INVALID_RECORD
    if what in ("garbage", "zeros", "a length beyond the batch"):
        assert verdict(of_section(POISON_OF_ONE[what], 2, codec)) is ErrorCode.INVALID_RECORD
    if what in ("garbage", "zeros") and codec is NONE:
        assert verdict(of_section(POISON_OF_ONE[what], 4)) is ErrorCode.INVALID_RECORD


@pytest.mark.usefixtures("both_ways")
@for_each("what", NOT_COMPRESSED)
def test_a_frame_that_begins_as_no_consumer_knows_it_is_not_kept(what: str) -> None:
    codec, data = NOT_COMPRESSED[what]
    batch = of_section(SOUND, 3, codec)
    header = bytearray(batch.buffer[:61])
    header[8:12] = (len(header) + len(data) - 12).to_bytes(4, "big")
    frame = writable(header + data)
    frame.buffer[17:21] = frame.computed_crc().to_bytes(4, "big")
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    for config in (LogConfig(), LogConfig(plog_validate_records=True), compacted):
        with pytest.raises(KafkaError, match="no consumer could read the batch"):
            validate_batch(writable(bytes(frame.buffer)), config, NOW)


@pytest.mark.usefixtures("both_ways")
def test_a_snappy_stream_that_only_other_readers_know_is_not_kept_where_records_are_looked_at() -> None:
    """Kafka's refuses versions below 1; nothing of them is seen without opening the batch."""
    batch = of_section(SOUND, 3, CompressionType.SNAPPY)
    stream = bytearray(batch.buffer)
    stream[61 + 8 : 61 + 16] = bytes(8)
    frame = writable(bytes(stream))
    frame.buffer[17:21] = frame.computed_crc().to_bytes(4, "big")
    frame = writable(bytes(frame.buffer))
    assert is_as_it_was(verdict(frame), frame)
    assert verdict(frame, plog_validate_records=True) is ErrorCode.INVALID_RECORD
    assert verdict(frame, cleanup_policy=frozenset({"compact"})) is ErrorCode.INVALID_RECORD


@pytest.mark.usefixtures("both_ways")
@for_each("codec", CompressionType)
@for_each("count", [1, 2, 3])
def test_a_small_batch_of_any_shape_is_kept(count: int, codec: CompressionType) -> None:
    for record in (
        Record(0, NOW, None, None),
        Record(0, NOW - 2**40, b"", b"x" * 100_000, ((b"", b""), (b"h", None))),
        Record(0, NOW, b"k" * 200, b"v" * 63),
    ):
        batch = of_records([record._replace(offset=n) for n in range(count)], codec)
        assert is_as_it_was(verdict(batch), batch)


# --- what is large


def test_more_records_than_a_batch_may_expand_to_are_refused_by_the_header() -> None:
    batch = of_section(b"x" * 100, 20_000_000, ZSTD)
    assert verdict(batch) is ErrorCode.INVALID_RECORD
    with expansion_limited_to(140_000_000):
        assert is_as_it_was(verdict(batch), batch)
    assert verdict(of_section(bytes(69), 10)) is ErrorCode.INVALID_RECORD
    fitting = of_section(b"\x0c\0\0\0\1\1\0" * 10, 10)
    assert is_as_it_was(verdict(fitting), fitting)


MANY = 100_000


def keyed(count: int = MANY) -> RecordBatch:
    return of_section(bytes([14, 0, 0, 0, 2, 65, 1, 0]) * count, count, ZSTD)


@for_each(
    "config, expected",
    [
        ({"cleanup_policy": frozenset({"compact"})}, None),
        ({"message_timestamp_before_max_ms": DAY}, None),
        ({"compression_type": "lz4"}, None),
        ({"plog_validate_records": True}, ErrorCode.INVALID_RECORD),
    ],
)
def test_many_records_take_many_steps_and_little_memory(config: dict[str, object], expected: ErrorCode | None) -> None:
    batch = keyed()
    tracemalloc.start()
    try:
        steps, found = steps_of(batch, **config)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000, "all of them took 20 MB"
    assert found is expected if expected else isinstance(found, RecordBatch)
    assert steps >= (MANY / record_walk.MOST_RECORDS if expected is None else 0)


def test_a_small_batch_takes_one_step() -> None:
    for codec in CompressionType:
        batch = of_records([Record(0, NOW, b"k", b"v")] * 50, codec)
        assert steps_of(batch, cleanup_policy=frozenset({"compact"}), compression_type="gzip")[0] == 0


@for_each("codec", list(CompressionType))
@for_each("count", [1, 300])
def test_the_largest_record_of_a_compressed_batch(codec: CompressionType, count: int) -> None:
    """As Kafka 4.4 does: the limit is one of the record, and none for batches that are not compressed."""
    few = [Record(n, NOW, None, b"v" * 900) for n in range(count)]
    large = [*few, Record(count, NOW, None, b"v" * 5000)]
    for records, fits in ((few, True), (large, codec is NONE)):
        batch = of_records(records, codec)
        found = verdict(batch, max_decompressed_message_bytes=1000)
        assert is_as_it_was(found, batch) if fits else found is ErrorCode.INVALID_RECORD
        assert is_as_it_was(verdict(batch), batch)


@for_each("size", [3_000_000, 10_000])
@for_each("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_is_too_large_in_the_topics_codec(
    target: str, size: int, incompressible: Callable[[int], bytes]
) -> None:
    """As Kafka, which looks at the size again. It is not compressed to the end."""
    batch = of_records([Record(0, NOW, b"k", incompressible(size))], ZSTD if target != "zstd" else GZIP)
    allowed = batch.size_bytes + 1000
    config = {"compression_type": target, "max_message_bytes": allowed}
    found = verdict(batch, **config)
    if target == "uncompressed" or isinstance(found, ErrorCode):
        assert found is ErrorCode.MESSAGE_TOO_LARGE
    else:
        assert found.size_bytes <= allowed
        assert found.records() == batch.records()


@pytest.fixture
def incompressible() -> Callable[[int], bytes]:
    """Half of it can't be compressed: no codec makes it much smaller or larger than another does."""
    import random

    def make(size: int) -> bytes:
        return random.Random(1).randbytes(size // 2) + bytes(size // 2)

    return make


def test_a_large_record_is_compressed_again() -> None:
    items = [Record(0, NOW, b"k", bytes(5_000_000)), Record(1, NOW, b"k", b"small")]
    steps, found = steps_of(of_records(items, GZIP), compression_type="zstd")
    assert steps > 5_000_000 / log_validator._COMPRESSED_AT_ONCE
    assert isinstance(found, RecordBatch)
    assert (found.compression, found.records()) == (ZSTD, items)
