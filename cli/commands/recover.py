"""`plog recover`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import say, say_failures
from cli.output import OutputFormat, OutputOption, show, write_rows
from cli.table import Row
from core.common.each_of import each_of
from core.common.errors import AccessError, UsageError

if TYPE_CHECKING:
    from core.inspector.recovery_plan import FolderPlan, RecoveryOptions, Step

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_NOT_DECODED = "records were not decoded, plog verify --deep does that"
_COLUMNS = [
    "action", "path", "position", "end_position", "offset", "last_offset", "records_lost", "records_given_up", "why",
]  # fmt: skip


@app.command()
def recover(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Partition folders or data directories.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Carry out the plan. Without it the plan is only shown.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan, as without --apply.")] = False,
    like_kafka: Annotated[
        bool, typer.Option("--like-kafka", help="End the log where the first damage begins, as Kafka's recovery does.")
    ] = False,
    fix_bits: Annotated[
        bool, typer.Option("--fix-bits", help="Correct single flipped bits that the checksum identifies.")
    ] = False,
    accept_visible: Annotated[
        bool,
        typer.Option(
            "--accept-visible",
            help="Show readers of committed records what may have been aborted, if nothing says whether it was.",
        ),
    ] = False,
    accept_missing: Annotated[
        bool,
        typer.Option(
            "--accept-missing",
            help="Give up offsets that are missing, and set aside the files that show that they are.",
        ),
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last recovery of each folder.")] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Repair what plog verify finds: a plan first, then --apply, then --undo if it was wrong.

    Sound batches keep their offsets, also after damage. Indexes, snapshots and checkpoints are made again. The earlier
    files stay beside the new ones as *.before-recovery-N. The exit code is 1 if there is something to do, or if
    something could not be repaired.

    \b
    Example:
      plog recover sample-data/damaged
    """
    from core.inspector.recovery_plan import RecoveryOptions
    from core.inspector.recovery_planner import plan_recovery

    if undo and (apply or dry_run or like_kafka or fix_bits or accept_visible or accept_missing):
        raise UsageError("--undo takes no other option")
    if undo:
        for path in paths:
            _undo(path)
        return
    options = RecoveryOptions(
        is_like_kafka=like_kafka, fixes_bits=fix_bits, accepts_visible=accept_visible, accepts_missing=accept_missing
    )
    failures: list[AccessError] = []
    plans = list(each_of(paths, lambda path: ((path, plan) for plan in plan_recovery(path, options)), failures))
    steps = [step for _, plan in plans for step in plan.steps]
    if output is OutputFormat.table:
        for step in steps:
            show(_text(step))
    else:
        write_rows(list(map(_row, steps)), _COLUMNS, output)
    failed = {error.where for error in failures}
    readable = [path for path in paths if str(path) not in failed]
    if steps or readable:
        _say_summary(steps)
    _say_links(paths, [plan for _, plan in plans])
    unfinished = [folder for path in paths if path.is_dir() for folder in _unfinished(path)]
    unfitting = {root: None for path in paths if path.is_dir() for root in _with_unfitting_ends(path)}
    for root in unfitting if not apply else ():
        say(
            f"{root}: a recovery was cut short before the checkpoints there, which lie beyond the logs; --apply does it"
        )
    for folder in unfinished if not apply else []:
        say(f"{folder}: a recovery was cut short there; --undo takes it back, --apply as well, and goes on then")
    if not apply:
        if any(plan.doubts for _, plan in plans) and not accept_visible:
            say("nothing was changed; --apply --accept-visible does it")
        elif any(plan.is_needed for _, plan in plans):
            say("nothing was changed; --apply does it")
        raise typer.Exit(say_failures(failures) or (1 if steps or unfinished or unfitting else 0))
    codes = list(each_of(readable, lambda path: [_apply(path, options)], failures))
    raise typer.Exit(max([say_failures(failures), *codes]))


def _say_links(paths: Sequence[Path], plans: Sequence[FolderPlan]) -> None:
    """Says which paths are links: whoever mends a link mends what it leads to."""
    for path in dict.fromkeys([*paths, *(plan.directory for plan in plans if plan.is_needed)]):
        if path.is_symlink():
            say(f"{path} is a link: what is mended is {path.resolve()}")


def _text(step: Step) -> str:
    """Says what is done, and where; on a line of their own what is lost by it; and why."""
    from core.log.hole import offsets_text

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


def _row(step: Step) -> Row:
    return {
        "action": step.action.value,
        "path": str(step.path),
        "position": step.position if 0 <= step.position < step.end_position else None,
        "end_position": step.end_position if 0 <= step.position < step.end_position else None,
        "offset": step.offset if step.offset >= 0 else None,
        "last_offset": step.last_offset if step.last_offset >= 0 else None,
        "records_lost": step.records,
        "records_given_up": step.given_up,
        "why": step.why,
    }


def _say_summary(steps: Sequence[Step]) -> None:
    """Sums up, by partition those that lose something if there are several, and in all."""
    if not steps:
        say(f"nothing to recover; {_NOT_DECODED}")
        return
    folders = list(dict.fromkeys(step.path.parent for step in steps))
    for folder in folders if len(folders) > 1 else []:
        losses = _losses([step for step in steps if step.path.parent == folder])
        if losses != _losses([]):
            say(f"{folder}: {losses}")
    say(f"{len(steps)} step{'s' * (len(steps) > 1)}, {_losses(steps)}; {_NOT_DECODED}")


def _losses(steps: Sequence[Step]) -> str:
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


def _apply(path: Path, options: RecoveryOptions) -> int:
    """Applies the plan, and gives the exit code. It is planned again: now nobody else may write."""
    from core.inspector.recovery import Recovery
    from core.inspector.recovery_planner import plan_recovery
    from core.inspector.segment_check import VerifyOptions
    from core.inspector.verify import verify

    root = _root_of(path)
    with Recovery(root, folder=path if root != path else None) as recovery:
        for folder in recovery.clear_unfinished(path):
            say(f"{folder}: a recovery that was cut short is taken back first")
        if recovery.fit_checkpoints(path):
            say(f"{root}: the checkpoints fit the logs now; a recovery was cut short before it came to them")
        plans = list(plan_recovery(path, options, is_locked=True))
        doubts = [step for plan in plans for step in plan.doubts]
        if doubts and not options.accepts_visible:
            for step in doubts:
                say(f"{step.path}: {step.why}")
            say(f"{path}: nothing was changed; with --accept-visible it is done")
            return 1
        recovery.apply(plans)
        left = sum(1 for _ in verify(path, options=VerifyOptions(is_locked=True)))
        shows_more = left and any(plan.is_needed for plan in plan_recovery(path, options, is_locked=True))
    if left:
        steps = [step for plan in plans for step in plan.steps if step.action.changes or step.missing]
        summary = f"recovered, {_losses(steps)}; " if any(step.action.changes for step in steps) else ""
        findings = f"{left} finding{'s' * (left > 1)} left"
        kept = f"; {_kept_where(plans, root)}" if any(plan.is_needed for plan in plans) else ""
        if shows_more:  # as a batch whose checksum was wrong has a wrong offset, too
            more = "of which some show only now: the same command once more goes on with them"
            say(f"{path}: {summary}{findings}, {more}{kept}")
        else:
            say(f"{path}: {summary}{findings} that this plan does not mend; see plog verify{kept}")
        if any(step.missing for step in steps):
            say("hint: if no replica has what is missing, --accept-missing gives it up")
        return 1
    if any(plan.is_needed for plan in plans):
        done = [step for plan in plans for step in plan.steps if step.action.changes]
        say(f"{path}: clean; {_losses(done)}; {_kept_where(plans, root)}")
    return 0


def _kept_where(plans: Sequence[FolderPlan], root: Path) -> str:
    """Says where the old files are: the data directory's checkpoints are made to fit the logs that were mended."""
    folders = [plan.directory for plan in plans if plan.is_needed]
    more = f" and {len(folders) - 1} more" * (len(folders) > 1)
    if root not in folders and any(root.glob("*.before-recovery-*")):
        more += f", and in {root}"
    return f"the files of before are in {folders[0]}{more}, *.before-recovery-*; plog recover --undo takes it back"


def _undo(path: Path) -> None:
    from core.inspector.recovery import Recovery, unfinished_folders
    from core.log.recovery_journal import JOURNAL

    root = _root_of(path)
    with Recovery(root, folder=path if root != path else None) as recovery:
        unfinished = unfinished_folders(path, root)
        journals = {journal.parent for journal in (*path.glob(JOURNAL), *path.glob(f"*/{JOURNAL}"))}
        count = recovery.undo(sorted({*journals, *unfinished}))
    if count:
        say(f"{path}: {count} file{'s' * (count != 1)} put back")
    elif unfinished:
        say(f"{path}: what a recovery that was cut short left is removed")
    elif journals:
        say(f"{path}: offsets that were given up are missing again")
    else:
        say(f"{path}: nothing to take back")


def _unfinished(path: Path) -> list[Path]:
    from core.inspector.recovery import unfinished_folders

    return unfinished_folders(path, _root_of(path))


def _with_unfitting_ends(path: Path) -> list[Path]:
    """Gives the data directory of the path, if its checkpoints don't fit what recoveries left."""
    from core.inspector.recovery import unfitting_ends

    root = _root_of(path)
    return [root] if unfitting_ends(path, root) else []


def _root_of(path: Path) -> Path:
    """Finds the data directory of a path that is one, or a partition's folder in one."""
    from core.log.file_names import holds_segments, locate_partition

    try:
        return locate_partition(path)[1] if holds_segments(path) else path
    except OSError:
        return path
