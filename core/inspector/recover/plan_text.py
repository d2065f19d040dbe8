"""Says in words what a plan of `plog recover` is: each step, what all of them cost, and what else there is to know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from core.forensics.missing_offsets import offsets_text
from core.inspector.recover.recovery import root_of, unfinished_folders, unfitting_ends
from core.inspector.recover.recovery_plan import FolderPlan, Step

_NOT_DECODED = "records were not decoded, plog verify --deep does that"


def step_text(step: Step) -> str:
    """Says what is done, and where; on a line of their own what is lost by it; and why."""
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
    """Sums up, by partition those that lose something if there are several, and in all."""
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
    """Says what is lost for good, what is given up though sound, what nobody can tell, and what was not here before."""
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
    """Says which paths are links: whoever mends a link mends what it leads to."""
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
    """Says that the plan is one, and what carries it out; nothing if there is nothing to do."""
    if any(plan.doubts for plan in plans) and not accepts_visible:
        return ["nothing was changed; --apply --accept-visible does it"]
    return ["nothing was changed; --apply does it"] if any(plan.is_needed for plan in plans) else []
