"""Reports the ISRs that leaders here propose to the controller, by AlterPartition (KIP-497).

Proposals wait while a request is in flight; the next request has all of them. Each answer goes to the partition that
proposed. A proposal without an answer is sent again, after a short while, unless the partition's state has changed
meanwhile, which ends the proposal.

Source: kafka.server.DefaultAlterPartitionManager.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable

from core.broker.replication.controller_channel import ControllerChannel, ControllerErrand
from core.cluster.partition.leadership import IsrAnswer, IsrProposal
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema import controller_request as schema

_log = logging.getLogger("plog.broker")

_VERSION = 3  # KIP-903: with the broker epochs of the ISR


class IsrReporter:
    """Owned by the broker's loop."""

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        on_answer: Callable[[Partition, IsrProposal, IsrAnswer], None],
    ) -> None:
        """`broker_epoch` returns that of the present registration, or -1. `on_answer` (`ReplicaManager.on_isr_answer`)
        may propose again, at once.
        """
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._on_answer = on_answer
        self._waiting: dict[Partition, IsrProposal] = {}
        self._asked: dict[Partition, IsrProposal] = {}
        """The proposals of the request in flight."""
        self._refusals: dict[TopicPartition, tuple[tuple[int, ...], ErrorCode]] = {}
        """The last refused proposals, and why."""
        self._errand = ControllerErrand(self._report)

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Reports it soon, with all other proposals of the same turn of the loop."""
        self._waiting[partition] = proposal
        self._errand.begin()

    async def close(self) -> None:
        """Stops reporting; open proposals get no answer."""
        await self._errand.close()

    # --- asking

    async def _report(self) -> None:
        while self._waiting:
            answer = await self._channel.ask(schema.ALTER_PARTITION, _VERSION, self._make_request, _find_error)
            if answer is not None and not self._take(answer):
                await self._channel.wait_for_change()

    def _make_request(self) -> schema.AlterPartitionRequest | None:
        """Makes a request of all waiting proposals, without those that are over; returns None if none is left."""
        self._waiting = {one: proposal for one, proposal in self._waiting.items() if one.proposes(proposal)}
        self._asked = dict(self._waiting)
        if not self._asked:
            return None
        topics = defaultdict[bytes, list[schema.AlteredPartition]](list)
        for partition, proposal in self._asked.items():
            topics[partition.topic_id].append(_proposed(partition, proposal))
        return schema.AlterPartitionRequest(
            self._node_id,
            self._broker_epoch(),
            [schema.AlteredTopic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
        )

    # --- answers

    def _take(self, answer: schema.AlterPartitionResponse) -> bool:
        """Passes the partitions their answers; returns whether the controller accepted all proposals."""
        results = {
            (topic.topic_id, result.partition_index): result for topic in answer.topics for result in topic.partitions
        }
        asked, self._asked = self._asked, {}
        answered = [
            self._take_result(one, proposal, results.get((one.topic_id, one.log.partition.partition)))
            for one, proposal in asked.items()
        ]
        return all(answered)

    def _take_result(
        self, partition: Partition, proposal: IsrProposal, result: schema.AlteredPartitionResult | None
    ) -> bool:
        name = partition.log.partition
        if result is None:
            _log.warning("the controller's answer says nothing of %s; it is asked again", name)
            return False
        if self._waiting.get(partition) is proposal:
            del self._waiting[partition]
        answer = IsrAnswer(
            ErrorCode.of(result.error_code), tuple(result.isr), result.leader_epoch, result.partition_epoch
        )
        self._log_answer(name, proposal, answer)
        self._on_answer(partition, proposal, answer)
        return answer.error is ErrorCode.NONE

    def _log_answer(self, name: TopicPartition, proposal: IsrProposal, answer: IsrAnswer) -> None:
        """Logs a refusal once, however often it is repeated."""
        if answer.error is ErrorCode.NONE:
            self._refusals.pop(name, None)
            _log.info("%s: the replicas in sync are %s now", name, _listed(answer.isr))
        elif self._refusals.get(name) != (refusal := (proposal.isr, answer.error)):
            self._refusals[name] = refusal
            reason = answer.error.text
            _log.info("%s: the controller refuses the replicas in sync %s: %s", name, _listed(proposal.isr), reason)


def _listed(node_ids: Iterable[int]) -> str:
    return ",".join(map(str, node_ids))


def _proposed(partition: Partition, proposal: IsrProposal) -> schema.AlteredPartition:
    return schema.AlteredPartition(
        partition_index=partition.log.partition.partition,
        leader_epoch=proposal.leader_epoch,
        new_isr_with_epochs=[schema.BrokerState(one, proposal.broker_epochs.get(one, -1)) for one in proposal.isr],
        leader_recovery_state=proposal.leader_recovery_state,
        partition_epoch=proposal.partition_epoch,
    )


def _find_error(answer: schema.AlterPartitionResponse) -> int:
    """Returns the error of the whole request, or NOT_CONTROLLER if a partition has it: a controller answers so for
    epochs that are ahead of its own, which a newer controller must have assigned.
    """
    of_partitions = {result.error_code for topic in answer.topics for result in topic.partitions}
    is_another = ErrorCode.NOT_CONTROLLER in of_partitions
    return ErrorCode.NOT_CONTROLLER if is_another else answer.error_code
