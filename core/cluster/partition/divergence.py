"""Where two replicas' logs part ways, by leader epochs.

A record is named by its epoch and offset: only one leader writes in an epoch, and who follows it has what it wrote, up
to some offset. So two logs that both have records of an epoch agree in it up to where the shorter one ends it, and
before it. A follower says in each Fetch of which epoch its last record is. The leader answers with the largest epoch
that both may know and where its own records of that end; the follower cuts its log there, and asks again. Its high
watermark plays no part: what is above it may be acknowledged, because it arrives later than the records (KIP-101).

Source: KIP-101, KIP-279, KIP-595; Partition.readRecords, AbstractFetcherThread.getOffsetTruncationState.
"""

from __future__ import annotations

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.files.leader_epoch_cache import LeaderEpochCache
from core.protocol.schema.fetch import EpochEndOffset


def find_divergence(
    epochs: LeaderEpochCache, *, log_start: int, log_end: int, last_fetched_epoch: int, fetch_offset: int
) -> EpochEndOffset | None:
    """Finds where the fetcher's log and this one, the leader's, part ways; None if they agree or the fetcher does not
    say of which epoch its last record is. KafkaError(OFFSET_OUT_OF_RANGE) if that epoch is above all that are known.

    Beyond the log's end as well: after a crash that cut the log, a consumer goes back to where its records end. Below
    the log's start there is nothing to go back to (`Partition.readRecords`).
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
    """Gives where a follower, whose epochs these are, must cut its log when the leader says that they part there. Each
    answer takes records or an epoch away, until the leader knows the epoch of the last record.
    """
    epoch, end_offset = epochs.end_offset_of(diverging.epoch, log_end)
    if epoch == diverging.epoch:  # which has the leader's records, up to where the first of the two ends them
        end_offset = min(end_offset, diverging.end_offset)
    elif epoch < 0:  # nothing is known of the epochs here
        end_offset = diverging.end_offset
    return min(end_offset, log_end)


def offset_in_range(*, log_start: int, log_end: int, leader_start: int, leader_end: int) -> int:
    """Gives where a follower's log must end, whose fetches the leader calls out of range, or which may keep no more
    than what lies below `log_end`: lower than that if the leader's log is shorter; higher, and without the records
    before, if the leader deleted what would come next. If nothing of the log can stay, it begins where the leader's
    does: records that the leader has may lie before it.
    """
    end = min(log_end, leader_end)
    return leader_start if end < log_start else max(leader_start, end)
