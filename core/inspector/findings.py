"""What is wrong with a file, where, and how bad it is. Codes are documented in docs/findings.md."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from core.inspector.file_kind import FileKind


class Severity(StrEnum):
    """An error puts records, or the start of a broker, at risk; a warning is made good by the next start."""

    ERROR = "error"
    WARNING = "warning"


class Code(StrEnum):
    CRC_MISMATCH = "crc-mismatch"
    BAD_MAGIC = "bad-magic"
    BAD_BATCH = "bad-batch"
    TORN_TAIL = "torn-tail"
    ZEROED = "zeroed"
    GARBAGE = "garbage"
    OFFSETS_NOT_RISING = "offsets-not-rising"
    EPOCHS_NOT_RISING = "epochs-not-rising"
    BAD_COUNT = "bad-count"
    INDEX_MISSING = "index-missing"
    INDEX_CORRUPT = "index-corrupt"
    INDEX_MISMATCH = "index-mismatch"
    TIME_INDEX_MISSING = "time-index-missing"
    TIME_INDEX_CORRUPT = "time-index-corrupt"
    TIME_INDEX_MISMATCH = "time-index-mismatch"
    TRANSACTION_INDEX_CORRUPT = "transaction-index-corrupt"
    TRANSACTION_INDEX_MISMATCH = "transaction-index-mismatch"
    SNAPSHOT_CORRUPT = "snapshot-corrupt"
    CHECKPOINT_CORRUPT = "checkpoint-corrupt"
    METADATA_CORRUPT = "metadata-corrupt"
    UNFINISHED_SWAP = "unfinished-swap"


@dataclass(frozen=True, slots=True)
class Finding:
    """`position` is in bytes from the start of the file, `offset` a record's; -1 where there is none to name."""

    severity: Severity
    code: Code
    path: str
    message: str
    position: int = -1
    offset: int = -1


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
