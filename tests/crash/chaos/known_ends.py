"""Whether leaders are up to date: one that is asked where a partition ends may not name an end before what was
acknowledged. One that was paused or cut off may still take itself for the leader, so each is asked in an epoch that is
not older than the one in which the acknowledgement was confirmed (KIP-207, KIP-320); a leader of another one refuses.
"""

from __future__ import annotations

from collections.abc import Callable

from core.client.net.kafka_client import KafkaClient
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

_NOTHING = (-1, -1)
_LATEST = -1
_TIMEOUT_MS = 5000


class KnownEnds:
    """`note` is called with a partition, its end, and the offset that was acknowledged before."""

    def __init__(self, note: Callable[[TopicPartition, int, int], None]) -> None:
        self._note = note
        self._confirmed: dict[TopicPartition, tuple[int, int]] = {}
        """By partition: an offset that was acknowledged, and the epoch of a leader that was asked after that."""

    def look(self, client: KafkaClient, name: TopicPartition, acknowledged: int = -1) -> None:
        """Asks the leader that the client knows, who has acknowledged this offset if one is given. Raises PlogError if
        it can't be asked.
        """
        known = client.topic(name.topic).partitions[name.partition]
        offset, epoch = self._confirmed.get(name, _NOTHING)
        if known.leader < 0 or known.leader_epoch < epoch:
            return  # the client was told of a leader that has been followed by another one
        asked = ListOffsetsPartition(name.partition, known.leader_epoch, _LATEST)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(name.topic, [asked])], _TIMEOUT_MS)
        answer = client.connection_to(known.leader).call(LIST_OFFSETS, request).topics[0].partitions[0]
        if ErrorCode.of(answer.error_code) is ErrorCode.NONE:
            offset = max(offset, acknowledged)
            self._note(name, answer.offset, offset)
            self._confirmed[name] = offset, known.leader_epoch
