"""The findings about a file: what, where, how much is at stake, and how bad it is. Codes: docs/findings.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import CorruptRecordError, UnreadableFileError
from core.files.file_names import LOG_SUFFIX
from core.forensics.bit_flip import ByteFix
from core.forensics.damage import Damage
from core.forensics.known_offsets import WrongLine
from core.forensics.missing_offsets import Hole, HoleReason, offsets_text
from core.inspector.check.file_kind import FileKind
from core.records.batches import Batch, stated_offset
from core.records.record_batch import RecordBatch

if TYPE_CHECKING:
    from core.forensics.batch_order import Displaced


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
    UNREADABLE = "unreadable"
    OFFSETS_NOT_RISING = "offsets-not-rising"
    OFFSETS_MISSING = "offsets-missing"
    EPOCHS_NOT_RISING = "epochs-not-rising"
    LOG_SHORT = "log-short"
    LOG_MISMATCH = "log-mismatch"
    CUT_OFF = "cut-off"
    SEGMENT_MISSING = "segment-missing"
    SEGMENT_MISNAMED = "segment-misnamed"
    FOLDER_MISNAMED = "folder-misnamed"
    BATCH_REPEATED = "batch-repeated"
    BATCH_OUT_OF_ORDER = "batch-out-of-order"
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
    LOG_START_WRONG = "log-start-wrong"
    HIGH_WATERMARK_WRONG = "high-watermark-wrong"
    METADATA_CORRUPT = "metadata-corrupt"
    TOPIC_ID_MISMATCH = "topic-id-mismatch"
    UNFINISHED_SWAP = "unfinished-swap"


@dataclass(frozen=True, slots=True)
class Finding:
    """Bytes [position, end_position) of a file; offsets `offset` to `last_offset`, with `records` at stake.

    Numbers are -1 if unknown or absent; `records` is None if unknown. `fix` is the one byte that mends it, if known;
    `base_offset_fix` that of `Damage`.
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
    base_offset_fix: ByteFix | None = None


def unreadable_finding(error: UnreadableFileError, records: int | None = None) -> Finding:
    """Reports a file, or part of it, that the system can't read; for a log, the number of lost records is unknown."""
    if records is None and Path(error.path).suffix != LOG_SUFFIX:
        records = 0
    return Finding(
        Severity.ERROR, Code.UNREADABLE, error.path, error.cause, error.position, error.offset, records=records
    )


def whole_unreadable_findings(errors: Iterable[UnreadableFileError], known: Iterable[Finding]) -> list[Finding]:
    """Reports files that can't be opened, except those that other findings name, with what they cost."""
    paths = {finding.path for finding in known}
    return [unreadable_finding(error) for error in errors if error.path not in paths]


def hole_finding(hole: Hole) -> Finding:
    """Reports records that are lost, or may be."""
    last_offset = hole.end - 1 if hole.end > hole.start else -1
    if hole.damage is not None:
        finding = damage_finding(hole.damage, hole.path, hole.start)
        return replace(finding, last_offset=last_offset, records=hole.records)
    if hole.reason is HoleReason.DAMAGED:
        code = Code.UNREADABLE
    elif hole.reason is HoleReason.MISSING:
        code = Code.LOG_SHORT if hole.is_end else Code.SEGMENT_MISSING
    else:
        code = Code.OFFSETS_MISSING
    message, span = hole.evidence.removeprefix(f"{code}: "), (-1, hole.start, -1, last_offset)
    return Finding(Severity.ERROR, code, str(hole.path), message, *span, hole.records)


def damage_finding(damage: Damage, path: Path, offset: int = -1) -> Finding:
    """Reports damage with which no record is known to be lost; `offset` is where the log ends that it follows."""
    span = damage.position, offset, damage.end_position
    finding = Finding(Severity.ERROR, Code(damage.kind.value), str(path), damage.message, *span)
    return replace(finding, fix=damage.fix, base_offset_fix=damage.base_offset_fix)


def claimed_finding(damage: Damage, path: Path) -> Finding:
    """Reports damage in a file read without its log: offsets and records are those that the damaged header claims."""
    last_offset = -1 if damage.end_offset is None else damage.end_offset - 1
    return replace(damage_finding(damage, path, damage.offset), last_offset=last_offset, records=damage.records)


def wrong_start_finding(wrong: WrongLine) -> Finding:
    """Reports a log start that is not believed; nothing is lost with it, as long as nobody does believe it. `offset` is
    where the log begins instead, if that is not its first segment.
    """
    span = wrong.position, wrong.right or -1, wrong.end_position
    return Finding(Severity.ERROR, Code.LOG_START_WRONG, str(wrong.path), str(wrong), *span)


def wrong_watermark_finding(wrong: WrongLine) -> Finding:
    """Reports a high watermark that is not believed; `offset` is the right one, which a broker's next start takes."""
    span = wrong.position, wrong.right, wrong.end_position
    return Finding(Severity.WARNING, Code.HIGH_WATERMARK_WRONG, str(wrong.path), str(wrong), *span)


def displaced_finding(one: Displaced, path: Path) -> Finding:
    """Reports sound batches that stand where they should not; nothing is lost with them."""
    from core.forensics.batch_order import Fate  # most logs have none

    piece = one.piece
    code, where = Code.BATCH_OUT_OF_ORDER, "out of order"
    if one.fate is Fate.REPEATED:
        code, where = Code.BATCH_REPEATED, "here once more"
    batches, stand = ("a sound batch", "stands") if piece.batches == 1 else (f"{piece.batches} sound batches", "stand")
    message = f"{batches} of {offsets_text(piece.base_offset, piece.end_offset)} {stand} {where}"
    span = piece.position, piece.base_offset, piece.end_position, piece.end_offset - 1
    return Finding(Severity.ERROR, code, str(path), message, *span)


def useless_finding(path: Path, size_bytes: int, strays: Sequence[Displaced]) -> Finding:
    """Reports a log without a batch that is a part of the partition's log: a copy; or, if no other file holds its
    batches, the `strays`, one whose name is wrong. If its records are missing from the log, other findings count them.
    """
    if not strays:
        message = "none of its batches is a part of the log: other files hold their offsets"
        return Finding(Severity.ERROR, Code.BATCH_REPEATED, str(path), message, position=0, end_position=size_bytes)
    start, end = min(one.piece.base_offset for one in strays), max(one.piece.end_offset for one in strays)
    message = f"none of its batches can stand in a file of that name: they are of {offsets_text(start, end)}"
    span = 0, max(start, 0), size_bytes, max(end - 1, 0)
    return Finding(Severity.ERROR, Code.SEGMENT_MISNAMED, str(path), message, *span)


def misnamed_finding(path: Path, base_offset: int, size_bytes: int) -> Finding:
    """Reports a log whose name can't be right; its batches of the log belong to the segment before."""
    message = f"no segment can begin at offset {base_offset}, which lies within a batch of the log"
    return Finding(Severity.ERROR, Code.SEGMENT_MISNAMED, str(path), message, position=0, end_position=size_bytes)


def corrupt_finding(code: Code, error: CorruptRecordError, path: Path) -> Finding:
    """Reports a file that does not parse, or can't be read."""
    if isinstance(error, UnreadableFileError):
        return unreadable_finding(error)
    return Finding(Severity.ERROR, code, str(path), error.cause, error.position)


def undecodable_finding(batch: Batch, path: Path, error: CorruptRecordError) -> Finding:
    """Reports a batch whose checksum is right and whose records do not decode."""
    records = None if not isinstance(batch, RecordBatch) else 0 if batch.is_control else batch.count
    message = f"its records can't be read: {error.cause}"
    return batch_finding(Code.BAD_BATCH, batch, path, message, stated_offset(batch), records)


def batch_finding(
    code: Code,
    batch: Batch,
    path: Path,
    message: str,
    offset: int,
    records: int | None = 0,
    *,
    severity: Severity = Severity.ERROR,
) -> Finding:
    """Reports a whole batch, whose first offset is `offset`."""
    span = batch.position, offset, batch.position + batch.size_bytes, batch.last_offset
    return Finding(severity, code, str(path), message, *span, records)


_CORRUPT = {
    FileKind.OFFSET_INDEX: Code.INDEX_CORRUPT,
    FileKind.TIME_INDEX: Code.TIME_INDEX_CORRUPT,
    FileKind.TRANSACTION_INDEX: Code.TRANSACTION_INDEX_CORRUPT,
    FileKind.PRODUCER_SNAPSHOT: Code.SNAPSHOT_CORRUPT,
    FileKind.PARTITION_METADATA: Code.METADATA_CORRUPT,
    FileKind.META_PROPERTIES: Code.METADATA_CORRUPT,
}


def corrupt_code(kind: FileKind) -> Code:
    """Returns the code for a file other than a log that does not parse."""
    return _CORRUPT.get(kind, Code.CHECKPOINT_CORRUPT)
