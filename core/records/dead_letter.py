"""Dead letters: where a record that failed came from, as the headers of its framework say.

| who writes it | headers | numbers |
|---|---|---|
| Spring (DeadLetterPublishingRecoverer) | `kafka_dlt-original-topic`, `-partition`, `-offset`, .. | int32, int64 |
| Spring's retry topics | `kafka_original-topic`, ..; `retry_topic-attempts` | int32, int64 |
| Spring Cloud Stream | `x-original-topic`, `x-original-partition`, `x-original-offset` | int32, int64 |
| Kafka Connect (DeadLetterQueueReporter) | `__connect.errors.topic`, `.partition`, `.offset` | text |
| Kafka Streams (KIP-1034) | `__streams.errors.topic`, `.partition`, `.offset` | text |
| share groups (KIP-1191) | `__dlq.errors.topic`, a name or an id, `.partition`, `.offset` | text |
| SmallRye, Quarkus | `dead-letter-topic`, `-partition`, `-offset` | text |
| others | `dlq-original-topic`, `topic_poisoned` (Watermill), `x-ibm-retry-origin-topic`, `original_topic` | |

Frameworks append their headers at each failure. Spring's binary numbers are big-endian. They are read by their length,
text by its digits: versions differ. The first header of a name is Spring's first origin, before all retry topics;
everywhere else the last one counts. If frameworks have passed a record on to each other, the last one's origin counts,
and only its headers are taken away.
"""

from __future__ import annotations

from typing import NamedTuple

from core.records.record import Headers

TRIES, FROM = b"plog.redrive.tries", b"plog.redrive.from"
"""Headers of a record that was sent back: how often, as digits, and from where (`orders.DLT-0@17`)."""

_DIGITS = 20


class Origin(NamedTuple):
    """None for what the headers do not say. `topic` may be an id for a share group."""

    topic: str
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    strips: tuple[bytes, ...] = ()
    """How the headers begin that the framework added."""
    is_empty: bool = False
    """Whether the dead letter may be a mere reference: a share group copies no records by default."""


class _Convention(NamedTuple):
    topics: tuple[bytes, ...]
    """The headers that name the topic, the best one first."""
    strips: tuple[bytes, ...]
    reasons: tuple[bytes, ...] = ()
    """The headers with the class of the exception, the best one first."""
    takes_first: bool = False
    is_empty: bool = False


_CONVENTIONS = (
    _Convention(
        (b"kafka_original-topic", b"kafka_dlt-original-topic"),
        (b"kafka_dlt-", b"kafka_original-", b"kafka_exception-", b"kafka_key-exception-", b"retry_topic-",
         b"springDeserializerException"),
        (b"kafka_dlt-exception-cause-fqcn", b"kafka_exception-cause-fqcn", b"kafka_dlt-exception-fqcn",
         b"kafka_exception-fqcn", b"kafka_dlt-key-exception-fqcn", b"kafka_key-exception-fqcn"),
        takes_first=True,
    ),
    _Convention((b"__connect.errors.topic",), (b"__connect.errors.",), (b"__connect.errors.exception.class.name",)),
    _Convention((b"__streams.errors.topic",), (b"__streams.errors.",), (b"__streams.errors.exception",)),
    _Convention((b"__dlq.errors.topic",), (b"__dlq.errors.",), (b"__dlq.errors.message",), is_empty=True),
    _Convention((b"x-original-topic",), (b"x-original-", b"x-exception-"), (b"x-exception-fqcn",)),
    _Convention(
        (b"dead-letter-topic",),
        (b"dead-letter-",),
        (b"dead-letter-cause-class-name", b"dead-letter-exception-class-name", b"dead-letter-reason"),
    ),
    _Convention((b"dlq-original-topic",), (b"dlq-",), (b"dlq-exception-class", b"dlq-error-message")),
    _Convention(
        (b"topic_poisoned",),
        (b"topic_poisoned", b"reason_poisoned", b"handler_poisoned", b"subscriber_poisoned"),
        (b"reason_poisoned",),
    ),
    _Convention((b"x-ibm-retry-origin-topic",), (b"x-ibm-retry-",)),
    _Convention((b"original_topic",), (b"original_topic", b"original_partition", b"original_offset")),
)  # fmt: skip


def find_origin(headers: Headers, named: bytes | None = None) -> Origin | None:
    """Returns where the record came from, by the header `named`, or else by the known ones, or None."""
    if named is not None:
        own = [value for name, value in headers if name == named and value]
        return None if not own else Origin(_text(own[-1]), strips=(named,))
    convention = _find_convention(headers)
    if convention is None:
        return None
    for name in convention.topics:
        topic = _find(headers, name, takes_first=convention.takes_first)
        if topic:
            stem = name.removesuffix(b"topic")
            partition, offset, timestamp = (
                _number(_find(headers, stem + what, takes_first=convention.takes_first))
                for what in (b"partition", b"offset", b"timestamp")
            )
            return Origin(_text(topic), partition, offset, timestamp, convention.strips, convention.is_empty)
    return None


def find_reason(headers: Headers) -> str:
    """Returns the class of the exception, or what else names the last failure; "" if nothing does."""
    convention = _find_convention(headers)
    found = (_find(headers, name, takes_first=False) for name in (convention.reasons if convention else ()))
    return next((_text(value).split("\n")[0] for value in found if value), "")


def find_tries(headers: Headers) -> int:
    """Returns how often the record was sent back before."""
    text = _find(headers, TRIES, takes_first=False) or b""
    return int(text) if text.isdigit() and len(text) < _DIGITS else 0


def headers_to_send(headers: Headers, origin: Origin | None, tries: int, place: str) -> Headers:
    """Returns the record's own headers, all bytes and nulls as they are, then ours; without the framework's."""
    strips = (*(origin.strips if origin is not None else ()), TRIES, FROM)
    own = tuple(header for header in headers if not header[0].startswith(strips))
    return (*own, (TRIES, b"%d" % tries), (FROM, place.encode()))


def _find_convention(headers: Headers) -> _Convention | None:
    """Returns the convention whose header of a topic comes last."""
    for name, value in reversed(headers):
        for convention in _CONVENTIONS:
            if value and name in convention.topics:
                return convention
    return None


def _find(headers: Headers, name: bytes, *, takes_first: bool) -> bytes | None:
    found = [value for other, value in headers if other == name]
    return None if not found else found[0] if takes_first else found[-1]


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()


def _number(value: bytes | None) -> int | None:
    """Reads digits, or 4 or 8 bytes, big-endian; None for anything else, and for numbers below 0. Eight digits are
    digits: as bytes they were an offset of 3 * 10**18.
    """
    if value is None:
        return None
    if value.isdigit() and len(value) < _DIGITS:
        return int(value)
    return int.from_bytes(value, "big") if len(value) in (4, 8) and not value[0] & 0x80 else None
