"""`plog recover`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.findings_out import step_row
from cli.output import OUTPUT, Listing, OutputFormat
from cli.plog_command import command, new_app
from cli.terminal import say, say_failures, show
from core.common.command_option import argument, flag, option
from core.common.errors import AccessError, UsageError
from core.common.out_file import OutFile
from core.inspector.check.file_kind import skip_unreadable

if TYPE_CHECKING:
    from core.inspector.recover.recovery_plan import FolderPlan, RecoveryOptions

app = new_app()

_STEPS = Listing("action path position end_position offset last_offset records_lost records_given_up why")


@command(app, "plog recover sample-data/damaged", "plog recover sample-data/damaged --salvage-records salvaged.ndjson")
def recover(
    paths: list[Path] = argument("Partition folders or data directories.", metavar="PATH..."),
    apply: bool = flag("Carry out the plan. Without it the plan is only shown."),
    dry_run: bool = flag("Only show the plan, as without --apply."),
    like_kafka: bool = flag("End the log where the first damage begins, as Kafka's recovery does."),
    fix_bits: bool = flag("Correct single flipped bits that the checksum identifies."),
    accept_visible: bool = flag(
        "Make records visible to read_committed if it can't be told whether they were aborted."
    ),
    accept_missing: bool = flag("Give up missing offsets, and set aside the files that prove that they existed."),
    undo: bool = flag("Undo the last recovery of each folder."),
    salvage_records: Path | None = option(
        "Write records that can still be read in damaged bytes to a new file, as marked envelopes.", metavar="FILE"
    ),
    output: OutputFormat = OUTPUT,
) -> None:
    """Repair what plog verify finds: a plan first, then --apply, then --undo if it was wrong.

    Sound batches keep their offsets, also after damage. Indexes, snapshots and checkpoints are made again. The earlier
    files stay beside the new ones as *.before-recovery-N. The exit code is 1 if there is something to do, or if
    something could not be repaired.
    """
    from core.inspector.recover.recovery_plan import (
        RecoveryOptions,
        link_lines,
        step_text,
        summary_lines,
        unchanged_lines,
        unfinished_lines,
    )
    from core.inspector.recover.recovery_planner import plan_recovery

    if undo and (apply or dry_run or like_kafka or fix_bits or accept_visible or accept_missing or salvage_records):
        raise UsageError("--undo takes no other option")
    if salvage_records is not None:
        _ensure_new(salvage_records, like_kafka=like_kafka)
    if undo:
        for path in paths:
            _undo(path)
        return
    options = RecoveryOptions(
        is_like_kafka=like_kafka, fixes_bits=fix_bits, accepts_visible=accept_visible, accepts_missing=accept_missing
    )
    failures: list[AccessError] = []
    plans = list(skip_unreadable(paths, lambda path: ((path, plan) for plan in plan_recovery(path, options)), failures))
    steps = [step for _, plan in plans for step in plan.steps]
    if output is OutputFormat.table:
        for step in steps:
            show(step_text(step))
    else:
        _STEPS.write(list(map(step_row, steps)), output)
    failed = {error.where for error in failures}
    readable = [path for path in paths if str(path) not in failed]
    if steps or readable:
        _say_all(summary_lines(steps))
    all_plans = [plan for _, plan in plans]
    _say_all(link_lines(paths, all_plans))
    if salvage_records is not None:
        _salvage(all_plans, salvage_records)
    if not apply:
        unfinished = unfinished_lines(paths)
        _say_all(unfinished)
        _say_all(unchanged_lines(all_plans, accepts_visible=accept_visible))
        raise typer.Exit(say_failures(failures) or (1 if steps or unfinished else 0))
    codes = list(skip_unreadable(readable, lambda path: [_apply(path, options)], failures))
    raise typer.Exit(max([say_failures(failures), *codes]))


def _ensure_new(file: Path, *, like_kafka: bool) -> None:
    """Raises UsageError for a file that exists, or that `plog consume` would read."""
    if like_kafka:
        raise UsageError("--salvage-records goes without --like-kafka, which gives up records that plog consume reads")
    if file.is_file():
        raise UsageError(f"--salvage-records: {file} is there already", hint="name another file, or move it away")


def _salvage(plans: Sequence[FolderPlan], path: Path) -> None:
    """Writes the readable records that the plans lose, before the plans are applied. Raises AccessError."""
    from core.inspector.recover.salvage import salvage, salvaged_from

    plans = list({plan.directory.resolve(): plan for plan in plans}.values())  # a folder may be named twice
    steps = [step for plan in plans for step in salvaged_from(plan)]
    if not steps:
        return
    total = sum((step.records or 0) + step.given_up for step in steps)
    counted = f"{total:,}" + " and what can't be counted" * any(step.records is None for step in steps)
    count = unproven = 0
    file = OutFile(path)
    try:
        for line in (line for plan in plans for line in salvage(plan)):
            file.file.write(line.text.encode("utf-8", "surrogatepass"))
            count, unproven = count + 1, unproven + line.is_unproven
    except BaseException:
        file.discard()
        raise
    if count == 0:
        file.discard()
        say(f"none of {counted} records in damage can be read; {path} was not written")
        return
    file.end(is_whole=True)
    proof = "none of them proven" if unproven == count else f"{count - unproven:,} of them proven by a checksum"
    say(f"{path}: {count:,} of {counted} records in damage, {proof}; plog produce TOPIC {path} --format envelope")


def _say_all(lines: Sequence[str]) -> None:
    for line in lines:
        say(line)


def _apply(path: Path, options: RecoveryOptions) -> int:
    """Applies the plan, and returns the exit code. Plans again: now nobody else may write."""
    from core.inspector.check.segment_check import VerifyOptions
    from core.inspector.check.verify import verify
    from core.inspector.recover.recovery import Recovery
    from core.inspector.recover.recovery_plan import losses_text, root_of
    from core.inspector.recover.recovery_planner import plan_recovery

    root = root_of(path)
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
        summary = f"recovered, {losses_text(steps)}; " if any(step.action.changes for step in steps) else ""
        findings = f"{left} finding{'s' * (left > 1)} left"
        kept = f"; {_kept_where(plans, root, path)}" if any(plan.is_needed for plan in plans) else ""
        if shows_more:  # as a batch whose checksum was wrong has a wrong offset, too
            more = "some of which show only now: run the same command again to go on with them"
            say(f"{path}: {summary}{findings}, {more}{kept}")
        else:
            say(f"{path}: {summary}{findings} that this plan does not mend; see plog verify{kept}")
        if any(step.missing for step in steps):
            say("hint: if no replica has what is missing, --accept-missing gives it up")
        return 1
    if any(plan.is_needed for plan in plans):
        done = [step for plan in plans for step in plan.steps if step.action.changes]
        say(f"{path}: clean; {losses_text(done)}; {_kept_where(plans, root, path)}")
    return 0


def _kept_where(plans: Sequence[FolderPlan], root: Path, path: Path) -> str:
    """Says where the old files are: recovery also fits the data directory's checkpoints to the mended logs."""
    folders = [plan.directory for plan in plans if plan.is_needed]
    more = f" and {len(folders) - 1} more" * (len(folders) > 1)
    if root not in folders and any(root.glob("*.before-recovery-*")):
        more += f", and in {root}"
    undo = f"plog recover {shlex.quote(str(path))} --undo"
    return f"the files of before are in {folders[0]}{more}, *.before-recovery-*; {undo} takes it back"


def _undo(path: Path) -> None:
    from core.forensics.recovery_journal import JOURNAL
    from core.inspector.recover.recovery import Recovery
    from core.inspector.recover.recovery_plan import root_of, unfinished_folders

    root = root_of(path)
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
