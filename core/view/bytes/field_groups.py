"""The fields of a file's bytes, each with its value and its meaning, in groups: a batch's header, a record, an entry, a
line, a stretch of damage.

A group is made when the user looks at a byte of it, and only the bytes of that batch or entry are read for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from core.common.config_def import HIDDEN
from core.common.errors import CorruptRecordError
from core.common.salvaging_file import SMALL_FILE_BYTES, SalvagingFile
from core.common.time_text import time_text
from core.forensics.missing_offsets import offsets_text
from core.inspector.check.file_kind import FileKind
from core.inspector.dump.byte_fields import BatchFields, Section, find_record
from core.inspector.dump.entry_fields import ENTRY_LAYOUTS, entry_spans, line_spans, line_starts
from core.inspector.dump.field_span import HasSecrets, Span, is_secret, value_text
from core.records.batches import Batch
from core.records.control_record import control_type
from core.records.record_batch import LOG_OVERHEAD, RecordBatch
from core.view.bytes.batch_lookup import BatchLookup, LogItem
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
    explanation, hides = explain_damage(damage.kind), has_secrets is not None
    field = _whole_field("damaged", item.start, item.end, damage.message, explanation, hides=hides)
    path = (f"{damage.kind} at {item.start}, {item.end - item.start} bytes",)
    field = field._replace(path=path, is_damage=True)
    return FieldGroup(item.start, item.end, item.start, item.end, (field,), damage.offset)


def _whole_field(name: str, start: int, end: int, value: str, explanation: Explanation, *, hides: bool) -> Field:
    """Makes the field of bytes that can't be told apart."""
    value = hidden_text(name, value) if hides else value
    return Field(name, start, end, value, explanation.text, page=explanation.page, is_hidden=hides)


_MOST_BATCHES = 32
_MOST_BATCH_BYTES = 8 * 1024 * 1024


# --- records


class RecordGroups:
    """The records of a section whose first byte lies at a position."""

    def __init__(
        self, section: Section, batch: Batch, position: int, path: tuple[str, ...], has_secrets: HasSecrets | None
    ) -> None:
        self.section = section
        self._position = position
        self._path = path
        self._has_secrets = has_secrets
        is_message = not isinstance(batch, RecordBatch)
        self._part = Part.MESSAGE if is_message else Part.CONTROL_RECORD if batch.is_control else Part.RECORD
        self._word = "message" if is_message else "record"

    def group(self, position: int, outer: tuple[int, int] | None = None) -> FieldGroup:
        """Returns the group of the record that holds a byte; `outer`: bounds of the batch in the file, or None."""
        number = self.section.number_at(position - self._position)
        bounds = self.section.bounds(number)
        assert bounds is not None, position
        offset = self.section.offset_of(number)
        where = self._path
        if not self.section.is_rest(number):
            where = (*where, f"{self._word} {number}" + ("" if offset is None else f", offset {offset}"))
        place = Place(self._part, where, self._position, self._data)
        fields = make_fields(self.section.spans(number), place, self._has_secrets)
        start, end = self._position + bounds[0], self._position + bounds[1]
        return FieldGroup(start, end, *(outer or (start, end)), fields, offset)

    def find(self, offset: int) -> tuple[int, int] | None:
        first = self.section.offset_of(0)
        number = None if first is None else find_record(self.section, offset, first)
        bounds = None if number is None else self.section.bounds(number)
        return None if bounds is None else (self._position + bounds[0], self._position + bounds[1])

    def _data(self, span: Span) -> bytes:
        return bytes(self.section.data[span.start : span.end])


def batch_text(batch: Batch) -> str:
    """Names a batch by its position and its offsets."""
    if isinstance(batch, RecordBatch):
        word = "control batch" if batch.is_control else "batch"
        return f"{word} at {batch.position}, {offsets_text(batch.base_offset, batch.next_offset)}"
    if batch.attributes & 0x07:
        return f"compressed messages at {batch.position}, offsets up to {batch.last_offset}"
    return f"message at {batch.position}, offset {batch.last_offset}"


class OpenBatch:
    """A batch, and its fields."""

    def __init__(self, batch: Batch, has_secrets: HasSecrets | None) -> None:
        self.batch = batch
        self.end = batch.position + batch.size_bytes
        self._fields = BatchFields(batch)
        self._has_secrets = has_secrets
        self._path = (batch_text(batch),)
        self.records: RecordGroups | None = None
        if self._fields.section is not None:
            position = batch.position + self._fields.section_start
            self.records = RecordGroups(self._fields.section, batch, position, self._path, has_secrets)

    @property
    def is_compressed(self) -> bool:
        return self._fields.is_compressed

    def group(self, position: int) -> FieldGroup:
        """Returns the group that holds a byte of the batch: its own fields, or a record's."""
        start = self.batch.position
        own_end = start + self._fields.section_start
        if position >= own_end and self.records is not None:
            return self.records.group(position, (start, self.end))
        part = Part.BATCH if isinstance(self.batch, RecordBatch) else Part.MESSAGE
        place = Place(part, self._path, start, self._fields.data)
        fields = make_fields(self._fields.spans, place, self._has_secrets)
        offset = self.batch.base_offset if isinstance(self.batch, RecordBatch) else self.batch.last_offset
        return FieldGroup(start, own_end, start, self.end, fields, offset)


# --- files


class Groups(ABC):
    """The groups of one file; owned by one task."""

    @abstractmethod
    def at(self, position: int) -> FieldGroup:
        """Returns the group that holds a byte of the file. Raises AccessError if the disk refuses."""

    def find(self, position: int) -> Iterator[int]:  # noqa: ARG002 - most find it at once
        """Does slow work before `at`, in steps; each may yield a position."""
        return iter(())

    def look_again(self) -> None:  # noqa: B027 - most have nothing to look at
        """Notices bytes that were appended to the file."""

    def close(self) -> None:  # noqa: B027 - most have nothing open
        """Closes files that were opened beside the file."""


class LogGroups(Groups):
    """Groups of a log, or of a snapshot of the metadata. Keeps the last batches."""

    def __init__(self, items: BatchLookup, has_secrets: HasSecrets | None) -> None:
        self.items = items
        self._has_secrets = has_secrets
        self._open: OrderedDict[int, OpenBatch] = OrderedDict()
        self._open_bytes = 0

    def find(self, position: int) -> Iterator[int]:
        return self.items.find(position)

    def at(self, position: int) -> FieldGroup:
        item = self.items.at(position)
        if item.damage is not None:
            return damage_group(item, self._has_secrets)
        return self.batch(item).group(position)

    def batch(self, item: LogItem) -> OpenBatch:
        """Reads a batch, or returns the kept one."""
        found = self._open.get(item.start)
        if found is not None and found.end == item.end:
            self._open.move_to_end(item.start)
            return found
        found = OpenBatch(self.items.batch(item), self._has_secrets)
        self._open[item.start] = found
        self._open_bytes += item.end - item.start
        while len(self._open) > 1 and (len(self._open) > _MOST_BATCHES or self._open_bytes > _MOST_BATCH_BYTES):
            start, oldest = self._open.popitem(last=False)
            self._open_bytes -= oldest.end - start
        return found

    def look_again(self) -> None:
        before = self.items.size_bytes
        self.items.look_again()
        if self.items.size_bytes < before:
            self._open.clear()
            self._open_bytes = 0

    def close(self) -> None:
        self.items.close()


class EntryGroups(Groups):
    """Groups of an index or a producer snapshot: its head, then entry after entry."""

    def __init__(self, file: SalvagingFile, kind: FileKind, base_offset: int) -> None:
        self._file = file
        self._layout = ENTRY_LAYOUTS[kind]
        self._part = Part(kind.value)
        self._base_offset = base_offset

    def at(self, position: int) -> FieldGroup:
        head, size = self._layout.head_bytes, self._layout.entry_bytes
        if position < head:
            return self._group(0, head, self._layout.head, None)
        number = (position - head) // size
        return self._group(head + number * size, size, self._layout.entry, number)

    def _group(self, start: int, size: int, layout: Sequence[tuple[str, str]], number: int | None) -> FieldGroup:
        data = self._file.read_at(size, start)
        spans = list(entry_spans(layout, data))
        values = {span.name: span.value for span in spans}
        offset = self._offset(values) if len(data) == size else None
        path = "head" if number is None else f"entry {number}{self._entry_text(number, data, values, offset)}"
        place = Place(self._part, (path,), start, lambda _span: b"", self._base_offset)
        return FieldGroup(start, start + len(data), start, start + len(data), make_fields(spans, place, None), offset)

    def _offset(self, values: dict[str, Any]) -> int | None:
        if "relative offset" in values:
            return self._base_offset + int(values["relative offset"])
        return values.get("last offset")

    def _entry_text(self, number: int, data: bytes, values: dict[str, Any], offset: int | None) -> str:
        if number and "relative offset" in values and not any(data):
            return ", not used: zeros that were allocated in advance"
        if "producer id" in values:
            return f", producer {values['producer id']}"
        return "" if offset is None else f", offset {offset}"


class LineGroups(Groups):
    """Groups of a small text file: its lines."""

    def __init__(self, data: bytes, kind: FileKind) -> None:
        self._data = data
        self._kind = kind
        self._starts: array[int] = line_starts(data)

    def at(self, position: int) -> FieldGroup:
        number = bisect_right(self._starts, position) - 1
        start, end = self._starts[number], self._starts[number + 1]
        place = Place(Part(self._kind.value), (f"line {number + 1}",), start, lambda _span: b"")
        spans = line_spans(self._kind, number, self._data[start:end])
        return FieldGroup(start, end, start, end, make_fields(spans, place, None))


class PlainGroups(Groups):
    def __init__(self, file: SalvagingFile, *, is_hidden: bool) -> None:
        self._file = file
        self._is_hidden = is_hidden

    def at(self, position: int) -> FieldGroup:
        size_bytes = max(self._file.size(), position + 1)
        explanation = explain(Part.OTHER, "bytes")
        field = _whole_field("bytes", 0, size_bytes, f"{size_bytes} bytes", explanation, hides=self._is_hidden)
        return FieldGroup(0, size_bytes, 0, size_bytes, (field,))


def groups_of(
    file: SalvagingFile, kind: FileKind | None, base_offset: int, has_secrets: HasSecrets | None, *, is_log: bool
) -> Groups:
    if is_log:
        return LogGroups(BatchLookup(file.path, file, base_offset), has_secrets)
    if kind in ENTRY_LAYOUTS:
        assert kind is not None
        return EntryGroups(file, kind, base_offset)
    if kind is None or file.size() > SMALL_FILE_BYTES:
        return PlainGroups(file, is_hidden=has_secrets is not None)
    return LineGroups(file.read_at(file.size(), 0), kind)
