"""`plog recover`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import each_of, say, say_failures
from cli.output import OutputFormat, OutputOption, Row, write_rows
from core.common.errors import AccessError, UsageError

if TYPE_CHECKING:
    from core.inspector.recovery_plan import FolderPlan, RecoveryOptions, Step

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_COLUMNS = ["action", "path", "position", "end_position", "offset", "last_offset", "records_lost", "why"]


@app.command()
def recover(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Partition folders, data directories.")],
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without, only the plan is shown.")] = False,
    like_kafka: Annotated[
        bool, typer.Option("--like-kafka", help="End the log where the first damage begins, as Kafka's recovery does.")
    ] = False,
    fix_bits: Annotated[
        bool, typer.Option("--fix-bits", help="Correct a byte where the checksum says which one is wrong.")
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the last recovery of each folder back.")] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Mend what plog verify finds: a plan first, then --apply, then --undo if it was wrong.

    Sound batches keep their offsets, also behind damage; indexes, snapshots and checkpoints are made again. The files
    of before stay beside the new ones as *.before-recovery-N. Exit code 1 where there is something to do, or left.

    \b
    Example:
      plog recover sample-data/damaged
    """
    from core.inspector.recovery_plan import RecoveryOptions, plan_recovery

    if undo and (apply or like_kafka or fix_bits):
        raise UsageError("--undo takes no other option")
    if undo:
        for path in paths:
            _undo(path)
        return
    options = RecoveryOptions(is_like_kafka=like_kafka, fixes_bits=fix_bits)
    failures: list[AccessError] = []
    plans = list(each_of(paths, lambda path: ((path, plan) for plan in plan_recovery(path, options)), failures))
    steps = [step for _, plan in plans for step in plan.steps]
    if output is OutputFormat.table:
        for step in steps:
            print(_text(step))
    else:
        write_rows(list(map(_row, steps)), _COLUMNS, output)
    say(_summary(steps))
    _say_links(paths, [plan for _, plan in plans])
    if not apply:
        if any(plan.is_needed for _, plan in plans):
            say("nothing was changed; --apply does it")
        raise typer.Exit(say_failures(failures) or (1 if steps else 0))
    unread = {error.where for error in failures}
    codes = list(each_of([p for p in paths if str(p) not in unread], lambda path: [_apply(path, options)], failures))
    raise typer.Exit(max([say_failures(failures), *codes]))


def _say_links(paths: Sequence[Path], plans: Sequence[FolderPlan]) -> None:
    """Whoever mends a link mends what it leads to."""
    for path in dict.fromkeys([*paths, *(plan.directory for plan in plans if plan.is_needed)]):
        if path.is_symlink():
            say(f"{path} is a link: what is mended is {path.resolve()}")


def _text(step: Step) -> str:
    """What, where; on a line of their own what is lost by it; why."""
    lines = [f"{step.action.value} {step.path}"]
    details = []
    if step.position >= 0:
        is_range = step.end_position > step.position
        details.append(f"bytes {step.position} to {step.end_position - 1}" if is_range else f"byte {step.position}")
    if step.offset >= 0:
        details.append(f"offsets {step.offset} to {step.last_offset if step.last_offset >= 0 else 'the end'}")
    if step.records != 0:
        details.append("records lost: " + ("not known how many" if step.records is None else str(step.records)))
    if details:
        lines.append(f"    {', '.join(details)}")
    lines.append(f"    {step.why}")
    return "\n".join(lines)


def _row(step: Step) -> Row:
    return {
        "action": step.action.value,
        "path": str(step.path),
        "position": step.position if step.position >= 0 else None,
        "end_position": step.end_position if step.end_position >= 0 else None,
        "offset": step.offset if step.offset >= 0 else None,
        "last_offset": step.last_offset if step.last_offset >= 0 else None,
        "records_lost": step.records,
        "why": step.why,
    }


def _summary(steps: Sequence[Step]) -> str:
    if not steps:
        return "nothing to recover"
    known = sum(step.records or 0 for step in steps)
    more = ", and what can't be counted" if any(step.records is None for step in steps) else ""
    return f"{len(steps)} step{'s' * (len(steps) > 1)}, {known} record{'s' * (known != 1)} lost{more}"


def _apply(path: Path, options: RecoveryOptions) -> int:
    """The exit code. Planned again: now nobody else may write."""
    from core.inspector.recovery import Recovery
    from core.inspector.recovery_plan import plan_recovery
    from core.inspector.segment_check import VerifyOptions
    from core.inspector.verify import verify

    with Recovery(_root_of(path)) as recovery:
        plans = list(plan_recovery(path, options, is_locked=True))
        recovery.apply(plans)
        left = sum(1 for _ in verify(path, options=VerifyOptions(is_locked=True)))
    if left:
        say(f"{path}: recovered, {left} finding{'s' * (left > 1)} left that can't be mended; see plog verify")
        return 1
    if any(plan.is_needed for plan in plans):
        say(f"{path}: recovered, plog verify is clean; plog recover --undo takes it back")
    return 0


def _undo(path: Path) -> None:
    from core.inspector.recovery import Recovery
    from core.log.recovery_journal import JOURNAL

    directories = sorted({journal.parent for journal in (*path.glob(JOURNAL), *path.glob(f"*/{JOURNAL}"))})
    with Recovery(_root_of(path)) as recovery:
        count = recovery.undo(directories)
    say(f"{path}: {count} file{'s' * (count != 1)} put back" if count else f"{path}: nothing to take back")


def _root_of(path: Path) -> Path:
    """The data directory of a path that is one, or a partition's folder in one."""
    from core.log.file_names import LOG_SUFFIX, find_offset_files, locate_partition

    return locate_partition(path)[1] if find_offset_files(path, LOG_SUFFIX) else path
