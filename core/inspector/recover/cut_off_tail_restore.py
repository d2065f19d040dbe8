"""Plans how `plog recover` puts back the bytes that a start cut off a log's end (core.forensics.cut_off_tails).

The files go back if nothing was written in their place since: the log still ends where it was cut. The damage before
and between their sound batches stays out, and its offsets are given up. Everything else is the user's: its records can
be read and produced again, under new offsets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from core.common.salvaging_file import open_salvaging
from core.files.file_names import LOG_SUFFIX, find_offset_files, offset_file_name
from core.forensics.cut_off_tails import CutOffTail, LostEnd, find_cut_off_tails, find_lost_ends
from core.forensics.known_offsets import KnownOffsets
from core.forensics.log_map import LogFile, LogMap
from core.forensics.recovered_layout import Stretch
from core.forensics.transaction_resolution import LogContents
from core.inspector.check.findings import Finding
from core.inspector.recover.recovery_plan import Action, Step
from core.records.batches import count_records

BY_HAND = "plog dump-segment shows its records, plog help 3am says how to produce them again"
_MEND_FIRST = "what else is wrong with the log is mended first; then run this again"


@dataclass(slots=True)
class RestorePlan:
    """`layout` is the new contents of each log, as in `FolderPlan`; `contents` are of the transactions that come back,
    after `log_end`.
    """

    log_end: int
    steps: list[Step] = field(default_factory=list)
    layout: dict[Path, list[Stretch]] = field(default_factory=dict)
    contents: LogContents = field(default_factory=LogContents)


def plan_restore(
    findings: Sequence[Finding], log_end: int, *, is_whole: bool, accepts_missing: bool = False
) -> RestorePlan:
    """Plans by a folder's findings; its log ends at `log_end`, and `is_whole` if nothing else has to be mended."""
    directory = Path(findings[0].path).parent
    by_path = {Path(finding.path): finding for finding in findings}
    lost = [(one, by_path.pop(one.paths[0])) for one in find_lost_ends(directory) if one.paths[0] in by_path]
    targets = _targets([cut for cut in find_cut_off_tails(directory) if cut.path in by_path], by_path, log_end)
    plan = RestorePlan(log_end)
    if targets and is_whole:
        _put_back(plan, targets, by_path)
    for path, finding in by_path.items():
        is_fitting = any(cut.path == path for cut in targets)
        if not is_fitting or not is_whole:
            why = f"{finding.code}: {finding.message}; {_MEND_FIRST if is_fitting else BY_HAND}"
            plan.steps.append(Step(Action.NONE, path, why, offset=finding.offset, last_offset=finding.last_offset))
    for end, finding in lost:
        plan.steps += _steps_for_lost_end(end, finding, accepts_missing=accepts_missing)
    return plan


def _steps_for_lost_end(end: LostEnd, finding: Finding, *, accepts_missing: bool) -> list[Step]:
    """Leaves the files that a start set aside as proof, until the user gives the records up."""
    why = f"{finding.code}: {finding.message}"
    if accepts_missing:
        return [Step(Action.SET_ASIDE, path, why) for path in end.paths]
    why += "; ask a replica; --accept-missing gives them up, until then this file stays"
    return [Step(Action.NONE, end.paths[0], why, offset=finding.offset, last_offset=finding.last_offset)]


def _targets(cuts: Sequence[CutOffTail], by_path: Mapping[Path, Finding], log_end: int) -> dict[CutOffTail, Path]:
    """Returns the files that can go back, in order, and the log that each is a part of. None if one that holds offsets
    after the log's end can't: records were appended since the cut, or two hold the same offsets, and which to keep is
    no choice of ours.
    """
    targets: dict[CutOffTail, Path] = {}
    logs = find_offset_files(cuts[0].path.parent, LOG_SUFFIX) if cuts else []
    cuts = [cut for cut in cuts if by_path[cut.path].last_offset >= log_end]  # other records have all of the others'
    if not logs or not cuts:
        return targets
    ranges = sorted((by_path[cut.path].offset, by_path[cut.path].last_offset) for cut in cuts)
    if ranges[0][0] < log_end or any(start <= last for (_, last), (start, _) in pairwise(ranges)):
        return targets
    base_offset, path = logs[-1]
    for cut in cuts:
        log = path.with_name(offset_file_name(cut.base_offset, LOG_SUFFIX))
        is_its_end = cut.base_offset == base_offset and cut.position == path.stat().st_size
        is_segment = cut.base_offset > base_offset and cut.position == 0
        is_between = cut.base_offset >= log_end and not any(start < cut.base_offset <= last for start, last in ranges)
        if log in targets.values() or not (is_its_end or (is_segment and is_between)):
            return {}
        targets[cut] = log
    return targets


def _put_back(plan: RestorePlan, targets: Mapping[CutOffTail, Path], by_path: Mapping[Path, Finding]) -> None:
    cuts = list(targets)
    with contextlib.ExitStack() as opened:
        files = []
        for number, cut in enumerate(cuts):
            file = open_salvaging(cut.path)
            opened.callback(file.close)
            files.append(LogFile(cut.base_offset if number else plan.log_end, cut.path, file))
        log_map = LogMap(files, KnownOffsets())
        kept = dict.fromkeys(cuts, 0)
        for piece in log_map.log:
            cut = cuts[log_map.file_of(piece.base_offset)]
            stretches = plan.layout.setdefault(targets[cut], [])
            if not stretches and targets[cut].exists():
                stretches.append(Stretch(targets[cut], 0, targets[cut].stat().st_size))
            stretches.append(Stretch(cuts[piece.file].path, piece.position, piece.end_position))
            for batch in log_map.read(piece):
                kept[cuts[piece.file]] += count_records([batch])
                plan.contents.take(batch)
        log_end = log_map.log[-1].end_offset
        for cut in cuts:
            finding = by_path[cut.path]
            given_up = (finding.records or 0) - kept[cut]
            why = f"{finding.code}: {finding.message}"
            at = finding.offset, finding.last_offset
            plan.steps.append(Step(Action.PUT_BACK, cut.path, why, -1, -1, *at, given_up=given_up))
        for hole in log_map.holes:
            if hole.start < log_end:
                plan.contents.pass_over(hole)
                why = f"{hole.reason}: {hole.evidence}"
                span = -1, -1, hole.start, hole.end - 1
                plan.steps.append(Step(Action.GIVE_UP, hole.path, why, *span, records=hole.records))
