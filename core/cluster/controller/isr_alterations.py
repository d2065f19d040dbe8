"""Changes ISRs, in the controller, when leaders ask for it (AlterPartition, KIP-497).

A request may name very many partitions. They are checked in slices, and each slice is written before the next is
checked, so that its checks still hold when it is written, and others have a turn in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from core.cluster.controller.controller_decisions import ControllerDecisions
from core.cluster.controller.controller_writes import Decision, slices
from core.cluster.image.metadata_image import LeaderRecoveryState, PartitionState
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.controller_request import (
    AlteredPartition,
    AlteredPartitionResult,
    AlteredTopicResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

UNKNOWN_EPOCH = -1


class IsrAlterations:
    """Owned by the controller's task."""

    def __init__(self, office: ControllerDecisions) -> None:
        self._office = office
        self._context = office.context

    def alter(
        self, request: AlterPartitionRequest, names: Mapping[bytes, str]
    ) -> Decision[tuple[AlterPartitionResponse, list[TopicPartition]]]:
        """Returns the response, and the changed partitions. A change that is already made is confirmed: the response to
        the request before may have been lost.
        """
        changed: list[TopicPartition] = []
        topics = [AlteredTopicResult(topic_id=topic.topic_id) for topic in request.topics]
        everything = (
            (names.get(topic.topic_id), proposed, result.partitions)
            for topic, result in zip(request.topics, topics, strict=True)
            for proposed in topic.partitions
        )
        for some in slices(everything):
            named = [(TopicPartition(name, one.partition_index), one) for name, one, _ in some if name is not None]
            errors = yield from self._alter(request.broker_id, named, changed)
            for name, one, results in some:
                results.append(self._result(name, one, errors))
        yield from self._office.send_all()
        return AlterPartitionResponse(topics=topics), changed

    def _alter(
        self, broker_id: int, some: Iterable[tuple[TopicPartition, AlteredPartition]], changed: list[TopicPartition]
    ) -> Decision[dict[TopicPartition, ErrorCode]]:
        changes: dict[TopicPartition, PartitionState] = {}
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition, proposed in some:
            changes.pop(partition, None)  # if it is named twice, the last one counts, as its error does
            error = errors[partition] = self._why_not_altered(broker_id, partition, proposed)
            if error is ErrorCode.NONE and not self._is_so(partition, proposed):
                changes[partition] = replace(
                    self._context.state(partition),
                    isr=_isr_of(proposed),
                    leader_recovery_state=proposed.leader_recovery_state,
                )
        yield from self._office.change(changes)
        self._office.requests.tell_metadata(changes)
        changed += changes
        return errors

    def _result(
        self, name: str | None, proposed: AlteredPartition, errors: Mapping[TopicPartition, ErrorCode]
    ) -> AlteredPartitionResult:
        if name is None:
            return AlteredPartitionResult(proposed.partition_index, ErrorCode.UNKNOWN_TOPIC_ID)
        partition = TopicPartition(name, proposed.partition_index)
        result = AlteredPartitionResult(proposed.partition_index, errors[partition])
        if errors[partition] is ErrorCode.NONE:
            state = self._context.state(partition)
            result.leader_id, result.leader_epoch = state.leader, state.leader_epoch
            result.isr, result.partition_epoch = list(state.isr), state.partition_epoch
            result.leader_recovery_state = state.leader_recovery_state
        return result

    def _why_not_altered(self, broker_id: int, partition: TopicPartition, proposed: AlteredPartition) -> ErrorCode:
        state = self._context.find(partition)
        if state is None or partition.topic in self._context.deleted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if proposed.leader_epoch > state.leader_epoch or proposed.partition_epoch > state.partition_epoch:
            return ErrorCode.NOT_CONTROLLER  # a newer controller has given these
        if proposed.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if state.leader != broker_id:
            return ErrorCode.INVALID_REQUEST
        isr = _isr_of(proposed)
        is_sound = proposed.leader_recovery_state in tuple(LeaderRecoveryState) and len(set(isr)) == len(isr)
        if not is_sound or broker_id not in isr or not set(isr) <= set(state.replicas):
            return ErrorCode.INVALID_REQUEST
        if proposed.leader_recovery_state == LeaderRecoveryState.RECOVERING and (
            len(isr) > 1 or state.leader_recovery_state == LeaderRecoveryState.RECOVERED
        ):
            return ErrorCode.INVALID_REQUEST
        if self._is_so(partition, proposed):
            return ErrorCode.NONE
        if proposed.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        joining = {one.broker_id: one.broker_epoch for one in proposed.new_isr_with_epochs} or dict.fromkeys(
            proposed.new_isr, UNKNOWN_EPOCH
        )
        if not all(self._may_join(one, epoch) for one, epoch in joining.items() if one not in state.isr):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def _is_so(self, partition: TopicPartition, proposed: AlteredPartition) -> bool:
        state = self._context.state(partition)
        is_recovered_so = proposed.leader_recovery_state == state.leader_recovery_state
        return is_recovered_so and sorted(_isr_of(proposed)) == sorted(state.isr)

    def _may_join(self, broker_id: int, epoch: int) -> bool:
        """Returns whether a broker may join an ISR: it lives, is not shutting down, and has that epoch, if one is named
        (KIP-841, KIP-903). Not called for brokers in the ISR: a leader that is about to stop must keep a successor.
        """
        broker = self._context.brokers.get(broker_id)
        if broker is None or broker_id in self._context.shutting_down:
            return False
        return epoch in (UNKNOWN_EPOCH, broker.epoch)


def _isr_of(proposed: AlteredPartition) -> tuple[int, ...]:
    return tuple(one.broker_id for one in proposed.new_isr_with_epochs) or tuple(proposed.new_isr)
