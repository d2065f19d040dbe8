"""The purpose of each field of Kafka's files, in a sentence or two, for the hex view of `plog inspect`.

The texts are in field_explanations.toml. The names are those of core/inspector/dump/byte_fields.py and entry_fields.py,
by the structure that holds the field. The pages of docs/format say the same with worked examples.
"""

from __future__ import annotations

import tomllib
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

from core.forensics.damage import DamageKind
from core.inspector.check.file_kind import FileKind

_RECORD_BATCH = "docs/format/record-batch.md"
_CONTROL_RECORD = "docs/format/control-record.md"
_INDEXES = "docs/format/indexes.md"
_SNAPSHOT = "docs/format/producer-snapshot.md"
_CHECKPOINTS = "docs/format/checkpoints.md"
_FINDINGS = "docs/findings.md"
_READING = "docs/reading.md"


class Part(Enum):
    """The structure that holds a field; for small files the kind of file."""

    BATCH = "batch"
    RECORD = "record"
    CONTROL_RECORD = "control record"
    MESSAGE = "message"
    OFFSET_INDEX = FileKind.OFFSET_INDEX.value
    TIME_INDEX = FileKind.TIME_INDEX.value
    TRANSACTION_INDEX = FileKind.TRANSACTION_INDEX.value
    PRODUCER_SNAPSHOT = FileKind.PRODUCER_SNAPSHOT.value
    OFFSET_CHECKPOINT = FileKind.OFFSET_CHECKPOINT.value
    LEADER_EPOCHS = FileKind.LEADER_EPOCHS.value
    DAMAGED_RANGES = FileKind.DAMAGED_RANGES.value
    PARTITION_METADATA = FileKind.PARTITION_METADATA.value
    META_PROPERTIES = FileKind.META_PROPERTIES.value
    CLEAN_SHUTDOWN = FileKind.CLEAN_SHUTDOWN.value
    OTHER = "other file"


class Explanation(NamedTuple):
    """`page` is the page of the documentation, or ""."""

    text: str
    page: str = ""


PAGES: dict[Part, str] = {
    Part.BATCH: _RECORD_BATCH,
    Part.RECORD: _RECORD_BATCH,
    Part.CONTROL_RECORD: _CONTROL_RECORD,
    Part.OFFSET_INDEX: _INDEXES,
    Part.TIME_INDEX: _INDEXES,
    Part.TRANSACTION_INDEX: _INDEXES,
    Part.PRODUCER_SNAPSHOT: _SNAPSHOT,
    Part.OFFSET_CHECKPOINT: _CHECKPOINTS,
    Part.LEADER_EPOCHS: _CHECKPOINTS,
    Part.PARTITION_METADATA: _CHECKPOINTS,
    Part.DAMAGED_RANGES: _READING,
}

_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

EXPLANATIONS: dict[Part, dict[str, str]] = {part: _TEXTS[part.value] for part in Part}
"""By structure, then by the field's name; those of damage, and of incomplete entries, stand beside them."""
EXPLANATIONS[Part.CONTROL_RECORD] = EXPLANATIONS[Part.RECORD] | EXPLANATIONS[Part.CONTROL_RECORD]

_REST = "The file ends in the middle of an entry: these bytes are too few for one."


def explain_damage(kind: DamageKind) -> Explanation:
    """Explains the damage of bytes that hold no sound batch."""
    return Explanation(_TEXTS["damage"][kind], _FINDINGS)


@cache
def explain(part: Part, name: str) -> Explanation:
    text = _REST if name == "rest" else EXPLANATIONS[part][name]
    return Explanation(text, PAGES.get(part, ""))
