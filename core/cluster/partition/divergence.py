"""Finds where two replicas' logs diverge, by leader epochs.

A record is identified by its epoch and offset: only one leader writes in an epoch, and its followers have its records
up to some offset. So two logs that both have records of an epoch agree in it up to where the shorter one ends it, and
before it. A follower names in each Fetch the epoch of its last record. The leader answers with the largest epoch that
both may know and the end of its own records of that; the follower truncates its log there, and asks again. Its high
watermark plays no part: records above it may be acknowledged, because it arrives later than they do (KIP-101).

Source: KIP-101, KIP-279, KIP-595; Partition.readRecords, AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.files.checkpoint_file import LeaderEpochCache
from core.protocol.schema.fetch import EpochEndOffset


def find_divergence(
    epochs: LeaderEpochCache, *, log_start: int, log_end: int, last_fetched_epoch: int, fetch_offset: int
) -> EpochEndOffset | None:
    """Returns where the fetcher's log diverges from this one, the leader's, or None if they agree or the request does
    not name the epoch of the last record. Raises KafkaError(OFFSET_OUT_OF_RANGE) if that epoch is above all known ones.

    Looks beyond the log's end as well: after a crash that cut the log, a consumer goes back to where its records end.
    Below the log's start there is nothing to go back to (`Partition.readRecords`).
    """
    if last_fetched_epoch < 0:
        return None
    epoch, end_offset = epochs.end_offset_of(last_fetched_epoch, log_end)
    if epoch < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if fetch_offset < log_start:
        return None  # which is out of range
    if epoch < last_fetched_epoch or end_offset < fetch_offset:
        return EpochEndOffset(epoch, end_offset)
    return None


def truncation_offset(epochs: LeaderEpochCache, *, log_end: int, diverging: EpochEndOffset) -> int:
    """Returns where a follower, with these epochs, must truncate its log when the leader reports `diverging`. Each
    answer removes records or an epoch, until the leader knows the epoch of the last record.
    """
    epoch, end_offset = epochs.end_offset_of(diverging.epoch, log_end)
    if epoch == diverging.epoch:  # which has the leader's records, up to where the first of the two ends them
        end_offset = min(end_offset, diverging.end_offset)
    elif epoch < 0:  # nothing is known of the epochs here
        end_offset = diverging.end_offset
    return min(end_offset, log_end)


def offset_in_range(*, log_start: int, log_end: int, leader_start: int, leader_end: int) -> int:
    """Returns the new end of a follower's log, if its fetches are out of the leader's range or it may keep only records
    below `log_end`: lower than that if the leader's log is shorter; higher, and without the records before, if the
    leader deleted the next ones. If nothing of the log can stay, it begins where the leader's log does: records that
    the leader has may lie before it.
    """
    end = min(log_end, leader_end)
    return leader_start if end < log_start else max(leader_start, end)
