"""What is shown of transactions, whoever was asked: values for `KnownTransactions`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from core.client.write.transaction_admin import OpenTransaction, TransactionDescription
from core.common.topic_partition import TopicPartition


class KnownId(NamedTuple):
    """A transactional id, and where it stands. From `epoch` on None if it was not asked for, or can't be had, which
    `problem` explains: a server is asked only of those whose transaction is not over.
    """

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    epoch: int | None = None
    timeout_ms: int | None = None
    started_ms: int | None = None
    partitions: frozenset[TopicPartition] | None = None
    problem: str = ""


class TransactionListing(NamedTuple):
    """What is open on partitions, and the ids that coordinators know: all of it after `done` of `total` steps.
    `problems` says what is missing.
    """

    open_transactions: list[OpenTransaction]
    ids: list[KnownId]
    done: int
    total: int
    problems: list[str]

    @property
    def is_whole(self) -> bool:
        return self.done >= self.total


class TransactionSource(Protocol):
    """Somebody who knows the transactions. Its methods may raise PlogError."""

    def look(self) -> Iterator[tuple[int, int]]:
        """Looks again; gives how much of it is done, and of how much."""

    def listing(self, done: int, total: int) -> TransactionListing:
        """Gives what is known now; `done` and `total` become those of the listing."""


def known_id(found: TransactionDescription) -> KnownId:
    return KnownId(
        found.transactional_id,
        found.state,
        found.producer_id,
        found.coordinator,
        epoch=found.producer_epoch,
        timeout_ms=found.timeout_ms,
        started_ms=found.started_ms if found.started_ms >= 0 else None,
        partitions=found.partitions,
    )
