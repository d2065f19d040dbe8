"""The parts of a plan of `plog recover`: steps, each of one file that is changed, set aside or can't be mended, and how
many records each costs; what is said of it; and what earlier recoveries left undone. `recovery_planner.py` makes plans,
`recovery.py` carries them out.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.files.file_names import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    SNAPSHOT_SUFFIX,
    find_offset_files,
    holds_segments,
    locate_partition,
    parse_offset_file_name,
)
from core.forensics.bit_flip import ByteFix
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.forensics.log_scanner import open_reading
from core.forensics.missing_offsets import offsets_text
from core.forensics.recovered_layout import Stretch
from core.forensics.recovery_journal import JOURNAL, OffsetRange, gave_up_end, is_unfinished, was_left_as_recovered
from core.index.transaction_index import AbortedTransaction
from core.records.control_record import Marker


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
    """It is proven how the transaction ended."""
    SHOW = "make visible"
    """The transaction has ended, but how is unknown: its records will be visible to read_committed."""
    LEAVE_OPEN = "leave open"
    """The transaction stays open, and its records hidden."""
    PUT_IN_ORDER = "put in order"
    PUT_BACK = "put back"
    GIVE_UP = "give up"
    MISSING = "missing"
    NONE = "can't mend"

    @property
    def changes(self) -> bool:
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


# --- in words

_NOT_DECODED = "records were not decoded, plog verify --deep does that"


def step_text(step: Step) -> str:
    """Describes a step: what is done, and where; its losses on a line of their own; and why."""
    lines = [f"{step.action.value} {step.path}"]
    details = []
    if 0 <= step.position < step.end_position:
        details.append(f"bytes {step.position} to {step.end_position - 1}")
    if 0 <= step.offset <= step.last_offset:
        details.append(offsets_text(step.offset, step.last_offset + 1))
    if step.records != 0:
        details.append("records lost: " + ("not known how many" if step.records is None else str(step.records)))
    if step.given_up:
        details.append(f"sound records given up: {step.given_up}")
    if details:
        lines.append(f"    {', '.join(details)}")
    lines.append(f"    {step.why}")
    return "\n".join(lines)


def summary_lines(steps: Sequence[Step]) -> list[str]:
    """Sums up the losses: of each partition that has some, if there are several, and of all together."""
    if not steps:
        return [f"nothing to recover; {_NOT_DECODED}"]
    lines = []
    folders = list(dict.fromkeys(step.path.parent for step in steps))
    for folder in folders if len(folders) > 1 else []:
        losses = losses_text([step for step in steps if step.path.parent == folder])
        if losses != losses_text([]):
            lines.append(f"{folder}: {losses}")
    return [*lines, f"{len(steps)} step{'s' * (len(steps) > 1)}, {losses_text(steps)}; {_NOT_DECODED}"]


def losses_text(steps: Sequence[Step]) -> str:
    """Counts records lost for good, sound ones given up, those of unknown fate, and offsets missing before."""
    lost = sum(step.records or 0 for step in steps)
    parts = [f"{_records(lost)} lost"]
    if any(step.records is None for step in steps):
        parts[0] += ", and what can't be counted"
    given_up, doubtful = sum(step.given_up for step in steps), sum(step.doubtful for step in steps)
    if given_up:
        parts.append(f"{given_up} sound record{'s' * (given_up != 1)} given up")
    if doubtful:
        parts.append(f"{_records(doubtful)} of unknown fate")
    missing = sum(step.missing for step in steps)
    if missing:
        parts.append(f"{missing} offset{'s stay' if missing > 1 else ' stays'} missing")
    return ", ".join(parts)


def _records(count: int) -> str:
    return f"{count} record{'s' * (count != 1)}"


def link_lines(paths: Iterable[Path], plans: Iterable[FolderPlan]) -> list[str]:
    """Says which paths are links: mending a link mends its target."""
    planned = [plan.directory for plan in plans if plan.is_needed]
    links = [path for path in dict.fromkeys([*paths, *planned]) if path.is_symlink()]
    return [f"{path} is a link: what is mended is {path.resolve()}" for path in links]


def unfinished_lines(paths: Sequence[Path]) -> list[str]:
    """Says where a recovery was cut short."""
    folders = [path for path in paths if path.is_dir()]
    unfitting = dict.fromkeys(root_of(path) for path in folders if unfitting_ends(path, root_of(path)))
    return [
        f"{root}: a recovery was cut short before the checkpoints there, which lie beyond the logs; --apply does it"
        for root in unfitting
    ] + [
        f"{folder}: a recovery was cut short there; --undo takes it back, --apply as well, and goes on then"
        for path in folders
        for folder in unfinished_folders(path, root_of(path))
    ]


def unchanged_lines(plans: Sequence[FolderPlan], *, accepts_visible: bool = False) -> list[str]:
    """Says that nothing was changed, and what carries out the plan; empty if there is nothing to do."""
    if any(plan.doubts for plan in plans) and not accepts_visible:
        return ["nothing was changed; --apply --accept-visible does it"]
    return ["nothing was changed; --apply does it"] if any(plan.is_needed for plan in plans) else []


# --- what earlier recoveries left


def root_of(path: Path) -> Path:
    """Finds the data directory of a path that is one, or a partition's folder in one."""
    try:
        return locate_partition(path)[1] if holds_segments(path) else path
    except OSError:
        return path


def unfinished_folders(path: Path, root: Path) -> list[Path]:
    """Finds where a recovery or its undoing was cut short: in folders at that path, or in its data directory's root."""
    folders = {path, root}
    with contextlib.suppress(OSError):
        folders |= {folder for folder in path.iterdir() if folder.is_dir()}
    return sorted(folder for folder in folders if _is_unfinished(folder))


def unfitting_ends(path: Path, root: Path) -> dict[TopicPartition, int]:
    """Returns the ends of the logs at that path whose end a recovery gave up, and that nobody has written to since, if
    a checkpoint of the root still has a later offset.
    """
    evidence, found = KnownOffsetsOfDirectory(root), dict[TopicPartition, int]()
    listed = [evidence.checkpoint(name) for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)]
    folders = [path] if path.resolve() != root.resolve() else sorted(one.parent for one in root.glob(f"*/{JOURNAL}"))
    for folder in folders:
        partition = locate_partition(folder)[0]
        with contextlib.suppress(OSError, PlogError):
            if partition is not None and was_left_as_recovered(folder):
                files = find_offset_files(folder, LOG_SUFFIX)
                with open_reading(files, evidence.of(folder, partition), is_locked=True) as reading:
                    end = reading.sound_end
                if gave_up_end(folder, end) and any(offsets.get(partition, 0) > end for offsets in listed):
                    found[partition] = end
    return found


def _is_unfinished(folder: Path) -> bool:
    """Whether a recovery of the folder is unfinished; False for a bad journal, which its next reader reports."""
    try:
        return is_unfinished(folder)
    except PlogError:
        return False
