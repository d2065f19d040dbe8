"""The parts of a plan of `plog recover`: steps, each of one file that is changed, set aside or can't be mended, and how
many records each costs. `recovery_planner.py` makes plans, `recovery.py` carries them out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from core.common.topic_partition import TopicPartition
from core.files.end_transaction_marker import Marker
from core.files.file_names import LOG_SUFFIX, SNAPSHOT_SUFFIX, parse_offset_file_name
from core.forensics.bit_flip import ByteFix
from core.forensics.recovered_layout import Stretch
from core.forensics.recovery_journal import OffsetRange
from core.index.transaction_index import AbortedTransaction


@dataclass(frozen=True, slots=True)
class RecoveryOptions:
    """`accepts_visible`: records of transactions that nothing proves aborted or committed may be shown.
    `accepts_missing`: offsets that are missing without a trace of their bytes are given up.
    """

    is_like_kafka: bool = False
    fixes_bits: bool = False
    accepts_visible: bool = False
    accepts_missing: bool = False


class Action(StrEnum):
    FIX = "fix"
    CUT_OUT = "cut out"
    TRUNCATE = "truncate"
    SET_ASIDE = "set aside"
    REBUILD = "rebuild"
    RESTORE = "restore"
    WRITE_MARKER = "write marker"
    SHOW = "make visible"
    LEAVE_OPEN = "leave open"
    PUT_IN_ORDER = "put in order"
    PUT_BACK = "put back"
    GIVE_UP = "give up"
    MISSING = "missing"
    NONE = "can't mend"

    @property
    def changes(self) -> bool:
        """Whether anything is done."""
        return self not in (Action.NONE, Action.LEAVE_OPEN, Action.MISSING)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do to one file: bytes [position, end_position), offsets `offset` to `last_offset`, each -1 if
    absent; if it `is_to_end`, the log ends at `offset` afterwards. `marker` is written to the log, at a lost offset.

    Each record that is not kept is counted in one place of one step: in `records` if it can't be read as it is, in
    `given_up` if it is sound. Whether the `doubtful` ones were aborted is unknown. `missing` offsets were not here
    before, and stay so.
    """

    action: Action
    path: Path
    why: str
    position: int = -1
    end_position: int = -1
    offset: int = -1
    last_offset: int = -1
    records: int | None = 0
    fix: ByteFix | None = None
    marker: Marker | None = None
    given_up: int = 0
    doubtful: int = 0
    missing: int = 0
    is_to_end: bool = False


@dataclass(slots=True)
class FolderPlan:
    """Of a partition's folder, or of a data directory's root. `topic_id`: the right one for its `partition.metadata`.
    `layout`: the contents, in order, of each log that batches are moved in, out of or into. `keeps_epochs`: the leader
    epochs of some batches are wrong, so that the checkpoint is not rebuilt from them. `aborted`: transactions whose
    abort marker is missing, and which only the transaction indexes show. `right_lines`: of a root, the numbers to
    replace the wrong ones of its checkpoints, by file name and partition; 0 is for no line.
    """

    directory: Path
    steps: list[Step] = field(default_factory=list)
    topic_id: bytes | None = None
    layout: dict[Path, list[Stretch]] = field(default_factory=dict)
    keeps_epochs: bool = False
    aborted: list[AbortedTransaction] = field(default_factory=list)
    right_lines: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        return any(step.action.changes for step in self.steps)

    @property
    def doubts(self) -> list[Step]:
        """Returns the steps that only the user can decide: `RecoveryOptions.accepts_visible`."""
        return [step for step in self.steps if step.action is Action.SHOW]

    def by_path(self) -> dict[Path, list[Step]]:
        """Returns the steps that change each file, in order."""
        result = defaultdict[Path, list[Step]](list)
        for step in self.steps:
            if step.action.changes:
                result[step.path].append(step)
        return result

    def is_trace(self, name: str, logs: Container[int]) -> bool:
        """Says whether a file is a trace of a segment whose log is missing: its own, or the next one's snapshot. `logs`
        are the base offsets of the existing logs.
        """
        parsed = parse_offset_file_name(name)
        missing = (range(s.offset, s.last_offset + 2) for s in self.steps if s.action is Action.MISSING)
        if parsed is None or parsed[1] == LOG_SUFFIX or not any(parsed[0] in offsets for offsets in missing):
            return False
        return parsed[1] == SNAPSHOT_SUFFIX or parsed[0] not in logs

    def lost(self) -> list[OffsetRange]:
        """Returns the offsets that are given up: no batch has them afterwards, except new markers."""
        return [(step.offset, self._end_of_loss(step)) for step in self.steps if gives_up(step) and step.offset >= 0]

    def _end_of_loss(self, step: Step) -> int | None:
        if not step.is_to_end and step.last_offset >= 0:
            return step.last_offset + 1
        markers = [one.marker.offset for one in self.steps if one.marker is not None]
        return max((offset + 1 for offset in markers if offset >= step.offset), default=None)

    def leaves_missing(self) -> bool:
        """Whether offsets stay missing that may still come back."""
        return any(step.action in (Action.NONE, Action.MISSING) and step.last_offset >= 0 for step in self.steps)


_LOSING = (Action.CUT_OUT, Action.TRUNCATE, Action.SET_ASIDE, Action.GIVE_UP)


def gives_up(step: Step) -> bool:
    """Whether the offsets that it names are in no batch afterwards."""
    return step.action in _LOSING or step.is_to_end
