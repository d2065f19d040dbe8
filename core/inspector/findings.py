"""What is wrong with a file, where, how much is at stake, and how bad it is. Codes: docs/findings.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from core.common.errors import CorruptRecordError
from core.inspector.bit_flip import ByteFix
from core.inspector.file_kind import FileKind
from core.records.batches import Batch
from core.records.record_batch import RecordBatch


class Severity(StrEnum):
    """An error puts records, or the start of a broker, at risk; a warning is made good by the next start."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    CRC_MISMATCH = "crc-mismatch"
    BAD_MAGIC = "bad-magic"
    BAD_LENGTH = "bad-length"
    BAD_BATCH = "bad-batch"
    BAD_COUNT = "bad-count"
    TORN_TAIL = "torn-tail"
    ZEROED = "zeroed"
    GARBAGE = "garbage"
    OFFSETS_NOT_RISING = "offsets-not-rising"
    OFFSETS_MISSING = "offsets-missing"
    EPOCHS_NOT_RISING = "epochs-not-rising"
    LOG_SHORT = "log-short"
    SEQUENCE_GAP = "sequence-gap"
    TRANSACTION_ORDER = "transaction-order"
    INDEX_MISSING = "index-missing"
    INDEX_CORRUPT = "index-corrupt"
    INDEX_MISMATCH = "index-mismatch"
    TIME_INDEX_MISSING = "time-index-missing"
    TIME_INDEX_CORRUPT = "time-index-corrupt"
    TIME_INDEX_MISMATCH = "time-index-mismatch"
    TRANSACTION_INDEX_CORRUPT = "transaction-index-corrupt"
    TRANSACTION_INDEX_MISMATCH = "transaction-index-mismatch"
    SNAPSHOT_CORRUPT = "snapshot-corrupt"
    SNAPSHOT_MISMATCH = "snapshot-mismatch"
    LEADER_EPOCHS_MISMATCH = "leader-epochs-mismatch"
    CHECKPOINT_CORRUPT = "checkpoint-corrupt"
    METADATA_CORRUPT = "metadata-corrupt"
    TOPIC_ID_MISMATCH = "topic-id-mismatch"
    UNFINISHED_SWAP = "unfinished-swap"


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes [position, end_position) of a file; offsets `offset` to `last_offset`, of which `records` are at stake.

    -1 where there is none to name; `records` is None where that can't be told. `fix`: the one byte that mends it, where
    that is known.
    """

    severity: Severity
    code: Code
    path: str
    message: str
    position: int = -1
    offset: int = -1
    end_position: int = -1
    last_offset: int = -1
    records: int | None = 0
    fix: ByteFix | None = None


def undecodable_finding(batch: Batch, path: Path, error: CorruptRecordError) -> Finding:
    """Of a batch whose checksum is right and whose records do not decode."""
    is_current = isinstance(batch, RecordBatch)
    return Finding(
        Severity.ERROR,
        Code.BAD_BATCH,
        str(path),
        f"its records can't be read: {error.cause}",
        batch.position,
        batch.base_offset if is_current else batch.last_offset,
        batch.position + batch.size_bytes,
        batch.last_offset,
        batch.count if isinstance(batch, RecordBatch) else None,
    )


_CORRUPT = {
    FileKind.OFFSET_INDEX: Code.INDEX_CORRUPT,
    FileKind.TIME_INDEX: Code.TIME_INDEX_CORRUPT,
    FileKind.TRANSACTION_INDEX: Code.TRANSACTION_INDEX_CORRUPT,
    FileKind.PRODUCER_SNAPSHOT: Code.SNAPSHOT_CORRUPT,
    FileKind.PARTITION_METADATA: Code.METADATA_CORRUPT,
    FileKind.META_PROPERTIES: Code.METADATA_CORRUPT,
}


def corrupt_code(kind: FileKind) -> Code:
    """The code of a file, no log, that does not parse."""
    return _CORRUPT.get(kind, Code.CHECKPOINT_CORRUPT)
