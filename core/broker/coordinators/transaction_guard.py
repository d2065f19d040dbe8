"""Decides whether a transaction's records may be appended: only if its coordinator knows that it writes (KIP-890).

A marker then follows for certain, and nothing that arrives late begins a transaction which nobody ends. Clients of
transaction.version 2 leave it to the broker to add a partition with the first records for it; those before have added
it, and are checked. Source: kafka.server.AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from core.broker.requests.services import Services
from core.cluster.image.metadata_image import NO_LEADER
from core.cluster.partition.partition import Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_state import RAISES_EPOCH
from core.records.record_batch import ProducerIdAndEpoch

COORDINATOR_IS_AWAY = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class ClientCapability(Enum):
    """What a client understands."""

    BASIC = 0
    ABORTABLE_ERRORS = 1
    """It understands TRANSACTION_ABORTABLE."""

    IMPLICIT_ADDING = 2
    """It leaves it to the broker to add partitions."""

    @classmethod
    def of(cls, version: int, first_with_abortable_errors: int, first_with_implicit_adding: int) -> ClientCapability:
        """Finds it by the version of a request."""
        if version >= first_with_implicit_adding:
            return cls.IMPLICIT_ADDING
        return cls.ABORTABLE_ERRORS if version >= first_with_abortable_errors else cls.BASIC


def code_for_client(code: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Gives older clients the code that stood for PRODUCER_FENCED before there was one (KIP-588)."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and not knows_fenced else code


def refusals(
    services: Services,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[Partition],
    client: ClientCapability,
) -> dict[TopicPartition, KafkaError]:
    """Gives the partitions to which the transaction may not write, and why; the others belong to it now."""
    names = _names_to_check(producer, partitions)
    if not names:
        return {}
    membership = services.membership
    if membership is not None and services.transaction_log.find_coordinator_elsewhere(transactional_id) is not None:
        if not _is_asked_for(services, client):
            return {}
        verifier = membership.transactions.verifier
        away = KafkaError(ErrorCode.NOT_COORDINATOR, "another broker coordinates the transaction")
        return {name: away for name in names if not verifier.is_verified(name, producer)}
    if client is ClientCapability.IMPLICIT_ADDING:
        try:
            services.transactions.add_partitions(transactional_id, producer, frozenset(names), RAISES_EPOCH)
        except KafkaError as error:
            return dict.fromkeys(names, _error_for_client(error, client))
        return {}
    if not services.config.transaction_partition_verification_enable:
        return {}
    refused = {}
    for name in names:
        try:
            services.transactions.ensure_in_transaction(transactional_id, producer, name)
        except KafkaError as error:
            refused[name] = _error_for_client(error, client)
    return refused


def _is_asked_for(services: Services, client: ClientCapability) -> bool:
    """Says whether another broker that coordinates is asked: to check is a choice, to add is not."""
    is_checking = services.config.transaction_partition_verification_enable
    return is_checking or client is ClientCapability.IMPLICIT_ADDING


def _names_to_check(producer: ProducerIdAndEpoch, partitions: Iterable[Partition]) -> list[TopicPartition]:
    """Gives those in which the producer's transaction has not begun."""
    return [
        partition.log.partition
        for partition in partitions
        if (state := partition.log.producers.find(producer.producer_id)) is None
        or not state.is_in_transaction(producer.epoch)
    ]


def ask_elsewhere(
    services: Services,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[Partition],
    client: ClientCapability,
) -> Pending[dict[TopicPartition, KafkaError]] | None:
    """Asks the other broker that coordinates the transaction, in a cluster, for the partitions in which it has not
    begun, or has it add them; gives those to which it may not write, and why. `refusals` knows then of the others. None
    if nobody else is to be asked.
    """
    membership = services.membership
    if membership is None or not _is_asked_for(services, client):
        return None
    coordinator = services.transaction_log.find_coordinator_elsewhere(transactional_id)
    names = _names_to_check(producer, partitions)
    if coordinator in (None, NO_LEADER) or not names:
        return None
    adds = client is ClientCapability.IMPLICIT_ADDING
    asked = membership.transactions.verifier.ask(coordinator, transactional_id, producer, names, adds=adds)
    return asked.map(
        lambda verdicts: {
            name: _error_for_client(KafkaError(error), client)
            for name, error in verdicts.items()
            if error is not ErrorCode.NONE
        }
    )


def _error_for_client(error: KafkaError, client: ClientCapability) -> KafkaError:
    """Makes the error one that the client understands."""
    if error.code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if error.code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientCapability.BASIC:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, error.message)
    return error
