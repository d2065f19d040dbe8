"""All transactional ids of a broker: who their producers are, and where their transactions stand.

A transaction ends in two phases. Its outcome is written to __transaction_state (Prepare..), and counts from then on;
then a marker is written to each of its partitions; then that it is over (Complete..). Whoever stops in between goes on
at the next start, from what is written. Source: kafka.coordinator.transaction.{TransactionCoordinator,
TransactionStateManager,TransactionMarkerChannelManager}, KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from core.common.error_code import ErrorCode
from core.common.errors import CorruptRecordError, KafkaError
from core.common.topic_partition import TopicPartition
from core.coordinator.transaction_environment import TransactionEnvironment
from core.coordinator.transaction_record_values import read_transaction, transaction_value
from core.coordinator.transaction_state import RAISES_EPOCH, TransactionMetadata, TransactionState, is_epoch_exhausted
from core.records.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch

_log = logging.getLogger("plog.transactions")

_RETRY_MS = 1000
_LONGEST_WAIT_MS = 1000
"""After which the producer is answered, as the outcome is kept, though markers are still being written."""

Outcome = ProducerIdAndEpoch | KafkaError


class TransactionFilter(NamedTuple):
    """What to list: all, but for what is set. `longer_than_ms`: how long a transaction has been open."""

    states: Collection[TransactionState] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = -1


_EVERYTHING = TransactionFilter()


class TransactionCoordinator:
    """Owned by one task.

    I1 what is known of an id is what its last record says
    I2 one in a Prepare state is being finished
    I3 `_open_since_ms` has those that are Ongoing, and no other
    """

    def __init__(self, environment: TransactionEnvironment) -> None:
        self._environment = environment
        self._transactions: dict[str, TransactionMetadata] = {}
        self._open_since_ms: dict[str, int] = {}  # by the monotonic clock
        self.on_step: Callable[[str], None] = lambda _step: None
        """Called with each step, when it is done: the state that was written, the partition that got its marker. For
        tests that stop there.
        """

    # --- what the log says

    def replay(self, key: bytes, value: bytes | None, *, at: tuple[int, int] | None = None) -> str:
        """Takes up a record of __transaction_state, and gives the id that it is about, "" if that is not known. `at`:
        the partition and the offset where it stands.
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
            open_ms = max(self._environment.now_ms() - metadata.start_ms, 0)  # by the only clock that stops outlast
            self._take_up(metadata, open_ms)
        else:
            self._drop(transactional_id)
        return transactional_id

    def take_over(self, read: TransactionCoordinator) -> list[str]:
        """Takes in what the other one knows, of which nothing was known here; gives its ids, for `begin`."""
        self._transactions |= read._transactions
        self._open_since_ms |= read._open_since_ms
        return list(read._transactions)

    def begin(self, transactional_ids: Iterable[str]) -> None:
        """Ends what was being ended when the broker stopped: all that the log says of these ids is known (I2)."""
        for transactional_id in dict.fromkeys(transactional_ids):
            metadata = self._transactions.get(transactional_id)
            if metadata is not None and metadata.state.is_prepared:
                _log.info("transaction of %s goes on to its end: %s", metadata.transactional_id, metadata.state.text)
                self._finish(metadata, metadata.partitions, lambda _outcome: None)

    def forget_all(self) -> None:
        """Forgets ids whose log is gone."""
        self._transactions.clear()
        self._open_since_ms.clear()

    def forget(self, number: int) -> None:
        """Forgets the ids of a partition of __transaction_state that is led here no more
        (TransactionStateManager.removeTransactionsForTxnTopicPartition). What is being ended is ended by whoever leads
        it now.
        """
        for transactional_id in list(self._transactions):
            if self._environment.number_of(transactional_id) == number:
                self._drop(transactional_id)

    @property
    def latest_producer_id(self) -> int:
        """Gives the largest id that is known here, -1 if none is."""
        return max((max(m.producer_id, m.next_producer_id) for m in self._transactions.values()), default=-1)

    # --- producers

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None = None
    ) -> ProducerIdAndEpoch:
        """Gives the id's producer in a new epoch; who had it before is fenced, and its transaction aborted.

        `expected`: who asks says that it is this one, and goes on only if nobody else came in between (KIP-360).
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
        if expected.epoch == known.last_producer_epoch:  # it asks again, for it did not hear the answer
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
        """Adds those to what the transaction writes to; it begins with the first.

        KafkaError: PRODUCER_FENCED for an epoch that is over, INVALID_PRODUCER_ID_MAPPING for a producer who has not
        the id, CONCURRENT_TRANSACTIONS while the transaction before is being ended.
        """
        known = self._of_producer(transactional_id, producer)
        if known.state is not TransactionState.ONGOING or not partitions <= known.partitions:
            now_ms = self._environment.now_ms()
            self._keep(known.with_partitions(partitions, now_ms, client_transaction_version))

    def ensure_in_transaction(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> None:
        """Raises KafkaError as `add_partitions` does; TRANSACTION_ABORTABLE if the partition is not in it (KIP-890)."""
        known = self._of_producer(transactional_id, producer)
        if partition not in known.partitions:
            raise KafkaError(ErrorCode.TRANSACTION_ABORTABLE, f"{partition} was not added to the transaction")

    def _of_producer(self, transactional_id: str, producer: ProducerIdAndEpoch) -> TransactionMetadata:
        """Gives what is known of the id, which the producer has; it is not being ended."""
        known = self._existing(transactional_id)
        if known.producer_id != producer.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if known.producer_epoch != producer.epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if known.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return known

    def _existing(self, transactional_id: str) -> TransactionMetadata:
        """Finds it; raises KafkaError(INVALID_PRODUCER_ID_MAPPING) if there is none."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        self._environment.ensure_loaded(transactional_id)
        known = self._transactions.get(transactional_id)
        if known is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return known

    # --- their end

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool,
        transaction_version: int,
        then: Callable[[Outcome], None],
    ) -> None:
        """Commits or aborts; `then` gets the producer as it is from now on, once the outcome is kept.

        Raises what `add_partitions` raises, and INVALID_TXN_STATE if there is nothing to end, or it ended otherwise.
        """
        known = self._existing(transactional_id)
        decide = _ensure_may_end_and_raise_epoch if transaction_version >= RAISES_EPOCH else _ensure_may_end
        if not decide(known, producer, is_commit=is_commit):
            then(known.producer)  # this was answered before
            return
        next_id = NO_PRODUCER_ID
        if transaction_version >= RAISES_EPOCH and known.is_epoch_exhausted:
            next_id = self._environment.next_producer_id()
        now_ms = self._environment.now_ms()
        prepared = known.prepared(
            is_commit=is_commit, transaction_version=transaction_version, now_ms=now_ms, next_producer_id=next_id
        )
        self._keep(prepared)
        self._finish(prepared, prepared.partitions, then)

    def _abort(self, known: TransactionMetadata) -> None:
        """Aborts without its producer, which is fenced."""
        fenced = known.fenced(self._environment.transaction_version, self._environment.now_ms())
        self._keep(fenced)
        self._finish(fenced, fenced.partitions, lambda _outcome: None)

    def _finish(
        self, prepared: TransactionMetadata, partitions: frozenset[TopicPartition], then: Callable[[Outcome], None]
    ) -> None:
        """Writes the markers that are still to be written, and then that the transaction is over: again, later, if that
        can't be done now. A broker that holds markers up does not hold up the answer: Kafka gives it before they are
        written, and here it waits for a while, as the next transaction has to.
        """
        producer = prepared.completed(self._environment.now_ms()).producer
        answer = _Once(then)

        def mark(error: KafkaError | None) -> None:
            if error is not None:
                answer.give(error)
            elif self._transactions.get(prepared.transactional_id) is not prepared:
                answer.give(KafkaError(ErrorCode.NOT_COORDINATOR))  # it was let go: its markers are for others to write
            else:
                self._environment.write_markers(prepared, partitions, complete)
                if not answer.is_given:
                    self._environment.schedule(_LONGEST_WAIT_MS, lambda: answer.give(producer))

        def complete(left: frozenset[TopicPartition]) -> None:
            if self._transactions.get(prepared.transactional_id) is not prepared:
                answer.give(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))  # its log is gone
                return
            completed = prepared.completed(self._environment.now_ms())
            try:
                if not left:
                    self._keep(completed)
            except KafkaError as error:
                _log.warning("that %s is over could not be written: %s", prepared.transactional_id, error)
            if self._transactions[prepared.transactional_id] is prepared:
                again = partial(self._finish, prepared, left, lambda _outcome: None)
                self._environment.schedule(_RETRY_MS, again)
            answer.give(producer)

        self._environment.call_when_committed(prepared.transactional_id, mark)

    def _keep(self, metadata: TransactionMetadata) -> None:
        """Writes it; raises KafkaError if it can't: nothing has changed then."""
        value = transaction_value(metadata, self._environment.transaction_version)
        self._environment.write(metadata.transactional_id, value)
        self._take_up(metadata)
        self.on_step(metadata.state.text)

    def _take_up(self, metadata: TransactionMetadata, open_ms: int = 0) -> None:
        """Replaces what is known of the id. A transaction not known to be open before has been so for `open_ms`."""
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
        """Aborts those that have been open longer than their producers' timeouts."""
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
        """Finds it; raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND) if there is none."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        self._environment.ensure_loaded(transactional_id)
        known = self._transactions.get(transactional_id)
        if known is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id!r} is not known"
            )
        return known

    def all(self, wanted: TransactionFilter = _EVERYTHING) -> Iterator[TransactionMetadata]:
        """Gives what is known of every id that the filter lets through."""
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
        """Asserts them; I1 and I2 are seen in the log and in the environment."""
        ongoing = {name for name, m in self._transactions.items() if m.state is TransactionState.ONGOING}
        assert self._open_since_ms.keys() == ongoing, "I3"


class _Once:
    """An answer that is given once, by whoever comes first."""

    def __init__(self, then: Callable[[Outcome], None]) -> None:
        self._then = then
        self.is_given = False

    def give(self, outcome: Outcome) -> None:
        if not self.is_given:
            self.is_given = True
            self._then(outcome)


def _ensure_may_go_on(known: TransactionMetadata, expected: ProducerIdAndEpoch) -> None:
    """Raises KafkaError(PRODUCER_FENCED) unless it is the id's producer, or was until its epochs were used up; its
    epoch is for others to check.
    """
    was_producer = expected.producer_id == known.previous_producer_id and is_epoch_exhausted(expected.epoch)
    if known.producer_epoch != NO_PRODUCER_EPOCH and expected.producer_id != known.producer_id and not was_producer:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _ensure_may_end(known: TransactionMetadata, producer: ProducerIdAndEpoch, *, is_commit: bool) -> bool:
    """Says whether there is something to end, False if it ended so already; raises KafkaError if it can't be."""
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
    """Does likewise, if each end raises the epoch: who says an epoch that was raised since asks again."""
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
    return True  # an abort of nothing raises the epoch too


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
