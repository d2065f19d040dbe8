"""Finds and keeps what a Fetch response cannot report: offsets that may be lost, and transactions whose marker is lost.

A read-only broker looks for both when it opens a log, and reports them as keys of a topic's settings
(`core.broker.config.config_sources`). A broker that owns its logs gets missing offsets between segments from the code
that opens and checks segments, and damage from readers that meet it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from core.broker.partitions.replica_manager import ReplicaManager
from core.cluster.image.metadata_image import TopicImage
from core.common.background import RunInBackground
from core.common.errors import CorruptRecordError, PlogError
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import find_lock_holder
from core.files.file_names import LOG_SUFFIX, locate_partition, parse_offset_file_name
from core.forensics.damage import DamagedRange
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.partition_reader import PartitionReader
from core.forensics.read_committed import ServedTransactions
from core.forensics.recovery_journal import read_lost_offsets
from core.forensics.unexplained_gaps import UnexplainedGaps
from core.log.damaged_ranges import UNDECIDED_OFFSETS, UNEXPLAINED_OFFSETS, WRONG_START, WRONG_TAIL
from core.log.log_loader import LoadedLog
from core.log.log_manager import LogManager
from core.log.partition_log import PartitionLog
from core.records.control_record import FateKind

_log = logging.getLogger("plog.broker")


class Doubts(NamedTuple):
    """Offsets [start, end) that are missing for no known reason, or of batches that may have been aborted."""

    unexplained: list[tuple[int, int]]
    undecided: list[tuple[int, int]]


class SuspectedLoss:
    """Owned by the broker's task, except for `find`."""

    def __init__(
        self, log_manager: LogManager, replicas: ReplicaManager, origin: Path, run_in_background: RunInBackground
    ) -> None:
        """`origin` is the user's directory; the log manager may work on a shadow of it."""
        self._log_manager = log_manager
        self._replicas = replicas
        self._origin = origin
        self._run_in_background = run_in_background
        self.unexplained: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Offsets [start, end) found missing for no known reason, by partition."""
        self.undecided: dict[TopicPartition, list[tuple[int, int]]] = {}
        """Offsets [start, end) of batches that may have been aborted: the marker is lost."""
        self._examining: set[tuple[str, int]] = set()  # path and position
        replicas.on_damage.append(self.examine)
        replicas.on_removed.append(self._forget)

    # --- what is known of a topic

    def gaps_of(self, topic: TopicImage) -> dict[int, list[DamagedRange]]:
        """Returns the known damage, by partition."""
        return {tp.partition: log.gaps for tp, log in self._served(topic) if log.gaps}

    def doubts_of(self, topic: TopicImage) -> dict[str, dict[int, list[tuple[int, int]]]]:
        """Returns what a Fetch response cannot report, by key and partition: offsets [start, end)."""
        names, logs = [TopicPartition(topic.name, number) for number in topic.partitions], self._log_manager
        holes = {tp.partition: self.unexplained[tp] for tp in names if tp in self.unexplained}
        for tp, log in self._served(topic):
            lost_start = logs.lost_starts.get(tp)
            if lost_start is not None and lost_start[1] == log.log_start_offset:  # nothing was deleted since
                holes[tp.partition] = [lost_start, *holes.get(tp.partition, [])]
        undecided = {tp.partition: self.undecided[tp] for tp in names if tp in self.undecided}
        ends = {tp: (log.log_end_offset, log.log_end_offset + 1) for tp, log in self._served(topic)}
        tails = {tp.partition: [end] for tp, end in ends.items() if tp in logs.with_wrong_tail}
        starts = {tp.partition: [end] for tp, end in ends.items() if tp in logs.with_wrong_start}
        doubts = {
            UNEXPLAINED_OFFSETS: holes, UNDECIDED_OFFSETS: undecided, WRONG_TAIL: tails, WRONG_START: starts
        }  # fmt: skip
        return {key: found for key, found in doubts.items() if found}

    def _served(self, topic: TopicImage) -> Iterator[tuple[TopicPartition, PartitionLog]]:
        for number in topic.partitions:
            partition = self._replicas.partitions.get(TopicPartition(topic.name, number))
            if partition is not None:
                yield partition.log.partition, partition.log

    def _forget(self, removed: Iterable[TopicPartition]) -> None:
        for name in removed:
            self.unexplained.pop(name, None)
            self.undecided.pop(name, None)

    # --- finding it

    def find(self, loaded: LoadedLog, evidence: KnownOffsetsOfDirectory) -> Doubts:
        """Finds doubts in a log of a read-only broker; in any thread, because it may read the whole log. Afterwards
        `evidence` may no longer count as that of a clean stop: the engine may have changed the shadow.
        """
        log, partition = loaded.log, loaded.log.partition
        gaps = [(gap.start_offset, gap.end_offset) for segment in log.segments for gap in segment.gaps]
        holes = UnexplainedGaps()
        if loaded.unexplained is not None:
            for start, end in loaded.unexplained:
                holes.add(start, end)
        else:
            evidence.was_stopped_cleanly = False
            with contextlib.closing(PartitionReader(log.directory, evidence=evidence, is_locked=True)) as reader:
                holes = reader.unexplained(log.log_start_offset, log.log_end_offset, gaps, most_batches=None)
        if holes.count:
            _log.warning("%s: %s", partition, holes.text(self._log_manager.directory))
        undecided: list[tuple[int, int]] = []
        if holes.count or gaps or loaded.is_odd or read_lost_offsets(log.directory):
            undecided = self._judge_transactions(log)
        return Doubts(holes.ranges if holes.count else [], undecided)

    def note(self, log: PartitionLog, doubts: Doubts, unreadable: Iterable[Path]) -> None:
        """Keeps the doubts for readers. `unreadable` are segments that can't be opened: those after a log's end are
        reported here alone.
        """
        if doubts.unexplained:
            self.unexplained[log.partition] = doubts.unexplained
        if doubts.undecided:
            self.undecided[log.partition] = doubts.undecided
        for path in unreadable:
            parsed, partition = parse_offset_file_name(path.name), locate_partition(path.parent)[0]
            is_after = parsed is not None and parsed[1] == LOG_SUFFIX and parsed[0] >= log.log_end_offset
            if partition == log.partition and is_after:
                self._log_manager.with_wrong_tail.add(log.partition)

    def note_unexplained(self, log: PartitionLog, holes: Sequence[tuple[int, int]]) -> None:
        """Keeps the offsets [start, end) that are missing between the segments of a log, if it is still served."""
        if self._log_manager.logs.get(log.partition) is not log:
            return
        if holes:
            self.unexplained[log.partition] = list(holes)
        else:
            self.unexplained.pop(log.partition, None)

    def examine(self, log: PartitionLog, error: CorruptRecordError) -> None:
        """Finds the extent of damage that a reader met, and notes it in the log."""
        segment = next((s for s in log.segments if str(s.records.path) == error.path), None)
        where = error.path, error.position
        if segment is None or error.position < 0 or where in self._examining:
            return
        self._examining.add(where)
        end, cuts = log.end_of(segment), log.cuts
        found: list[DamagedRange] = []

        def work() -> None:
            try:
                found.append(segment.find_gap(error.position, segment.reading(end)))
            except OSError as refused:
                _log.error("could not read %s: %s", segment.records.path, refused.strerror)

        def then() -> None:
            self._examining.discard(where)
            if segment.is_removed or log.cuts != cuts:  # what was read may have been of what came after a cut
                return
            for gap in found:
                log.note_damage(gap)
                self._replicas.notify([log.partition])

        self._run_in_background(work, then)

    def _judge_transactions(self, log: PartitionLog) -> list[tuple[int, int]]:
        """Lets the log serve to read_committed consumers what the files on the disk prove; the shadow's indexes may
        have been rebuilt. Returns the offsets of batches whose transaction's outcome is unknown.
        """
        partition, directory = log.partition, self._origin / log.directory.name
        evidence, is_beside_writer = KnownOffsetsOfDirectory(self._origin), find_lock_holder(self._origin) is not None
        with contextlib.suppress(PlogError, OSError):  # files that can't be read are reported elsewhere
            reader = PartitionReader(directory, evidence=evidence, is_locked=not is_beside_writer)
            with contextlib.closing(reader):
                fates = reader.transaction_fates
                log.judged = ServedTransactions(fates, reader.last_stable_offset)
            undecided = [fate for fate in fates if fate.fate is FateKind.UNKNOWN]
            for fate in undecided:
                why = "aborted or not can't be told; readers of committed records do not get them"
                _log.warning("%s: %s: %s: %s", partition, fate.records_text, why, fate.evidence)
            return sorted((base, last + 1) for fate in undecided for base, last in fate.batches)
        return []
