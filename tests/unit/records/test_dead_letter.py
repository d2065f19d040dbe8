"""Headers as Spring, Connect, Streams and others write them, byte by byte."""

from __future__ import annotations

import pytest

from core.records.dead_letter import Origin, find_origin, find_reason, find_tries, headers_to_send
from core.records.record import Headers

SPRING: Headers = (
    (b"kafka_dlt-original-topic", b"orders"),
    (b"kafka_dlt-original-partition", b"\0\0\0\3"),
    (b"kafka_dlt-original-offset", b"\0\0\0\0\0\0\0\x11"),
    (b"kafka_dlt-original-timestamp", b"\0\0\1\x8f\0\0\0\0"),
    (b"kafka_dlt-original-timestamp-type", b"CreateTime"),
    (b"kafka_dlt-original-consumer-group", b"billing"),
    (b"kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
    (b"kafka_dlt-exception-cause-fqcn", b"java.net.SocketTimeoutException"),
    (b"kafka_dlt-exception-message", b"Listener failed"),
    (b"kafka_dlt-exception-stacktrace", b"org.springframework..\n\tat .."),
    (b"springDeserializerExceptionValue", b"\xac\xed\0\5sr"),
)
RETRY: Headers = (
    (b"kafka_original-topic", b"orders"),
    (b"kafka_original-partition", b"\0\0\0\1"),
    (b"kafka_original-offset", b"\0\0\0\0\0\0\1\0"),
    (b"kafka_exception-fqcn", b"java.lang.IllegalStateException"),
    (b"retry_topic-attempts", b"\2"),
    (b"retry_topic-backoff-timestamp", b"\1\x8f\0\0\0\0"),
    (b"kafka_original-topic", b"orders-retry-0"),
    (b"kafka_original-partition", b"\0\0\0\0"),
    (b"retry_topic-attempts", b"\0\0\0\3"),
    (b"kafka_exception-fqcn", b"java.io.IOException"),
)
CONNECT: Headers = tuple(
    (b"__connect.errors." + name, value)
    for name, value in (
        (b"topic", b"orders"), (b"partition", b"3"), (b"offset", b"1234567890123"), (b"connector.name", b"sink"),
        (b"task.id", b"0"), (b"stage", b"VALUE_CONVERTER"), (b"class.name", b"org.apache.kafka..JsonConverter"),
        (b"exception.class.name", b"org.apache.kafka.connect.errors.DataException"), (b"exception.message", None),
        (b"exception.stacktrace", b".."),
    )
)  # fmt: skip
STREAMS: Headers = tuple(
    (b"__streams.errors." + name, value)
    for name, value in (
        (b"exception", b"java.lang.RuntimeException"), (b"message", b"poison"), (b"stacktrace", b".."),
        (b"topic", b"orders"), (b"partition", b"0"), (b"offset", b"9"),
    )
)  # fmt: skip
SHARE: Headers = tuple(
    (b"__dlq.errors." + name, value)
    for name, value in (
        (b"topic", b"orders"), (b"partition", b"2"), (b"offset", b"7"), (b"group", b"g"), (b"delivery.count", b"5"),
        (b"message", b"max delivery count"),
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "origin", "reason"),
    [
        (SPRING, ("orders", 3, 17, 0x18F_0000_0000), "java.net.SocketTimeoutException"),
        (RETRY, ("orders", 1, 256, None), "java.io.IOException"),
        ((*RETRY, *SPRING), ("orders", 1, 256, None), "java.net.SocketTimeoutException"),
        (CONNECT, ("orders", 3, 1234567890123, None), "org.apache.kafka.connect.errors.DataException"),
        ((*STREAMS, (b"__streams.errors.topic", b"b")), ("b", 0, 9, None), "java.lang.RuntimeException"),
        (STREAMS, ("orders", 0, 9, None), "java.lang.RuntimeException"),
        (SHARE, ("orders", 2, 7, None), "max delivery count"),
        (((b"x-original-topic", b"a"), (b"x-original-partition", b"\0\0\0\1")), ("a", 1, None, None), ""),
        (((b"dead-letter-topic", b"a"), (b"dead-letter-offset", b"5")), ("a", None, 5, None), ""),
        (((b"dlq-original-topic", b"a"),), ("a", None, None, None), ""),
        (((b"topic_poisoned", b"a"), (b"reason_poisoned", b"r\nat")), ("a", None, None, None), "r"),
        (((b"x-ibm-retry-origin-topic", b"a"),), ("a", None, None, None), ""),
        (((b"original_topic", b"a"),), ("a", None, None, None), ""),
    ],
)  # fmt: skip
def test_where_it_came_from(headers: Headers, origin: tuple[object, ...], reason: str) -> None:
    found = find_origin(headers)
    assert found is not None
    assert (found.topic, found.partition, found.offset, found.timestamp) == origin
    assert find_reason(headers) == reason
    own = ((b"own", b"\xff"), (b"own", None), (b"", b""), (b"retry", b"x"))
    assert headers_to_send((*own, *headers), found, 3, "dlq-0@1") == (
        *own, (b"plog.redrive.tries", b"3"), (b"plog.redrive.from", b"dlq-0@1"),
    )  # fmt: skip


def test_no_origin() -> None:
    for headers in ((), ((b"own", b"x"),), ((b"kafka_dlt-original-topic", None),), ((b"original_topic", b""),)):
        assert find_origin(headers) is None
        assert find_reason(headers) == ""


def test_a_named_header_alone_counts() -> None:
    headers = ((b"mine", b"a"), (b"mine", b"b"), *SPRING)
    assert find_origin(headers, b"mine") == Origin("b", strips=(b"mine",))
    assert find_origin(SPRING, b"mine") is None


def test_the_last_framework_counts_and_the_first_ones_headers_stay() -> None:
    """A dead letter of Spring that a sink of Connect could not convert."""
    headers = (*SPRING, *((name, b"orders.DLT" if name.endswith(b".topic") else value) for name, value in CONNECT))
    found = find_origin(headers)
    assert found is not None
    assert found.topic == "orders.DLT"
    assert headers_to_send(headers, found, 1, "p")[: len(SPRING)] == SPRING


@pytest.mark.parametrize(
    ("number", "found"),
    [(b"\0\0\0\0", 0), (b"12", 12), (b"\xff\xff\xff\xff", None), (b"-1", None), (b"", None), (b"\0\0\0", None),
     (None, None)],
)  # fmt: skip
def test_numbers_by_their_length(number: bytes | None, found: int | None) -> None:
    origin = find_origin(((b"kafka_dlt-original-topic", b"a"), (b"kafka_dlt-original-partition", number)))
    assert origin is not None
    assert origin.partition == found


def test_tries_are_counted() -> None:
    assert find_tries(()) == 0
    assert find_tries(((b"plog.redrive.tries", b"1"), (b"plog.redrive.tries", b"2"))) == 2
    assert find_tries(((b"plog.redrive.tries", b"x"),)) == find_tries(((b"plog.redrive.tries", None),)) == 0
    again = ((b"plog.redrive.tries", b"2"), (b"plog.redrive.from", b"old"), (b"original_topic", b"a"))
    assert headers_to_send(again, find_origin(again), 3, "new") == (
        (b"plog.redrive.tries", b"3"), (b"plog.redrive.from", b"new"),
    )  # fmt: skip
