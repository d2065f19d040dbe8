"""All transactional ids of a broker: their producers, and the states of their transactions.

A transaction ends in two phases: first its outcome is written to __transaction_state (Prepare..), and is final from
then on; then its partitions get their markers, and at last Complete.. is written. A coordinator that stops in between
goes on after the next start, from its log. Source: kafka.coordinator.transaction.{TransactionCoordinator,
TransactionStateManager,TransactionMarkerChannelManager}, KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.coordinator.coordinator_environment import TransactionEnvironment
from core.coordinator.transaction_record_values import read_transaction, transaction_value
from core.coordinator.transaction_state import RAISES_EPOCH, TransactionMetadata, TransactionState, is_epoch_exhausted
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

_log = logging.getLogger("plog.transactions")

_RETRY_MS = 1000
_LONGEST_WAIT_MS = 1000
"""The producer gets its answer after this time even if markers are still being written: the outcome is committed."""

Outcome = ProducerIdAndEpoch | KafkaError


class TransactionFilter(NamedTuple):
    """Fields that are set restrict the list. `longer_than_ms`: how long a transaction has been open."""

    states: Collection[TransactionState] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = -1


_EVERYTHING = TransactionFilter()


class TransactionCoordinator:
    """Owned by one task.

    I1 the state of an id is that of its last record
    I2 a transaction in a Prepare state is being finished
    I3 `_open_since_ms` has the ids that are Ongoing, and no other
    """

    def __init__(self, environment: TransactionEnvironment) -> None:
        self._environment = environment
        self._transactions: dict[str, TransactionMetadata] = {}
        self._open_since_ms: dict[str, int] = {}  # by the monotonic clock
        self.on_step: Callable[[str], None] = lambda _step: None
        """Called after each step with its name: the state that was written, or the partition that got its marker. For
        tests that stop at a step.
        """

    # --- replaying the log

    def replay(self, key: bytes, value: bytes | None, *, at: tuple[int, int] | None = None) -> str:
        """Applies a record of __transaction_state; returns its transactional id, "" if that is not known. `at`: the
        record's partition and offset.
        """
        try:
            read = read_transaction(key, value)
        except CorruptRecordError as error:
            where = "" if at is None else f"-{at[0]}, offset {at[1]}"
            _log.error("__transaction_state%s: a record is passed over: %s", where, error)
            return ""
        if read is None:
            return ""
        transactional_id, metadata = read
        if metadata is not None and metadata.state is not TransactionState.DEAD:
            open_ms = max(self._environment.now_ms() - metadata.start_ms, 0)  # only this clock outlasts a restart
            self._take_up(metadata, open_ms)
        else:
            self._drop(transactional_id)
        return transactional_id

    def take_over(self, read: TransactionCoordinator) -> list[str]:
        """Adds all ids of `read`, none of which are known here; returns them, for `begin`."""
        self._transactions |= read._transactions
        self._open_since_ms |= read._open_since_ms
        return list(read._transactions)

    def begin(self, transactional_ids: Iterable[str]) -> None:
        """Finishes the prepared transactions of these ids, whose log is fully read (I2)."""
        for transactional_id in dict.fromkeys(transactional_ids):
            metadata = self._transactions.get(transactional_id)
            if metadata is not None and metadata.state.is_prepared:
                _log.info(
                    "the transaction of %s is brought to its end: %s", metadata.transactional_id, metadata.state.text
                )
                self._finish(metadata, metadata.partitions, Pending())

    def forget_all(self) -> None:
        """Forgets all ids, because their log is gone."""
        self._transactions.clear()
        self._open_since_ms.clear()

    def forget(self, number: int) -> None:
        """Forgets the ids of a partition of __transaction_state that this broker no longer leads
        (TransactionStateManager.removeTransactionsForTxnTopicPartition). The new leader finishes their prepared
        transactions.
        """
        for transactional_id in list(self._transactions):
            if self._environment.number_of(transactional_id) == number:
                self._drop(transactional_id)

    @property
    def latest_producer_id(self) -> int:
        """The largest known producer id, -1 if no id is known."""
        return max((max(m.producer_id, m.next_producer_id) for m in self._transactions.values()), default=-1)

    # --- producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None = None
    ) -> ProducerIdAndEpoch:
        """Returns the id's producer with a new epoch; this fences an earlier producer, and aborts its transaction.

        `expected`: the producer that the client says it has; refused if another one came in between (KIP-360). Raises
        KafkaError: CONCURRENT_TRANSACTIONS while a transaction is being ended, PRODUCER_FENCED,
        INVALID_TRANSACTION_TIMEOUT.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        longest = self._environment.config.transaction_max_timeout_ms
        if not 0 < timeout_ms <= longest:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction timeout of {timeout_ms} ms, transaction.max.timeout.ms is {longest}",
            )
        self._environment.ensure_loaded(transactional_id)
        known = self._transactions.get(transactional_id)
        if known is None:
            known = TransactionMetadata(transactional_id, self._environment.next_producer_id(), timeout_ms)
        if expected is not None:
            _ensure_may_go_on(known, expected)
        if known.state is TransactionState.ONGOING:
            self._abort(known)
            known = self._transactions[transactional_id]
        if known.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        begun = self._begun(known, timeout_ms, expected)
        self._keep(begun)
        return begun.producer

    def _begun(
        self, known: TransactionMetadata, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> TransactionMetadata:
        epoch, now_ms = known.producer_epoch, self._environment.now_ms()
        last_epoch = NO_PRODUCER_EPOCH if expected is None else epoch
        if expected is None or epoch in (NO_PRODUCER_EPOCH, expected.epoch):
            if known.is_epoch_exhausted:
                return known.with_producer_id(self._environment.next_producer_id(), last_epoch, timeout_ms, now_ms)
            return known.with_epoch(epoch + 1, last_epoch, timeout_ms, now_ms)
        if expected.epoch == known.last_producer_epoch:  # a retry: the response was lost
            return known.with_epoch(epoch, expected.epoch, timeout_ms, now_ms)
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    # --- transactions

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_transaction_version: int,
    ) -> None:
        """Adds partitions to the transaction, which the first ones open.

        Raises KafkaError: PRODUCER_FENCED for another epoch, INVALID_PRODUCER_ID_MAPPING for a producer that does not
        have the id, CONCURRENT_TRANSACTIONS while the previous transaction is being ended.
        """
        known = self._of_producer(transactional_id, producer)
        if known.state is not TransactionState.ONGOING or not partitions <= known.partitions:
            now_ms = self._environment.now_ms()
            self._keep(known.with_partitions(partitions, now_ms, client_transaction_version))

    def ensure_in_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> None:
        """Raises what `add_partitions` raises; TRANSACTION_ABORTABLE if the partition was not added (KIP-890)."""
        known = self._of_producer(transactional_id, producer)
        if partition not in known.partitions:
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, f"{partition} was not added to the transaction")

    def _of_producer(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        """Returns the id's metadata. Raises KafkaError unless it is this producer's, and not being ended."""
        known = self._existing(transactional_id)
        if known.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.producer_epoch != producer.epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if known.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return known

    def _existing(self, transactional_id: str, missing: KafkaError | None = None) -> TransactionMetadata:
        """Finds the id's metadata. Raises `missing`, or KafkaError(INVALID_PRODUCER_ID_MAPPING), for an unknown id."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        self._environment.ensure_loaded(transactional_id)
        known = self._transactions.get(transactional_id)
        if known is None:
            raise missing or KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return known

    # --- the end of a transaction

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, is_commit: bool, transaction_version: int
    ) -> Outcome | Pending[Outcome]:
        """Commits or aborts; when the outcome is committed, returns the producer for the next transaction, or an error.
        Raises what `add_partitions` raises; INVALID_TXN_STATE if nothing can end, or it ended with the other outcome.
        """
        known = self._existing(transactional_id)
        decide = _ensure_may_end_and_raise_epoch if transaction_version >= RAISES_EPOCH else _ensure_may_end
        if not decide(known, producer, is_commit=is_commit):
            return known.producer  # a retry
        next_id = NO_PRODUCER_ID
        if transaction_version >= RAISES_EPOCH and known.is_epoch_exhausted:
            next_id = self._environment.next_producer_id()
        now_ms = self._environment.now_ms()
        prepared = known.prepared(
            is_commit=is_commit, transaction_version=transaction_version, now_ms=now_ms, next_producer_id=next_id
        )
        self._keep(prepared)
        answer = Pending[Outcome](lambda: KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._finish(prepared, prepared.partitions, answer)
        return answer if answer.value is None else answer.value

    def _abort(self, known: TransactionMetadata) -> None:
        """Aborts without the producer, which is fenced."""
        fenced = known.fenced(self._environment.transaction_version, self._environment.now_ms())
        self._keep(fenced)
        self._finish(fenced, fenced.partitions, Pending())

    def _finish(
        self, prepared: TransactionMetadata, partitions: frozenset[TopicPartition], answer: Pending[Outcome]
    ) -> None:
        """Writes the missing markers and then the Complete state; tries again later what fails. A slow broker does not
        hold up the producer: Kafka answers before the markers are written, and here the answer waits for them at most
        `_LONGEST_WAIT_MS`, since the next transaction must wait for them anyway.
        """
        producer = prepared.completed(self._environment.now_ms()).producer

        def mark(error: KafkaError | None) -> None:
            if error is not None:
                answer.complete_with(error)
            elif self._transactions.get(prepared.transactional_id) is not prepared:
                # It was forgotten: the new coordinator writes the markers.
                answer.complete_with(KafkaError(ErrorCode.NOT_COORDINATOR))
            else:
                self._environment.write_markers(prepared, partitions, complete)
                if not answer.is_over:
                    self._environment.schedule(_LONGEST_WAIT_MS, lambda: answer.complete_with(producer))

        def complete(left: frozenset[TopicPartition]) -> None:
            if self._transactions.get(prepared.transactional_id) is not prepared:
                answer.complete_with(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))  # its log is gone
                return
            completed = prepared.completed(self._environment.now_ms())
            try:
                if not left:
                    self._keep(completed)
            except KafkaError as error:
                _log.warning(
                    "the end of the transaction of %s could not be written: %s", prepared.transactional_id, error
                )
            if self._transactions[prepared.transactional_id] is prepared:
                self._environment.schedule(_RETRY_MS, partial(self._finish, prepared, left, Pending()))
            answer.complete_with(producer)

        self._environment.call_when_committed(prepared.transactional_id, mark)

    def _keep(self, metadata: TransactionMetadata) -> None:
        """Writes the metadata and applies it. Raises KafkaError, with nothing changed, if that fails."""
        value = transaction_value(metadata, self._environment.transaction_version)
        self._environment.write(metadata.transactional_id, value)
        self._take_up(metadata)
        self.on_step(metadata.state.text)

    def _take_up(self, metadata: TransactionMetadata, open_ms: int = 0) -> None:
        """Replaces the id's metadata. A transaction that was not known as Ongoing has been open for `open_ms`."""
        transactional_id = metadata.transactional_id
        self._transactions[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            self._open_since_ms.setdefault(transactional_id, self._environment.monotonic_ms() - open_ms)
        else:
            self._open_since_ms.pop(transactional_id, None)

    def _drop(self, transactional_id: str) -> None:
        self._transactions.pop(transactional_id, None)
        self._open_since_ms.pop(transactional_id, None)

    # --- from time to time

    def abort_timed_out(self) -> None:
        """Aborts transactions that have been open longer than their producers' timeouts."""
        now_ms = self._environment.monotonic_ms()
        for transactional_id, since_ms in list(self._open_since_ms.items()):
            metadata = self._transactions[transactional_id]
            if now_ms - since_ms > metadata.timeout_ms:
                _log.info("transaction of %s is aborted: timed out", transactional_id)
                self._try_to(partial(self._abort, metadata), transactional_id)

    def expire(self) -> None:
        """Forgets ids that were not used for `transactional.id.expiration.ms`."""
        oldest_ms = self._environment.now_ms() - self._environment.config.transactional_id_expiration_ms
        for metadata in list(self._transactions.values()):
            if metadata.state.is_expiration_allowed and metadata.last_update_ms <= oldest_ms:
                self._try_to(partial(self._forget, metadata.transactional_id), metadata.transactional_id)

    def _forget(self, transactional_id: str) -> None:
        self._environment.write(transactional_id, None)
        self._drop(transactional_id)

    def _try_to(self, change: Callable[[], None], transactional_id: str) -> None:
        try:
            change()
        except KafkaError as error:
            _log.warning("transactional id %s: %s", transactional_id, error)

    # --- reports

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Finds the id's metadata. Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND) for an unknown id."""
        missing = f"transactional id {transactional_id!r} is not known"
        return self._existing(transactional_id, KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, missing))

    def all(self, wanted: TransactionFilter = _EVERYTHING) -> Iterator[TransactionMetadata]:
        """Yields the metadata of every id that passes the filter."""
        now_ms = self._environment.now_ms()
        for metadata in self._transactions.values():
            if wanted.states and metadata.state not in wanted.states:
                continue
            if wanted.producer_ids and metadata.producer_id not in wanted.producer_ids:
                continue
            if wanted.longer_than_ms >= 0 and now_ms - metadata.start_ms <= wanted.longer_than_ms:
                continue
            yield metadata

    def _check_invariants(self) -> None:
        """Asserts I3; tests check I1 and I2 by the log and the environment."""
        ongoing = {name for name, m in self._transactions.items() if m.state is TransactionState.ONGOING}
        assert self._open_since_ms.keys() == ongoing, "I3"


def _ensure_may_go_on(known: TransactionMetadata, expected: ProducerIdAndEpoch) -> None:
    """Raises KafkaError(PRODUCER_FENCED) unless it is the id's producer, or was until its epochs were used up. `_begun`
    checks the epoch.
    """
    was_producer = expected.producer_id == known.previous_producer_id and is_epoch_exhausted(expected.epoch)
    if known.producer_epoch != NO_PRODUCER_EPOCH and expected.producer_id != known.producer_id and not was_producer:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _ensure_may_end(known: TransactionMetadata, producer: ProducerIdAndEpoch, *, is_commit: bool) -> bool:
    """Returns True, or False if it already ended with this outcome. Raises KafkaError if it can't be ended."""
    if known.producer_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if known.producer_epoch != producer.epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if known.state is TransactionState.ONGOING:
        return True
    _ensure_same_end(known, is_commit=is_commit)
    return False


def _ensure_may_end_and_raise_epoch(
    known: TransactionMetadata, producer: ProducerIdAndEpoch, *, is_commit: bool
) -> bool:
    """As `_ensure_may_end`, if each end raises the epoch: a request with the previous epoch is a retry."""
    is_from_before = (
        known.previous_producer_id == producer.producer_id
        and is_epoch_exhausted(producer.epoch)
        and known.producer_epoch == 0
    )
    is_retry = known.producer_epoch == producer.epoch + 1 or is_from_before
    is_now = known.producer_epoch == producer.epoch
    if known.producer_id != producer.producer_id and not is_from_before:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_open = known.state in (TransactionState.ONGOING, TransactionState.EMPTY)
    if not (is_now if is_open else is_retry if known.state.is_prepared else is_retry or is_now):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if known.state is TransactionState.ONGOING:
        return True
    if is_retry:
        _ensure_same_end(known, is_commit=is_commit)
        return False
    if is_commit:
        raise _nothing_to_end(known, is_commit=is_commit)
    return True  # an abort without a transaction raises the epoch, too


def _ensure_same_end(known: TransactionMetadata, *, is_commit: bool) -> None:
    if known.state is TransactionState.EMPTY or known.is_commit != is_commit:
        raise _nothing_to_end(known, is_commit=is_commit)
    if known.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _nothing_to_end(known: TransactionMetadata, *, is_commit: bool) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"the transaction of {known.transactional_id!r} is {known.state.text}: "
        f"it can't be {'committed' if is_commit else 'aborted'}",
    )
