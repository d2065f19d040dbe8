"""Consumers of a log in which markers are lost get what was committed, answer by answer, and nothing else."""

from __future__ import annotations

from pathlib import Path
from random import Random

from core.client.read.consumer import AbortedFilter
from core.forensics.read_committed import ServedTransactions
from core.forensics.transaction_resolution import TransactionFate
from core.index.transaction_index import AbortedTransaction
from core.records.batches import Batch, iter_whole_batches
from core.records.control_record import FateKind, Marker
from tests.support.for_each import for_each
from tests.support.logs import append, append_marker, make_batch, open_log


class JavaFilter:
    """As Kafka's own consumer (`CompletedFetch`): the marker of a commit takes nobody from the aborted producers."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._waiting = list(aborted)
        self._aborted: set[int] = set()

    def hides(self, batch: Batch) -> bool:
        while self._waiting and self._waiting[0].first_offset <= batch.last_offset:
            self._aborted.add(self._waiting.pop(0).producer_id)
        if batch.is_control and batch.records()[0].key == bytes((0, 0, 0, 0)):
            self._aborted.discard(batch.producer_id)
        return batch.is_control or (batch.is_transactional and batch.producer_id in self._aborted)


@for_each("seed", range(60), first=30)
def test_consumers_get_what_was_committed(tmp_path: Path, seed: int) -> None:
    """A random log, of whose markers some are missing: the history says how each transaction ended."""
    random = Random(seed)
    log = open_log(tmp_path / "t-0", segment_bytes=random.choice((400, 100_000)))
    open_: dict[int, list[tuple[int, int]]] = {}
    fates: list[TransactionFate] = []
    committed: set[int] = set()
    sequences = dict.fromkeys(range(4), 0)
    for number in range(random.randint(5, 60)):
        producer = random.randrange(4)
        if producer in open_ and random.random() < 0.4:
            batches, is_commit = open_.pop(producer), random.random() < 0.5
            marker = None
            if random.random() < 0.6:
                append_marker(log, producer, is_commit=is_commit)
                marker = Marker(producer, 0, log.log_end_offset - 1, is_commit)
            possible = frozenset({FateKind.COMMITTED if is_commit else FateKind.ABORTED})
            if marker is None and not is_commit and random.random() < 0.5:
                possible |= {FateKind.COMMITTED}
            fates.append(TransactionFate(producer, 0, tuple(batches), possible, "", marker))
            committed |= {base for base, _ in batches} if is_commit else set()
            continue
        start = log.log_end_offset
        fields: dict[str, object] = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
        fields["base_sequence"] = sequences[producer]
        sequences[producer] += 1
        append(log, make_batch(b"%d" % number, **({} if producer == 3 else fields)))
        if producer == 3:
            committed.add(start)
        else:
            open_.setdefault(producer, []).append((start, start))
    stable = min([batches[0][0] for batches in open_.values()] + [log.log_end_offset])
    fates += [TransactionFate(p, 0, tuple(those), frozenset({FateKind.OPEN}), "") for p, those in open_.items()]
    log.judged = ServedTransactions(fates, stable)
    assert log.last_stable_offset == stable
    for make_filter in (AbortedFilter, JavaFilter):
        for start in range(stable):
            given, offset = set[int](), start
            while offset < stable:
                result = log.read(offset, random.choice((1, 200, 1 << 20)), stable, with_aborted=True)
                assert result.region is not None, f"a consumer waits for ever at {offset}"
                hidden = make_filter(sorted(result.aborted, key=lambda entry: entry.first_offset))
                for batch in iter_whole_batches(memoryview(result.region.read())):
                    given |= set() if hidden.hides(batch) else {batch.base_offset}
                    offset = batch.next_offset
            assert given == {offset for offset in committed if start <= offset < stable}
