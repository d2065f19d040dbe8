"""The purpose of each field of Kafka's files, in a sentence or two, for the hex view of `plog inspect`.

The names are those of core/inspector/dump/byte_fields.py and entry_fields.py, by the structure that holds the field.
The pages of docs/format say the same with worked examples.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
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

_RECORD = {
    "record length": "The bytes of the record that follow this number, which is a zig-zag varint: as few bytes as it "
    "needs.",
    "attributes": "Kafka keeps these eight bits of a record for later; they are 0.",
    "timestamp delta": "The record's timestamp less the batch's base timestamp, in milliseconds. If the batch's "
    "attributes say LogAppendTime, readers get the batch's max timestamp instead.",
    "offset delta": "The record's offset less the batch's base offset. Compaction takes records out and leaves the "
    "deltas of the others as they are.",
    "key length": "The bytes of the key; -1 says that there is no key.",
    "key": "The record's key. Producers choose the partition by it, and compaction keeps the newest record of each.",
    "value length": "The bytes of the value; -1 says that there is none, which compaction takes for a deletion of the "
    "key.",
    "value": "The record's value, as the producer sent it.",
    "header count": "How many headers follow.",
    "header key length": "The bytes of the header's name.",
    "header key": "The header's name; a record may have several of one name.",
    "header value length": "The bytes of the header's value; -1 says that there is none.",
    "header value": "The header's value, as the producer sent it.",
    "records": "These bytes are no records as the batch's count and the records' own lengths describe them, although "
    "the batch's checksum is right: whoever wrote the batch wrote them so.",
}

_CRC = "CRC-32C, the checksum of everything in the batch from the attributes on."

EXPLANATIONS: dict[Part, dict[str, str]] = {
    Part.BATCH: {
        "base offset": "The offset of the batch's first record. The broker writes it into the producer's batch, so the "
        "checksum does not cover it.",
        "length": "The bytes of the batch that follow this field: 12 less than the batch has. The checksum does not "
        "cover it, and nothing else says where the next batch begins.",
        "leader epoch": "The epoch of the leader that appended the batch. The broker writes it, so the checksum does "
        "not cover it.",
        "magic": "The version of the format: 2 is the one that Kafka writes since 0.11. The checksum does not cover "
        "it.",
        "crc": f"{_CRC} The four fields before it are not covered.",
        "attributes": "Bits 0 to 2 name the codec, bit 3 says LogAppendTime, 4 that the batch is part of a "
        "transaction, 5 that it is a control batch, and 6 that compaction has put the delete horizon where the base "
        "timestamp was.",
        "last offset delta": "The offset of the batch's last record less the base offset. It stays when compaction "
        "takes records out, so the batch keeps its offsets.",
        "base timestamp": "The timestamp in epoch milliseconds that the records' deltas count from; with bit 6 of the "
        "attributes, the time after which compaction may take out tombstones and markers.",
        "max timestamp": "The largest timestamp of the batch's records; with LogAppendTime, when the broker appended "
        "the batch, which is every record's timestamp.",
        "producer id": "The id that the broker gave the producer, by which it knows retries; -1 if the producer asked "
        "for none.",
        "producer epoch": "Which of the producers that had the id one after the other: an older one is refused.",
        "base sequence": "The number of the batch's first record among all that the producer sent to the partition; a "
        "gap or a retry shows in it. It is -1 without a producer id, and in markers.",
        "record count": "How many records the batch holds. It is less than the last offset delta and one more, if "
        "compaction took some out.",
        "records": "The batch's records, compressed as one; Enter shows them uncompressed.",
    },
    Part.RECORD: _RECORD,
    Part.CONTROL_RECORD: {
        **_RECORD,
        "key": "A version and the type of the control record, two bytes each: 0 aborts and 1 commits the producer's "
        "transaction; the others are of KRaft itself. Consumers never get it.",
        "value": "What the control record says: of a transaction's marker a version and the coordinator's epoch.",
    },
    Part.MESSAGE: {
        "offset": "The message's offset. Of a compressed message it is the offset of the last message inside; there, "
        "magic 1 counts from the first message's offset.",
        "message size": "The bytes of the message that follow this field: 12 less than the message has in the file.",
        "crc": "CRC-32, the checksum of everything in the message from the magic on.",
        "magic": "The version of the format: 0 before Kafka 0.10, 1 before Kafka 0.11.",
        "attributes": "Bits 0 to 2 name the codec, and bit 3, in magic 1, says LogAppendTime.",
        "timestamp": "The message's timestamp in epoch milliseconds; of a compressed message the largest of those "
        "inside, or with LogAppendTime that of all. Magic 0 has none.",
        "key length": "The bytes of the key; -1 says that there is no key.",
        "key": _RECORD["key"],
        "value length": "The bytes of the value; -1 says that there is none, which compaction takes for a deletion of "
        "the key.",
        "value": "The message's value. Of a compressed message it is a whole set of messages, compressed; Enter shows "
        "them.",
        "records": "These bytes are no key and value as the lengths describe them, although the checksum is right.",
    },
    Part.OFFSET_INDEX: {
        "relative offset": "The last offset of what begins at the position, less the segment's base offset, which is "
        "the file's name.",
        "position": "Where in the segment's .log a batch begins. To find an offset, the log is read from the last "
        "entry on that is not beyond it.",
    },
    Part.TIME_INDEX: {
        "timestamp": "No record up to and including the offset has a greater timestamp, in epoch milliseconds.",
        "relative offset": "The offset up to which that holds, less the segment's base offset, which is the file's "
        "name.",
    },
    Part.TRANSACTION_INDEX: {
        "version": "The version of the entry's format, 0.",
        "producer id": "The producer whose transaction was aborted.",
        "first offset": "The first offset of the aborted transaction in this partition.",
        "last offset": "The offset of the marker that aborted it.",
        "last stable offset": "The last stable offset of the partition when the marker was appended.",
    },
    Part.PRODUCER_SNAPSHOT: {
        "version": "The version of the file's format, 1.",
        "crc": "CRC-32C, the checksum of everything after this field.",
        "count": "How many producers follow, 46 bytes each.",
        "producer id": "The producer that the entry is about.",
        "producer epoch": "The producer's latest epoch: an older one is refused.",
        "last sequence": "The sequence of the last record of the producer's last batch; -1 if no batch is remembered. "
        "The next record's is one more.",
        "last offset": "The offset of the last record of the producer's last batch; -1 if no batch is remembered.",
        "offset delta": "The last offset of the producer's last batch less its first.",
        "timestamp": "When the producer wrote its last batch, or a marker ended its transaction, in epoch "
        "milliseconds; producers that were quiet for long are forgotten by it.",
        "coordinator epoch": "The epoch of the transaction coordinator that wrote the producer's last marker; -1 if "
        "none was seen.",
        "current transaction's first offset": "Where the producer's open transaction begins in this partition; -1 if "
        "none is open.",
    },
    Part.OFFSET_CHECKPOINT: {
        "version": "The version of the file's format, 0.",
        "entry count": "How many lines follow; a file with more or fewer is taken for damaged.",
        "topic": "The topic that the line's offset is of.",
        "partition": "The partition of the topic.",
        "offset": "The partition's offset that the file is named for: the recovery point, the log's start, the high "
        "watermark, or up to where the log was compacted.",
        "line": "A line that is no entry: three words are expected, a topic, a partition and an offset.",
    },
    Part.LEADER_EPOCHS: {
        "version": "The version of the file's format, 0.",
        "entry count": "How many lines follow; a file with more or fewer is taken for damaged.",
        "leader epoch": "A leader epoch: it rises each time that the partition gets a leader.",
        "start offset": "The first offset of that epoch in this log.",
        "line": "A line that is no entry: two numbers are expected, an epoch and an offset.",
    },
    Part.DAMAGED_RANGES: {
        "version": "The version of the file's format, 0.",
        "entry count": "How many lines follow.",
        "start offset": "The first offset that can't be read.",
        "end offset": "The offset after the last one that can't be read.",
        "segment base offset": "The segment that the damage is in, by the offset in its name.",
        "position": "Where in the segment's .log the damage begins.",
        "end position": "Where in the segment's .log the damage ends.",
        "line": "A line that is no entry: five numbers are expected.",
    },
    Part.PARTITION_METADATA: {
        "line": "A property of the partition: the file's version, or the id of the topic that the folder belongs to, "
        "in URL-safe base64."
    },
    Part.META_PROPERTIES: {
        "line": "A property of the data directory: whose it is, by the ids of the cluster, the node and the directory. "
        "Lines that begin with # are comments."
    },
    Part.CLEAN_SHUTDOWN: {"line": "The file is there if the broker stopped cleanly; it may name the broker's epoch."},
    Part.OTHER: {"bytes": "Neither Kafka nor plog knows a file of this name, so its bytes have no names."},
}
"""By structure, then by the field's name; those of damage, and of incomplete entries, are below."""

_REST = "The file ends in the middle of an entry: these bytes are too few for one."

DAMAGE: dict[DamageKind, str] = {
    DamageKind.CRC_MISMATCH: "The batch's bytes do not fit its checksum, so nothing in it is to be trusted.",
    DamageKind.BAD_MAGIC: "The magic is not that of the batch's format; all else in it may be right.",
    DamageKind.BAD_LENGTH: "The length leads to no batch. With one bit of it changed it does, and the checksum is "
    "right.",
    DamageKind.TORN_TAIL: "The file ends within a batch, as a crash leaves it while somebody appends; nobody was told "
    "that it is safe.",
    DamageKind.ZEROED: "There are zeros where batches should be, as a disk leaves them that lost what was written.",
    DamageKind.GARBAGE: "No batch begins here or later in these bytes.",
    DamageKind.UNREADABLE: "The disk does not give these bytes. The zeros that stand for them say nothing.",
    DamageKind.OFFSETS_NOT_RISING: "The batch ends before the offset that it begins with, although its checksum is "
    "right.",
}


def explain_damage(kind: DamageKind) -> Explanation:
    """Explains the damage of bytes that hold no sound batch."""
    return Explanation(DAMAGE[kind], _FINDINGS)


@cache
def explain(part: Part, name: str) -> Explanation:
    text = _REST if name == "rest" else EXPLANATIONS[part][name]
    return Explanation(text, PAGES.get(part, ""))
