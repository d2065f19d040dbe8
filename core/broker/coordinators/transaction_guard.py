"""Decides whether a transaction's records may be appended: only if its coordinator knows the partition (KIP-890).

Then a marker is sure to follow, and a late request can't open a transaction that never ends. Clients of
transaction.version 2 let the broker add a partition with its first records; older ones must have added it, and that is
verified. Source: kafka.server.AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
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
    """What a client's request version supports."""

    BASIC = 0
    ABORTABLE_ERRORS = 1
    """The client understands TRANSACTION_ABORTABLE."""

    IMPLICIT_ADDING = 2
    """The client lets the broker add partitions."""

    @classmethod
    def of(cls, version: int, first_with_abortable_errors: int, first_with_implicit_adding: int) -> ClientCapability:
        """Finds the capability by the version of a request."""
        if version >= first_with_implicit_adding:
            return cls.IMPLICIT_ADDING
        return cls.ABORTABLE_ERRORS if version >= first_with_abortable_errors else cls.BASIC


def code_for_client(code: ErrorCode, *, knows_fenced: bool) -> ErrorCode:
    """Returns the code that stood for PRODUCER_FENCED before KIP-588 if the client is older."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED and not knows_fenced else code


def refusals(
    services: Services,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Iterable[Partition],
    client: ClientCapability,
) -> dict[TopicPartition, KafkaError]:
    """Returns the partitions to which the transaction may not write, and why; it may write to the others."""
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
    """Returns whether to ask a coordinator on another broker: verifying is optional, adding is not."""
    is_checking = services.config.transaction_partition_verification_enable
    return is_checking or client is ClientCapability.IMPLICIT_ADDING


def _names_to_check(producer: ProducerIdAndEpoch, partitions: Iterable[Partition]) -> list[TopicPartition]:
    """Returns the partitions in which the producer has no open transaction."""
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
    """Asks the coordinator of the transaction, if that is another broker, to verify the partitions in which the
    transaction is not open yet, or to add them; returns those to which it may not write, and why. `refusals` then knows
    the verified ones. Returns None if no other broker needs to be asked.
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
    if error.code is ErrorCode.PRODUCER_FENCED:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if error.code is ErrorCode.TRANSACTION_ABORTABLE and client is ClientCapability.BASIC:
        return KafkaError(ErrorCode.INVALID_TXN_STATE, error.message)
    return error
