"""One field of a file's bytes, with its value, its meaning and its purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError
from core.common.time_text import time_text
from core.inspector.dump.field_span import HasSecrets, Span, is_secret, value_text
from core.records.control_record import control_type
from core.records.record_batch import LOG_OVERHEAD
from core.view.bytes.batch_lookup import LogItem
from core.view.bytes.field_explanations import Explanation, Part, explain, explain_damage

_TIMES = frozenset(("base timestamp", "max timestamp", "timestamp", "timestamp delta"))


class Field(NamedTuple):
    """Bytes [start, end). `value` is as `plog dump-segment --hex` writes it; `meaning` is its interpretation, if that
    is more: a time, an offset. `path` names the structures around the field, the outermost first. `number` counts the
    fields of a group. If it `is_hidden`, its value and its bytes may be a secret.
    """

    name: str
    start: int
    end: int
    value: str
    explanation: str
    path: tuple[str, ...] = ()
    depth: int = 0
    number: int = 0
    meaning: str = ""
    page: str = ""
    is_damage: bool = False
    is_hidden: bool = False


class FieldGroup(NamedTuple):
    """Fields at bytes [start, end), without a gap, in the batch at [outer_start, outer_end), or alone. `offset` is the
    first that it is about, or None.
    """

    start: int
    end: int
    outer_start: int
    outer_end: int
    fields: tuple[Field, ...]
    offset: int | None = None


class Place(NamedTuple):
    """The place of spans: their part and path, the position of the buffer's first byte, and a reader of bytes."""

    part: Part
    path: tuple[str, ...]
    position: int
    data: Callable[[Span], bytes]
    base_offset: int = 0


def make_fields(spans: Iterable[Span], place: Place, has_secrets: HasSecrets | None) -> tuple[Field, ...]:
    """Returns the fields of spans, without empty ones."""
    return tuple(_field(span, number, place, has_secrets) for number, span in enumerate(spans) if span.start < span.end)


def _field(span: Span, number: int, place: Place, has_secrets: HasSecrets | None) -> Field:
    explanation = explain(place.part, span.name)
    value, meaning = value_text(span.value), _meaning(span, place)
    data = place.data(span) if has_secrets is not None and span.name == "value" else b""
    is_hidden = has_secrets is not None and is_secret(span.name, data, has_secrets)
    if is_hidden:
        value, meaning = hidden_text(span.name, value), ""
    return Field(
        name=span.name,
        start=place.position + span.start,
        end=place.position + span.end,
        value=value,
        explanation=explanation.text,
        path=place.path,
        depth=span.depth,
        number=number,
        meaning=meaning,
        page=explanation.page,
        is_hidden=is_hidden,
    )


def hidden_text(name: str, value: str) -> str:
    """Returns the text in place of a hidden value."""
    return HIDDEN if name == "value" else f"{HIDDEN} ({value})"


def _meaning(span: Span, place: Place) -> str:
    number, name = span.number, span.name
    if name == "key" and place.part is Part.CONTROL_RECORD:
        return _control_text(place.data(span))
    if number is None:
        return ""
    if name in _TIMES:
        return time_text(number) if number >= 0 else "no time"
    if name == "relative offset":
        return f"offset {place.base_offset + number}"
    if name in ("length", "message size"):
        return f"{number + LOG_OVERHEAD} bytes with the {LOG_OVERHEAD} up to here"
    if name == "last offset delta" or (name == "offset delta" and place.part is not Part.PRODUCER_SNAPSHOT):
        return f"offset {number}"
    if name == "offset" and number != span.value:
        return f"offset {number} of the log"
    return ""


def _control_text(key: bytes) -> str:
    try:
        found = control_type(key)
    except CorruptRecordError:
        return ""
    return "a type that is not known" if found is None else found.name


def damage_group(item: LogItem, has_secrets: HasSecrets | None) -> FieldGroup:
    """Makes the group of a stretch of damage, which is one field."""
    damage = item.damage
    assert damage is not None, item
    explanation = explain_damage(damage.kind)
    is_hidden = has_secrets is not None
    field = Field(
        name="damaged",
        start=item.start,
        end=item.end,
        value=hidden_text("damaged", damage.message) if is_hidden else damage.message,
        explanation=explanation.text,
        path=(f"{damage.kind} at {item.start}, {item.end - item.start} bytes",),
        page=explanation.page,
        is_damage=True,
        is_hidden=is_hidden,
    )
    return FieldGroup(item.start, item.end, item.start, item.end, (field,), damage.offset)


def plain_group(size_bytes: int, *, is_hidden: bool) -> FieldGroup:
    """Returns the group of an unknown file."""
    explanation: Explanation = explain(Part.OTHER, "bytes")
    value = f"{size_bytes} bytes"
    field = Field(
        name="bytes",
        start=0,
        end=size_bytes,
        value=hidden_text("bytes", value) if is_hidden else value,
        explanation=explanation.text,
        page=explanation.page,
        is_hidden=is_hidden,
    )
    return FieldGroup(0, size_bytes, 0, size_bytes, (field,))
